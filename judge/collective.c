// SPDX-License-Identifier: Apache-2.0
#include "judge/collective.h"

#include <math.h>
#include <string.h>

#include "judge/digest.h"

// ---- the view -----------------------------------------------------------------------------------

static void block_add(struct collective_view *v, int source, int64_t at, int64_t count)
{
    v->source[v->blocks] = source;
    v->at[v->blocks] = at;
    v->first[v->blocks + 1] = v->first[v->blocks] + count;
    v->blocks++;
}

// Adds the blocks of an all_to_all(v): one message from each rank.
static void messages_add(struct collective_view *v, const struct collective *c, int rank)
{
    for (int from = 0; from < c->world_size; from++) {
        int64_t at = 0;
        for (int to = 0; to < rank; to++)
            at += collective_message(c, from, to);
        block_add(v, from, at, collective_message(c, from, rank));
    }
}

static void blocks_set(struct collective_view *v, const struct collective *c, int rank)
{
    switch (c->operation) {
    case COLLECTIVE_REDUCE_SCATTER:
        block_add(v, -1, rank * c->count, c->count);
        break;
    case COLLECTIVE_ALL_GATHER:
        for (int from = 0; from < c->world_size; from++)
            block_add(v, from, 0, c->count);
        break;
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_TO_ALLV:
        messages_add(v, c, rank);
        break;
    case COLLECTIVE_BROADCAST:
        block_add(v, c->root, 0, c->count);
        break;
    case COLLECTIVE_SEND_RECEIVE:
        block_add(v, (rank + c->world_size - 1) % c->world_size, 0, c->count);
        break;
    case COLLECTIVE_REDUCE:
        block_add(v, -1, 0, rank == c->root ? c->count : 0);
        break;
    default:
        block_add(v, -1, 0, c->count);
        break;
    }
}

// Limit of an element's error, relative to the sum of the absolute terms: one rounding for each
// addition and one for the division of an average. 1e-12 covers the reference's own fp64 error.
static double bound_of(const struct collective_view *v)
{
    int roundings = v->world_size - 1 + (v->reduction == REDUCTION_AVG && v->world_size > 1);
    return pow(1 + ldexp(1, -view_precision(v)), roundings) - 1 + 1e-12;
}

void collective_view_set(struct collective_view *v, const struct collective *c, int rank)
{
    *v = (struct collective_view){.rank = rank,
                                  .world_size = c->world_size,
                                  .element = (int32_t)c->dtype,
                                  .reduction = collective_reduces(c) ? (int32_t)c->reduction : 0,
                                  .specials = c->specials,
                                  .seed = c->seed};
    v->bound = bound_of(v);
    blocks_set(v, c, rank);
}

// ---- elements -----------------------------------------------------------------------------------

static enum case_dtype dtype_of(int32_t element)
{
    return element == ELEMENT_FP16 ? DTYPE_FP16 : element == ELEMENT_BF16 ? DTYPE_BF16 : DTYPE_FP32;
}

union view_number collective_element(const struct collective_view *v, const void *data,
                                     int64_t index)
{
    union view_number number;
    float value;
    if (view_is_real(v)) {
        dtype_read(dtype_of(v->element), data, index, 1, &value);
        number.real = (double)value;
        return number;
    }
    number.whole = v->element == ELEMENT_INT32   ? ((const int32_t *)data)[index]
                   : v->element == ELEMENT_INT64 ? ((const int64_t *)data)[index]
                                                 : ((const uint8_t *)data)[index];
    return number;
}

// True if element `index`, of a real dtype, has the bits of the NaN that inputs contain.
static bool is_drawn_nan(const struct collective_view *v, const void *data, int64_t index)
{
    uint32_t bits = v->element == ELEMENT_FP32 ? ((const uint32_t *)data)[index]
                                               : ((const uint16_t *)data)[index];
    return bits == view_nan_bits(v);
}

// Number of elements that are drawn, read or written at a time.
#define PIECE 256

