// SPDX-License-Identifier: Apache-2.0
// Compares operations of linear layers on a device with the CPU, within the rounding of the dtype
// and of fp32 functions.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/gemm.h"
#include "tests/cuda/harness.h"

static const enum case_dtype dtypes[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};

// Rows and columns; few are multiples of the length of a vector.
static const int64_t shapes[][2] = {{1, 1},  {1, 7},    {3, 1},   {5, 8},    {2, 63},  {7, 64},
                                    {9, 65}, {33, 128}, {17, 31}, {64, 257}, {257, 40}};
#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

static double roundoff(enum case_dtype dtype)
{
    return dtype == DTYPE_FP32 ? 0x1p-24 : dtype == DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
}

static struct twin matrix(enum case_dtype dtype, int64_t elements, bool skewed)
{
    size_t bytes = (size_t)dtype_bytes(dtype);
    struct twin t = twin_create((size_t)elements * bytes, skewed ? bytes : 0);
    twin_fill_dtype(&t, dtype, 2);
    twin_push(&t);
    return t;
}

// Expects each element to differ from the host's by at most two roundings plus `off`.
static void expect_near(const struct twin *t, enum case_dtype dtype, double off, const char *what)
{
    void *got = twin_fetch(t);
    int64_t count = (int64_t)t->bytes / dtype_bytes(dtype), bad = 0;
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        double a = (double)dtype_load(dtype, got, i), b = (double)dtype_load(dtype, t->host, i);
        double used = fabs(a - b) / (2.001 * roundoff(dtype) * fabs(b) + off);
        bad += !(used <= 1);
        most = used > most ? used : most;
    }
    EXPECT(bad == 0, "%s: %lld of %lld, up to %g of what is allowed", what, (long long)bad,
           (long long)count, most);
    free(got);
}

// ---- activations ----

static void activation_check(enum case_dtype dtype, const struct product *shape, bool skewed)
{
    int64_t n = shape->m * shape->n, gates = shape->activation == ACTIVATION_SWIGLU ? 2 : 1;
    struct twin h = matrix(dtype, n * gates, skewed), d = matrix(dtype, n, false);
    struct twin to = matrix(dtype, n, false), dh = matrix(dtype, n * gates, false);
    backend_cuda.activate(harness_cuda, dtype, shape, h.device, to.device);
    backend_cpu.activate(NULL, dtype, shape, h.host, to.host);
    expect_near(&to, dtype, 2e-6, "an activation");
    backend_cuda.activate_backward(harness_cuda, dtype, shape, h.device, d.device, dh.device);
    backend_cpu.activate_backward(NULL, dtype, shape, h.host, d.host, dh.host);
    expect_near(&dh, dtype, 1e-5, "the gradient of an activation");
    twin_destroy(&h);
    twin_destroy(&d);
    twin_destroy(&to);
    twin_destroy(&dh);
}

static void activations(void)
{
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 3; d++)
            for (int a = ACTIVATION_NONE; a < ACTIVATIONS; a++) {
                struct product shape = {
                    .m = shapes[i][0], .n = shapes[i][1], .activation = (enum activation)a};
                activation_check(dtypes[d], &shape, (i + a) % 3 == 0);
            }
}

// ---- sums ----

static void sums_over_rows(void)
{
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 3; d++) {
            struct product shape = {.m = shapes[i][0], .n = shapes[i][1]};
            struct twin x = matrix(dtypes[d], shape.m * shape.n, i % 2);
            struct twin sum = matrix(dtypes[d], shape.n, i % 3 == 0);
            backend_cuda.column_sum(harness_cuda, dtypes[d], &shape, x.device, sum.device);
            backend_cpu.column_sum(NULL, dtypes[d], &shape, x.host, sum.host);
            expect_near(&sum, dtypes[d], 0x1p-23 * 2 * (double)shape.m, "a sum over rows");
            twin_destroy(&x);
            twin_destroy(&sum);
        }
}

