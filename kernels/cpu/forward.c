// SPDX-License-Identifier: Apache-2.0
// Forward: an online softmax over the tiles of a block, then one merge into the running result.
#include <math.h>
#include <string.h>

#include "common/mutation.h"
#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/gemm.h"

static void block_clear(struct attention_backend *backend, const struct block *b)
{
    int rows = block_rows(b);
    for (int row = 0; row < rows; row++) {
        backend->row_max[row] = -INFINITY;
        backend->row_sum[row] = 0;
    }
    memset(backend->out, 0, (size_t)rows * (size_t)b->shape->d_v * sizeof(float));
}

// For tests: the row maximum of a kernel that reads 64 keys at a time, and keeps an older maximum
// until a weight would exceed 2^8.
static float max_stale(const struct vector_ops *vector, const float *x, int count, float before,
                       float max)
{
    float first = before == -INFINITY ? vector->max(x, count < 64 ? count : 64, before) : before;
    return max <= first + 8 ? first : max;
}

// Raises the running maximum of a row to that of x, and rescales the row's sums to the new maximum.
static void row_raise_max(struct attention_backend *backend, int row, int d_v, const float *x,
                          int count, bool stale)
{
    float before = backend->row_max[row];
    float after = backend->vector->max(x, count, before);
    if (stale)
        after = max_stale(backend->vector, x, count, before, after);
    if (after == before)
        return;
    backend->row_max[row] = after;
    if (before == -INFINITY)
        return;
    float shrink = exp2f(before - after);
    backend->row_sum[row] *= (double)shrink;
    backend->vector->scale(backend->out + (int64_t)row * d_v, d_v, shrink);
}

// Turns the scores of a stacked row into weights 2^(logit - row maximum) in place, 0 where the mask
// hides a key, and adds them to the row's sum.
static void row_softmax(struct attention_backend *backend, const struct block *b,
                        const struct tile *t, int row, const void *bias, bool stale)
{
    float *x = backend->scores + (int64_t)row * TILE_SCORE_STRIDE;
    int keys = tile_keys(t), begin, end;
    tile_visible(t, b, row, &begin, &end);
    if (amx_tiles_serve(backend->amx, b->shape))
        backend->vector->scale(x + begin, end - begin, tile_factor(b->shape));
    tile_logits(backend, b, t, row, begin, end, bias, x);
    row_raise_max(backend, row, b->shape->d_v, x + begin, end - begin, stale);
    float max = backend->row_max[row];
    float shift = max == -INFINITY ? 0 : max; // no logit above -inf: all weights are 0
    memset(x, 0, (size_t)begin * sizeof(float));
    backend->row_sum[row] += backend->vector->exp2_sum(x + begin, end - begin, shift);
    if (ROUNDS(WEIGHTS))
        tile_round(b, x + begin, end - begin);
    memset(x + end, 0, (size_t)(keys - end) * sizeof(float));
}

// tile_forward() on AMX.
static void tile_forward_amx(struct attention_backend *backend,
                             const struct attention_forward *args, const struct block *b,
                             const struct tile *t)
{
    struct amx_tiles *amx = backend->amx;
    int d_qk = b->shape->d_qk, d_v = b->shape->d_v;
    amx_load_keys(amx, b, t, args->k, d_qk, true, false, &amx->k);
    amx_load_keys(amx, b, t, args->v, d_v, false, true, &amx->v);
    for (int first = t->rows_begin; first < t->rows_end; first += AMX_PART_ROWS) {
        struct tile part = amx_part(t, first);
        amx_scores(&part, &amx->q, &amx->k, d_qk, backend->scores);
        for (int row = part.rows_begin; row < part.rows_end; row++)
            row_softmax(backend, b, t, row, args->bias, ROUNDS(STALE) && !args->max_logit);
        amx_take_weights(amx, t, &part, backend->scores, NULL);
        amx_add_to_rows(amx, &part, &amx->v, d_v, backend->out);
    }
}

