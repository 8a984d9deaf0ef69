// SPDX-License-Identifier: Apache-2.0
// Shared by forward and backward of the CPU backend: scratch of a fixed size, and the cutting of
// slices into pieces that fit into it.
//
// A *block* is a range of consecutive queries of a slice, for query heads that share a key head.
// Its rows are stacked: query by query, the heads of one query together. So one matrix product
// serves all these heads. A *tile* is a range of consecutive keys with the rows of a block that see
// any of them.
#ifndef CPATTN_KERNELS_CPU_TILE_H
#define CPATTN_KERNELS_CPU_TILE_H

#include "kernels/attention.h"
#include "kernels/rows.h"
#include "kernels/vector.h"

#define TILE_ROWS         512 // most stacked rows of a block
#define TILE_KEYS         384 // most keys of a tile
#define TILE_EDGE         128 // most keys of a tile at a mask edge, where only some rows see them
// Floats from one row of scores to the next: an odd number of cache lines, so that rows do not
// share cache sets.
#define TILE_SCORE_STRIDE (TILE_KEYS + 16)

struct amx_tiles;

struct attention_backend {
    const struct vector_ops *vector;
    struct amx_tiles *amx; // NULL: the BLAS computes products
    void *scratch;         // the allocation of all buffers
    // q, k, d_q [rows][d_qk]; v, d_out, out [rows][d_v], without gaps.
    float *q, *k, *v, *d_out, *out, *d_q;
    float *scores, *d_scores; // [TILE_ROWS][TILE_SCORE_STRIDE]
    float *slopes;            // [TILE_KEYS], of one row: derivatives of tanh in the softcap
    float *bias;              // [TILE_KEYS], of one row
    float *row_max;           // forward: running maximum of each stacked row, in base 2
    double *row_sum;          // sum of its weights: fp32 would lose small ones beside a large one
    float *row_lse, *row_d;   // backward: LSE in base 2, and delta
};

struct block {
    const struct attention_shape *shape;
    const struct slice *slice;
    int64_t begin, end; // queries [begin, end) of the slice
    int head, heads;    // first query head and number of heads, which all use kv_head
    int kv_head;
    int64_t keys_begin, keys_end;   // keys that any of the queries sees; none if begin >= end
    int64_t inner_begin, inner_end; // keys that all queries see, and margins too narrow to cut off
};

struct tile {
    int64_t begin, end;       // keys [begin, end) of the slice
    int rows_begin, rows_end; // stacked rows of the block that see any of them
};

// OK if the backend can compute the shape; else INVALID_ARGUMENT or UNIMPLEMENTED.
enum status tile_check_shape(const struct attention_shape *shape, struct error *error) MUST_CHECK;

// Iterate over the blocks of a slice in a fixed order; false: there are no more.
// for (bool more = block_first(&b, shape, slice); more; more = block_next(&b))
bool block_first(struct block *b, const struct attention_shape *shape, const struct slice *slice);
bool block_next(struct block *b);

static inline int block_rows(const struct block *b)
{
    return (int)(b->end - b->begin) * b->heads;
}

// The vector of a stacked row begins at element block_vector() * d of [rows][heads][d]. Its scalar
// is element block_scalar() of [heads][q_rows].
int64_t block_vector(const struct block *b, int row);
int64_t block_scalar(const struct block *b, int row);

// Iterate over the tiles of a block in ascending order of keys, as block_first() and block_next().
bool tile_first(struct tile *t, const struct block *b);
bool tile_next(struct tile *t, const struct block *b);

static inline int tile_keys(const struct tile *t)
{
    return (int)(t->end - t->begin);
}

// The vector of the tile's first key begins at element tile_vector() * d of [rows][kv_heads][d].
// Consecutive keys are tile_vector_stride() * d elements apart.
int64_t tile_vector(const struct tile *t, const struct block *b);
int64_t tile_vector_stride(const struct block *b);

// Sets [*begin, *end) to the keys that a stacked row sees, counted from the tile's first key; none
// if both are equal.
void tile_visible(const struct tile *t, const struct block *b, int row, int *begin, int *end);

// Convert to fp32: tile_load_rows() all stacked rows of a block, of Q or dO; tile_load_keys() all
// keys of a tile, of K or V. Rows of d elements, without gaps.
void tile_load_rows(const struct vector_ops *vector, const struct block *b, const void *tensor,
                    int d, float *rows);
void tile_load_keys(const struct vector_ops *vector, const struct block *b, const struct tile *t,
                    const void *tensor, int d, float *keys);

// The same without conversion, for 16-bit dtypes. Rows are `stride` elements apart, with zeros
// behind their d elements; keys have no gaps.
void tile_copy_rows(const struct block *b, const void *tensor, int d, uint16_t *rows,
                    int64_t stride);
void tile_copy_keys(const struct block *b, const struct tile *t, const void *tensor, int d,
                    uint16_t *keys);

// shape->scale, unless a mutation changes it.
double tile_scale(const struct attention_shape *shape);

// The factor of the products of queries and keys before tile_logits(): makes them logits in base 2,
// or with a softcap the argument of tanh.
float tile_factor(const struct attention_shape *shape);
// Turns scores [begin, end) of x, a row of a tile, into logits in base 2 with softcap and bias.
// bias may be NULL. With a softcap also stores the derivatives of tanh in backend->slopes [begin,
// end).
void tile_logits(struct attention_backend *backend, const struct block *b, const struct tile *t,
                 int row, int begin, int end, const void *bias, float *x);

// Rounds x to the dtype and back; for tests (common/mutation.h).
void tile_round(const struct block *b, float *x, int count);

// Index of the bias of a stacked row and the tile's first key.
int64_t tile_bias(const struct tile *t, const struct block *b, int row);

// Members of the table backend_cpu.
enum status cpu_forward(struct attention_backend *backend, const struct attention_forward *args,
                        struct error *error);
enum status cpu_backward(struct attention_backend *backend, const struct attention_backward *args,
                         struct error *error);

// Operations on packed rows (kernels/backend.h), in kernels/cpu/rows.c.
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
