// SPDX-License-Identifier: Apache-2.0
// Backward: P of each tile is recomputed from the final LSE. dK and dV are added to the result for
// each tile, dQ for each block.
#include <math.h>
#include <string.h>

#include "common/mutation.h"
#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/gemm.h"

static void block_load(struct attention_backend *backend, const struct attention_backward *args,
                       const struct block *b)
{
    if (amx_tiles_serve(backend->amx, b->shape)) {
        amx_load_rows(b, args->q, b->shape->d_qk, true, &backend->amx->q);
        amx_load_rows(b, args->d_out, b->shape->d_v, true, &backend->amx->d_out);
    } else {
        tile_load_rows(backend->vector, b, args->q, b->shape->d_qk, backend->q);
        tile_load_rows(backend->vector, b, args->d_out, b->shape->d_v, backend->d_out);
    }
    for (int row = 0; row < block_rows(b); row++) {
        int64_t scalar = block_scalar(b, row);
        backend->row_lse[row] = (float)(args->lse[scalar] * M_LOG2E);
        backend->row_d[row] = args->d[scalar];
    }
    memset(backend->d_q, 0, (size_t)block_rows(b) * (size_t)b->shape->d_qk * sizeof(float));
}

// Turns the scores and dP of a stacked row into P and dS in place, both 0 where the mask hides a
// key, and adds to dbias.
static void row_gradient(struct attention_backend *backend, const struct attention_backward *args,
                         const struct block *b, const struct tile *t, int row)
{
    float *p = backend->scores + (int64_t)row * TILE_SCORE_STRIDE;
    float *ds = backend->d_scores + (int64_t)row * TILE_SCORE_STRIDE;
    int keys = tile_keys(t), begin, end;
    tile_visible(t, b, row, &begin, &end);
    if (backend->row_lse[row] == -INFINITY)
        end = begin;
    if (amx_tiles_serve(backend->amx, b->shape))
        backend->vector->scale(p + begin, end - begin, tile_factor(b->shape));
    tile_logits(backend, b, t, row, begin, end, args->bias, p);
    backend->vector->exp2_gradient(p + begin, ds + begin, end - begin, backend->row_lse[row],
                                   backend->row_d[row]);
    if (args->dbias && MUTATED(DBIAS_OVERWRITTEN))
        memcpy(args->dbias + tile_bias(t, b, row) + begin, ds + begin,
               (size_t)(end - begin) * sizeof(float));
    else if (args->dbias)
        backend->vector->add(args->dbias + tile_bias(t, b, row) + begin, ds + begin, end - begin);
    for (int i = begin; i < end && MUTATED(SLOPE_NEAR_SATURATION); i++)
        backend->slopes[i] = backend->slopes[i] < 0.1F ? 0 : backend->slopes[i];
    for (int i = begin; i < end && ROUNDS(CAP); i++) {
        float tanh = nextafterf(sqrtf(1 - backend->slopes[i]), 0);
        backend->slopes[i] = 1 - tanh * tanh;
    }
    if (b->shape->softcap != 0 && !MUTATED(SOFTCAP_SLOPE))
        backend->vector->multiply(ds + begin, backend->slopes + begin, end - begin);
    if (ROUNDS(WEIGHTS)) {
        tile_round(b, p + begin, end - begin);
        tile_round(b, ds + begin, end - begin);
    }
    memset(p, 0, (size_t)begin * sizeof(float));
    memset(ds, 0, (size_t)begin * sizeof(float));
    memset(p + end, 0, (size_t)(keys - end) * sizeof(float));
    memset(ds + end, 0, (size_t)(keys - end) * sizeof(float));
}

// Writes P of a tile to backend->scores and dS to backend->d_scores.
static void tile_gradient(struct attention_backend *backend, const struct attention_backward *args,
                          const struct block *b, const struct tile *t, struct matrix q,
                          struct matrix d_out)
{
    int d_qk = b->shape->d_qk, d_v = b->shape->d_v;
    int rows = t->rows_end - t->rows_begin, keys = tile_keys(t);
    int64_t first = (int64_t)t->rows_begin * TILE_SCORE_STRIDE;
    tile_load_keys(backend->vector, b, t, args->k, d_qk, backend->k);
    tile_load_keys(backend->vector, b, t, args->v, d_v, backend->v);
    gemm_nt(rows, keys, d_qk, tile_factor(b->shape), q, (struct matrix){backend->k, d_qk}, 0,
            backend->scores + first, TILE_SCORE_STRIDE);
    gemm_nt(rows, keys, d_v, 1, d_out, (struct matrix){backend->v, d_v}, 0,
            backend->d_scores + first, TILE_SCORE_STRIDE);
    for (int row = t->rows_begin; row < t->rows_end; row++)
        row_gradient(backend, args, b, t, row);
}

