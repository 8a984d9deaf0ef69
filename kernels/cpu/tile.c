// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tile.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "common/mutation.h"
#include "kernels/dtype.h"

enum status tile_check_shape(const struct attention_shape *shape, struct error *error)
{
    int d_max = shape->d_qk > shape->d_v ? shape->d_qk : shape->d_v;
    if (shape->d_qk < 1 || shape->d_v < 1 || d_max > HEAD_DIM_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "head dimensions are %d and %d; accepted is 1 to %d", shape->d_qk,
                         shape->d_v, HEAD_DIM_MAX);
    if (shape->heads < 1 || shape->group < 1 || shape->head_phase < 0 ||
        shape->head_phase >= shape->group ||
        (shape->heads + shape->head_phase - 1) / shape->group + 1 != shape->kv_heads)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%d query heads from head %d of a group of %d do not use %d key heads",
                         shape->heads, shape->head_phase, shape->group, shape->kv_heads);
    int64_t stride;
    if (__builtin_mul_overflow(shape->row_step, (int64_t)shape->kv_heads * d_max, &stride) ||
        shape->row_step < 1 || stride > INT_MAX)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "consecutive keys lie %lld rows of %d x %d elements apart; the BLAS "
                         "reaches %d elements",
                         (long long)shape->row_step, shape->kv_heads, d_max, INT_MAX);
    return STATUS_OK;
}

double tile_scale(const struct attention_shape *shape)
{
    if (MUTATED(SCALE_5_PERCENT) || MUTATED(SCALE_HALF_PERCENT))
        return shape->scale * (MUTATED(SCALE_5_PERCENT) ? 1.05 : 1.005);
    return shape->scale;
}

float tile_factor(const struct attention_shape *shape)
{
    return (float)(tile_scale(shape) * (shape->softcap != 0 ? 1 / shape->softcap : M_LOG2E));
}

// ---- blocks -------------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Length of the pieces if `length` is cut into the fewest pieces of at most `most`, as evenly as
// possible.
static int64_t even_piece(int64_t length, int64_t most)
{
    return divide_up(length, divide_up(length, most));
}

// Both bounds of the visible keys ascend with the query. So the keys that any query sees, and those
// that all see, follow from the first and the last query. A margin narrower than TILE_EDGE is not
// cut off the inner range.
static void block_set_keys(struct block *b)
{
    int64_t begin, end;
    slice_visible(b->slice, b->begin, &b->keys_begin, &end);
    slice_visible(b->slice, b->end - 1, &begin, &b->keys_end);
    bool cut_begin = begin - b->keys_begin >= TILE_EDGE, cut_end = b->keys_end - end >= TILE_EDGE;
    b->inner_begin = cut_begin ? least(begin, b->keys_end) : b->keys_begin;
    b->inner_end = cut_end ? most(end, b->inner_begin) : b->keys_end;
}

static void block_set_queries(struct block *b, int64_t begin)
{
    int64_t queries = even_piece(b->slice->q_len, TILE_ROWS / b->heads);
    b->begin = begin;
    b->end = least(begin + queries, b->slice->q_len);
    block_set_keys(b);
}

static void block_set_heads(struct block *b, int head)
{
    const struct attention_shape *shape = b->shape;
    b->head = head;
    b->kv_head = (head + shape->head_phase) / shape->group;
    int64_t group_end = (b->kv_head + 1) * (int64_t)shape->group - shape->head_phase;
    b->heads = (int)least(TILE_ROWS, least(group_end, shape->heads) - head);
    block_set_queries(b, 0);
}

bool block_first(struct block *b, const struct attention_shape *shape, const struct slice *slice)
{
    b->shape = shape;
    b->slice = slice;
    if (slice->q_len <= 0 || slice->kv_len <= 0)
        return false;
    block_set_heads(b, 0);
    return true;
}

bool block_next(struct block *b)
{
    if (b->end < b->slice->q_len) {
        block_set_queries(b, b->end);
        return true;
    }
    if (b->head + b->heads < b->shape->heads) {
        block_set_heads(b, b->head + b->heads);
        return true;
    }
    return false;
}

static int64_t block_memory_row(const struct block *b, int row)
{
    return b->slice->q_row + (b->begin + row / b->heads) * b->shape->row_step;
}

