// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/amx_tile.h"

#include <stdlib.h>
#include <string.h>

#include "common/amx.h"
#include "common/zeros.h"

// Strides of rows in elements: odd numbers of cache lines, so that rows do not share cache sets.
#define ROWS_STRIDE  (TILE_ROWS + AMX_DEPTH)
#define PIECE_STRIDE (TILE_KEYS + AMX_DEPTH)
#define PIECES       ((int64_t)AMX_PART_ROWS * PIECE_STRIDE) // elements of one of the two pieces
#define PACKED       ((int64_t)TILE_ROWS * TILE_KEYS)
#define LOCAL_STRIDE (HEAD_DIM_MAX + 16)

// Lays all buffers out from `base` on and sets the pointers to them; with NULL only counts. Returns
// their bytes.
static size_t lay_out(struct amx_tiles *a, char *base)
{
    size_t rows = (size_t)(TILE_ROWS + AMX_DEPTH) * HEAD_DIM_MAX;
    size_t transposed = (size_t)ROWS_STRIDE * HEAD_DIM_MAX, used = 0;
    size_t keys = (size_t)TILE_KEYS * HEAD_DIM_MAX;
    struct {
        uint16_t **place;
        size_t elements;
    } pieces[] = {
        {&a->q.rows, rows},
        {&a->d_out.rows, rows},
        {&a->q.transposed, transposed},
        {&a->d_out.transposed, transposed},
        {&a->k.across, keys},
        {&a->k.along, keys},
        {&a->v.across, keys},
        {&a->v.along, keys},
        {&a->copy, keys},
        {&a->pieces, (size_t)(2 * PIECES + AMX_DEPTH * PIECE_STRIDE)},
        {&a->p, (size_t)(2 * PACKED)},
        {&a->d_s, (size_t)(2 * PACKED)},
        {&a->edge, (size_t)HEAD_DIM_MAX * AMX_DEPTH},
    };
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        *pieces[i].place = base ? (uint16_t *)(void *)(base + used) : NULL;
        used += (pieces[i].elements * sizeof(uint16_t) + ZEROS_ALIGNMENT - 1) / ZEROS_ALIGNMENT *
                ZEROS_ALIGNMENT;
    }
    a->sums = base ? (float *)(void *)(base + used) : NULL;
    return used + (size_t)HEAD_DIM_MAX * TILE_SCORE_STRIDE * sizeof(float);
}

struct amx_tiles *amx_tiles_create(void)
{
    struct amx_tiles *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    char *base = zeros_create(lay_out(a, NULL), &a->memory);
    if (!base) {
        free(a);
        return NULL;
    }
    lay_out(a, base);
    return a;
}

void amx_tiles_destroy(struct amx_tiles *a)
{
    if (a)
        free(a->memory);
    free(a);
}

// ---- loads --------------------------------------------------------------------------------------

static void transpose(const uint16_t *from, int64_t stride, int64_t rows, int d, uint16_t *to)
{
    for (int64_t first = 0; first < rows; first += AMX_DEPTH) {
        int64_t end = first + AMX_DEPTH < rows ? first + AMX_DEPTH : rows;
        for (int i = 0; i < d; i++)
            for (int64_t row = first; row < end; row++)
                to[i * ROWS_STRIDE + row] = from[row * stride + i];
    }
}

void amx_load_rows(const struct block *b, const void *tensor, int d, bool transposed,
                   struct amx_rows *to)
{
    int64_t stride = amx_depth_padded(d);
    tile_copy_rows(b, tensor, d, to->rows, stride);
    if (transposed)
        transpose(to->rows, stride, block_rows(b), d, to->transposed);
}

void amx_load_keys(struct amx_tiles *a, const struct block *b, const struct tile *t,
                   const void *tensor, int d, bool across, bool along, struct amx_keys *to)
{
    int keys = tile_keys(t);
    tile_copy_keys(b, t, tensor, d, a->copy);
    if (across)
        amx_pack_transposed(keys, d, a->copy, d, to->across);
    if (along)
        amx_pack(keys, d, a->copy, d, to->along);
}

// ---- products -----------------------------------------------------------------------------------

static int rows_of(const struct tile *t)
{
    return t->rows_end - t->rows_begin;
}