// Number of keys at the end of a tile whose dK and dV a mutation drops.
static int keys_lost(const struct block *b, const struct tile *t)
{
    return MUTATED(RAGGED_TILE) && t->end == b->slice->kv_len && b->slice->kv_len % 16 != 0;
}

// True if a mutation drops dV of the key head.
static bool head_is_lost(const struct block *b)
{
    return MUTATED(HEAD_GROUP_LOST) && b->kv_head + 1 >= b->shape->kv_heads;
}

static float key_scale(const struct block *b)
{
    return MUTATED(DK_UNSCALED) ? 1 : (float)tile_scale(b->shape);
}

static void tile_backward(struct attention_backend *backend, const struct attention_backward *args,
                          const struct block *b, const struct tile *t)
{
    int d_qk = b->shape->d_qk, d_v = b->shape->d_v;
    int rows = t->rows_end - t->rows_begin, keys = tile_keys(t);
    int64_t first = t->rows_begin;
    struct matrix q = {backend->q + first * d_qk, d_qk};
    struct matrix d_out = {backend->d_out + first * d_v, d_v};
    tile_gradient(backend, args, b, t, q, d_out);

    struct matrix p = {backend->scores + first * TILE_SCORE_STRIDE, TILE_SCORE_STRIDE};
    struct matrix ds = {backend->d_scores + first * TILE_SCORE_STRIDE, TILE_SCORE_STRIDE};
    int64_t key = tile_vector(t, b);
    int stride = (int)tile_vector_stride(b), added = keys - keys_lost(b, t);
    if (!head_is_lost(b))
        gemm_tn(added, d_v, rows, 1, p, d_out, 1, args->dv + key * d_v, stride * d_v);
    gemm_tn(added, d_qk, rows, key_scale(b), ds, q, 1, args->dk + key * d_qk, stride * d_qk);
    gemm_nn(rows, d_qk, keys, 1, ds, (struct matrix){backend->k, d_qk}, 1,
            backend->d_q + first * d_qk, d_qk);
}

// tile_backward() on AMX.
static void tile_backward_amx(struct attention_backend *backend,
                              const struct attention_backward *args, const struct block *b,
                              const struct tile *t)
{
    struct amx_tiles *amx = backend->amx;
    int d_qk = b->shape->d_qk, d_v = b->shape->d_v;
    amx_load_keys(amx, b, t, args->k, d_qk, true, true, &amx->k);
    amx_load_keys(amx, b, t, args->v, d_v, true, false, &amx->v);
    for (int first = t->rows_begin; first < t->rows_end; first += AMX_PART_ROWS) {
        struct tile part = amx_part(t, first);
        amx_scores(&part, &amx->q, &amx->k, d_qk, backend->scores);
        amx_scores(&part, &amx->d_out, &amx->v, d_v, backend->d_scores);
        for (int row = part.rows_begin; row < part.rows_end; row++)
            row_gradient(backend, args, b, t, row);
        amx_take_weights(amx, t, &part, backend->scores, amx->p);
        amx_take_weights(amx, t, &part, backend->d_scores, amx->d_s);
        amx_add_to_rows(amx, &part, &amx->k, d_qk, backend->d_q);
    }
    int64_t key = tile_vector(t, b), stride = tile_vector_stride(b);
    int added = tile_keys(t) - keys_lost(b, t);
    if (!head_is_lost(b))
        amx_add_to_keys(amx, backend->vector, t, amx->p, &amx->d_out, d_v, added, 1,
                        args->dv + key * d_v, stride * d_v);
    amx_add_to_keys(amx, backend->vector, t, amx->d_s, &amx->q, d_qk, added, key_scale(b),
                    args->dk + key * d_qk, stride * d_qk);
}

static void block_backward(struct attention_backend *backend, const struct attention_backward *args,
                           const struct block *b)
{
    int d_qk = b->shape->d_qk;
    struct tile t;
    bool more = tile_first(&t, b);
    if (!more)
        return;
    block_load(backend, args, b);
    bool amx = amx_tiles_serve(backend->amx, b->shape);
    for (; more; more = tile_next(&t, b))
        (amx ? tile_backward_amx : tile_backward)(backend, args, b, &t);
    for (int row = 0; row < block_rows(b); row++)
        backend->vector->axpy(args->dq + block_vector(b, row) * d_qk,
                              backend->d_q + (int64_t)row * d_qk, d_qk,
                              (float)tile_scale(b->shape));
}

enum status cpu_backward(struct attention_backend *backend, const struct attention_backward *args,
                         struct error *error)
{
    enum status status = tile_check_shape(&args->shape, error);
    if (status != STATUS_OK)
        return status;
    for (int32_t i = 0; i < args->slice_count; i++) {
        struct block b;
        for (bool more = block_first(&b, &args->shape, &args->slices[i]); more;
             more = block_next(&b))
            block_backward(backend, args, &b);
    }
    return STATUS_OK;
}
