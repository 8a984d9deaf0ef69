// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/matrix.h"

#include <math.h>
#include <string.h>

#include "common/amx.h"
#include "judge/cpu/loops.h"
#include "judge/cpu/room.h"
#include "judge/cpu/rows.h"
#include "judge/cpu/weights.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/rules.h"

bool matrix_fits(const struct cp_case *c)
{
    return c->dtype == DTYPE_BF16 && amx_usable();
}

#ifdef __x86_64__

// Maximum number of rows per block, and of scores in memory. With many columns the second limit
// reduces the rows of a block.
#define ROWS_MAX     64
#define SCORES_MAX   (INT64_C(1) << 22)
// Number of columns of P and dS in memory.
#define PART         1024
// Row distance: an odd number of cache lines, so that rows use different cache sets.
#define PART_STRIDE  (PART + 16)
#define PIECE_STRIDE (PART + 32)

// The memory of a call. On queries: a and b are Q and dO of the rows; columns are keys. On keys: a
// and b are K and V of the rows; columns are queries. A head is a matrix rounded to bf16, a rest is
// what rounding removed (amx_split()).
struct work {
    const struct cp_case *c;
    int sequence;
    struct mask mask;
    bool rest; // also multiply the rests, for the reference
    float scale;
    double key_rms; // calls on queries: RMS of K
    float products; // rules_product_squares()
    int d_qk, d_v;
    int64_t d_a, d_b;       // elements between rows of a and b
    int64_t rows;           // rows of the call, padded, at most ROWS_MAX
    int64_t block;          // rows per block, at most `rows`
    int64_t stride;         // elements between rows of s and slope
    uint16_t *a, *b;        // [block, or all keys][d_a], [d_b]
    float *d_out;           // [block][d_v]: dO of queries
    float *s;               // [block][stride]: scores, then probabilities
    float *slope;           // [block][stride], with a softcap only
    float *dp;              // [block][PART_STRIDE]
    uint16_t *pieces;       // [2 * rows][PIECE_STRIDE]: heads, then rests, of P, later of dS
    float *sums;            // [2 * rows][the larger d]: products of the pieces
    float *sums_other;      // the same for dV, calls on keys
    float *twin, *residual; // calls on keys: dV [keys][d_v], then dK [keys][d_qk]
    float *lse, *delta, *delta_twin;   // calls on keys: [columns]
    const struct operand *key, *value; // of the columns: K and V, or Q and dO
};

static int64_t length(struct range r)
{
    return r.end - r.begin;
}

static struct range clipped(struct range r, struct range to)
{
    r.begin = r.begin > to.begin ? r.begin : to.begin;
    r.end = r.end < to.end ? r.end : to.end;
    return r.begin < r.end ? r : (struct range){to.begin, to.begin};
}

// Lowers the begin to a multiple of AMX_DEPTH.
static struct range aligned(struct range r)
{
    r.begin = r.begin / AMX_DEPTH * AMX_DEPTH;
    return r;
}

static struct range part_of(struct range columns, int64_t first)
{
    return clipped((struct range){first, first + PART}, columns);
}

// Sets the addresses of the arrays in the memory at `base` (NULL: none), and returns their total
// bytes. keys, columns: numbers of keys and queries of a call on keys, else 0.
static size_t work_lay_out(struct work *w, char *base, int64_t keys, int64_t columns)
{
    int64_t scores = w->block * w->stride, d = w->d_qk > w->d_v ? w->d_qk : w->d_v;
    int64_t rows = (keys > 0 ? amx_rows_padded(keys) : w->rows) + AMX_ROWS;
    size_t used = 0;
    struct {
        void *place;
        int64_t bytes;
    } pieces[] = {{&w->a, rows * w->d_a * 2},
                  {&w->b, rows * w->d_b * 2},
                  {&w->d_out, w->block * w->d_v * 4},
                  {&w->s, scores * 4},
                  {&w->slope, w->c->softcap != 0 ? scores * 4 : 0},
                  {&w->dp, w->block * PART_STRIDE * 4},
                  {&w->pieces, 2 * w->rows * PIECE_STRIDE * 2},
                  {&w->sums, 2 * w->rows * d * 4},
                  {&w->sums_other, 2 * w->rows * d * 4},
                  {&w->twin, keys * (w->d_v + w->d_qk) * 4},
                  {&w->residual, keys * (w->d_v + w->d_qk) * 4},
                  {&w->lse, columns * 4},
                  {&w->delta, columns * 4},
                  {&w->delta_twin, columns * 4}};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        void *place = base ? base + used : NULL;
        memcpy(pieces[i].place, &place, sizeof(place));
        used += (size_t)(pieces[i].bytes + 63) / 64 * 64;
    }
    return used;
}

