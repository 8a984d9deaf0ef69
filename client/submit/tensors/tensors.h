// SPDX-License-Identifier: Apache-2.0
// The tensors of a case in the memory of this process, and in files.
#ifndef CPATTN_CLIENT_SUBMIT_TENSORS_TENSORS_H
#define CPATTN_CLIENT_SUBMIT_TENSORS_TENSORS_H

#include <stdbool.h>

#include "client/attend_memory.h"
#include "client/cpattn.h"
#include "client/submit/tensors/safetensors.h"

// Whole tensors, plan/whole.h; all of them are owned.
struct tensors {
    struct attend_tensors at;
};

// Kinds of tensors, a bit mask.
enum {
    TENSORS_INPUTS = 1,   // in at.wanted
    TENSORS_RESULTS = 2,  // in at.wanted
    TENSORS_EXPECTED = 4, // in at.expected
};

// Allocates the tensors of these kinds, zeroed. RESOURCE_EXHAUSTED.
enum status tensors_make(struct tensors *t, const struct cp_case *c, int kinds,
                         struct error *error) MUST_CHECK;
void tensors_fini(struct tensors *t); // accepts a zeroed struct

// Sets the fields of the case that follow from a file: sizes and dtype of q, k, v, and training if
// it has do. Sharding and lengths of sequences are unchanged. INVALID_ARGUMENT: tensors are
// missing, or cannot be of one case.
enum status tensors_describe(const struct safetensors *file, struct cp_case *c,
                             struct error *error) MUST_CHECK;

// Reads the inputs of the case into at.given. INVALID_ARGUMENT: one is missing, or of another shape
// or dtype.
enum status tensors_load(const struct safetensors *file, const struct cp_case *c, struct tensors *t,
                         struct error *error) MUST_CHECK;

// Writes the allocated tensors: inputs and results under their names, expected results with
// "expected." before the name. The command line of the case goes into the metadata.
enum status tensors_save(const char *path, const struct cp_case *c, const struct tensors *t,
                         struct error *error) MUST_CHECK;

// INVALID_ARGUMENT if a tensor of a file does not have the shape and dtype of the case; names both.
enum status tensors_check(const struct safetensors_tensor *found, const struct cp_case *c,
                          enum whole_tensor tensor, struct error *error) MUST_CHECK;

// Element `index` of a tensor of the case in fp32.
float tensors_element(const struct cp_case *c, enum whole_tensor tensor, const void *data,
                      int64_t index);

// The number of elements of a tensor of the case that are NaN or infinite.
int64_t tensors_nonfinite(const struct cp_case *c, enum whole_tensor tensor, const void *data);

#endif
