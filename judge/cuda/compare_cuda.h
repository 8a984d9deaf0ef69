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
    int64_t worst_index; // of the worst row, in the chunk; -1: no rows
    int64_t first_bad;   // first mismatched element of the chunk; -1: none
    double first_bad_got, first_bad_expected;
};

// A tensor to compare. Its row numbers are token * heads + head, with the tokens in the order of
// the reference's rows; its element numbers are row * dim + index.
struct compare_tensor {
    const void *data; // the rank's: [local rows][heads][dim]; LSE: [heads][local rows]
    enum case_dtype dtype;
    bool heads_outside; // the layout of LSE
    enum shard_side side;
    int heads, dim, width;        // width: dim padded as in `expected`
    int64_t local_rows, row_step; // rows of `data`; rows between consecutive tokens
    // [heads][rows][width]. LSE is compared with `stats64` instead, or with `stats` if that is
    // NULL.
    struct reference_results expected;
    enum case_dtype twin_dtype;
    const struct reference_stat *stats;
    const struct reference_stat64 *stats64;
    const float *terms;  // [heads][rows] of dQ and dK; NULL: none
    double terms_factor; // RMS of the factor K (dQ) or Q (dK) that `terms` do not contain
};

// Bytes of `scratch`, the device memory that a comparison uses while it runs.
int64_t compare_cuda_rows_scratch_bytes(const struct reference_rows *rows, int heads);
int64_t compare_cuda_lines_scratch_bytes(int64_t lines);

// Compares all tiles of a side. The first `chunk_rows` rows are chunk 0. `results` is device
// memory.
void compare_cuda_rows(const struct reference_cuda *r, const struct compare_tensor *tensor,
                       const struct reference_rows *rows, int64_t chunk_rows,
                       const struct rules *rules, void *scratch,
                       struct compare_result results[COMPARE_CHUNKS]);

// Compares elements [begin, end) of an array [lines][columns] as one chunk. Its rows are the lines;
// the first and the last may be cut. `data`, `expected` and `twin` point to element `begin`, which
// has number 0.
struct compare_lines {
    const void *data;
    enum case_dtype dtype;
    const double *expected;
    const float *twin;
    int64_t begin, end, columns;
    // Squares of the terms that cancel, summed over all `terms_elements` of the array: the sum of
    // `terms_count` numbers from each of `terms_ranks` ranks, with `terms_step` numbers from one
    // rank to the next.
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
