// SPDX-License-Identifier: Apache-2.0
// Comparison of a rank's results with the reference and the twin on the device. It returns the
// sums, counts and worst places of a chunk for the rules of judge/rules.h. Calls only enqueue work
// on the queue's stream; the queue stores errors.
#ifndef CPATTN_JUDGE_CUDA_COMPARE_CUDA_H
#define CPATTN_JUDGE_CUDA_COMPARE_CUDA_H

#include <math.h>

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/rules.h"

#define COMPARE_CHUNKS 2

struct compare_result {
    struct rules_sums sums;
    struct rules_worst worst;
    int64_t worst_index; // number of the worst row in the chunk; -1: no rows
    int64_t first_bad;   // number of the first mismatch; -1: none
    double first_bad_got, first_bad_expected;
};

// Rows are numbered tile by tile as they lie in the reference, head by head; elements as they lie
// in these rows.
struct compare_tensor {
    const void *data; // the rank's: [local rows][heads][dim], or [heads][local rows] of one each
    enum case_dtype dtype;
    bool heads_outside;
    enum shard_side side;
    int heads, dim, width;
    int64_t local_rows, row_step; // of all tokens; between tokens of a tile
    // [heads][rows][width]; of LSE the statistics of the queries instead, in fp64 unless NULL.
    struct reference_results expected;
    enum case_dtype twin_dtype;
    const struct reference_stat *stats;
    const struct reference_stat64 *stats64;
    const float *terms;  // [heads][rows] of dQ and dK; NULL: none
    double terms_factor; // RMS of their other factor
};

// Bytes of device memory that a comparison needs while it runs.
int64_t compare_cuda_rows_scratch_bytes(const struct reference_rows *rows, int heads);
int64_t compare_cuda_lines_scratch_bytes(int64_t lines);

// Compares all tiles of a side. The first `chunk_rows` rows are chunk 0. `results` is device
// memory.
void compare_cuda_rows(const struct reference_cuda *r, const struct compare_tensor *tensor,
                       const struct reference_rows *rows, int64_t chunk_rows,
                       const struct rules *rules, void *scratch,
                       struct compare_result results[COMPARE_CHUNKS]);

// Compares elements [begin, end) of an array [lines][columns] as one chunk whose rows are lines;
// the first and last line may be shorter. `data`, `expected` and `twin` point to the element
// `begin`, which has number 0.
struct compare_lines {
    const void *data;
    enum case_dtype dtype;
    const double *expected;
    const float *twin;
    int64_t begin, end, columns;
    // The squares of the terms that cancel, over all `terms_elements` of an array: the sum of
    // `terms_count` numbers of each of `terms_ranks`, which are a step apart.
    const double *terms;
    int terms_ranks, terms_step, terms_count;
    int64_t terms_elements;
};
void compare_cuda_lines(struct cuda_queue *queue, const struct compare_lines *lines,
                        const struct rules *rules, void *scratch, struct compare_result *result);

#ifdef __cplusplus
}
#endif

#endif
