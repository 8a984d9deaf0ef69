// SPDX-License-Identifier: Apache-2.0
// Forward for sm_90a on the host: what is supported, and tensor maps.
#include "kernels/cuda/sm90_forward.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_tensor.h"

// Biases are divided by the scale.
#define SCALE_LEAST 1e-12

static bool is_aligned(const struct attention_forward *args)
{
    uintptr_t addresses =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    return addresses % 16 == 0 && args->shape.d_qk % 8 == 0 && args->shape.d_v % 8 == 0;
}

static bool shape_fits(const struct attention_forward *args)
{
    const struct attention_shape *shape = &args->shape;
    return shape->dtype != DTYPE_FP32 && shape->scale >= SCALE_LEAST && is_aligned(args);
}

static bool rows_are_mapped(const struct attention_forward *args, bool queries)
{
    struct sm90_extent extent =
        sm90_extent_of(args->slices, args->slice_count, args->shape.row_step, queries);
    return extent.whole && extent.positions <= INT_MAX && args->shape.row_step <= INT_MAX;
}

bool forward_sm90_supports(const struct attention_backend *backend,
                           const struct attention_forward *args)
{
    return backend->capability == 90 && shape_fits(args) && forward_sm90_instance(args) &&
           rows_are_mapped(args, true) && rows_are_mapped(args, false) && sm90_tensor_maps();
}

static const struct forward_instance *instance_plain(const struct attention_shape *shape)
{
    static const struct forward_instance *const all[] = {&forward_sm90_64, &forward_sm90_96,
                                                         &forward_sm90_128, &forward_sm90_192_128,
                                                         &forward_sm90_256};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (shape->d_qk <= all[i]->d_qk && shape->d_v <= all[i]->d_v)
            return all[i];
    return NULL;
}

static const struct forward_instance *instance_with(const struct attention_forward *args)
{
    static const struct forward_sm90_features *const all[] = {
        &forward_sm90_features_64, &forward_sm90_features_128, &forward_sm90_features_192_128,
        &forward_sm90_features_256};
    const struct attention_shape *shape = &args->shape;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (shape->d_qk <= all[i]->max.d_qk && shape->d_v <= all[i]->max.d_v) {
            if (args->bias)
                return shape->softcap != 0 ? &all[i]->both : &all[i]->bias;
            return shape->softcap != 0 ? &all[i]->cap : &all[i]->max;
        }
    return NULL;
}

const struct forward_instance *forward_sm90_instance(const struct attention_forward *args)
{
    bool plain = args->shape.softcap == 0 && !args->bias && !args->max_logit;
    return plain ? instance_plain(&args->shape) : instance_with(args);
}

// ---- softcap ------------------------------------------------------------------------------------

// By how much a short series of tanh may change a logit in base 2, and so the LSE: three quarters
// of what a verdict admits to LSE in fp32, 2^-24 * (128 + 4 * softcap) in base e. Rounding to 16
// bits changes weights by fifty times that.
static double cap_error(double cap)
{
    return 0.75 * 0x1p-24 * (128 * M_LOG2E + 4 * cap);
}

// tanh(x) / x as a power series in x^2, which converges well up to CAP_TAYLOR_REACH.
#define CAP_TAYLOR       7
#define CAP_TAYLOR_REACH 0.5
static const double cap_taylor[CAP_TAYLOR] = {
    1, -1. / 3, 2. / 15, -17. / 315, 62. / 2835, -1382. / 155925, 21844. / 6081075};

// Takes the last of `count` terms of x times a series in x^2 away, by what is as large everywhere
// up to `reach`: a Chebyshev polynomial.
static void series_shorten(double *terms, int count, double reach)
{
    const int n = count - 1, degree = 2 * n + 1;
    double less = terms[n];
    for (int i = 0; i < n; i++) {
        int power = degree - 2 * i;
        less *= -reach * reach * power * (power - 1) / (4. * (i + 1) * (degree - i - 1));
        terms[n - i - 1] -= less;
    }
}

// Sets the terms of cap * tanh(factor * x) / x, of those of tanh(x) / x.
template <int TERMS>
static void series_scale(const struct forward_work &work, const double *tanh_terms,
                         float (&terms)[TERMS])
{
    double scale = (double)work.cap * work.factor;
    for (int i = 0; i < TERMS; i++, scale *= (double)work.factor * work.factor)
        terms[i] = (float)(tanh_terms[i] * scale);
}

// Sets a series that is off by cap_error() at most, and how far it reaches.
template <int TERMS>
static void series_short(const struct forward_work &work, float (&terms)[TERMS], float *reach)
{
    const double first_left = work.cap * fabs(cap_taylor[TERMS]) / pow(4, TERMS);
    const double far = pow(cap_error(work.cap) / first_left, 1. / (2 * TERMS + 1));
    const double most = far < CAP_TAYLOR_REACH ? far : CAP_TAYLOR_REACH;
    double left[CAP_TAYLOR];
    memcpy(left, cap_taylor, sizeof(left));
    for (int count = CAP_TAYLOR; count > TERMS; count--)
        series_shorten(left, count, most);
    series_scale(work, left, terms);
    *reach = (float)(most / work.factor);
}

static void cap_set(struct forward_work *work)
{
    static const double near[] = {CAP_NEAR_SERIES};
    if (work->cap == 0)
        return;
    series_short(*work, work->cap_close, &work->cap_reach[0]);
    series_short(*work, work->cap_middle, &work->cap_reach[1]);
    series_scale(*work, near, work->cap_near);
    work->cap_reach[2] = (float)(CAP_NEAR_REACH / work->factor);
}

// ---- tensor maps --------------------------------------------------------------------------------

static cudaError_t bias_map(const struct forward_work &work, enum case_dtype dtype, int rows,
                            struct sm90_forward *args)
{
    const struct sm90_matrix bias = {work.bias, dtype, work.bias_query_stride};
    args->bias_mapped = sm90_matrix_fits(&bias);
    return args->bias_mapped ? sm90_matrix_map(&bias, SM90_PANEL_COLUMNS, rows, &args->bias)
                             : cudaSuccess;
}

cudaError_t sm90_forward_args(const struct forward_work &work, enum case_dtype dtype, int rows,
                              int keys, struct sm90_forward *args)
{
    struct sm90_tensor q = {work.q, dtype, work.d_qk, work.heads, work.row_step, work.q_positions};
    struct sm90_tensor k = {work.k,        dtype,         work.d_qk,
                            work.kv_heads, work.row_step, work.kv_positions};
    struct sm90_tensor v = k;
    v.address = work.v;
    v.d = work.d_v;
    args->work = work;
    cap_set(&args->work);
    cudaError_t error = sm90_tensor_map(&q, rows, &args->q);
    if (error == cudaSuccess)
        error = sm90_tensor_map(&k, keys, &args->k);
    if (error == cudaSuccess)
        error = sm90_tensor_map(&v, keys, &args->v);
    return error == cudaSuccess ? bias_map(work, dtype, rows, args) : error;
}
