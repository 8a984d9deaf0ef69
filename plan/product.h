// SPDX-License-Identifier: Apache-2.0
// Operations of linear layers on row-major matrices of one element type. Plain enough for a CUDA
// compiler.
#ifndef CPATTN_PLAN_PRODUCT_H
#define CPATTN_PLAN_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

// C [m][n] is a product of two factors; T: the factor is transposed in memory.
enum product_form {
    PRODUCT_NT, // A [m][k] times B [n][k], transposed
    PRODUCT_NN, // A [m][k] times B [k][n]
    PRODUCT_TN, // A [k][m], transposed, times B [k][n]
};

// GELU: x times the normal distribution function at x. GELU_TANH: its approximation with tanh.
// SWIGLU: g * logistic(g) * u, where g are the first and u the last n of 2 n elements of a row.
enum activation {
    ACTIVATION_NONE, // the identity
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_SWIGLU,
    ACTIVATIONS
};

// The shape of an operation.
struct product {
    int64_t m, n, k;
    enum product_form form;
    enum activation activation;
};

// Elements per vector in the matrix products of a device. A side that is not a multiple is called
// odd.
#define PRODUCT_VECTOR 8

// A device computes a product with a bias and an odd side into an fp32 buffer of at most this size,
// some rows at a time, and then adds the bias. product_wide_bytes(): size of the buffer; 0: not
// needed.
#define PRODUCT_WIDE_MAX (INT64_C(32) << 20)
static inline int64_t product_wide_bytes(const struct product *p, bool has_bias)
{
    bool odd = p->m % PRODUCT_VECTOR || p->n % PRODUCT_VECTOR || p->k % PRODUCT_VECTOR;
    if (!has_bias || !odd)
        return 0;
    return p->m <= PRODUCT_WIDE_MAX / 4 / (p->n + 1) ? 4 * p->m * p->n : PRODUCT_WIDE_MAX;
}

#endif