// Writes elements [first, first + count) of the rank's send, in their memory format. At most PIECE
// elements.
static void drawn_write(const struct collective_view *v, int64_t first, int64_t count, void *data)
{
    float values[PIECE];
    for (int64_t i = 0; i < count; i++) {
        union view_number number = view_drawn(v, v->rank, first + i);
        if (view_is_real(v))
            values[i] = (float)number.real;
        else if (v->element == ELEMENT_INT32)
            ((int32_t *)data)[i] = (int32_t)number.whole;
        else if (v->element == ELEMENT_INT64)
            ((int64_t *)data)[i] = number.whole;
        else
            ((uint8_t *)data)[i] = (uint8_t)number.whole;
    }
    if (view_is_real(v))
        dtype_write(dtype_of(v->element), values, count, data);
}

void collective_fill(const struct collective *c, int rank, void *send)
{
    struct collective_view v;
    int64_t count = collective_send_count(c, rank);
    int bytes = collective_element_bytes(c->dtype);
    collective_view_set(&v, c, rank);
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t some = count - first < PIECE ? count - first : PIECE;
        drawn_write(&v, first, some, (char *)send + first * bytes);
    }
}

// ---- the verdict --------------------------------------------------------------------------------

// With fewer elements than this, the twin's RMS error is not a reliable limit.
#define TWIN_ELEMENTS_MIN 64

double collective_expected(const struct collective_view *v, int64_t index)
{
    struct view_origin origin = view_origin_of(v, index);
    return view_is_real(v) ? view_right_real(v, origin).value : (double)view_right_whole(v, origin);
}

double collective_sent(const struct collective_view *v, int64_t index)
{
    union view_number number = view_drawn(v, v->rank, index);
    return view_is_real(v) ? number.real : (double)number.whole;
}

// Number of standard deviations in the limit of the slope.
#define SLOPE_DEVIATIONS 4

// Rounding errors of products of a few numbers near 1 are correlated. The twin's slope shows this
// correlation; the limit includes the slope times this factor.
#define SLOPE_TWIN 2

// Slope of averages that are computed like NCCL's: it multiplies by 1/P, rounded to the dtype,
// before or after the sum over P ranks. 0 for other reductions.
static double slope_average(const struct collective_view *v)
{
    double ranks = v->world_size;
    return v->reduction == REDUCTION_AVG ? fabs(view_rounded(v, 1 / ranks) * ranks - 1) : 0;
}

static double slope_limit(const struct collective_view *v, const struct view_tally *t)
{
    double honest = v->element == ELEMENT_BF16 ? 3e-4 : v->element == ELEMENT_FP16 ? 1e-4 : 3e-6;
    double elements = t->chance4 > 0 ? fmax(1, t->chance2 * t->chance2 / t->chance4) : 1;
    double chance = (1 + 6 / sqrt(elements)) * sqrt(t->chance2) / t->right2;
    double alike = SLOPE_TWIN * fabs(t->twin_along) / t->right2;
    return honest + slope_average(v) + SLOPE_DEVIATIONS * chance + alike;
}

static void real_finish(const struct collective_view *v, const struct view_tally *t,
                        struct figures *f)
{
    double n = (double)f->elements;
    if (n == 0 || t->right2 == 0)
        return;
    f->rmse_rel = sqrt(t->error2 / t->right2);
    f->twin_rel = sqrt(t->twin2 / t->right2);
    f->rmse_limit =
        n < TWIN_ELEMENTS_MIN ? sqrt(t->bound2 / t->right2) : (1.5 + 6 / sqrt(n)) * f->twin_rel;
    f->slope = t->along / t->right2;
    f->slope_limit = n < TWIN_ELEMENTS_MIN ? INFINITY : slope_limit(v, t);
    if (f->rmse_rel > f->rmse_limit)
        f->broken |= RULE_RMSE;
    if (fabs(f->slope) > f->slope_limit)
        f->broken |= RULE_SLOPE;
}

void collective_figures(const struct collective_view *v, const struct view_tally *tally,
                        struct figures *f)
{
    f->elements = f->judged = v->first[v->blocks];
    f->mismatches = tally->mismatches;
    f->nonfinite = tally->nonfinite;
    f->max_abs = tally->max_abs;
    f->worst_element = tally->worst;
    f->broken |= tally->mismatches > 0 ? RULE_ELEMENT : 0;
    f->broken |= tally->nonfinite > 0 ? RULE_NONFINITE : 0;
    if (tally->mismatches > 0) {
        f->first_bad = (struct element){.position = tally->first_bad};
        f->first_bad_expected = collective_expected(v, tally->first_bad);
    }
    if (view_is_real(v))
        real_finish(v, tally, f);
}

