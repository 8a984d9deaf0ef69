// SPDX-License-Identifier: Apache-2.0
// The window: the part of a plan's memory that other ranks write to. It has the buffers that
// exchanges receive into, and staging memory. With transport/peer.h the peers have mapped the
// window, and most exchanges copy regions in several pieces directly, as strided copies. In other
// transports, and in exchanges of very many or very small pieces, the pieces of a region are packed
// contiguously in the staging memory.
#ifndef CPATTN_RANK_CUDA_WINDOW_H
#define CPATTN_RANK_CUDA_WINDOW_H

#include "plan/plan.h"
#include "transport/peer.h"

// One per rank; holds one plan at a time.
struct window {
    int64_t *offsets; // by buffer of the plan: offset in the window; -1: not in the window
    int buffers_max;
    int64_t staging;                // offset of the staging memory
    size_t bytes;                   // size of the window
    struct message_place *landings; // destinations of all received messages, peer by peer
    int landings_max;
    struct peer_landings told; // the announcement; refers to `landings`
};

// Computes the layout of a plan's window, and the announcement without keep_bytes and patient.
// RESOURCE_EXHAUSTED: memory is short, or the window exceeds the address space.
enum status window_set(struct window *w, const struct plan *plan, struct error *error) MUST_CHECK;
void window_fini(struct window *w);

// Bytes of staging memory for the largest exchange. `peer`: the transport is transport/peer.h.
int64_t window_staging_bytes(const struct plan *plan, bool peer);

// Layout of the staging memory for one exchange: the packed places of its regions in several
// pieces. Regions sent to one peer are adjacent, in the order of the transfers; so are regions
// received from one peer. A local copy has one place for both sides.
struct staging {
    bool none;                       // nothing is packed
    int64_t next[2][WORLD_SIZE_MAX]; // by peer: offset of its next region, received and sent
    int64_t bytes;                   // total
};

void staging_start(struct staging *s, const struct plan *plan, const struct op *op, bool peer);

// The strides of a region; zeroed: it is in one piece.
struct strides region_strides(const struct region *r);

// Returns the staging offset of one side of the next transfer; -1: this side is not packed, because
// nothing is packed, the region is in one piece, or it is a local copy whose other side is in one
// piece. Call it for all transfers in order, for each first with `sends`, then without.
int64_t staging_take(struct staging *s, const struct plan *plan, const struct transfer *t,
                     bool sends);

#endif
