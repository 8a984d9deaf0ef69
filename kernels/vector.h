// SPDX-License-Identifier: Apache-2.0
// Chooses the variant of the CPU's inner loops (kernels/vector_ops.h) for this machine.
#ifndef CPATTN_KERNELS_VECTOR_H
#define CPATTN_KERNELS_VECTOR_H

#include "kernels/vector_ops.h"

// The fastest variant that this machine runs.
const struct vector_ops *vector_best(void);

// All variants that this machine runs, best first; NULL ends the list. For tests.
#define VECTOR_VARIANTS_MAX 4
void vector_list(const struct vector_ops *variants[VECTOR_VARIANTS_MAX]);

#endif
