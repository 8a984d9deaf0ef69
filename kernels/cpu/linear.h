// SPDX-License-Identifier: Apache-2.0
// Operations of linear layers of the CPU backend; see struct backend_ops.
#ifndef CPATTN_KERNELS_CPU_LINEAR_H
#define CPATTN_KERNELS_CPU_LINEAR_H

#include "plan/dtype.h"
#include "plan/product.h"

struct attention_backend; // not used

extern const struct gemm_provider *const cpu_gemm_providers[];

void cpu_activate(struct attention_backend *backend, enum case_dtype dtype,
                  const struct product *shape, const void *h, void *to);
void cpu_activate_backward(struct attention_backend *backend, enum case_dtype dtype,
                           const struct product *shape, const void *h, const void *d, void *to);
void cpu_column_sum(struct attention_backend *backend, enum case_dtype dtype,
                    const struct product *shape, const void *source, void *destination);
void cpu_sum_parts(struct attention_backend *backend, enum case_dtype dtype,
                   const struct product *shape, int own_rank, const void *parts, const void *own,
                   const void *bias, void *destination);

#endif
