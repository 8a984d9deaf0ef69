// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels for the reference and the twin of a case. With 16-bit dtypes one pass
// computes both. With fp32, and with logits that need fp64, each has a pass of its own.
#include "judge/cuda/reference16.h"
#include "judge/cuda/reference32.h"
#include "judge/cuda/reference64.h"
#include "judge/cuda/verify_state.h"

static bool is_narrow(const struct verify_cuda *x)
{
    return x->c->dtype != DTYPE_FP32;
}

void verify_out(const struct verify_cuda *x)
{
    const struct reference_rows *rows = &x->rows[SIDE_Q];
    const struct reference_results *out = &x->expected[0];
    float *max = x->extent.fp64 ? NULL : x->max;
    if (x->extent.fp64)
        reference64_out(&x->r, rows, out->exact64, x->judged.stats64, x->max);
    if (is_narrow(x))
        reference16_out(&x->r, rows, out, x->judged.stats, max);
    else
        reference32_out(&x->r, rows, out->twin, x->judged.stats);
    if (x->c->training)
        reference_cuda_delta(&x->r, rows, out, x->judged.stats, x->judged.stats64);
}

void verify_dq(const struct verify_cuda *x, const struct reference_dbias *dbias)
{
    const struct reference_rows *rows = &x->rows[SIDE_Q];
    const struct reference_results *dq = &x->expected[1];
    struct reference_dbias twin = *dbias;
    float *terms = x->extent.fp64 ? NULL : x->terms;
    if (x->extent.fp64) {
        reference64_dq(&x->r, rows, x->judged.stats64, dbias, dq->exact64, x->terms);
        twin.data = NULL;
        twin.terms = NULL;
    }
    if (is_narrow(x))
        reference16_dq(&x->r, rows, x->judged.stats, &twin, dq, terms);
    else
        reference32_dq(&x->r, rows, x->judged.stats, &twin, dq->twin);
}

void verify_dkv(const struct verify_cuda *x)
{
    const struct reference_rows *rows = &x->rows[SIDE_KV];
    const struct reference_results *dk = &x->expected[1], *dv = &x->expected[0];
    float *terms = x->extent.fp64 ? NULL : x->terms;
    if (x->extent.fp64)
        reference64_dkv(&x->r, rows, x->all.stats64, dk->exact64, dv->exact64, x->terms);
    if (is_narrow(x))
        reference16_dkv(&x->r, rows, x->all.stats, dk, dv, terms);
    else
        reference32_dkv(&x->r, rows, x->all.stats, dk->twin, dv->twin);
}
