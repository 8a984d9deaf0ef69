// SPDX-License-Identifier: Apache-2.0
// The products of a tile (kernels/cpu/tile.h) on AMX, for cases in bf16. Q, K, V and dO are bf16.
// Each element of P and dS is the sum of two bf16 numbers (amx_split()), with a relative error of
// about 2^-17.
#ifndef CPATTN_KERNELS_CPU_AMX_TILE_H
#define CPATTN_KERNELS_CPU_AMX_TILE_H

#include "kernels/cpu/tile.h"

// All stacked rows of a block, of Q or dO.
struct amx_rows {
    uint16_t *rows;       // [rows][amx_depth_padded(d)]
    uint16_t *transposed; // [d][rows]; rows of a fixed stride
};

// The keys of a tile, of K or V, as right factors (common/amx.h).
struct amx_keys {
    uint16_t *across; // [d][keys], for products with Q or dO
    uint16_t *along;  // [keys][d], for products with P or dS
};

struct amx_tiles {
    void *memory; // the allocation of all buffers
    struct amx_rows q, d_out;
    struct amx_keys k, v;
    uint16_t *copy;    // the keys of a tile before packing, [keys][d]
    uint16_t *pieces;  // both bf16 pieces of P or dS of a part, [2][rows][keys]
    uint16_t *p, *d_s; // both pieces of P and of dS of a tile, right factors [rows][keys]
    uint16_t *edge;    // the last columns of a transposed tensor, zero-padded
    float *sums;       // [d][keys]: a gradient of keys, transposed
};

// Stacked rows of a part. A tile is computed part by part, so that the scores stay in cache between
// the two products.
#define AMX_PART_ROWS 64

// The part of a tile that begins with stacked row `row`: rows_begin plus a multiple of
// AMX_PART_ROWS.
static inline struct tile amx_part(const struct tile *t, int row)
{
    struct tile part = *t;
    part.rows_begin = row;
    if (part.rows_end > row + AMX_PART_ROWS)
        part.rows_end = row + AMX_PART_ROWS;
    return part;
}

// NULL when memory is short.
struct amx_tiles *amx_tiles_create(void);
void amx_tiles_destroy(struct amx_tiles *a);

// True if AMX computes the products of the shape.
static inline bool amx_tiles_serve(const struct amx_tiles *a, const struct attention_shape *shape)
{
    return a && shape->dtype == DTYPE_BF16;
}

// amx_load_rows() loads Q or dO of a block, amx_load_keys() K or V of a tile. `transposed`,
// `across` and `along` tell which of these members of *to to fill; to->rows is always filled.
void amx_load_rows(const struct block *b, const void *tensor, int d, bool transposed,
                   struct amx_rows *to);
void amx_load_keys(struct amx_tiles *a, const struct block *b, const struct tile *t,
                   const void *tensor, int d, bool across, bool along, struct amx_keys *to);

// scores [rows of the tile][TILE_SCORE_STRIDE] = rows * keys', unscaled. `scores` points to the
// first row of the block.
void amx_scores(const struct tile *t, const struct amx_rows *rows, const struct amx_keys *keys,
                int d, float *scores);

// Splits P or dS of a part into a->pieces, for amx_add_to_rows(). `scores` is laid out as in
// amx_scores(); zeros are written behind the keys of each row. If `packed` is not NULL, also packs
// the pieces there, for amx_add_to_keys().
void amx_take_weights(struct amx_tiles *a, const struct tile *t, const struct tile *part,
                      float *scores, uint16_t *packed);

// sums [rows][d] += weights * keys, with the weights of the last amx_take_weights(). `sums` points
// to the first row of the block.
void amx_add_to_rows(const struct amx_tiles *a, const struct tile *part,
                     const struct amx_keys *keys, int d, float *sums);

// sums [keys][stride] += factor * weights' * rows, for the first `keys` keys of the tile. All parts
// of the tile must be in `packed`.
void amx_add_to_keys(struct amx_tiles *a, const struct vector_ops *vector, const struct tile *t,
                     const uint16_t *packed, const struct amx_rows *rows, int d, int keys,
                     float factor, float *sums, int64_t stride);

#endif
