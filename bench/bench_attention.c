// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU attention relative to the BLAS. Each round times a square sgemm, a forward and a
// backward in the same process; the output has the medians over the rounds.
//
// FLOPs are 2 (d_qk + d_v) for each visible (query, key) pair in forward and 2.5 times that in
// backward. Work on masked keys, softmax, merge and conversions is not counted and lowers the
// figure.
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/blas.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

#define SQUARE         2048
#define ROUNDS_DEFAULT 7

struct shape {
    const char *name;
    int heads, kv_heads, d_qk, d_v;
    int64_t length;
    bool causal;
    enum case_dtype dtype;
};

static const struct shape shapes[] = {
    {"12x128 full", 12, 12, 128, 128, 4096, false, DTYPE_BF16},
    {"12x128 causal", 12, 12, 128, 128, 4096, true, DTYPE_BF16},
    {"12x128 causal fp16", 12, 12, 128, 128, 4096, true, DTYPE_FP16},
    {"32/4x128 causal", 32, 4, 128, 128, 2048, true, DTYPE_BF16},
    {"12x192/128 causal", 12, 12, 192, 128, 2048, true, DTYPE_BF16},
    {"12x64 causal", 12, 12, 64, 64, 4096, true, DTYPE_BF16},
    {"12x128 causal", 12, 12, 128, 128, 512, true, DTYPE_BF16},
    {"12x128 full", 12, 12, 128, 128, 128, false, DTYPE_BF16},
};

struct buffers {
    void *q, *k, *v, *d_out;
    float *o, *lse, *d, *dq, *dk, *dv;
    float *a, *b, *c; // operands and result of the sgemm
};

struct seconds {
    double gemm, forward, backward;
};

// Processor time of this thread in seconds, which excludes other processes of the machine. All work
// runs in this thread.
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *reserve(int64_t count, size_t element)
{
    void *memory = calloc((size_t)count, element);
    if (!memory) {
        fprintf(stderr, "bench_attention: no memory for %lld elements\n", (long long)count);
        exit(EXIT_FAILURE);
    }
    return memory;
}

static void *random_tensor(enum case_dtype dtype, int64_t count)
{
    void *tensor = reserve(count, (size_t)dtype_bytes(dtype));
    uint32_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        dtype_store(dtype, tensor, i, (float)((double)state * 0x1p-31 - 1) * 2);
    }
    return tensor;
}

static void buffers_init(struct buffers *b, const struct shape *s)
{
    int64_t q_rows = s->length * s->heads, kv_rows = s->length * s->kv_heads;
    b->q = random_tensor(s->dtype, q_rows * s->d_qk);
    b->k = random_tensor(s->dtype, kv_rows * s->d_qk);
    b->v = random_tensor(s->dtype, kv_rows * s->d_v);
    b->d_out = random_tensor(s->dtype, q_rows * s->d_v);
    b->o = reserve(q_rows * s->d_v, sizeof(float));
    b->lse = reserve(q_rows, sizeof(float));
    b->d = reserve(q_rows, sizeof(float));
    b->dq = reserve(q_rows * s->d_qk, sizeof(float));
    b->dk = reserve(kv_rows * s->d_qk, sizeof(float));
    b->dv = reserve(kv_rows * s->d_v, sizeof(float));
    b->a = random_tensor(DTYPE_FP32, SQUARE * SQUARE);
    b->b = random_tensor(DTYPE_FP32, SQUARE * SQUARE);
    b->c = reserve(SQUARE * SQUARE, sizeof(float));
}

static void buffers_fini(struct buffers *b)
{
    void *all[] = {b->q,  b->k,  b->v,  b->d_out, b->o, b->lse, b->d,
                   b->dq, b->dk, b->dv, b->a,     b->b, b->c};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static struct slice slice_of(const struct shape *s)
{
    return (struct slice){.q_len = s->length,
                          .kv_len = s->length,
                          .left = SLICE_UNBOUNDED,
                          .right = s->causal ? 0 : SLICE_UNBOUNDED};
}

static struct attention_shape attention_shape_of(const struct shape *s)
{
    return (struct attention_shape){.dtype = s->dtype,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .group = s->heads / s->kv_heads,
                                    .d_qk = s->d_qk,
                                    .d_v = s->d_v,
                                    .q_rows = s->length,
                                    .row_step = 1,
                                    .scale = 1 / sqrt(s->d_qk)};
}

static void must(enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "bench_attention: %s\n", error->text);
    exit(EXIT_FAILURE);
}

