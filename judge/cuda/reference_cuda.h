// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the references and twins on the device. They compute all rows of a rank at
// a time: reference64.h the reference in fp64, reference16.h reference and twin of cases in 16
// bits, reference32.h the twin of cases in fp32. As on the CPU (judge/cpu/reference.h) inputs come
// from their global position and the mask from its definition. The references do not use shards,
// slices or plans, and share no code with the kernels.
//
// The rows of a side are divided into tiles. Results are
// [heads][rows][padded dim]: O and dQ of query heads, dK and dV of key heads. Dims are padded to
// reference_cuda_padded() with zeros. Calls only enqueue work on the backend's stream; its queue
// stores errors.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE_CUDA_H
#define CPATTN_JUDGE_CUDA_REFERENCE_CUDA_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "plan/case.h"

// A sequence, by enum shard_side: the tokens of all sequences before it, and its own.
struct reference_sequence {
    int64_t first[2], length[2];
    int64_t given[2]; // row of the first token in given inputs
};

#define REFERENCE_TILE_ROWS 64 // at most

// Some consecutive tokens of a sequence, on either side.
struct reference_tile {
    int64_t position;  // of the first, in its sequence
    int64_t row;       // of the first, in the results
    int64_t local_row; // of the first, in the rank's own tensors; consecutive tokens are a row step
                       // apart
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

// The inputs of the reference.
enum { REFERENCE_Q, REFERENCE_K, REFERENCE_V, REFERENCE_DO, REFERENCE_INPUTS };

struct reference_cuda {
    struct cuda_queue *queue;
    const struct cp_case *c;
    const struct reference_sequence *sequences; // device memory, one for each of the batch
    const float *sinks;                         // device memory, [heads]
    int64_t tokens[2];                          // of all sequences
    int64_t length_max[2];                      // of the longest sequence
    // Inputs of the key heads [kv_first, kv_first + kv_count) and of their query heads, see
    // reference_cuda_draw(): [heads][tokens of all sequences][padded dim]. `inputs` are fp32,
    // `narrow` are in the case's dtype of 16 bits; NULL: not wanted.
    float *inputs[REFERENCE_INPUTS];
    void *narrow[REFERENCE_INPUTS];
    int kv_first, kv_count;
    // Whole tensors of the case's source (plan/whole.h) in device memory; NULL: drawn.
    const void *given[REFERENCE_INPUTS];
    const void *given_bias;
};

// Results of the reference, in fp32 or fp64, and of the twin. NULL: not wanted.
struct reference_results {
    float *exact;
    double *exact64;
    void *twin; // in the case's dtype
};

// Statistics of a query [heads][rows]: its LSE in base 2 as the sum of two parts, and dO . O with
// the O of the reference and with that of the twin.
struct reference_stat {
    float lse_high, lse_low;
    float delta, delta_twin;
};

// The same in fp64, LSE as a natural logarithm.
struct reference_stat64 {
    double lse, delta;
};

int reference_cuda_padded(int dim);

// Elements of one of the inputs with `kv_count` key heads; 0 if the case does not need it.
int64_t reference_cuda_elements(const struct reference_cuda *r, int input, int kv_count);

// Draws the inputs of key heads [kv_first, kv_first + kv_count) of `r`. Until the next draw the
// calls below are for these heads.
void reference_cuda_draw(const struct reference_cuda *r);

// The terms of a row of dQ or dK [heads][rows] are those of judge/cpu/reference.h, of a row of dK
// with all query heads that share it. Those of the gradient of the bias have neither the scale nor
// the slopes of a softcap.

// The gradient of the bias (plan/bias.h). The contributions of the queries are added to it.
struct reference_dbias {
    double *data;        // [1 or heads][rows][seqlen_kv]; NULL: not wanted
    float *twin;         // of the twin, the same shape; not with fp64
    float *terms;        // [heads][rows] of the queries; NULL: not wanted
    int64_t head_stride; // 0: one for all heads
    int64_t row_step;    // between the rows of consecutive queries; 0: one for all of a sequence
};

// Fills both deltas of `stats`, and delta of `stats64` unless it is NULL, from the results O.
void reference_cuda_delta(const struct reference_cuda *r, const struct reference_rows *queries,
                          const struct reference_results *out, struct reference_stat *stats,
                          struct reference_stat64 *stats64);

// Fills LSE and delta from a rank's own results, for all its tokens in the order of `queries`.
// `lse` is [heads][local rows] in fp32, `out` [local rows][heads][dim]. delta_twin differs from
// delta by the effect of rounding O.
struct reference_run {
    const float *lse;
    const void *out;
    int64_t local_rows, row_step;
};
void reference_cuda_run_stats(const struct reference_cuda *r, const struct reference_rows *queries,
                              const struct reference_run *run, struct reference_stat *stats,
                              struct reference_stat64 *stats64);

// Fills the numbers of each head (judge/totals.h) over all given rows: [TOTALS_NUMBERS][heads].
// Members may be NULL; then their numbers have no meaning.
struct reference_head_rows {
    const float *max, *bias_terms; // [heads][rows]
    int64_t rows;
    const struct reference_stat *stats; // [heads][stats_rows], of all queries: for sinks
    const struct reference_stat64 *stats64;
    int64_t stats_rows;
    const struct reference_stat *judged; // of a sample [heads][rows]: adds its twin's differences
};
void reference_cuda_heads(const struct reference_cuda *r, const struct reference_head_rows *rows,
                          double *heads);

// Tokens of a sequence on one rank: their place in an array [heads][rows] of that rank and in one
// [heads][tokens of all sequences].
struct reference_piece {
    const void *from;   // the rank's statistics
    int64_t rows;       // of the rank
    int64_t row, count; // of the first token; tokens
    int64_t token;      // of the first token, among all
};

// Gathers statistics (16 bytes each) of all ranks in the order of tokens. `pieces` is device
// memory.
void reference_cuda_gather(const struct reference_cuda *r, const struct reference_piece *pieces,
                           int64_t count, void *stats);

// destination[i] += the sum over `count` parts of `length` elements, in order, without the part
// `skipped`.
void reference_cuda_add_parts(struct cuda_queue *queue, const double *parts, int count, int skipped,
                              int64_t length, double *destination);
void reference_cuda_add_twin_parts(struct cuda_queue *queue, const float *parts, int count,
                                   int skipped, int64_t length, float *destination);

#ifdef __cplusplus
}
#endif

#endif
