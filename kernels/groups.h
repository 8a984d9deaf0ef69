// SPDX-License-Identifier: Apache-2.0
// Groups the slices of an operation into calls of a provider in a shared object. The rectangles of
// a group have the same band and share neither queries nor keys, so that one call computes them.
#ifndef CPATTN_KERNELS_GROUPS_H
#define CPATTN_KERNELS_GROUPS_H

#include "kernels/cpattn_provider.h"
#include "kernels/provider.h"
#include "kernels/rows.h"

struct group {
    int64_t band_left, band_right; // as in cpattn_attention
    bool dense;
    // Dense: distances between consecutive rectangles, in rows and in elements of the bias.
    int64_t q_stride, kv_stride, bias_stride;
    int32_t count;
    struct cpattn_rectangle *rectangles;
    struct packed_rows q, kv; // one run of rows for each rectangle
    int32_t room;             // private: capacity of `rectangles`
};

struct groups {
    struct group *list;
    int32_t count, room;
};

// Builds the groups in the order of their first slices. With `varlen` the rectangles of a group may
// have different lengths; otherwise all groups are dense. Slices without a visible pair are left
// out. RESOURCE_EXHAUSTED: out of memory. Call groups_fini() in any case.
enum status groups_build(struct groups *g, const struct attention_op *op, bool varlen,
                         struct error *error) MUST_CHECK;
void groups_fini(struct groups *g);

#endif
