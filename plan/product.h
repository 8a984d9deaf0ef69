// SPDX-License-Identifier: Apache-2.0
// Operations of linear layers on row-major matrices of one element type. Plain enough for a CUDA
// compiler.
#ifndef CPATTN_PLAN_PRODUCT_H
#define CPATTN_PLAN_PRODUCT_H

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

#endif
