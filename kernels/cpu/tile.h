// SPDX-License-Identifier: Apache-2.0
// What forward and backward of the CPU backend share: scratch of a fixed size, and the way a slice
// is cut into pieces that fit it.
//
// A *block* is a run of queries of a slice for some heads that share a key head; its rows are
// stacked (query by query, the heads of one query together), so that one matrix product serves a
// whole group. A *tile* is a block against a run of keys, cut down to the rows that see any of
// them.
#ifndef CPATTN_KERNELS_CPU_TILE_H
#define CPATTN_KERNELS_CPU_TILE_H

#include "kernels/attention.h"
#include "kernels/rows.h"
#include "kernels/vector.h"

#define TILE_ROWS         512 // stacked rows of a block
#define TILE_KEYS         384 // keys of a tile
#define TILE_EDGE         128 // keys of a tile at the edge of the mask, where only some rows see them
// Floats between rows of scores: rows a power of two apart would share cache sets.
#define TILE_SCORE_STRIDE (TILE_KEYS + 16)

struct amx_tiles;

struct attention_backend {
    const struct vector_ops *vector;
    struct amx_tiles *amx; // NULL: products are the BLAS's
    // All in one allocation. q, k [rows][d_qk]; v, d_out, out [rows][d_v]; d_q [rows][d_qk]; one
    // row after the other without gaps.
    float *q, *k, *v, *d_out, *out, *d_q;
    float *scores, *d_scores; // [TILE_ROWS][TILE_SCORE_STRIDE]
    float *slopes;            // [TILE_KEYS], of one row: what softcapping does to its gradient
    float *bias;              // [TILE_KEYS], of one row
    float *row_max;           // forward: of the stacked rows so far, base 2
    double *row_sum;        // of their weights: a million small ones beside a large one count, too
    float *row_lse, *row_d; // backward: LSE in base 2, and D
};

struct block {
    const struct attention_shape *shape;
    const struct slice *slice;
    int64_t begin, end; // queries of the slice
    int head, heads;    // first query head and how many, all of one key head
    int kv_head;
    // Keys that any of the queries sees, empty where begin >= end; those that all of them see,
    // grown to the former where cutting the difference apart would not pay.
    int64_t keys_begin, keys_end;
    int64_t inner_begin, inner_end;
};

struct tile {
    int64_t begin, end;       // keys of the slice
    int rows_begin, rows_end; // stacked rows of the block that see any of them
};

// OK if the backend can serve the shape.
enum status tile_check_shape(const struct attention_shape *shape, struct error *error) MUST_CHECK;

// Blocks of a slice in a fixed order:
// for (bool more = block_first(&b, shape, slice); more; more = block_next(&b))
bool block_first(struct block *b, const struct attention_shape *shape, const struct slice *slice);
bool block_next(struct block *b);

static inline int block_rows(const struct block *b)
{
    return (int)(b->end - b->begin) * b->heads;
}

// The vector of a stacked row begins at block_vector(...) * d in [rows][heads][d], its scalar lies
// at block_scalar(...) in [heads][q_rows].
int64_t block_vector(const struct block *b, int row);
int64_t block_scalar(const struct block *b, int row);

// Tiles of a block in ascending keys, as for blocks.
bool tile_first(struct tile *t, const struct block *b);
bool tile_next(struct tile *t, const struct block *b);

static inline int tile_keys(const struct tile *t)
{
    return (int)(t->end - t->begin);
}

// The vector of the tile's first key begins at tile_vector(...) * d in [rows][kv_heads][d]; those
// of the next keys follow tile_vector_stride(...) * d apart.
int64_t tile_vector(const struct tile *t, const struct block *b);
int64_t tile_vector_stride(const struct block *b);

// Keys [*begin, *end) of the tile, counted from its first, that a stacked row sees; none where both
// are equal.
void tile_visible(const struct tile *t, const struct block *b, int row, int *begin, int *end);

// All stacked rows of a query-side tensor, or all keys of a tile of a key-side one, as fp32.
void tile_load_rows(const struct vector_ops *vector, const struct block *b, const void *tensor,
                    int d, float *rows);
void tile_load_keys(const struct vector_ops *vector, const struct block *b, const struct tile *t,
                    const void *tensor, int d, float *keys);

// The same as it is in memory, for a dtype of 16 bits: rows `stride` elements apart with zeros
// behind their d elements, keys one after the other.
void tile_copy_rows(const struct block *b, const void *tensor, int d, uint16_t *rows,
                    int64_t stride);
void tile_copy_keys(const struct block *b, const struct tile *t, const void *tensor, int d,
                    uint16_t *keys);

// The scale of the logits.
double tile_scale(const struct attention_shape *shape);

// What products of queries and keys are to be multiplied by before tile_logits() makes keys [begin,
// end) of a row of a tile logits in base 2, softcapped and biased. With softcap the row's
// backend->slopes get the derivatives of capped by uncapped logits. bias may be NULL.
float tile_factor(const struct attention_shape *shape);
void tile_logits(struct attention_backend *backend, const struct block *b, const struct tile *t,
                 int row, int begin, int end, const void *bias, float *x);

// For tests (common/mutation.h): rounds to the dtype.
void tile_round(const struct block *b, float *x, int count);

// Index in the bias of the tile's first key, for a stacked row.
int64_t tile_bias(const struct tile *t, const struct block *b, int row);

// What the table backend_cpu offers under these names.
enum status cpu_forward(struct attention_backend *backend, const struct attention_forward *args,
                        struct error *error);
enum status cpu_backward(struct attention_backend *backend, const struct attention_backward *args,
                         struct error *error);

// kernels/cpu/rows.c: what kernels/backend.h says of packed rows.
void cpu_merge_rows(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                    const float *lse_packed, enum packed_layout layout, float *o, float *lse);
void cpu_pack_rows(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                   enum case_dtype dtype, const float *source, void *packed);
void cpu_add_rows(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                  enum case_dtype dtype, const void *packed, float *destination);
void cpu_pack_heads(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, enum packed_layout layout, const float *source,
                    float *packed);

#endif