// Prepares a call on queries or on keys; the other count is 0.
static enum status work_init(struct work *w, const struct cp_case *c, int sequence, bool rest,
                             int64_t stride, int64_t queries, int64_t keys, struct room *room,
                             struct error *error)
{
    int64_t rows = queries + keys < ROWS_MAX ? amx_rows_padded(queries + keys) : ROWS_MAX;
    int64_t block = stride < SCORES_MAX ? SCORES_MAX / stride : 1;
    *w = (struct work){.c = c,
                       .sequence = sequence,
                       .mask = mask_of(c, sequence),
                       .rest = rest,
                       .scale = (float)case_scale(c),
                       .d_qk = c->head_dim_qk,
                       .d_v = c->head_dim_v,
                       .products = (float)rules_product_squares(c),
                       .d_a = amx_depth_padded(c->head_dim_qk),
                       .d_b = amx_depth_padded(c->head_dim_v),
                       .rows = rows,
                       .block = block < rows ? block : rows,
                       .stride = stride};
    int64_t columns = keys > 0 ? amx_depth_padded(w->mask.queries) + AMX_DEPTH : 0;
    size_t bytes = work_lay_out(w, NULL, keys, columns);
    enum status status = room_grow(room, bytes, error);
    if (status != STATUS_OK)
        return status;
    memset(room->base, 0, bytes);
    work_lay_out(w, room->base, keys, columns);
    return STATUS_OK;
}

// Loads rows of an input in bf16 as a left factor, and in fp32 if `wide` is not NULL.
static void load(const struct work *w, enum input_tensor tensor, int head, struct range positions,
                 uint16_t *rows, int64_t stride, float *wide)
{
    float values[HEAD_DIM_MAX] = {0};
    int d = input_head_dim(w->c, tensor);
    for (int64_t i = 0; i < length(positions); i++) {
        float *row = wide ? wide + i * d : values;
        input_token_head(w->c, tensor, w->sequence, positions.begin + i, head, row);
        dtype_write(DTYPE_BF16, row, d, rows + i * stride);
    }
}

// ---- logits -------------------------------------------------------------------------------------

// True if logits are not simply products times a factor.
static bool logits_are_made(const struct work *w)
{
    return w->c->softcap != 0 || w->c->bias != BIAS_NONE;
}

// Caps a row. The slope 1 - tanh^2 is computed as 1 / cosh^2, which has no cancellation.
static void cap_row(const struct work *w, float *s, float *slope, int64_t count)
{
    float cap = (float)w->c->softcap;
    for (int64_t i = 0; i < count; i++) {
        float x = s[i] * w->scale / cap, inverse = 1 / coshf(x);
        s[i] = cap * tanhf(x);
        slope[i] = inverse * inverse;
    }
}

static void rows_cap(const struct work *w, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        if (w->c->softcap != 0)
            cap_row(w, w->s + i * w->stride, w->slope + i * w->stride, columns);
        else
            loop_scale(w->s + i * w->stride, w->scale, loop_padded(columns));
}

static void bias_add(const struct work *w, int head, int64_t query, struct range keys, float *s,
                     int64_t step)
{
    float bias[256];
    for (int64_t done = 0; done < length(keys); done += 256) {
        int64_t part = length(keys) - done < 256 ? length(keys) - done : 256;
        input_bias(w->c, w->sequence, head, query, keys.begin + done, part, bias);
        for (int64_t j = 0; j < part; j++)
            s[(done + j) * step] += bias[j];
    }
}

// Converts the products in w->s to logits, except for a factor, which it returns.
static float queries_logits(const struct work *w, int head, struct range queries, struct range keys)
{
    if (!logits_are_made(w))
        return w->scale;
    rows_cap(w, length(queries), length(keys));
    for (int64_t i = 0; i < length(queries) && w->c->bias != BIAS_NONE; i++)
        bias_add(w, head, queries.begin + i, keys, w->s + i * w->stride, 1);
    return 1;
}

