// SPDX-License-Identifier: Apache-2.0
// The independent reference on the device: what judge/cpu/reference.h is on the CPU, from
// the same definition and in fp64, for all rows of a rank at a time. It draws the inputs anew by
// their global place and decides each pair of query and key by the definition of the mask; it knows
// neither shards nor slices nor plans and shares no code with the kernels that it judges.
//
// Rows are dealt in tiles. Results are in fp64, [query heads][rows][padded dim], where the
// rows are those of all tiles of a side and dims are padded to what reference_cuda_padded() says;
// the padding is zero. Like all of the backend's calls these only put work on its stream, and
// remember what fails.
#ifndef CPATTN_KERNELS_CUDA_REFERENCE_CUDA_H
#define CPATTN_KERNELS_CUDA_REFERENCE_CUDA_H

#include "kernels/cuda/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "plan/case.h"

// A sequence, by enum shard_side: tokens of the sequences before it, and its own.
struct reference_sequence {
    int64_t first[2], length[2];
};

#define REFERENCE_TILE_ROWS 64 // at most

// Some consecutive tokens of a sequence, on either side.
struct reference_tile {
    int64_t position;  // of the first, in its sequence
    int64_t row;       // of the first, in the results
    int64_t local_row; // of the first, in the rank's own tensors; the next are a row step away
    int64_t bias_row;  // of the first query in the gradient of the bias
    int32_t sequence, count;
    int32_t chunk; // of the rank, 0 or 1
    int32_t unused;
};

// The rows of one side, in device memory.
struct reference_rows {
    const struct reference_tile *tiles;
    int64_t tile_count;
    int64_t rows;
};

// The inputs as the reference sees them.
enum { REFERENCE_Q, REFERENCE_K, REFERENCE_V, REFERENCE_DO, REFERENCE_INPUTS };

struct reference_cuda {
    struct attention_backend *backend;
    const struct cp_case *c;
    const struct reference_sequence *sequences; // device memory, one for each of the batch
    const float *sinks;                         // device memory, [heads]
    int64_t tokens[2];                          // of all sequences
    int64_t length_max[2];                      // of the longest sequence
    // The key heads whose inputs (and those of their query heads) are in memory at a time, see
    // reference_cuda_draw(): [heads][tokens of all sequences][padded dim].
    float *inputs[REFERENCE_INPUTS];
    int kv_first, kv_count;
};

int reference_cuda_padded(int dim);

// Elements of one of the inputs with so many key heads; 0 where it is not needed.
int64_t reference_cuda_elements(const struct reference_cuda *r, int input, int kv_count);

// Draws the inputs of key heads [kv_first, kv_first + kv_count) of `r`; the calls below are for
// these heads, and must come before the next draw.
void reference_cuda_draw(const struct reference_cuda *r);

// out; lse [heads][rows], and where `max` is not NULL the largest logit of each row, likewise.
void reference_cuda_out(const struct reference_cuda *r, const struct reference_rows *queries,
                        double *out, double *lse, double *max);

// delta [heads][rows] = dO . out
void reference_cuda_delta(const struct reference_cuda *r, const struct reference_rows *queries,
                          const double *out, double *delta);

// Rows of dQ and dK come with their terms [heads][rows], see judge/cpu/reference.h. Keys
// have what each query head contributes to dK, dV and terms; the sums over those that share a key
// head (of terms, of their squares) are left to who reads them.

// The gradient of the bias that the queries make, added to what is there; see plan/bias.h.
struct reference_dbias {
    double *data;        // [1 or heads][rows][seqlen_kv]; NULL: not wanted
    int64_t head_stride; // 0: one for all heads
    int64_t row_step;    // between the rows of consecutive queries; 0: one for all of a sequence
};
void reference_cuda_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                       const double *lse, const double *delta, const struct reference_dbias *dbias,
                       double *dq, double *terms);

// From LSE and delta of all queries: [heads][tokens of all sequences].
void reference_cuda_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                        const double *lse, const double *delta, double *dk, double *dv,
                        double *terms);

// Of each head of the case, over all rows: [3][heads] the largest of `max` (-inf without rows), the
// sum of the terms of the sink's gradient, and that of their squares. `max` may be NULL, and `lse`
// with `delta`; then the numbers have no meaning.
void reference_cuda_heads(const struct reference_cuda *r, int64_t rows, const double *max,
                          const double *lse, const double *delta, double *heads);

// Tokens of a sequence on one rank: where they are in an array [heads][rows] of that rank and in
// one [heads][tokens of all sequences].
struct reference_piece {
    const double *from; // the rank's LSE; delta is heads * rows behind it
    int64_t rows;       // of the rank
    int64_t row, count; // of the first token; tokens
    int64_t token;      // of the first token, among all
};

// Brings LSE and delta of all ranks into one order. Pieces are device memory.
void reference_cuda_gather(const struct reference_cuda *r, const struct reference_piece *pieces,
                           int64_t count, double *lse, double *delta);

// destination[i] += the sum over `count` parts of `length` elements, in their order, but for the
// part `skipped`.
void reference_cuda_add_parts(struct attention_backend *backend, const double *parts, int count,
                              int skipped, int64_t length, double *destination);

#ifdef __cplusplus
}
#endif

#endif
