// SPDX-License-Identifier: Apache-2.0
// Reductions of collectives of the CPU backend; see struct backend_ops.
#ifndef CPATTN_KERNELS_CPU_REDUCE_H
#define CPATTN_KERNELS_CPU_REDUCE_H

#include <stdint.h>

#include "plan/element.h"

struct attention_backend;

void cpu_reduce(struct attention_backend *backend, enum collective_element element,
                enum collective_reduction reduction, const void *source, void *destination,
                int64_t count);
void cpu_divide(struct attention_backend *backend, enum collective_element element, int divisor,
                void *destination, int64_t count);

#endif
