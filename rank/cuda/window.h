// SPDX-License-Identifier: Apache-2.0
// The window: the part of a plan's memory that other ranks write to. It has the buffers that
// exchanges receive into, and the staging memory of regions in several pieces. With
// transport/peer.h the peers have mapped this memory.
#ifndef CPATTN_RANK_CUDA_WINDOW_H
#define CPATTN_RANK_CUDA_WINDOW_H

#include "plan/plan.h"
#include "transport/peer.h"

// Created once per rank; for one plan at a time.
struct window {
    int64_t
        *offsets; // offsets of the plan's buffers in the window, by index; -1: not in the window
    int buffers_max;
    int64_t staging; // offset of the packed regions
    size_t bytes;    // size of the window
    int64_t *landings;
    int landings_max;
    struct peer_landings told;
};

// Computes the layout of a plan's window. RESOURCE_EXHAUSTED: memory is short, or the window
// exceeds the address space.
enum status window_set(struct window *w, const struct plan *plan, struct error *error) MUST_CHECK;
void window_fini(struct window *w);

// Bytes of the packed regions of an exchange, send before receive, transfer by transfer.
int64_t window_packed_bytes(const struct plan *plan, const struct op *op);

// The same for the largest exchange.
int64_t window_staging_bytes(const struct plan *plan);

// Bytes of a packed region; 0 for a region in one piece, which is not packed.
int64_t window_region_packed(const struct region *r);

#endif
