// SPDX-License-Identifier: Apache-2.0
// Providers of matrix products for linear layers, tried in order.
#ifndef CPATTN_KERNELS_GEMM_H
#define CPATTN_KERNELS_GEMM_H

#include "common/status.h"
#include "plan/dtype.h"
#include "plan/product.h"

// C = A B + bias, row-major matrices without gaps. Accumulates in fp32, adds the bias, and rounds
// once to the dtype. With k = 0 C is the bias, or zero.
struct gemm {
    enum case_dtype dtype;
    enum product_form form;
    int64_t m, n, k; // m, n at least 1
    const void *a, *b;
    const void *bias; // [n], dtype, the same for all rows; NULL: none
    void *c;
    void *wide; // on a device: product_wide_bytes() of scratch; NULL: none, may be slower
};

struct attention_backend;

struct gemm_provider {
    const char *name; // "cblas"
    bool (*supports)(struct attention_backend *backend, const struct gemm *g);
    // Computes, or enqueues on the backend's stream. The backend may be NULL on the CPU.
    enum status (*run)(struct attention_backend *backend, const struct gemm *g,
                       struct error *error);
};

// Runs the product with the first provider that supports it. `providers` ends with NULL.
// UNIMPLEMENTED: none supports it.
enum status gemm_run(const struct gemm_provider *const *providers,
                     struct attention_backend *backend, const struct gemm *g,
                     struct error *error) MUST_CHECK;

#endif