int64_t block_vector(const struct block *b, int row)
{
    return block_memory_row(b, row) * b->shape->heads + b->head + row % b->heads;
}

int64_t block_scalar(const struct block *b, int row)
{
    return (b->head + row % b->heads) * b->shape->q_rows + block_memory_row(b, row);
}

// ---- tiles --------------------------------------------------------------------------------------

// The end of the tile that begins at key `begin`. The keys before, within and behind the inner
// range are each cut into even tiles.
static int64_t tile_end(const struct block *b, int64_t begin)
{
    if (begin < b->inner_begin)
        return least(begin + even_piece(b->inner_begin - b->keys_begin, TILE_EDGE), b->inner_begin);
    if (begin < b->inner_end)
        return least(begin + even_piece(b->inner_end - b->inner_begin, TILE_KEYS), b->inner_end);
    int64_t edge = b->keys_end - b->inner_end;
    return least(begin + even_piece(edge, TILE_EDGE), b->keys_end);
}

// Sets the stacked rows of a tile: from the first to the last query that sees any of its keys.
static void tile_trim_rows(struct tile *t, const struct block *b)
{
    int64_t first = b->begin, last = b->end - 1, begin, end;
    for (; first < last; first++) {
        slice_visible(b->slice, first, &begin, &end);
        if (end > t->begin)
            break;
    }
    for (; last > first; last--) {
        slice_visible(b->slice, last, &begin, &end);
        if (begin < t->end)
            break;
    }
    t->rows_begin = (int)(first - b->begin) * b->heads;
    t->rows_end = (int)(last + 1 - b->begin) * b->heads;
}

static bool tile_set(struct tile *t, const struct block *b, int64_t begin)
{
    if (begin >= b->keys_end)
        return false;
    t->begin = begin;
    t->end = tile_end(b, begin);
    tile_trim_rows(t, b);
    return true;
}

bool tile_first(struct tile *t, const struct block *b)
{
    return tile_set(t, b, b->keys_begin);
}

bool tile_next(struct tile *t, const struct block *b)
{
    return tile_set(t, b, t->end);
}

// The key head to load; a mutation makes it wrong.
static int read_kv_head(const struct block *b)
{
    return MUTATED(GQA_WRONG_HEAD) ? (b->kv_head + 1) % b->shape->kv_heads : b->kv_head;
}

static int64_t key_vector(const struct tile *t, const struct block *b, int kv_head)
{
    int64_t row = b->slice->kv_row + t->begin * b->shape->row_step;
    return row * b->shape->kv_heads + kv_head;
}

int64_t tile_vector(const struct tile *t, const struct block *b)
{
    return key_vector(t, b, b->kv_head);
}

int64_t tile_vector_stride(const struct block *b)
{
    return b->shape->row_step * b->shape->kv_heads;
}

void tile_visible(const struct tile *t, const struct block *b, int row, int *begin, int *end)
{
    int64_t keys_begin, keys_end;
    slice_visible(b->slice, b->begin + row / b->heads, &keys_begin, &keys_end);
    *begin = (int)least(most(keys_begin - t->begin, 0), tile_keys(t));
    *end = (int)least(most(keys_end - t->begin, *begin), tile_keys(t));
}

// ---- logits -------------------------------------------------------------------------------------

int64_t tile_bias(const struct tile *t, const struct block *b, int row)
{
    const struct attention_shape *shape = b->shape;
    int64_t query = b->begin + row / b->heads, head = b->head + row % b->heads;
    int64_t bias_row = b->slice->bias_row + query * shape->bias_row_step;
    return head * shape->bias_head_stride + bias_row * shape->bias_row_stride +
           b->slice->bias_column + t->begin;
}

void tile_logits(struct attention_backend *backend, const struct block *b, const struct tile *t,
                 int row, int begin, int end, const void *bias, float *x)
{
    const struct vector_ops *vector = backend->vector;
    const struct attention_shape *shape = b->shape;
    int count = end - begin;
    if (shape->softcap != 0) {
        vector->tanh(x + begin, backend->slopes + begin, count);
        vector->scale(x + begin, count, (float)(shape->softcap * M_LOG2E));
    }
    if (!bias)
        return;
    int64_t first = tile_bias(t, b, row) + begin;
    vector->load(shape->dtype, (const char *)bias + first * dtype_bytes(shape->dtype),
                 backend->bias, count);
    vector->axpy(x + begin, backend->bias, count,
                 (float)(MUTATED(BIAS_SCALED) ? shape->scale * M_LOG2E : M_LOG2E));
}

