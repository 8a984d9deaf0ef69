// SPDX-License-Identifier: Apache-2.0
// Host and device memory of a verification, and the rows that it judges.
#include <stdlib.h>
#include <string.h>

#include "judge/cuda/tables.h"
#include "judge/cuda/verify.h"
#include "judge/cuda/verify_state.h"
#include "judge/rules.h"
#include "plan/bias.h"

// Maximum number of bytes of the reference's inputs in device memory at a time; one key head is
// always permitted. If a sample has so few tiles that these heads make fewer than BLOCKS_BUSY
// blocks, which do not keep the device busy, inputs may take twice the bytes of a rank's own share.
#define INPUT_BYTES_MAX ((int64_t)2 << 30)
#define BLOCKS_BUSY     264

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// ---- extent -------------------------------------------------------------------------------------

static bool wants_fp64(const struct cp_case *c)
{
    return c->dtype == DTYPE_FP32 || rules_want_fp64(c);
}

static double fraction_of(const struct cp_case *c)
{
    return tiles_fraction(c, VERIFY_CUDA_WORK);
}

// Maximum number of tiles of a side.
static int64_t tiles_room(const struct verification_cuda *v, enum shard_side side)
{
    if (v->placed)
        return v->token_rows[side] / REFERENCE_TILE_ROWS + v->span_count[side];
    return tables_tiles_max(v->c, side, v->rank);
}

// Counts the tiles and rows of a side. `drawn` has room for tiles_room().
static void extent_side(struct extent *e, const struct verification_cuda *v, enum shard_side side,
                        const struct span *spans, int count, struct tile *drawn)
{
    const struct cp_case *c = v->c;
    int64_t most = tiles_room(v, side);
    e->tiles[side] = tiles_list(c, side, e->fraction, spans, count, drawn, most);
    e->rows[side] = 0;
    for (int64_t i = 0; i < e->tiles[side]; i++)
        e->rows[side] += drawn[i].count;
}

// Finds the extent with temporary lists of spans and tiles.
static enum status extent_find(struct extent *e, const struct verification_cuda *v,
                               struct error *error)
{
    const struct cp_case *c = v->c;
    *e = (struct extent){.fp64 = wants_fp64(c), .fraction = fraction_of(c)};
    int64_t most = larger(tiles_room(v, SIDE_Q), tiles_room(v, SIDE_KV));
    struct span *spans = calloc((size_t)shard_spans_max(c) + 1, sizeof(*spans));
    struct tile *drawn = calloc((size_t)most + 1, sizeof(*drawn));
    for (int side = SIDE_Q; side <= SIDE_KV && spans && drawn; side++) {
        int count =
            v->placed ? v->span_count[side] : shard_spans(c, (enum shard_side)side, v->rank, spans);
        extent_side(e, v, (enum shard_side)side, v->placed ? v->spans[side] : spans, count, drawn);
    }
    bool there = spans && drawn;
    free(spans);
    free(drawn);
    return there ? STATUS_OK
                 : error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the list of tiles");
}

// ---- device memory ------------------------------------------------------------------------------
// One function lists all pieces. It runs once to add up their bytes and once to take them.

struct pieces {
    size_t *total;               // adding up
    struct device_arena *device; // taking
    enum status status;
    struct error *error;
};

static void *piece(struct pieces *p, int64_t count, size_t size)
{
    if (p->device)
        return device_arena_take(p->device, count, size);
    if (p->status == STATUS_OK)
        p->status = device_arena_add(p->total, count, size, p->error);
    return NULL;
}

static struct statistics statistics_piece(struct pieces *p, int64_t count, bool fp64)
{
    size_t size = sizeof(struct reference_stat) + (fp64 ? sizeof(struct reference_stat64) : 0);
    struct statistics s = {.stats = piece(p, count, size), .bytes = (size_t)count * size};
    if (fp64 && s.stats)
        s.stats64 = (struct reference_stat64 *)(void *)(s.stats + count);
    return s;
}

// Maximum number of query rows that are computed together: the judged rows, or, if `alone`, those
// of any rank.
static int64_t queries_most(const struct verify_cuda *x)
{
    int64_t most = x->extent.rows[SIDE_Q];
    for (int rank = 0; rank < x->c->world_size && x->v.alone; rank++)
        most = larger(most, tables_rows(x->c, SIDE_Q, rank));
    return most;
}

static int64_t results_elements(const struct verify_cuda *x, int dim)
{
    const struct cp_case *c = x->c;
    int64_t keys = c->training ? x->extent.rows[SIDE_KV] * c->kv_heads : 0;
    return larger(queries_most(x) * c->heads, keys) * reference_cuda_padded(dim);
}

static struct reference_results results_piece(struct pieces *p, const struct verify_cuda *x,
                                              int dim)
{
    int64_t elements = results_elements(x, dim);
    struct reference_results r = {0};
    if (x->extent.fp64)
        r.exact64 = piece(p, elements, sizeof(double));
    else
        r.exact = piece(p, elements, sizeof(float));
    r.twin = piece(p, elements, (size_t)case_element_bytes(x->c));
    return r;
}