void collective_judge_receive(const struct collective *c, int rank, const void *receive,
                              struct figures *figures)
{
    struct collective_view v;
    struct view_tally tally = {.first_bad = INT64_MAX};
    float got[PIECE];
    collective_view_set(&v, c, rank);
    int64_t count = v.first[v.blocks];
    for (int64_t i = 0; i < count; i++) {
        int64_t left = count - i;
        struct view_origin origin = view_origin_of(&v, i);
        if (view_is_real(&v) && i % PIECE == 0)
            dtype_read(dtype_of(v.element), receive, i, left < PIECE ? left : PIECE, got);
        if (view_is_real(&v))
            view_tally_real(&v, &tally, i, (double)got[i % PIECE], is_drawn_nan(&v, receive, i),
                            view_right_real(&v, origin));
        else
            view_tally_whole(&tally, i, collective_element(&v, receive, i).whole,
                             view_right_whole(&v, origin));
    }
    collective_figures(&v, &tally, figures);
    if (tally.mismatches > 0) {
        union view_number bad = collective_element(&v, receive, tally.first_bad);
        figures->first_bad_got = view_is_real(&v) ? bad.real : (double)bad.whole;
    }
}

void collective_judge_send(const struct collective *c, int rank, const void *send,
                           const void *receive, struct figures *figures)
{
    struct collective_view v;
    int bytes = collective_element_bytes(c->dtype);
    const char *begin = receive, *end = begin;
    _Alignas(8) char right[PIECE * 8]; // the elements as they were drawn
    collective_view_set(&v, c, rank);
    if (receive)
        end += collective_receive_count(c, rank) * bytes;
    figures->elements = figures->judged = collective_send_count(c, rank);
    for (int64_t i = 0; i < figures->elements; i++) {
        const char *at = (const char *)send + i * bytes;
        if (i % PIECE == 0)
            drawn_write(&v, i, figures->elements - i < PIECE ? figures->elements - i : PIECE,
                        right);
        if (receive && at >= begin && at < end)
            continue;
        if (memcmp(at, right + i % PIECE * bytes, (size_t)bytes) == 0)
            continue;
        figures->broken |= RULE_PADDING;
        if (figures->mismatches++ > 0)
            continue;
        union view_number bad = collective_element(&v, send, i);
        figures->first_bad = (struct element){.position = i};
        figures->first_bad_got = view_is_real(&v) ? bad.real : (double)bad.whole;
        figures->first_bad_expected = collective_sent(&v, i);
    }
}

// ---- the table ----------------------------------------------------------------------------------

static enum status host_set(void *queue, void *data, int value, size_t bytes, struct error *error)
{
    (void)queue, (void)error;
    memset(data, value, bytes);
    return STATUS_OK;
}

static enum status host_read(void *queue, const void *data, size_t bytes, void *to,
                             struct error *error)
{
    (void)queue, (void)error;
    memcpy(to, data, bytes);
    return STATUS_OK;
}

static enum status host_fill(void *queue, const struct collective *c, int rank, void *send,
                             struct error *error)
{
    (void)queue, (void)error;
    collective_fill(c, rank, send);
    return STATUS_OK;
}

static enum status host_receive(void *queue, const struct collective *c, int rank,
                                const void *receive, struct figures *figures, struct error *error)
{
    (void)queue, (void)error;
    collective_judge_receive(c, rank, receive, figures);
    return STATUS_OK;
}

static enum status host_send(void *queue, const struct collective *c, int rank, const void *send,
                             const void *receive, struct figures *figures, struct error *error)
{
    (void)queue, (void)error;
    collective_judge_send(c, rank, send, receive, figures);
    return STATUS_OK;
}

static enum status host_digest(void *queue, const void *data, size_t bytes, void *spare,
                               uint64_t *digest, struct error *error)
{
    (void)queue, (void)spare, (void)error;
    *digest = digest_add(DIGEST_START, data, bytes);
    return STATUS_OK;
}

const struct collective_judge collective_judge_host = {.set = host_set,
                                                       .read = host_read,
                                                       .fill = host_fill,
                                                       .receive = host_receive,
                                                       .send = host_send,
                                                       .digest = host_digest};
