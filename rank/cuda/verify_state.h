// SPDX-License-Identifier: Apache-2.0
// A verification on the device between its start and its end, for the files that it is made of.
#ifndef CPATTN_RANK_CUDA_VERIFY_STATE_H
#define CPATTN_RANK_CUDA_VERIFY_STATE_H

#include "judge/figures.h"
#include "judge/sums.h"
#include "kernels/cuda/compare_cuda.h"
#include "kernels/cuda/padding_cuda.h"
#include "kernels/cuda/reference_cuda.h"
#include "rank/cuda/verify.h"

// Tensors that are compared row by row.
enum slot { SLOT_OUT, SLOT_LSE, SLOT_DQ, SLOT_DK, SLOT_DV, SLOTS };
#define SLOT_DBIAS       (SLOTS * COMPARE_CHUNKS) // number of its result
#define RESULTS          (SLOT_DBIAS + 1)
#define SLOTS_OF_QUERIES 3

struct verify_cuda {
    struct verification_cuda v;
    const struct cp_case *c;
    struct reference_cuda r;
    struct reference_rows rows[2];
    int64_t chunk_rows[2];              // of the first chunk, by side
    int kv_step;                        // key heads whose inputs are in memory at a time
    double *expected[2];                // out, then dv; dq, then dk
    double *terms;                      // of the rows of dq, then of dk
    double *max;                        // of each row; NULL: not wanted
    double *statistics[WORLD_SIZE_MAX]; // of each rank [2][heads][rows]: LSE, delta
    double *lse, *delta;                // of all queries, in order
    double *dbias, *dbias_parts;
    void *scratch;
    struct figures_rule rules[RESULTS];
    struct compare_result *results, *results_device;
    double *heads, *heads_device; // of each rank [SUMS_NUMBERS][heads]
    float *max_logit, *dsink;     // copies of what is judged
    struct row_error *head_rows;
    const struct padding_cuda *padding[SLOTS];
    struct reference_tile *tiles[2];
    struct reference_sequence *sequences;
    struct reference_piece *pieces;
    struct span *spans; // of other ranks
};

// What a slot judges.
struct slot_tensor {
    enum report_tensor name;
    enum shard_side side;
    const void *data;
    enum case_dtype dtype;
    int heads, dim, width;
    const double *expected;
};

struct slot_tensor verify_slot(const struct verify_cuda *x, enum slot slot);

// Whether the case has it.
bool verify_slot_present(const struct cp_case *c, enum slot slot);

// What sums_judge() takes, with the numbers of heads in host memory.
struct sums_results verify_sums_results(const struct verify_cuda *x);

// The state in the host arena, with all its memory.
struct verify_cuda *verify_take(const struct verification_cuda *v);

#endif
