// SPDX-License-Identifier: Apache-2.0
// The slices of an operation as a foreign provider takes them: groups of rectangles that one call
// can compute, because they have one band and share neither queries nor keys.
#ifndef CPATTN_KERNELS_GROUPS_H
#define CPATTN_KERNELS_GROUPS_H

#include "kernels/cpattn_provider.h"
#include "kernels/provider.h"
#include "kernels/rows.h"

struct group {
    int64_t band_left, band_right; // as in cpattn_attention
    bool dense;
    // Between rectangles, where it is dense: first rows, and elements of the bias.
    int64_t q_stride, kv_stride, bias_stride;
    int32_t count;
    struct cpattn_rectangle *rectangles;
    struct packed_rows q, kv; // one run for each rectangle
    // While it is built.
    int32_t room;
};

struct groups {
    struct group *list;
    int32_t count, room;
};

// Groups in the order of their first slices. With `varlen` rectangles of one group may have any
// lengths, else all groups are dense. Slices without a visible pair are in none. RESOURCE_EXHAUSTED
// when memory is short; groups_fini() is due whatever is returned.
enum status groups_build(struct groups *g, const struct attention_op *op, bool varlen,
                         struct error *error) MUST_CHECK;
void groups_fini(struct groups *g);

#endif