static double time_gemm(const struct buffers *b)
{
    double start = now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SQUARE, SQUARE, SQUARE, 1, b->a, SQUARE,
                b->b, SQUARE, 0, b->c, SQUARE);
    return now() - start;
}

static double time_forward(struct attention_backend *backend, const struct shape *s,
                           const struct buffers *b, const struct slice *slice)
{
    struct error error;
    int64_t rows = s->length * s->heads;
    backend_cpu.fill(backend, b->o, 0, rows * s->d_v);
    backend_cpu.fill(backend, b->lse, -INFINITY, rows);
    struct attention_forward args = {.shape = attention_shape_of(s),
                                     .q = b->q,
                                     .k = b->k,
                                     .v = b->v,
                                     .o = b->o,
                                     .lse = b->lse,
                                     .slices = slice,
                                     .slice_count = 1};
    double start = now();
    must(backend_cpu.attention->forward(backend, &args, &error), &error);
    return now() - start;
}

static double time_backward(struct attention_backend *backend, const struct shape *s,
                            const struct buffers *b, const struct slice *slice)
{
    struct error error;
    struct attention_backward args = {.shape = attention_shape_of(s),
                                      .q = b->q,
                                      .k = b->k,
                                      .v = b->v,
                                      .d_out = b->d_out,
                                      .lse = b->lse,
                                      .d = b->d,
                                      .dq = b->dq,
                                      .dk = b->dk,
                                      .dv = b->dv,
                                      .slices = slice,
                                      .slice_count = 1};
    double start = now();
    must(backend_cpu.attention->backward(backend, &args, &error), &error);
    return now() - start;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

static struct seconds measure(struct attention_backend *backend, const struct shape *s, int rounds)
{
    struct slice slice = slice_of(s);
    struct buffers b;
    buffers_init(&b, s);
    double *gemm = reserve(3 * rounds, sizeof(double));
    double *forward = gemm + rounds, *backward = forward + rounds;
    time_gemm(&b); // warms up: the BLAS allocates its buffers
    for (int i = 0; i < rounds; i++) {
        gemm[i] = time_gemm(&b);
        forward[i] = time_forward(backend, s, &b, &slice);
        backward[i] = time_backward(backend, s, &b, &slice);
    }
    struct seconds seconds = {median(gemm, rounds), median(forward, rounds),
                              median(backward, rounds)};
    free(gemm);
    buffers_fini(&b);
    return seconds;
}

static void print_row(const struct shape *s, struct seconds seconds)
{
    struct slice slice = slice_of(s);
    double flops = (double)slice_pairs(&slice) * s->heads * 2 * (s->d_qk + s->d_v) * 1e-9;
    double square = 2.0 * SQUARE * SQUARE * SQUARE * 1e-9 / seconds.gemm;
    double forward = flops / seconds.forward, backward = 2.5 * flops / seconds.backward;
    printf("%-20s %6lld  %8.1f %8.1f %8.1f  %7.2f %7.2f\n", s->name, (long long)s->length, forward,
           backward, square, forward / square, backward / square);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS_DEFAULT;
    if (argc > 2 || rounds < 1 || rounds > 1000) {
        fprintf(stderr, "usage: bench_attention [ROUNDS]   (1 to 1000, default %d)\n",
                ROUNDS_DEFAULT);
        return 2;
    }
    struct attention_backend *backend;
    struct error error;
    must(backend_cpu.create(&backend, &error), &error);
    printf("BLAS kernels: %s; sgemm: %d cubed; median of %d rounds; one thread\n", blas_core_name(),
           SQUARE, rounds);
    printf("%-20s %6s  %26s  %15s\n", "", "", "GFLOP/s", "of sgemm");
    printf("%-20s %6s  %8s %8s %8s  %7s %7s\n", "heads x dim", "tokens", "forward", "backward",
           "sgemm", "forward", "backward");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        print_row(&shapes[i], measure(backend, &shapes[i], rounds));
    backend_cpu.destroy(backend);
    return 0;
}