static void statistics_pieces(struct pieces *p, struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    bool fp64 = x->extent.fp64;
    x->judged = statistics_piece(p, x->extent.rows[SIDE_Q] * c->heads, fp64);
    if (!c->training && !x->v.alone)
        return;
    for (int i = 0; i < c->world_size; i++) {
        bool own = i == x->v.rank && !verify_is_sample(x) && !x->v.placed;
        x->ranks[i] =
            own ? x->judged : statistics_piece(p, tables_rows(c, SIDE_Q, i) * c->heads, fp64);
    }
    if (c->training)
        x->all = statistics_piece(p, x->r.tokens[SIDE_Q] * c->heads, fp64);
}

static void bias_pieces(struct pieces *p, struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    if (!totals_has_bias(c) || (x->v.alone && !x->v.results.dbias))
        return;
    struct totals_layout l = totals_layout(c, x->v.rank);
    int64_t elements = l.heads * l.rows * l.columns;
    int64_t parts =
        bias_is_whole(c) && !x->v.alone ? bias_share(c, x->v.rank).count * c->world_size : 0;
    x->dbias = piece(p, elements, sizeof(double));
    x->dbias_parts = piece(p, parts, sizeof(double));
    x->dbias_twin = piece(p, elements, sizeof(float));
    x->dbias_twin_parts = piece(p, parts, sizeof(float));
    x->bias_terms = piece(p, queries_most(x) * c->heads, sizeof(float));
    if (p->device) {
        queue_note(
            x->v.queue,
            cudaMemsetAsync(x->dbias, 0, (size_t)elements * sizeof(double), x->v.queue->stream),
            "the reference's gradient of the bias");
        queue_note(
            x->v.queue,
            cudaMemsetAsync(x->dbias_twin, 0, (size_t)elements * sizeof(float), x->v.queue->stream),
            "the twin's gradient of the bias");
    }
}

// Device memory of an element of the inputs, in bytes: fp32, 16 bits or both.
static int64_t input_bytes(const struct verify_cuda *x)
{
    return (x->extent.fp64 ? 4 : 0) + (x->c->dtype != DTYPE_FP32 ? 2 : 0);
}

// Number of key heads whose inputs are in memory at a time. `bytes`: inputs of one key head and its
// query heads.
static int kv_step_of(const struct verify_cuda *x, int64_t bytes)
{
    const struct cp_case *c = x->c;
    if (bytes == 0)
        return c->kv_heads;
    int64_t share = bytes * c->kv_heads / c->world_size, tiles = x->extent.tiles[SIDE_KV];
    int64_t busy = tiles > 0 ? (BLOCKS_BUSY + tiles - 1) / tiles : 1;
    int64_t step = INPUT_BYTES_MAX / bytes, most = larger(INPUT_BYTES_MAX, 2 * share) / bytes;
    if (step < busy)
        step = busy < most ? busy : most;
    step = larger(step, 1);
    return step < c->kv_heads ? (int)step : c->kv_heads;
}

static void input_pieces(struct pieces *p, struct verify_cuda *x)
{
    int64_t one = 0;
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        one += reference_cuda_elements(&x->r, i, 1) * input_bytes(x);
    x->kv_step = kv_step_of(x, one);
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        int64_t elements = reference_cuda_elements(&x->r, i, x->kv_step);
        if (x->extent.fp64)
            x->r.inputs[i] = piece(p, elements, sizeof(float));
        if (x->c->dtype != DTYPE_FP32)
            x->r.narrow[i] = piece(p, elements, sizeof(uint16_t));
    }
}

static int64_t scratch_bytes(const struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    int64_t bytes = 0;
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        struct reference_rows r = {.tile_count = x->extent.tiles[side],
                                   .rows = x->extent.rows[side]};
        bytes = larger(
            bytes, compare_cuda_rows_scratch_bytes(&r, side == SIDE_Q ? c->heads : c->kv_heads));
    }
    if (totals_has_bias(c)) {
        struct totals_layout l = totals_layout(c, x->v.rank);
        bytes = larger(bytes, compare_cuda_lines_scratch_bytes(l.heads * l.rows));
    }
    return bytes;
}

// Lists all pieces. Needs the extent and the tokens of all sequences.
static void all_pieces(struct pieces *p, struct verify_cuda *x)
{
    const struct cp_case *c = x->c;
    int64_t q = queries_most(x) * c->heads, kv = x->extent.rows[SIDE_KV] * c->kv_heads;
    x->scratch = piece(p, scratch_bytes(x), 1);
    x->expected[0] = results_piece(p, x, c->head_dim_v);
    if (c->training)
        x->expected[1] = results_piece(p, x, c->head_dim_qk);
    if (c->training)
        x->terms = piece(p, larger(q, kv), sizeof(float));
    if (c->max_logit)
        x->max = piece(p, q, sizeof(float));
    statistics_pieces(p, x);
    bias_pieces(p, x);
    input_pieces(p, x);
}

// ---- host memory --------------------------------------------------------------------------------

