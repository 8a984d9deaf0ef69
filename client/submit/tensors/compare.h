// SPDX-License-Identifier: Apache-2.0
// Comparison of the results of this run with those of a file.
#ifndef CPATTN_CLIENT_SUBMIT_TENSORS_COMPARE_H
#define CPATTN_CLIENT_SUBMIT_TENSORS_COMPARE_H

#include <stdio.h>

#include "client/submit/tensors/tensors.h"

// Largest difference of two results that both pass, as a multiple of the twin's error: each may err
// by 1.5 times the twin's error.
#define COMPARE_TWINS_MAX 3.0

struct comparison {
    int64_t elements, differing; // of different bits, or of different values where both are numbers
    int64_t nonfinite;           // finite in one of the two only
    double rms_rel;              // RMS of the difference / RMS of ours
    double max_abs;
    double twin_rel; // RMS of the twin's error / RMS of the reference; 0: not known
};

// Compares `count` elements of a tensor of the case.
void compare_elements(const struct cp_case *c, enum whole_tensor tensor, const void *ours,
                      const void *theirs, struct comparison *result);

// True if two honest results can differ this much: no element is finite in only one of them, and
// the difference is at most COMPARE_TWINS_MAX times the twin's error, if that is known.
bool compare_agrees(const struct comparison *comparison);

// Compares all results that both have and prints a line on each. `result` may be NULL. *agree: all
// do. INVALID_ARGUMENT: the file has none of the results, or one of another shape.
enum status compare_file(const struct safetensors *file, const struct cp_case *c,
                         const struct tensors *t, const struct cpattn_result *result, FILE *out,
                         bool *agree, struct error *error) MUST_CHECK;

#endif
