// SPDX-License-Identifier: Apache-2.0
// What a verification takes of host and device memory.
#include "kernels/cuda/internal.h"
#include "plan/bias.h"
#include "rank/cuda/tables.h"
#include "rank/cuda/verify_state.h"

// The inputs of the reference that are in device memory at a time, unless one key head needs more.
#define INPUT_BYTES_MAX ((int64_t)2 << 30)

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// What a case takes, counted in pieces. All are of device memory.
struct demand {
    int64_t expected[2], statistics[WORLD_SIZE_MAX], all_statistics, max, terms;
    int64_t inputs[REFERENCE_INPUTS];
    int64_t dbias, dbias_parts, scratch_bytes;
    int kv_step;
};

static int64_t inputs_bytes(const struct reference_cuda *r, int kv_count)
{
    int64_t bytes = 0;
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        bytes += reference_cuda_elements(r, i, kv_count) * (int64_t)sizeof(float);
    return bytes;
}

static int kv_step_of(const struct reference_cuda *r)
{
    int64_t one = inputs_bytes(r, 1);
    int64_t most = one > 0 ? INPUT_BYTES_MAX / one : r->c->kv_heads;
    if (most < 1)
        return 1;
    return most < r->c->kv_heads ? (int)most : r->c->kv_heads;
}

static void tokens_count(struct reference_cuda *r)
{
    for (int32_t i = 0; i < r->c->batch; i++)
        for (int side = SIDE_Q; side <= SIDE_KV; side++)
            r->tokens[side] += case_length(r->c, (enum shard_side)side, i);
}

static int64_t scratch_demand(const struct cp_case *c, int rank, const int64_t rows[2])
{
    int64_t bytes = 0;
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        struct reference_rows r = {.tile_count = tables_tiles_max(c, (enum shard_side)side, rank),
                                   .rows = rows[side]};
        bytes = larger(
            bytes, compare_cuda_rows_scratch_bytes(&r, side == SIDE_Q ? c->heads : c->kv_heads));
    }
    if (sums_has_bias(c)) {
        struct sums_layout l = sums_layout(c, rank);
        bytes = larger(bytes, compare_cuda_lines_scratch_bytes(l.heads * l.rows));
    }
    return bytes;
}

static struct demand demand_of(const struct cp_case *c, int rank)
{
    struct demand d = {0};
    struct reference_cuda r = {.c = c};
    int64_t rows[2] = {tables_rows(c, SIDE_Q, rank), tables_rows(c, SIDE_KV, rank)};
    int64_t q = rows[SIDE_Q] * c->heads, kv = c->training ? rows[SIDE_KV] * c->heads : 0;
    tokens_count(&r);
    d.kv_step = kv_step_of(&r);
    d.expected[0] = larger(q, kv) * reference_cuda_padded(c->head_dim_v);
    d.expected[1] = c->training ? larger(q, kv) * reference_cuda_padded(c->head_dim_qk) : 0;
    for (int i = 0; i < c->world_size; i++)
        if (c->training || i == rank)
            d.statistics[i] = 2 * tables_rows(c, SIDE_Q, i) * c->heads;
    d.all_statistics = c->training ? r.tokens[SIDE_Q] * c->heads : 0;
    d.max = c->max_logit ? q : 0;
    d.terms = c->training ? larger(q, kv) : 0;
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        d.inputs[i] = reference_cuda_elements(&r, i, d.kv_step);
    if (sums_has_bias(c)) {
        struct sums_layout l = sums_layout(c, rank);
        d.dbias = l.heads * l.rows * l.columns;
        d.dbias_parts = bias_is_whole(c) ? bias_share(c, rank).count * c->world_size : 0;
    }
    d.scratch_bytes = scratch_demand(c, rank, rows);
    return d;
}

static enum status device_reserve(const struct demand *d, const struct cp_case *c, size_t *total,
                                  struct error *error)
{
    enum status status = device_arena_add(total, d->scratch_bytes, 1, error);
    const int64_t doubles[] = {d->expected[0],    d->expected[1], d->max,         d->all_statistics,
                               d->all_statistics, d->dbias,       d->dbias_parts, d->terms};
    for (size_t i = 0; i < sizeof(doubles) / sizeof(*doubles) && status == STATUS_OK; i++)
        status = device_arena_add(total, doubles[i], sizeof(double), error);
    for (int i = 0; i < c->world_size && status == STATUS_OK; i++)
        status = device_arena_add(total, d->statistics[i], sizeof(double), error);
    for (int i = 0; i < REFERENCE_INPUTS && status == STATUS_OK; i++)
        status = device_arena_add(total, d->inputs[i], sizeof(float), error);
    return status;
}