// ---- loads --------------------------------------------------------------------------------------

// Rows are prefetched this many rows ahead. They lie too far apart for the hardware prefetcher, and
// converting a row takes less time than fetching it.
#define ROWS_AHEAD 8
#define CACHE_LINE 64

static void prefetch(const char *memory, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(memory + i);
}

// For mutations: clears the bits `lost` of loaded values.
static void lose_bits(float *values, int64_t count, uint32_t lost)
{
    for (int64_t i = 0; i < count && lost != 0; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= ~lost;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

// Converts `rows` runs of `count` elements, whose starts are `stride` elements apart, to fp32
// without gaps.
static void load_runs(const struct vector_ops *vector, enum case_dtype dtype, const char *source,
                      int64_t stride, int64_t rows, int64_t count, float *values)
{
    int64_t step = stride * dtype_bytes(dtype), bytes = count * dtype_bytes(dtype);
    for (int64_t row = 0; row < rows; row++) {
        if (row + ROWS_AHEAD < rows)
            prefetch(source + (row + ROWS_AHEAD) * step, bytes);
        vector->load(dtype, source + row * step, values + row * count, count);
    }
    if (MUTATED(TF32_PRODUCTS) && dtype == DTYPE_FP32)
        lose_bits(values, rows * count, 0x1fff);
}

void tile_load_rows(const struct vector_ops *vector, const struct block *b, const void *tensor,
                    int d, float *rows)
{
    const struct attention_shape *shape = b->shape;
    const char *source = (const char *)tensor + block_vector(b, 0) * d * dtype_bytes(shape->dtype);
    load_runs(vector, shape->dtype, source, shape->row_step * shape->heads * d, b->end - b->begin,
              (int64_t)b->heads * d, rows);
}

void tile_load_keys(const struct vector_ops *vector, const struct block *b, const struct tile *t,
                    const void *tensor, int d, float *keys)
{
    const struct attention_shape *shape = b->shape;
    int64_t first = key_vector(t, b, read_kv_head(b)) * d;
    const char *source = (const char *)tensor + first * dtype_bytes(shape->dtype);
    load_runs(vector, shape->dtype, source, tile_vector_stride(b) * d, tile_keys(t), d, keys);
    if (MUTATED(LOAD_LOSES_BIT) && shape->dtype == DTYPE_BF16)
        lose_bits(keys, (int64_t)tile_keys(t) * d, 0x10000);
}

void tile_copy_rows(const struct block *b, const void *tensor, int d, uint16_t *rows,
                    int64_t stride)
{
    int64_t step = b->shape->row_step * b->shape->heads * d;
    const uint16_t *source = (const uint16_t *)tensor + block_vector(b, 0) * d;
    for (int64_t query = b->begin; query < b->end; query++, source += step)
        for (int head = 0; head < b->heads; head++, rows += stride) {
            memcpy(rows, source + (int64_t)head * d, (size_t)d * sizeof(*rows));
            memset(rows + d, 0, (size_t)(stride - d) * sizeof(*rows));
        }
}

void tile_copy_keys(const struct block *b, const struct tile *t, const void *tensor, int d,
                    uint16_t *keys)
{
    int64_t step = tile_vector_stride(b) * d, count = tile_keys(t);
    const uint16_t *source = (const uint16_t *)tensor + key_vector(t, b, read_kv_head(b)) * d;
    for (int64_t key = 0; key < count; key++, source += step) {
        if (key + ROWS_AHEAD < count)
            prefetch((const char *)(source + ROWS_AHEAD * step), d * (int64_t)sizeof(*source));
        memcpy(keys + key * d, source, (size_t)d * sizeof(*source));
    }
    for (int64_t i = 0; i < count * d && MUTATED(LOAD_LOSES_BIT); i++)
        keys[i] &= 0xfffe;
}

void tile_round(const struct block *b, float *x, int count)
{
    float rounded;
    for (int i = 0; i < count; i++) {
        dtype_store(b->shape->dtype, &rounded, 0, x[i]);
        x[i] = dtype_load(b->shape->dtype, &rounded, 0);
    }
}
