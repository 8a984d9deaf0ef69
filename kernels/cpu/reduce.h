// SPDX-License-Identifier: Apache-2.0
// The elements of collectives on the CPU, as struct backend_ops says.
#ifndef CPATTN_KERNELS_CPU_REDUCE_H
#define CPATTN_KERNELS_CPU_REDUCE_H

#include <stdint.h>

#include "plan/element.h"

void cpu_reduce(enum collective_element element, enum collective_reduction reduction,
                const void *source, void *destination, int64_t count);
void cpu_divide(enum collective_element element, int divisor, void *destination, int64_t count);

#endif
