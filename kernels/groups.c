// SPDX-License-Identifier: Apache-2.0
#include "kernels/groups.h"

#include <stdlib.h>
#include <string.h>

// Number of newest groups that are searched for one that can take another rectangle. Searching all
// would be quadratic in the number of rectangles, which can be thousands.
#define LOOK_BACK 64

static bool list_grow(void **list, int32_t count, int32_t *room, size_t size)
{
    if (count < *room)
        return true;
    int32_t larger = *room ? 2 * *room : 4;
    void *grown = realloc(*list, (size_t)larger * size);
    if (!grown)
        return false;
    memset((char *)grown + (size_t)*room * size, 0, (size_t)(larger - *room) * size);
    *list = grown;
    *room = larger;
    return true;
}

// Converts the bounds of a slice to the band of struct cpattn_attention; -1: no bound. A bound that
// hides no pair becomes -1, with one exception: band_right 0 of a rectangle with one key stays 0,
// so that it joins the group of longer causal rectangles. False if the first query sees no key, or
// no query sees the first key: plans have no such slices.
static bool band_of(const struct slice *s, int64_t *left, int64_t *right)
{
    bool left_bound = s->left < SLICE_UNBOUNDED, right_bound = s->right < SLICE_UNBOUNDED;
    *left = left_bound ? s->left + s->offset : -1;
    *right = right_bound ? s->right - s->offset : -1;
    if ((left_bound && *left < 0) || (right_bound && *right < 0))
        return false;
    if (*left >= s->q_len - 1)
        *left = -1;
    if (*right > 0 && *right >= s->kv_len - 1)
        *right = -1;
    return true;
}

// True if two runs of rows, `step` apart, share a row.
static bool rows_meet(int64_t a, int64_t a_len, int64_t b, int64_t b_len, int64_t step)
{
    return (a - b) % step == 0 && a < b + b_len * step && b < a + a_len * step;
}

static bool rectangles_meet(const struct cpattn_rectangle *a, const struct cpattn_rectangle *b,
                            int64_t step)
{
    return rows_meet(a->q_row, a->q_len, b->q_row, b->q_len, step) ||
           rows_meet(a->kv_row, a->kv_len, b->kv_row, b->kv_len, step);
}

// True if the group stays dense with the rectangle behind its last one.
static bool continues(const struct group *g, const struct cpattn_rectangle *r)
{
    const struct cpattn_rectangle *first = &g->rectangles[0], *last = &g->rectangles[g->count - 1];
    if (r->q_len != first->q_len || r->kv_len != first->kv_len || r->q_row <= last->q_row ||
        r->kv_row <= last->kv_row)
        return false;
    return g->count == 1 ||
           (r->q_row - last->q_row == g->q_stride && r->kv_row - last->kv_row == g->kv_stride &&
            r->bias - last->bias == g->bias_stride);
}

// True if the rectangle may join the group.
static bool takes(const struct group *g, const struct cpattn_rectangle *r, int64_t left,
                  int64_t right, int64_t step, bool varlen)
{
    if (g->band_left != left || g->band_right != right || (!varlen && !continues(g, r)))
        return false;
    for (int32_t i = 0; i < g->count; i++)
        if (rectangles_meet(&g->rectangles[i], r, step))
            return false;
    return true;
}

static bool group_add(struct group *g, struct cpattn_rectangle r, int64_t step)
{
    if (!list_grow((void **)&g->rectangles, g->count, &g->room, sizeof(*g->rectangles)))
        return false;
    g->dense = g->count == 0 || (g->dense && continues(g, &r));
    if (g->count == 1) {
        g->q_stride = r.q_row - g->rectangles[0].q_row;
        g->kv_stride = r.kv_row - g->rectangles[0].kv_row;
        g->bias_stride = r.bias - g->rectangles[0].bias;
    }
    r.q_packed = g->q.total;
    r.kv_packed = g->kv.total;
    g->q.total += r.q_len;
    g->kv.total += r.kv_len;
    g->q.row_step = g->kv.row_step = step;
    g->rectangles[g->count++] = r;
    return true;
}

static bool refuse_slice(const struct slice *s, struct error *error)
{
    error_set(error, STATUS_INTERNAL,
              "a slice of %lld queries and %lld keys begins with a query or key that nothing sees",
              (long long)s->q_len, (long long)s->kv_len);
    return false;
}

static bool slice_add(struct groups *g, const struct attention_op *op, const struct slice *s,
                      bool varlen, struct error *error)
{
    const struct attention_shape *shape = &op->shape;
    struct cpattn_rectangle r = {
        .q_row = s->q_row,
        .q_len = s->q_len,
        .kv_row = s->kv_row,
        .kv_len = s->kv_len,
        .bias = op->bias ? s->bias_row * shape->bias_row_stride + s->bias_column : 0};
    int64_t left, right;
    if (!band_of(s, &left, &right))
        return refuse_slice(s, error);
    for (int32_t i = g->count - 1; i >= 0 && i >= g->count - LOOK_BACK; i--)
        if (takes(&g->list[i], &r, left, right, shape->row_step, varlen))
            return group_add(&g->list[i], r, shape->row_step);
    if (!list_grow((void **)&g->list, g->count, &g->room, sizeof(*g->list)))
        return false;
    g->list[g->count] = (struct group){.band_left = left, .band_right = right};
    return group_add(&g->list[g->count++], r, shape->row_step);
}

// Makes the runs of the packed rows of a group, one for each rectangle.
static bool runs_make(struct group *g)
{
    struct row_run *q = calloc((size_t)g->count, sizeof(*q));
    struct row_run *kv = calloc((size_t)g->count, sizeof(*kv));
    g->q.runs = q;
    g->kv.runs = kv;
    if (!q || !kv)
        return false;
    g->q.run_count = g->kv.run_count = g->count;
    for (int32_t i = 0; i < g->count; i++) {
        const struct cpattn_rectangle *r = &g->rectangles[i];
        q[i] = (struct row_run){r->q_row, r->q_packed, r->q_len};
        kv[i] = (struct row_run){r->kv_row, r->kv_packed, r->kv_len};
    }
    return true;
}

enum status groups_build(struct groups *g, const struct attention_op *op, bool varlen,
                         struct error *error)
{
    struct error reason = {0};
    bool fine = true;
    *g = (struct groups){0};
    for (int32_t i = 0; i < op->slice_count && fine; i++)
        if (slice_pairs(&op->slices[i]) > 0)
            fine = slice_add(g, op, &op->slices[i], varlen, &reason);
    for (int32_t i = 0; i < g->count && fine; i++)
        fine = runs_make(&g->list[i]);
    if (fine)
        return STATUS_OK;
    if (reason.status != STATUS_OK)
        return error_set(error, reason.status, "%s", reason.text);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d slices", op->slice_count);
}

void groups_fini(struct groups *g)
{
    for (int32_t i = 0; i < g->count; i++) {
        free(g->list[i].rectangles);
        free((void *)(uintptr_t)g->list[i].q.runs);
        free((void *)(uintptr_t)g->list[i].kv.runs);
    }
    free(g->list);
    *g = (struct groups){0};
}