static float keys_logits(const struct work *w, int head, struct range keys, struct range queries)
{
    if (!logits_are_made(w))
        return w->scale;
    rows_cap(w, length(keys), length(queries));
    for (int64_t i = 0; i < length(queries) && w->c->bias != BIAS_NONE; i++)
        bias_add(w, head, queries.begin + i, keys, w->s + i, w->stride);
    return 1;
}

static const float *slope_of(const struct work *w, int64_t at)
{
    return w->c->softcap != 0 ? w->slope + at : NULL;
}

// ---- products -----------------------------------------------------------------------------------

// The head and the rest of a row's pieces.
static uint16_t *head_of(const struct work *w, int64_t row)
{
    return w->pieces + row * PIECE_STRIDE;
}

static uint16_t *rest_of(const struct work *w, int64_t row)
{
    return w->rest ? w->pieces + (w->rows + row) * PIECE_STRIDE : NULL;
}

// sums = pieces * positions `part` of the operand; with `add` +=. The rests begin at row w->rows of
// pieces and sums.
static void pieces_multiply(const struct work *w, int64_t rows, const struct operand *o,
                            struct range part, float *sums, bool add)
{
    amx_multiply(w->rest ? w->rows + rows : rows, o->d, length(part), w->pieces, PIECE_STRIDE,
                 operand_along(o, part.begin), sums, o->d, add);
}

// ---- the query side -----------------------------------------------------------------------------

// The largest visible logit of a row.
static float row_max(const struct work *w, int64_t row, struct range seen, struct range keys,
                     float factor)
{
    return weights_max(w->s + row * w->stride, seen.begin - keys.begin, seen.end - keys.begin,
                       factor);
}

static double row_exponentials(const struct work *w, int64_t row, struct range seen,
                               struct range part, struct range keys, float factor, float max)
{
    seen = clipped(seen, part);
    const struct weights_exp e = {.x = w->s + row * w->stride + (part.begin - keys.begin),
                                  .begin = seen.begin - part.begin,
                                  .end = seen.end - part.begin,
                                  .scale = factor,
                                  .shift = max > -INFINITY ? max : 0, // a bias may hide all keys
                                  .head = head_of(w, row),
                                  .rest = rest_of(w, row)};
    return weights_exp(&e, loop_padded(length(part)));
}

// Statistics of the rows of a block of queries.
struct block {
    int head;
    struct range queries, keys;
    float max[ROWS_MAX];
    double sum[ROWS_MAX], factor[ROWS_MAX]; // factor: 1 / (sum with the sink)
};

static struct range seen_of(const struct work *w, const struct block *b, int64_t row)
{
    return clipped(mask_keys(&w->mask, b->queries.begin + row), b->keys);
}

static void block_exponentials(const struct work *w, struct block *b)
{
    int64_t rows = length(b->queries);
    float factor = queries_logits(w, b->head, b->queries, b->keys);
    for (int64_t i = 0; i < rows; i++) {
        b->max[i] = row_max(w, i, seen_of(w, b, i), b->keys, factor);
        b->sum[i] = 0;
    }
    for (int64_t first = b->keys.begin; first < b->keys.end; first += PART) {
        struct range part = part_of(b->keys, first);
        for (int64_t i = 0; i < rows; i++)
            b->sum[i] += row_exponentials(w, i, seen_of(w, b, i), part, b->keys, factor, b->max[i]);
        pieces_multiply(w, rows, w->value, part, w->sums, first > b->keys.begin);
    }
}

// Computes one row of results from its products (rows_finish()).
static void row_finish(const struct work *w, const float *sums, int64_t row, int d, double factor,
                       double *reference, float *twin)
{
    static const float none[HEAD_DIM_MAX];
    rows_finish(DTYPE_BF16, d, factor, sums + row * d, w->rest ? sums + (w->rows + row) * d : none,
                reference ? reference + row * d : NULL, twin + row * d);
}

static void block_out(const struct work *w, bool reference, struct block *b,
                      const struct expected_queries *e)
{
    double sink = input_sink(w->c, b->head);
    block_exponentials(w, b);
    for (int64_t i = 0; i < length(b->queries); i++) {
        if (reference && e->sums.max_logit && b->max[i] > *e->sums.max_logit)
            *e->sums.max_logit = b->max[i];
        double sum = b->max[i] > -INFINITY ? b->sum[i] + exp(sink - b->max[i]) : 0;
        b->factor[i] = sum > 0 ? 1 / sum : 0;
        if (reference)
            e->lse[i] = rows_lse(b->max[i], sum, sink);
        row_finish(w, w->sums, i, w->d_v, b->factor[i], reference ? e->out : NULL, e->out_twin);
    }
}

