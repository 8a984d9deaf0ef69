// SPDX-License-Identifier: Apache-2.0
// The window: the part of a plan's memory that other ranks write to. It has the buffers that
// exchanges receive into, and the staging memory of regions in several pieces. With
// transport/peer.h all of this is in memory that the peers have mapped.
#ifndef CPATTN_RANK_CUDA_WINDOW_H
#define CPATTN_RANK_CUDA_WINDOW_H

#include "plan/plan.h"
#include "transport/peer.h"

// Lives as long as the rank; is of one plan at a time.
struct window {
    int64_t *offsets; // of the plan's buffers in the window, by index; -1: lies elsewhere
    int buffers_max;
    int64_t staging; // of the packed regions
    size_t bytes;    // of the whole
    int64_t *landings;
    int landings_max;
    struct peer_landings told;
};

// Lays a plan's window out. RESOURCE_EXHAUSTED when memory is short, or for a window that exceeds
// the address space.
enum status window_set(struct window *w, const struct plan *plan, struct error *error) MUST_CHECK;
void window_fini(struct window *w);

// Bytes that the packed regions of an exchange take, send before receive, transfer by transfer.
int64_t window_packed_bytes(const struct plan *plan, const struct op *op);

// The same of the largest exchange.
int64_t window_staging_bytes(const struct plan *plan);

// What a packed region takes; 0 for a region in one piece, which travels from where it is.
int64_t window_region_packed(const struct region *r);

#endif