void amx_scores(const struct tile *t, const struct amx_rows *rows, const struct amx_keys *keys,
                int d, float *scores)
{
    int64_t stride = amx_depth_padded(d);
    amx_multiply(rows_of(t), tile_keys(t), d, rows->rows + t->rows_begin * stride, stride,
                 amx_right_transposed(keys->across, d),
                 scores + (int64_t)t->rows_begin * TILE_SCORE_STRIDE, TILE_SCORE_STRIDE, false);
}

void amx_take_weights(struct amx_tiles *a, const struct tile *t, const struct tile *part,
                      float *scores, uint16_t *packed)
{
    int64_t keys = tile_keys(part), padded = amx_depth_padded(keys);
    for (int64_t row = 0; row < rows_of(part); row++) {
        float *x = scores + (part->rows_begin + row) * TILE_SCORE_STRIDE;
        uint16_t *piece = a->pieces + row * PIECE_STRIDE;
        memset(x + keys, 0, (size_t)(padded - keys) * sizeof(*x));
        amx_split(padded, x, piece, piece + PIECES);
    }
    if (!packed)
        return;
    packed += amx_right_elements(part->rows_begin - t->rows_begin, keys);
    amx_pack(rows_of(part), keys, a->pieces, PIECE_STRIDE, packed);
    amx_pack(rows_of(part), keys, a->pieces + PIECES, PIECE_STRIDE, packed + PACKED);
}

void amx_add_to_rows(const struct amx_tiles *a, const struct tile *part,
                     const struct amx_keys *keys, int d, float *sums)
{
    amx_multiply_pieces(rows_of(part), d, tile_keys(part), a->pieces, PIECE_STRIDE, PIECES,
                        amx_right(keys->along, d), 0, sums + (int64_t)part->rows_begin * d, d,
                        true);
}

// Copies the last `count` columns of a transposed tensor to a->edge, padded with zeros. The memory
// behind the columns may hold infinities, which a product with AMX_DEPTH columns would read.
static void edge_take(struct amx_tiles *a, const uint16_t *columns, int64_t count, int d)
{
    memset(a->edge, 0, (size_t)(d * AMX_DEPTH) * sizeof(*a->edge));
    for (int i = 0; i < d; i++)
        memcpy(a->edge + i * AMX_DEPTH, columns + i * ROWS_STRIDE,
               (size_t)count * sizeof(*a->edge));
}

// a->sums [d][keys] = rows' * weights
static void keys_multiply(struct amx_tiles *a, const struct tile *t, const uint16_t *packed,
                          const struct amx_rows *rows, int d)
{
    int64_t count = rows_of(t), whole = count / AMX_DEPTH * AMX_DEPTH, keys = tile_keys(t);
    const uint16_t *columns = rows->transposed + t->rows_begin;
    struct amx_right weights = amx_right(packed, keys);
    amx_multiply_pieces(d, keys, whole, columns, ROWS_STRIDE, 0, weights, PACKED, a->sums,
                        TILE_SCORE_STRIDE, false);
    if (whole == count)
        return;
    edge_take(a, columns + whole, count - whole, d);
    weights.tiles += whole / AMX_DEPTH * weights.next_rows;
    amx_multiply_pieces(d, keys, count - whole, a->edge, AMX_DEPTH, 0, weights, PACKED, a->sums,
                        TILE_SCORE_STRIDE, true);
}

void amx_add_to_keys(struct amx_tiles *a, const struct vector_ops *vector, const struct tile *t,
                     const uint16_t *packed, const struct amx_rows *rows, int d, int keys,
                     float factor, float *sums, int64_t stride)
{
    float local[AMX_ROWS * LOCAL_STRIDE];
    keys_multiply(a, t, packed, rows, d);
    for (int first = 0; first < keys; first += AMX_ROWS) {
        int count = keys - first < AMX_ROWS ? keys - first : AMX_ROWS;
        amx_transpose(d, count, a->sums + first, TILE_SCORE_STRIDE, local, LOCAL_STRIDE);
        for (int key = 0; key < count; key++)
            vector->axpy(sums + (first + key) * stride, local + (int64_t)key * LOCAL_STRIDE, d,
                         factor);
    }
}
