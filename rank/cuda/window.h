// SPDX-License-Identifier: Apache-2.0
// The window: the part of a plan's memory that other ranks write to. It has the buffers that
// exchanges receive into, and staging memory. With transport/peer.h the peers have mapped this
// memory, and most exchanges copy regions in several pieces as they lie. Other transports need them
// packed, one piece behind the other, in the staging memory; so do exchanges of very many or very
// small pieces.
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
    struct message_place *landings;
    int landings_max;
    struct peer_landings told;
};

// Computes the layout of a plan's window. RESOURCE_EXHAUSTED: memory is short, or the window
// exceeds the address space.
enum status window_set(struct window *w, const struct plan *plan, struct error *error) MUST_CHECK;
void window_fini(struct window *w);

// Bytes of staging memory for the largest exchange. peer: by transport/peer.h.
int64_t window_staging_bytes(const struct plan *plan, bool peer);

// Where the regions in several pieces of an exchange are packed in the staging memory. What goes to
// one peer lies together, in the order of the transfers, and so does what comes from one peer. A
// copy within the rank has one place for both sides.
struct staging {
    bool none;                       // regions travel as they lie
    int64_t next[2][WORLD_SIZE_MAX]; // offset of the next region: received, sent
    int64_t bytes;                   // of all
};

void staging_start(struct staging *s, const struct plan *plan, const struct op *op, bool peer);

// How a region in pieces lies.
struct strides region_strides(const struct region *r);

// The offset of one side of the next transfer; -1: it is not packed there, because it is in one
// piece, or because the other side of a copy within the rank is, or because nothing is. Both sides
// of each transfer in their order, the sent side first.
int64_t staging_take(struct staging *s, const struct plan *plan, const struct transfer *t,
                     bool sends);

#endif