static void tile_forward(struct attention_backend *backend, const struct attention_forward *args,
                         const struct block *b, const struct tile *t)
{
    int d_qk = b->shape->d_qk, d_v = b->shape->d_v;
    int rows = t->rows_end - t->rows_begin, keys = tile_keys(t);
    float *scores = backend->scores + (int64_t)t->rows_begin * TILE_SCORE_STRIDE;
    tile_load_keys(backend->vector, b, t, args->k, d_qk, backend->k);
    tile_load_keys(backend->vector, b, t, args->v, d_v, backend->v);
    gemm_nt(rows, keys, d_qk, tile_factor(b->shape),
            (struct matrix){backend->q + (int64_t)t->rows_begin * d_qk, d_qk},
            (struct matrix){backend->k, d_qk}, 0, scores, TILE_SCORE_STRIDE);
    for (int row = t->rows_begin; row < t->rows_end; row++)
        row_softmax(backend, b, t, row, args->bias, ROUNDS(STALE) && !args->max_logit);
    gemm_nn(rows, d_v, keys, 1, (struct matrix){scores, TILE_SCORE_STRIDE},
            (struct matrix){backend->v, d_v}, 1, backend->out + (int64_t)t->rows_begin * d_v, d_v);
}

// Merges a partial result into the running one. Its normalised output is out / sum, its LSE is
// `lse`. May overwrite `out`.
static void row_merge(const struct vector_ops *vector, float *o, float *o_lse, float *out, int d_v,
                      double lse, double sum)
{
    if (*o_lse == -INFINITY) {
        vector->scale(out, d_v, (float)(1 / sum));
        memcpy(o, out, (size_t)d_v * sizeof(float));
        *o_lse = (float)lse;
        return;
    }
    double max = fmax(*o_lse, lse);
    double old_weight = exp(*o_lse - max), new_weight = exp(lse - max);
    double weights = old_weight + new_weight;
    if (MUTATED(MERGE_WITHOUT_LSE))
        vector->blend(o, 0.5f, out, (float)(0.5 / sum), d_v);
    else
        vector->blend(o, (float)(old_weight / weights), out, (float)(new_weight / (weights * sum)),
                      d_v);
    *o_lse = (float)(max + log(weights));
}

static void block_merge(struct attention_backend *backend, const struct attention_forward *args,
                        const struct block *b)
{
    int d_v = b->shape->d_v;
    for (int row = 0; row < block_rows(b); row++) {
        double sum = backend->row_sum[row];
        if (sum == 0)
            continue;
        double lse = (backend->row_max[row] + log2(sum)) * M_LN2;
        if (ROUNDS(PARTIAL)) {
            backend->vector->scale(backend->out + (int64_t)row * d_v, d_v, (float)(1 / sum));
            tile_round(b, backend->out + (int64_t)row * d_v, d_v);
            sum = 1;
        }
        row_merge(backend->vector, args->o + block_vector(b, row) * d_v,
                  args->lse + block_scalar(b, row), backend->out + (int64_t)row * d_v, d_v, lse,
                  sum);
    }
}

// Raises max_logit of each head to the row maxima, which are in base 2.
static void block_max_logit(const struct attention_backend *backend, const struct block *b,
                            float *max_logit)
{
    for (int row = 0; row < block_rows(b); row++) {
        float *most = &max_logit[b->head + row % b->heads];
        *most = fmaxf(*most, (float)(backend->row_max[row] * (MUTATED(MAX_BASE_2) ? 1 : M_LN2)));
    }
}

static void block_forward(struct attention_backend *backend, const struct attention_forward *args,
                          const struct block *b)
{
    struct tile t;
    bool more = tile_first(&t, b);
    if (!more)
        return;
    block_clear(backend, b);
    bool amx = amx_tiles_serve(backend->amx, b->shape);
    if (amx)
        amx_load_rows(b, args->q, b->shape->d_qk, false, &backend->amx->q);
    else
        tile_load_rows(backend->vector, b, args->q, b->shape->d_qk, backend->q);
    for (; more; more = tile_next(&t, b))
        (amx ? tile_forward_amx : tile_forward)(backend, args, b, &t);
    block_merge(backend, args, b);
    if (args->max_logit)
        block_max_logit(backend, b, args->max_logit);
}

enum status cpu_forward(struct attention_backend *backend, const struct attention_forward *args,
                        struct error *error)
{
    enum status status = tile_check_shape(&args->shape, error);
    if (status != STATUS_OK)
        return status;
    for (int32_t i = 0; i < args->slice_count; i++) {
        struct block b;
        for (bool more = block_first(&b, &args->shape, &args->slices[i]); more;
             more = block_next(&b))
            block_forward(backend, args, &b);
    }
    return STATUS_OK;
}