// Adds P (dP - delta) of a row, before the softcap's slope, to the gradient of the bias.
static void row_bias(const struct work *w, bool reference, int64_t row, struct range part, float *p,
                     double factor, const struct expected_queries *e)
{
    const float *dp = w->dp + row * PART_STRIDE;
    int64_t at = row * e->sums.dbias_stride + part.begin;
    float delta = (float)(reference ? e->delta[row] : e->delta_twin[row]);
    loop_scale(p, (float)factor, loop_padded(length(part)));
    loop_add_gradient(p, dp, (float)e->delta_twin[row], e->sums.dbias_twin + at, length(part));
    *e->sums.dbias_terms += loop_terms(p, dp, delta, w->products, length(part));
    if (reference)
        loop_add_gradient(p, dp, delta, e->sums.dbias + at, length(part));
}

// Computes the pieces of dS of a row. Returns the sum of the squares of the terms.
static double row_gradient(const struct work *w, bool reference, int64_t row, struct range part,
                           const struct block *b, const struct expected_queries *e)
{
    int64_t at = row * w->stride + (part.begin - b->keys.begin);
    float twin = (float)e->delta_twin[row], *p = w->s + at;
    struct weights_gradient g = {.p = p,
                                 .factor = (float)b->factor[row],
                                 .slope = slope_of(w, at),
                                 .cap_error = rules_cap_error(w->c),
                                 .dp = w->dp + row * PART_STRIDE,
                                 .delta = reference ? (float)e->delta[row] : twin,
                                 .delta_twin = twin,
                                 .products = w->products,
                                 .head = head_of(w, row),
                                 .rest = rest_of(w, row)};
    if (e->sums.dbias_twin) {
        row_bias(w, reference, row, part, p, b->factor[row], e);
        g.factor = 1;
    }
    return weights_gradient(&g, loop_padded(length(part)));
}

static void block_gradient(const struct work *w, bool reference, const struct block *b,
                           const struct expected_queries *e)
{
    int64_t rows = length(b->queries);
    double squares[ROWS_MAX] = {0};
    load(w, INPUT_DO, b->head, b->queries, w->b, w->d_b, w->d_out);
    for (int64_t i = 0; i < rows; i++) {
        rows_delta(w->c, reference, w->d_out + i * w->d_v, i, e);
        if (reference && e->sums.dsink)
            rows_sink(w->c, b->head, i, e);
    }
    for (int64_t first = b->keys.begin; first < b->keys.end; first += PART) {
        struct range part = part_of(b->keys, first);
        amx_multiply(rows, length(part), w->d_v, w->b, w->d_b, operand_across(w->value, first),
                     w->dp, PART_STRIDE, false);
        for (int64_t i = 0; i < rows; i++)
            squares[i] += row_gradient(w, reference, i, part, b, e);
        pieces_multiply(w, rows, w->key, part, w->sums, first > b->keys.begin);
    }
    for (int64_t i = 0; i < rows; i++) {
        row_finish(w, w->sums, i, w->d_qk, w->scale, reference ? e->dq : NULL, e->dq_twin);
        e->terms[i] = fabs(w->scale) * sqrt(squares[i]) * w->key_rms;
    }
}

static void queries_block(const struct work *w, bool reference, int head, struct range queries,
                          const struct expected_queries *e)
{
    struct block b = {.head = head, .queries = queries};
    b.keys = aligned(mask_keys_of(&w->mask, queries));
    if (length(mask_keys_of(&w->mask, queries)) == 0) {
        rows_nothing(w->c, reference, head, length(queries), e);
        return;
    }
    load(w, INPUT_Q, head, queries, w->a, w->d_a, NULL);
    amx_multiply(length(queries), length(b.keys), w->d_qk, w->a, w->d_a,
                 operand_across(w->key, b.keys.begin), w->s, w->stride, false);
    block_out(w, reference, &b, e);
    if (w->c->training)
        block_gradient(w, reference, &b, e);
}

