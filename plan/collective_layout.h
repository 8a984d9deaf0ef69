// SPDX-License-Identifier: Apache-2.0
// Plans of collectives. All ranks have the same number of exchanges, some of them empty, so that
// the n-th exchanges of all ranks match.
//
// Sums. A rank adds received elements to its own. `started`: the destination `sum` holds a partial
// result. Until then, a partial sum is received directly into the destination, and the rank's own
// elements are added there, without a copy. In place, or once the destination holds a partial
// result, elements are received into a temporary buffer first.
#ifndef CPATTN_PLAN_COLLECTIVE_LAYOUT_H
#define CPATTN_PLAN_COLLECTIVE_LAYOUT_H

#include "plan/builder.h"

// State while a plan is built.
struct layout {
    const struct collective *c;
    struct builder *b;
    int rank, size, element; // size: ranks; element: bytes of one
    int32_t send_buffer, receive_buffer;
    int64_t send_first, receive_first; // first elements of send and receive in their buffers
    int step;                          // number of the next exchange

    // Of a reduction.
    struct region sum;    // partial results
    struct region own;    // the rank's own elements, of the same number
    bool started;         // `sum` holds a partial result
    bool together;        // `sum` and `own` are the same memory
    int32_t temporary[2]; // used alternately; each holds the largest message
    int turn;             // index of the one used last
};

// A range of elements.
struct layout_range {
    int64_t first, count;
};

// ---- regions ----

// Elements [first, first + count) of a buffer, of the rank's send, of its receive, of a region.
struct region layout_region(const struct layout *l, int32_t buffer, int64_t first, int64_t count);
struct region layout_sent(const struct layout *l, int64_t first, int64_t count);
struct region layout_received(const struct layout *l, int64_t first, int64_t count);
struct region layout_part(const struct layout *l, struct region whole, int64_t first,
                          int64_t count);

// Block `block` of a send or receive that has one block of `count` elements for each rank.
struct region layout_block_sent(const struct layout *l, int block);
struct region layout_block_received(const struct layout *l, int block);

// The elements of chunks [from, to) of n elements, which are divided into chunks as evenly as
// possible.
struct layout_range layout_chunks(int64_t n, int from, int to, int chunks);

// Number of segments in which elements are summed. The sum of one segment is computed while the
// next segment is sent, so only the last sum adds time. Each segment costs one more exchange. One
// more segment pays if it shortens the last sum by more than an exchange costs.
int layout_segments(const struct layout *l, int64_t elements);

// number modulo size, 0..size-1
int layout_modulo(int number, int size);

// Creates a scratch buffer of `count` elements; 0 elements: creates none.
int32_t layout_scratch(struct layout *l, const char *name, int64_t count);

// Adds the buffers of send and receive.
void layout_init(struct layout *l);

// ---- exchanges, each a step of its own ----

void layout_exchange(struct layout *l, const struct transfer *transfers, int count);

// Sends to one rank and receives from another; -1: none.
void layout_shift(struct layout *l, int to, struct region send, int from, struct region receive);

// Returns a transfer that copies the rank's own elements to their place in the result; empty if
// they are already there.
struct transfer layout_own_copy(const struct layout *l, struct region from, struct region to);

// Broadcast along a binomial tree from `root`, which has the elements in `source` and copies them
// to `data` while it sends.
void layout_broadcast(struct layout *l, int root, struct region source, struct region data);

// All-gather of n elements among the first `size` ranks, a power of 2: rank i has chunk i of
// `size`, and gets all chunks.
void layout_double_up(struct layout *l, struct region data, int64_t n, int size);

// ---- reductions (plan/collective_reduce.c) ----

void layout_all_reduce(struct layout *l, enum collective_algorithm algorithm);
void layout_reduce_scatter(struct layout *l, enum collective_algorithm algorithm);
void layout_reduce(struct layout *l, enum collective_algorithm algorithm);

#endif
