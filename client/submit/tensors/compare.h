// SPDX-License-Identifier: Apache-2.0
// Comparison of the results of this run with those of a file.
#ifndef CPATTN_CLIENT_SUBMIT_TENSORS_COMPARE_H
#define CPATTN_CLIENT_SUBMIT_TENSORS_COMPARE_H

#include <stdio.h>

#include "client/submit/tensors/tensors.h"

// Largest difference of two results that both pass, as a multiple of the twin's error: each may err
// by 1.5 times the twin's error.
#define COMPARE_TWINS_MAX 3.0

// LSE has no twin. Elements that differ by more than COMPARE_LSE_ABSOLUTE + COMPARE_LSE_RELATIVE *
// |value| do not agree. That is many times the error that a verdict allows for usual logits
// (judge/rules.h), since the logits of given inputs may be larger.
#define COMPARE_LSE_ABSOLUTE 1e-3
#define COMPARE_LSE_RELATIVE 1e-5

struct comparison {
    int64_t elements, differing; // differing: of different values; two NaNs do not differ
    int64_t nonfinite;           // differing elements of which one or both are not finite
    int64_t lse_apart;           // elements of LSE that do not agree
    double rms_rel;              // RMS of the difference / RMS of ours
    double max_abs;
    double twin_rel; // RMS of the twin's error / RMS of the reference; 0: not known
};

// Compares all elements of a tensor of the case. Keeps result->twin_rel, sets the other members.
void compare_elements(const struct cp_case *c, enum whole_tensor tensor, const void *ours,
                      const void *theirs, struct comparison *result);

// True if two honest results can differ this much: `nonfinite` and `lse_apart` are 0, and the
// difference is at most COMPARE_TWINS_MAX times the twin's error. If that is unknown, every
// difference is accepted.
bool compare_agrees(const struct comparison *comparison);

// Compares all results that both the file and `t` have, and prints a line on each. `result`, which
// has the twin's errors, may be NULL. *agree: compare_agrees() for all. INVALID_ARGUMENT: the file
// has none of the results, or one of another shape.
enum status compare_file(const struct safetensors *file, const struct cp_case *c,
                         const struct tensors *t, const struct cpattn_result *result, FILE *out,
                         bool *agree, struct error *error) MUST_CHECK;

#endif
