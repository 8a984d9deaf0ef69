// SPDX-License-Identifier: Apache-2.0
// Products of row-major fp32 matrices, C = alpha * A B + beta * C, in the three forms that
// attention needs. The suffix names the transposed factor: t is transposed, n is not. Each ld is
// the number of floats from one row to the next.
#ifndef CPATTN_KERNELS_CPU_GEMM_H
#define CPATTN_KERNELS_CPU_GEMM_H

#include <cblas.h>

struct matrix {
    const float *data;
    int ld;
};

// C [m][n] = alpha * A [m][k] * B [n][k]' + beta * C
static inline void gemm_nt(int m, int n, int k, float alpha, struct matrix a, struct matrix b,
                           float beta, float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, alpha, a.data, a.ld, b.data, b.ld,
                beta, c, ldc);
}

// C [m][n] = alpha * A [m][k] * B [k][n] + beta * C
static inline void gemm_nn(int m, int n, int k, float alpha, struct matrix a, struct matrix b,
                           float beta, float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, alpha, a.data, a.ld, b.data,
                b.ld, beta, c, ldc);
}

// C [m][n] = alpha * A [k][m]' * B [k][n] + beta * C
static inline void gemm_tn(int m, int n, int k, float alpha, struct matrix a, struct matrix b,
                           float beta, float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, alpha, a.data, a.ld, b.data, b.ld,
                beta, c, ldc);
}

#endif