static void parts_check(enum case_dtype dtype, const struct product *shape, int own_rank, int skew)
{
    int64_t n = shape->m * shape->n;
    struct twin parts = matrix(dtype, n * (shape->k - 1), skew & 1), own = matrix(dtype, n, false);
    struct twin bias = matrix(dtype, shape->n, skew & 2), to = matrix(dtype, n, skew & 4);
    bool with = skew % 3 != 0;
    backend_cuda.sum_parts(harness_cuda, dtype, shape, own_rank, parts.device, own.device,
                           with ? bias.device : NULL, to.device);
    backend_cpu.sum_parts(NULL, dtype, shape, own_rank, parts.host, own.host,
                          with ? bias.host : NULL, to.host);
    expect_near(&to, dtype, 0x1p-23 * 2 * (double)(shape->k + 1), "the sum of parts");
    twin_destroy(&parts);
    twin_destroy(&own);
    twin_destroy(&bias);
    twin_destroy(&to);
}

static void sums_of_parts(void)
{
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 3; d++)
            for (int ranks = 2; ranks <= 5; ranks++) {
                struct product shape = {.m = shapes[i][0], .n = shapes[i][1], .k = ranks};
                parts_check(dtypes[d], &shape, (int)harness_below(ranks), (i + ranks) % 8);
            }
}

// ---- products ----

static void product_check(const struct gemm_provider *provider, enum case_dtype dtype, int form,
                          const int64_t size[3])
{
    int64_t m = size[0], n = size[1], k = size[2];
    bool skewed = harness_below(4) == 0, with = harness_below(2);
    struct error error;
    struct twin a = matrix(dtype, m * k, skewed), b = matrix(dtype, k * n, skewed);
    struct twin bias = matrix(dtype, n, skewed), c = matrix(dtype, m * n, skewed);
    struct gemm on_host = {dtype,  (enum product_form)form, m,      n,   k, a.host,
                           b.host, with ? bias.host : NULL, c.host, NULL};
    struct gemm on_device = on_host;
    on_device.a = a.device;
    on_device.b = b.device;
    on_device.bias = with ? bias.device : NULL;
    on_device.c = c.device;
    CUDA(cudaMalloc(&on_device.wide, PRODUCT_WIDE_MAX));
    CUDA(cudaMemset(on_device.wide, 0xff, PRODUCT_WIDE_MAX)); // NaN, to detect reads before a write
    if (provider->supports(harness_cuda, &on_device)) {
        enum status status = provider->run(harness_cuda, &on_device, &error);
        EXPECT(status == STATUS_OK, "%s: %s", provider->name, error.text);
        status = gemm_run(backend_cpu.gemm, NULL, &on_host, &error);
        EXPECT(status == STATUS_OK, "on the CPU: %s", error.text);
        char what[128];
        snprintf(what, sizeof(what), "%s, dtype %d, form %d, %lld x %lld x %lld%s%s",
                 provider->name, (int)dtype, form, (long long)m, (long long)n, (long long)k,
                 with ? ", bias" : "", skewed ? ", skewed" : "");
        expect_near(&c, dtype, 0x1p-23 * 4 * (double)(k + 1), what);
    }
    cudaFree(on_device.wide);
    twin_destroy(&a);
    twin_destroy(&b);
    twin_destroy(&bias);
    twin_destroy(&c);
}

static void products(void)
{
    static const int64_t sized[][3] = {
        {1, 1, 1},      {1, 1, 0},      {3, 5, 7},     {8, 8, 8},   {1, 64, 33},
        {17, 1, 64},    {64, 128, 96},  {65, 127, 31}, {33, 40, 1}, {128, 64, 257},
        {200, 72, 136}, {255, 70001, 5}}; // with a bias some rows at a time
    const int count = (int)(sizeof(sized) / sizeof(sized[0]));
    for (const struct gemm_provider *const *p = backend_cuda.gemm; *p; p++) {
        harness_note("provider %s", (*p)->name);
        for (int i = 0; i < count; i++)
            for (int d = 0; d < 3; d++)
                for (int form = PRODUCT_NT; form <= PRODUCT_TN; form++)
                    product_check(*p, dtypes[d], form, sized[i]);
    }
}

static const struct harness_test tests[] = {
    {"activations", activations},
    {"sums over rows", sums_over_rows},
    {"sums of parts", sums_of_parts},
    {"products", products},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