// Stride of scores of `columns` columns, with room for up to AMX_DEPTH before them (aligned()).
static int64_t stride_of(int64_t columns)
{
    return loop_padded(columns + AMX_DEPTH) + 16;
}

enum status matrix_queries(const struct cp_case *c, bool reference, int sequence, int head,
                           struct range queries, struct room *room,
                           const struct expected_queries *e, struct error *error)
{
    struct mask mask = mask_of(c, sequence);
    struct range keys = mask_keys_of(&mask, queries);
    int kv_head = head / (c->heads / c->kv_heads);
    struct work w;
    enum status status = work_init(&w, c, sequence, reference, stride_of(length(keys)),
                                   length(queries), 0, room, error);
    if (status == STATUS_OK)
        status = room_operand(room, c, INPUT_K, sequence, kv_head, keys, &w.key, error);
    if (status == STATUS_OK)
        status = room_operand(room, c, INPUT_V, sequence, kv_head, keys, &w.value, error);
    if (status != STATUS_OK)
        return status;
    w.key_rms = operand_rms(w.key, keys);
    unsigned before = rows_denormals_flush();
    for (int64_t first = queries.begin; first < queries.end; first += w.block) {
        struct range block = clipped((struct range){first, first + w.block}, queries);
        struct expected_queries part = rows_at(c, e, first - queries.begin);
        queries_block(&w, reference, head, block, &part);
    }
    rows_denormals_restore(before);
    return STATUS_OK;
}

// ---- the key side -------------------------------------------------------------------------------

static void keys_probabilities(const struct work *w, int head, struct range keys,
                               struct range queries)
{
    float factor = keys_logits(w, head, keys, queries);
    for (int64_t i = 0; i < length(keys); i++) {
        struct range seen = clipped(mask_queries(&w->mask, keys.begin + i), queries);
        const struct weights_exp e = {.x = w->s + i * w->stride,
                                      .begin = seen.begin - queries.begin,
                                      .end = seen.end - queries.begin,
                                      .scale = factor,
                                      .shifts = w->lse + queries.begin,
                                      .head = head_of(w, i),
                                      .rest = rest_of(w, i)};
        (void)weights_exp(&e, loop_padded(length(queries)));
    }
}

static void keys_gradient(const struct work *w, struct range keys, struct range queries,
                          double *terms)
{
    double query_rms = operand_rms(w->key, queries);
    for (int64_t i = 0; i < length(keys); i++) {
        int64_t at = i * w->stride;
        const struct weights_gradient g = {.p = w->s + at,
                                           .factor = 1,
                                           .slope = slope_of(w, at),
                                           .cap_error = rules_cap_error(w->c),
                                           .dp = w->dp + i * PART_STRIDE,
                                           .deltas = w->delta + queries.begin,
                                           .deltas_twin = w->delta_twin + queries.begin,
                                           .products = w->products,
                                           .head = head_of(w, i),
                                           .rest = rest_of(w, i)};
        terms[i] += weights_gradient(&g, loop_padded(length(queries))) * query_rms * query_rms;
    }
}

// Adds the products of a block to dV or dK of the call, which begins at `first` in twin and
// residual. The block begins `skipped` keys after the first key of the call.
static void keys_add(const struct work *w, int64_t rows, int64_t skipped, int d, const float *sums,
                     int64_t first)
{
    float *twin = w->twin + first + skipped * d, *residual = w->residual + first + skipped * d;
    for (int64_t i = 0; i < rows * d; i++) {
        twin[i] += sums[i];
        if (w->rest)
            residual[i] += sums[w->rows * d + i];
    }
}

// Adds the contribution of one head's queries to a block of keys.
static void keys_block(const struct work *w, int head, struct range keys, struct range all,
                       double *terms)
{
    struct range queries = aligned(mask_queries_of(&w->mask, keys));
    int64_t rows = length(keys), skipped = keys.begin - all.begin;
    if (length(mask_queries_of(&w->mask, keys)) == 0)
        return;
    for (int64_t first = queries.begin; first < queries.end; first += PART) {
        struct range part = part_of(queries, first);
        amx_multiply(rows, length(part), w->d_qk, w->a + skipped * w->d_a, w->d_a,
                     operand_across(w->key, first), w->s, w->stride, false);
        keys_probabilities(w, head, keys, part);
        pieces_multiply(w, rows, w->value, part, w->sums_other, first > queries.begin);
        amx_multiply(rows, length(part), w->d_v, w->b + skipped * w->d_b, w->d_b,
                     operand_across(w->value, first), w->dp, PART_STRIDE, false);
        keys_gradient(w, keys, part, terms + skipped);
        pieces_multiply(w, rows, w->key, part, w->sums, first > queries.begin);
    }
    keys_add(w, rows, skipped, w->d_v, w->sums_other, 0);
    keys_add(w, rows, skipped, w->d_qk, w->sums, length(all) * w->d_v);
}

