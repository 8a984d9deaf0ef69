// SPDX-License-Identifier: Apache-2.0
// A rank's results against the reference, on the device: the sums, counts and worst places that the
// figures of a chunk are made of (judge/figures.h says what they mean). Like all of the backend's
// calls these only put work on its stream, and remember what fails.
#ifndef CPATTN_KERNELS_CUDA_COMPARE_CUDA_H
#define CPATTN_KERNELS_CUDA_COMPARE_CUDA_H

#include "kernels/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COMPARE_CHUNKS 2

// An element is bad if its error exceeds tolerance * max(unit, RMS of the expected row,
// terms_element
// * terms) + tolerance * |got|. The error of a row is relative to max(RMS of the expected row,
// terms_row * terms, row_part * max(chunk, RMS of the expected chunk, terms_chunk * RMS of its
// terms)). Nothing of this counts, and the row's error stays as it is, where errors are absolute.
struct compare_rule {
    double tolerance, unit, chunk, row_part;
    double terms_element, terms_row, terms_chunk;
    bool absolute;
};

struct compare_result {
    int64_t elements, mismatches, nonfinite;
    double error_squares, expected_squares, terms_squares; // sums
    double max_abs;                                        // largest finite error
    double worst_element; // the largest in parts of what its element's may be
    double worst_row;     // the error of the worst row
    int64_t worst_index;  // its number in the chunk; -1: no rows
    int64_t first_bad;    // the first bad element's number; -1: none
    double first_bad_got, first_bad_expected;
};

// Rows are numbered token by token, head by head; elements as they lie in these rows.
struct compare_tensor {
    const void *data; // the rank's: [local rows][heads][dim], or [heads][local rows] of one each
    enum case_dtype dtype;
    bool heads_outside;
    int heads, dim;
    int64_t local_rows, row_step; // of all tokens; between tokens of a tile
    // [heads * group][rows][width], whose heads add up by groups, and the terms [heads *
    // group][rows] of these, whose squares do; NULL: none.
    const double *expected, *terms;
    int width, group;
};

// Device memory that a comparison needs while it runs.
int64_t compare_cuda_rows_scratch_bytes(const struct reference_rows *rows, int heads);
int64_t compare_cuda_lines_scratch_bytes(int64_t lines);

// Compares all tiles of a side. Tiles of chunk 0 have the first `chunk_rows` tokens of the rank,
// those of chunk 1 the others. `results` is device memory.
void compare_cuda_rows(struct attention_backend *backend, const struct compare_tensor *tensor,
                       const struct reference_rows *rows, int64_t chunk_rows,
                       const struct compare_rule rules[COMPARE_CHUNKS], void *scratch,
                       struct compare_result results[COMPARE_CHUNKS]);

// Elements [begin, end) of an array [lines][columns], as one chunk whose rows are lines, the first
// one that of `begin`; those at the ends may be shorter. Elements are numbered from `begin` on, of
// which `data` and `expected` are the first. The terms of every line are 1.
struct compare_lines {
    const void *data;
    enum case_dtype dtype;
    const double *expected;
    int64_t begin, end, columns;
};
void compare_cuda_lines(struct attention_backend *backend, const struct compare_lines *lines,
                        const struct compare_rule *rule, void *scratch,
                        struct compare_result *result);

#ifdef __cplusplus
}
#endif

#endif
