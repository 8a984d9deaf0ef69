// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the references and twins on the device. They compute all rows of a rank at
// a time: reference64.h the reference in fp64, reference16.h reference and twin of cases with
// 16-bit dtypes, reference32.h the twin of cases in fp32. As on the CPU (judge/cpu/reference.h)
// inputs come from their global position and the mask from its definition. The references do not
// use shards, slices or plans, and share no code with the kernels.
//
// The rows of a side are divided into tiles. Results are [heads][rows][padded dim]: O and dQ of
// query heads, dK and dV of key heads. Dims are padded with zeros to reference_cuda_padded(). Calls
// only enqueue work on the queue's stream; the queue stores errors.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE_CUDA_H
#define CPATTN_JUDGE_CUDA_REFERENCE_CUDA_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "plan/case.h"

// A sequence. Arrays are indexed by enum shard_side.
struct reference_sequence {
    int64_t first[2], length[2]; // tokens of the preceding sequences, and its own
    int64_t given[2];            // row of the first token in given inputs
};

#define REFERENCE_TILE_ROWS 64 // maximum number of tokens of a tile

// Consecutive tokens of a sequence: queries or keys.
struct reference_tile {
    int64_t position;  // of the first token, in its sequence
    int64_t row;       // of the first token, in the results
    int64_t local_row; // of the first token, in the rank's tensors; the next tokens follow at
                       // shard_row_step()
    int64_t bias_row;  // of the first query, in the gradient of the bias
    int32_t sequence, count;
    int32_t chunk; // chunk of the rank, 0 or 1
    int32_t unused;
};

// The rows of one side, by tiles in device memory.
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
    const struct reference_sequence *sequences; // device memory, [batch]
    const float *sinks;                         // device memory, [heads]
    int64_t tokens[2];                          // of all sequences, by enum shard_side
    int64_t length_max[2];                      // of the longest sequence
    // Inputs of the key heads [kv_first, kv_first + kv_count) and of their query heads, see
    // reference_cuda_draw(): [heads][tokens of all sequences][padded dim]. `inputs` are fp32,
    // `narrow` are in the case's 16-bit dtype; NULL: not wanted.
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

// Statistics of a query, in arrays [heads][rows]: LSE in base 2, which is lse_high + lse_low, and
// dO . O with the O of the reference (delta) and with the O of the twin (delta_twin).
struct reference_stat {
    float lse_high, lse_low;
    float delta, delta_twin;
};

// Statistics in fp64. LSE is a natural logarithm.
struct reference_stat64 {
    double lse, delta;
};

// The dim rounded up to a multiple of 32.
int reference_cuda_padded(int dim);

// Number of elements of an input (REFERENCE_Q ...) for `kv_count` key heads; 0 if the case does not
// need it.
int64_t reference_cuda_elements(const struct reference_cuda *r, int input, int kv_count);

// Draws the inputs of key heads [kv_first, kv_first + kv_count) of `r`, or copies them from the
// given tensors. The calls below are for these heads until the next draw.
void reference_cuda_draw(const struct reference_cuda *r);

// The terms of the rows of dQ and dK, [heads][rows], are those of judge/cpu/reference.h. Those of
// dK include all query heads that share the key head. The terms of the gradient of the bias have
// neither the scale nor the slopes of a softcap.

// The gradient of the bias (plan/bias.h), to which dS of the queries is added with atomics.
struct reference_dbias {
    double *data;        // [1 or heads][rows][seqlen_kv]; NULL: not wanted
    float *twin;         // the twin's, of the same shape; fp64 passes do not use it
    float *terms;        // [heads][rows] of the queries, stored; NULL: not wanted
    int64_t head_stride; // 0: one for all heads
    int64_t row_step;    // rows from one query to the next; 0: all queries of a sequence share one
};

// Fills both deltas of `stats`, and delta of `stats64` unless it is NULL, from the O of reference
// and twin.
void reference_cuda_delta(const struct reference_cuda *r, const struct reference_rows *queries,
                          const struct reference_results *out, struct reference_stat *stats,
                          struct reference_stat64 *stats64);

// Fills LSE and delta from a rank's own results, for all its tokens in the order of `queries`.
// `lse` is [heads][local rows] in fp32, `out` [local rows][heads][dim]. delta_twin differs from
// delta by a simulated rounding error of O.
struct reference_run {
    const float *lse;
    const void *out;
    int64_t local_rows, row_step;
};
void reference_cuda_run_stats(const struct reference_cuda *r, const struct reference_rows *queries,
                              const struct reference_run *run, struct reference_stat *stats,
                              struct reference_stat64 *stats64);

// Reduces all given rows to the numbers of each head (judge/totals.h), [TOTALS_NUMBERS][heads].
// Members may be NULL; then the numbers that depend on them have no meaning.
struct reference_head_rows {
    const float *max, *bias_terms; // [heads][rows]
    int64_t rows;
    const struct reference_stat *stats; // [heads][stats_rows], of all the rank's queries: for sinks
    const struct reference_stat64 *stats64;
    int64_t stats_rows;
    const struct reference_stat *judged; // of a sample [heads][rows]: adds its twin's differences
};
void reference_cuda_heads(const struct reference_cuda *r, const struct reference_head_rows *rows,
                          double *heads);

// Consecutive tokens of a sequence on one rank: their place in the rank's statistics [heads][rows],
// and in those of all tokens [heads][tokens of all sequences].
struct reference_piece {
    const void *from;   // the rank's statistics
    int64_t rows;       // of the rank, per head
    int64_t row, count; // row of the first token; number of tokens
    int64_t token;      // number of the first token among all
};

// Gathers statistics (16 bytes each) of all ranks in the order of tokens. `pieces` is device
// memory.
void reference_cuda_gather(const struct reference_cuda *r, const struct reference_piece *pieces,
                           int64_t count, void *stats);

// destination[i] += the sum over `count` parts of `length` elements, in order, without part
// `skipped`.
void reference_cuda_add_parts(struct cuda_queue *queue, const double *parts, int count, int skipped,
                              int64_t length, double *destination);
void reference_cuda_add_twin_parts(struct cuda_queue *queue, const float *parts, int count,
                                   int skipped, int64_t length, float *destination);

#ifdef __cplusplus
}
#endif

#endif
