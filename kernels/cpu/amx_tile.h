// SPDX-License-Identifier: Apache-2.0
// The products of a tile (kernels/cpu/tile.h) on AMX, for cases in bf16. Q, K, V and dO are bf16.
// Each element of P and dS is the sum of two bf16 numbers (amx_split()), with a relative error of
// about 2^-17.
#ifndef CPATTN_KERNELS_CPU_AMX_TILE_H
#define CPATTN_KERNELS_CPU_AMX_TILE_H

#include "kernels/cpu/tile.h"

// All rows of a block of a tensor on the query side.
struct amx_rows {
    uint16_t *rows;       // [rows][d]
    uint16_t *transposed; // [d][rows]
};

// The keys of a tile of a tensor on the key side.
struct amx_keys {
    uint16_t *across; // a right factor [d][keys]
    uint16_t *along;  // a right factor [keys][d]
};

struct amx_tiles {
    void *memory; // the allocation of all that follows
    struct amx_rows q, d_out;
    struct amx_keys k, v;
    uint16_t *copy;    // a copy of the keys
    uint16_t *pieces;  // both numbers of P or dS of a part, [2][rows][keys]
    uint16_t *p, *d_s; // both numbers of P and of dS of a tile, right factors [rows][keys]
    uint16_t *edge;    // the last columns of a transposed tensor
    float *sums;       // [d][keys]
};

// Rows of a tile that are computed together. Their scores stay in a cache between two products.
#define AMX_PART_ROWS 64

// The part of a tile that begins with a row: rows_begin and so on in steps of AMX_PART_ROWS.
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

// Loads a tensor. Fills `transposed`, `across` and `along` if they are wanted.
void amx_load_rows(const struct block *b, const void *tensor, int d, bool transposed,
                   struct amx_rows *to);
void amx_load_keys(struct amx_tiles *a, const struct block *b, const struct tile *t,
                   const void *tensor, int d, bool across, bool along, struct amx_keys *to);

// scores [rows of the tile][TILE_SCORE_STRIDE] = rows * keys', without a factor. `scores` begins
// with the first row of the block.
void amx_scores(const struct tile *t, const struct amx_rows *rows, const struct amx_keys *keys,
                int d, float *scores);

// Splits P or dS of a part for amx_add_to_rows(). `scores` is laid out as in amx_scores(); zeros
// are written behind the keys of a row. If `packed` is not NULL, the weights are also stored there,
// for amx_add_to_keys().
void amx_take_weights(struct amx_tiles *a, const struct tile *t, const struct tile *part,
                      float *scores, uint16_t *packed);

// sums [rows][d] += weights * keys. `sums` begins with the first row of the block.
void amx_add_to_rows(const struct amx_tiles *a, const struct tile *part,
                     const struct amx_keys *keys, int d, float *sums);

// sums [keys][stride] += factor * weights' * rows, for the first `keys` keys of the tile. All parts
// of the tile must be packed.
void amx_add_to_keys(struct amx_tiles *a, const struct vector_ops *vector, const struct tile *t,
                     const uint16_t *packed, const struct amx_rows *rows, int d, int keys,
                     float factor, float *sums, int64_t stride);

#endif