static double *doubles_take(struct device_arena *a, int64_t count)
{
    return device_arena_take(a, count, sizeof(double));
}

static void device_take(struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    struct device_arena *a = x->v.device;
    struct demand d = demand_of(c, x->v.rank);
    x->kv_step = d.kv_step;
    x->scratch = device_arena_take(a, d.scratch_bytes, 1);
    x->expected[0] = doubles_take(a, d.expected[0]);
    x->expected[1] = doubles_take(a, d.expected[1]);
    x->terms = doubles_take(a, d.terms);
    x->max = c->max_logit ? doubles_take(a, d.max) : NULL;
    x->lse = doubles_take(a, d.all_statistics);
    x->delta = doubles_take(a, d.all_statistics);
    x->dbias = sums_has_bias(c) ? doubles_take(a, d.dbias) : NULL;
    x->dbias_parts = doubles_take(a, d.dbias_parts);
    for (int i = 0; i < c->world_size; i++)
        x->statistics[i] = doubles_take(a, d.statistics[i]);
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        x->r.inputs[i] = device_arena_take(a, d.inputs[i], sizeof(float));
    if (x->dbias)
        cuda_note(x->v.backend,
                  cudaMemsetAsync(x->dbias, 0, (size_t)d.dbias * sizeof(double),
                                  attention_cuda_stream(x->v.backend)),
                  "the reference's gradient of the bias");
}

static enum status host_reserve(const struct cp_case *c, int rank, size_t *total,
                                struct error *error)
{
    enum status status = arena_add(total, 1, sizeof(struct verify_cuda), error);
    for (int side = SIDE_Q; side <= SIDE_KV && status == STATUS_OK; side++)
        status = arena_add(total, tables_tiles_max(c, (enum shard_side)side, rank),
                           sizeof(struct reference_tile), error);
    if (status == STATUS_OK)
        status = arena_add(total, c->batch, sizeof(struct reference_sequence), error);
    if (status == STATUS_OK)
        status = arena_add(total, tables_pieces_max(c), sizeof(struct reference_piece), error);
    if (status == STATUS_OK)
        status = arena_add(total, shard_spans_max(c), sizeof(struct span), error);
    if (status == STATUS_OK)
        status = arena_add(total, c->heads, sizeof(struct row_error), error);
    return status;
}

static struct verify_cuda *host_take(const struct verification_cuda *v)
{
    const struct cp_case *c = v->c;
    struct verify_cuda *x = arena_take(v->host, 1, sizeof(*x));
    *x = (struct verify_cuda){.v = *v, .c = c, .r = {.backend = v->backend, .c = c}};
    for (int side = SIDE_Q; side <= SIDE_KV; side++)
        x->tiles[side] = arena_take(v->host, tables_tiles_max(c, (enum shard_side)side, v->rank),
                                    sizeof(struct reference_tile));
    x->sequences = arena_take(v->host, c->batch, sizeof(struct reference_sequence));
    x->pieces = arena_take(v->host, tables_pieces_max(c), sizeof(struct reference_piece));
    x->spans = arena_take(v->host, shard_spans_max(c), sizeof(struct span));
    x->head_rows = arena_take(v->host, c->heads, sizeof(struct row_error));
    return x;
}

enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error)
{
    struct demand d = demand_of(c, rank);
    size_t host = *host_bytes, device = *device_bytes;
    enum status status = host_reserve(c, rank, &host, error);
    if (status == STATUS_OK)
        status = device_reserve(&d, c, &device, error);
    if (status != STATUS_OK)
        return status;
    *host_bytes = host;
    *device_bytes = device;
    return STATUS_OK;
}

struct verify_cuda *verify_take(const struct verification_cuda *v)
{
    struct verify_cuda *x = host_take(v);
    device_take(x);
    return x;
}