// Maximum number of query tiles of a rank: this rank, or, if `alone`, any rank.
static int64_t tiles_queries(const struct verification_cuda *v)
{
    int64_t most = tables_tiles_max(v->c, SIDE_Q, v->rank);
    for (int rank = 0; rank < v->c->world_size && v->alone; rank++)
        most = larger(most, tables_tiles_max(v->c, SIDE_Q, rank));
    return most;
}

static int64_t tiles_most(const struct verification_cuda *v)
{
    return larger(tiles_queries(v), larger(tiles_room(v, SIDE_Q), tiles_room(v, SIDE_KV)));
}

static enum status host_reserve(const struct verification_cuda *v, size_t *total,
                                struct error *error)
{
    const struct cp_case *c = v->c;
    const struct {
        int64_t count;
        size_t size;
    } list[] = {
        {1, sizeof(struct verify_cuda)},
        {tiles_room(v, SIDE_Q), sizeof(struct reference_tile)},
        {tiles_room(v, SIDE_KV), sizeof(struct reference_tile)},
        {tiles_queries(v), sizeof(struct reference_tile)},
        {tiles_most(v), sizeof(struct reference_tile)},
        {tiles_most(v), sizeof(struct tile)},
        {c->batch, sizeof(struct reference_sequence)},
        {tables_pieces_max(c), sizeof(struct reference_piece)},
        {shard_spans_max(c), sizeof(struct span)},
    };
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && status == STATUS_OK; i++)
        status = arena_add(total, list[i].count, list[i].size, error);
    return status;
}

static struct verify_cuda *host_take(const struct verification_cuda *v)
{
    const struct cp_case *c = v->c;
    struct verify_cuda *x = arena_take(v->host, 1, sizeof(*x));
    *x = (struct verify_cuda){.v = *v,
                              .c = c,
                              .extent = {.fp64 = wants_fp64(c), .fraction = fraction_of(c)},
                              .r = {.queue = v->queue, .c = c, .given_bias = v->given[WHOLE_BIAS]}};
    _Static_assert(REFERENCE_Q == (int)WHOLE_Q && REFERENCE_K == (int)WHOLE_K &&
                       REFERENCE_V == (int)WHOLE_V && REFERENCE_DO == (int)WHOLE_DO,
                   "the same inputs in the same order");
    memcpy(x->r.given, v->given, sizeof(x->r.given));
    for (int side = SIDE_Q; side <= SIDE_KV; side++)
        x->tiles[side] = arena_take(v->host, tiles_room(v, (enum shard_side)side),
                                    sizeof(struct reference_tile));
    x->all_tiles = arena_take(v->host, tiles_queries(v), sizeof(struct reference_tile));
    x->sorted = arena_take(v->host, tiles_most(v), sizeof(struct reference_tile));
    x->drawn = arena_take(v->host, tiles_most(v), sizeof(struct tile));
    x->sequences = arena_take(v->host, c->batch, sizeof(struct reference_sequence));
    x->pieces = arena_take(v->host, tables_pieces_max(c), sizeof(struct reference_piece));
    x->spans = arena_take(v->host, shard_spans_max(c), sizeof(struct span));
    return x;
}

// ---- both ---------------------------------------------------------------------------------------

static void tokens_count(struct reference_cuda *r)
{
    for (int32_t i = 0; i < r->c->batch; i++)
        for (int side = SIDE_Q; side <= SIDE_KV; side++)
            r->tokens[side] += case_length(r->c, (enum shard_side)side, i);
}

enum status verify_cuda_reserve(const struct cp_case *c, int rank, size_t *host_bytes,
                                size_t *device_bytes, struct error *error)
{
    const struct verification_cuda v = {.c = c, .rank = rank};
    return verify_cuda_reserve_for(&v, host_bytes, device_bytes, error);
}

enum status verify_cuda_reserve_for(const struct verification_cuda *v, size_t *host_bytes,
                                    size_t *device_bytes, struct error *error)
{
    size_t host = *host_bytes, device = *device_bytes;
    struct verify_cuda x = {.v = *v, .c = v->c, .r = {.c = v->c}};
    struct pieces p = {.total = &device, .error = error};
    enum status status = host_reserve(v, &host, error);
    if (status == STATUS_OK)
        status = extent_find(&x.extent, v, error);
    if (status != STATUS_OK)
        return status;
    tokens_count(&x.r);
    all_pieces(&p, &x);
    if (p.status != STATUS_OK)
        return p.status;
    *host_bytes = host;
    *device_bytes = device;
    return STATUS_OK;
}

struct verify_cuda *verify_take(const struct verification_cuda *v)
{
    struct verify_cuda *x = host_take(v);
    struct pieces p = {.device = v->device};
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        enum shard_side s = (enum shard_side)side;
        extent_side(&x->extent, v, s, v->spans[side], v->span_count[side], x->drawn);
        x->extent.tiles[side] = tables_tiles(v->c, s, v->rank, v->spans[side], v->span_count[side],
                                             x->extent.fraction, x->drawn, x->tiles[side]);
    }
    tables_sequences(&x->r, x->sequences);
    all_pieces(&p, x);
    return x;
}