static void statistics_load(struct work *w, const struct expected_statistics *s, int64_t at)
{
    for (int64_t i = 0; i < w->mask.queries; i++) {
        w->lse[i] = (float)s->lse[at + i];
        w->delta[i] = (float)s->delta[at + i];
        w->delta_twin[i] = (float)s->delta_twin[at + i];
    }
}

static enum status keys_head(struct work *w, int head, struct range keys, struct room *room,
                             double *terms, struct error *error)
{
    struct range queries = mask_queries_of(&w->mask, keys);
    enum status status =
        room_operand(room, w->c, INPUT_Q, w->sequence, head, queries, &w->key, error);
    if (status == STATUS_OK)
        status = room_operand(room, w->c, INPUT_DO, w->sequence, head, queries, &w->value, error);
    if (status != STATUS_OK)
        return status;
    for (int64_t first = keys.begin; first < keys.end; first += ROWS_MAX)
        keys_block(w, head, clipped((struct range){first, first + ROWS_MAX}, keys), keys, terms);
    return STATUS_OK;
}

static void keys_finish(const struct work *w, bool reference, int64_t count,
                        const struct expected_keys *e)
{
    int64_t dk = count * w->d_v;
    for (int64_t i = 0; i < count; i++) {
        int64_t v = i * w->d_v, k = i * w->d_qk;
        e->terms[i] = fabs(w->scale) * sqrt(e->terms[i]);
        rows_finish(DTYPE_BF16, w->d_v, 1, w->twin + v, w->residual + v,
                    reference ? e->dv + v : NULL, e->dv_twin + v);
        rows_finish(DTYPE_BF16, w->d_qk, w->scale, w->twin + dk + k, w->residual + dk + k,
                    reference ? e->dk + k : NULL, e->dk_twin + k);
    }
}

enum status matrix_keys(const struct cp_case *c, bool reference, int sequence, int kv_head,
                        struct range keys, const struct expected_statistics *statistics,
                        struct room *room, const struct expected_keys *e, struct error *error)
{
    int64_t count = length(keys);
    int group = c->heads / c->kv_heads;
    struct work w;
    enum status status = work_init(&w, c, sequence, reference, PART_STRIDE, 0, count, room, error);
    if (status != STATUS_OK)
        return status;
    memset(e->terms, 0, (size_t)count * sizeof(double));
    unsigned before = rows_denormals_flush();
    load(&w, INPUT_K, kv_head, keys, w.a, w.d_a, NULL);
    load(&w, INPUT_V, kv_head, keys, w.b, w.d_b, NULL);
    for (int i = 0; i < group && status == STATUS_OK; i++) {
        statistics_load(&w, statistics, i * w.mask.queries);
        status = keys_head(&w, kv_head * group + i, keys, room, e->terms, error);
    }
    if (status == STATUS_OK)
        keys_finish(&w, reference, count, e);
    rows_denormals_restore(before);
    return status;
}

#else

enum status matrix_queries(const struct cp_case *c, bool reference, int sequence, int head,
                           struct range queries, struct room *room,
                           const struct expected_queries *e, struct error *error)
{
    (void)c, (void)reference, (void)sequence, (void)head, (void)queries, (void)room, (void)e;
    return error_set(error, STATUS_UNIMPLEMENTED, "this processor has no AMX");
}

enum status matrix_keys(const struct cp_case *c, bool reference, int sequence, int kv_head,
                        struct range keys, const struct expected_statistics *statistics,
                        struct room *room, const struct expected_keys *e, struct error *error)
{
    (void)c, (void)reference, (void)sequence, (void)kv_head, (void)keys, (void)statistics;
    (void)room, (void)e;
    return error_set(error, STATUS_UNIMPLEMENTED, "this processor has no AMX");
}
#endif
