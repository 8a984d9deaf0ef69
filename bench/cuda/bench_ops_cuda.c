// SPDX-License-Identifier: Apache-2.0
// Speed of the small operations of the CUDA backend, in bytes read and written per second,
// to compare with the memory bandwidth. Argument: MiB of the largest array [1024].
#include <stdio.h>
#include <stdlib.h>

#include "judge/cuda/digest_cuda.h"
#include "judge/cuda/inputs_cuda.h"
#include "kernels/backend.h"
#include "kernels/cuda/regions_cuda.h"

#define RUNS 5

#define CUDA(call) check((call), #call)
static void check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
    exit(1);
}

static struct attention_backend *backend;
static float *x, *y, *z;
static int64_t count; // floats in each of x, y and z

// Prints the shortest of RUNS runs after one warm-up run. `bytes`: read and written by a run.
static void measure(const char *name, void (*run)(void), double bytes)
{
    cudaEvent_t start, end;
    float best = 1e30f, ms;
    struct error error;
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i <= RUNS; i++) {
        CUDA(cudaEventRecord(start, attention_cuda_stream(backend)));
        run();
        CUDA(cudaEventRecord(end, attention_cuda_stream(backend)));
        if (attention_cuda_finish(backend, &error) != STATUS_OK) {
            fprintf(stderr, "%s: %s\n", name, error.text);
            exit(1);
        }
        CUDA(cudaEventElapsedTime(&ms, start, end));
        best = i > 0 && ms < best ? ms : best;
    }
    printf("%-22s %9.3f ms %8.0f GB/s\n", name, best, bytes / best / 1e6);
    CUDA(cudaEventDestroy(start));
    CUDA(cudaEventDestroy(end));
}

static void copy(void)
{
    CUDA(cudaMemcpyAsync(y, x, (size_t)count * 4, cudaMemcpyDeviceToDevice,
                         attention_cuda_stream(backend)));
}
static void add(void)
{
    backend_cuda.add(backend, x, y, count);
}
static void add_skewed(void)
{
    backend_cuda.add(backend, x + 1, y, count - 1);
}
static void max(void)
{
    backend_cuda.max(backend, x, y, count);
}
static void fill(void)
{
    backend_cuda.fill(backend, y, 0.5f, count);
}
static void convert(void)
{
    backend_cuda.convert(backend, DTYPE_BF16, x, z, count);
}
static void digest(void)
{
    digest_cuda_sum(attention_cuda_queue(backend), x, (size_t)count * 4);
}

// pack() and unpack() copy half the heads of rows with 32 heads of 128 elements in bf16.
#define ROW_BYTES (32 * 128 * 2)
static void pack(void)
{
    struct region_copy half = {
        x, y, count * 4 / ROW_BYTES, ROW_BYTES / 2, ROW_BYTES, ROW_BYTES / 2};
    regions_cuda_copy(backend, attention_cuda_stream(backend), &half, 1);
}
static void unpack(void)
{
    struct region_copy half = {x,        y, count * 4 / ROW_BYTES, ROW_BYTES / 2, ROW_BYTES / 2,
                               ROW_BYTES};
    regions_cuda_copy(backend, attention_cuda_stream(backend), &half, 1);
}
static void add_pieces(void)
{
    regions_cuda_add(backend, x, y, count / 4096, 2048, 4096);
}

static int dim = 128, heads = 32;
static void row_dot(void)
{
    struct attention_shape shape = {
        .dtype = DTYPE_BF16, .heads = heads, .d_v = dim, .q_rows = count / heads / dim};
    backend_cuda.row_dot(backend, &shape, z, x, y);
}

static void sink_grad(void)
{
    struct attention_shape shape = {.heads = 32, .q_rows = count / 32, .row_step = 1};
    struct row_run all = {.count = shape.q_rows};
    struct packed_rows rows = {.runs = &all, .run_count = 1, .total = all.count, .row_step = 1};
    backend_cuda.sink_grad(backend, &shape, &rows, NULL, z, x, y, z + 64);
}

static void inputs(void)
{
    struct cp_case c;
    case_init(&c);
    c.world_size = 1;
    c.batch = 1;
    c.heads = c.kv_heads = 32;
    c.head_dim_qk = c.head_dim_v = 128;
    c.seqlen_q = c.seqlen_kv = count / 4096;
    struct span span = {.len = c.seqlen_q};
    inputs_cuda_fill(attention_cuda_queue(backend), &c, INPUT_Q, 0, &span, 1, z);
}

int main(int argc, char **argv)
{
    struct error error;
    count = (argc > 1 ? atoll(argv[1]) : 1024) << 18;
    if (backend_cuda.create(&backend, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 77;
    }
    CUDA(cudaMalloc((void **)&x, (size_t)count * 4));
    CUDA(cudaMalloc((void **)&y, (size_t)count * 4));
    CUDA(cudaMalloc((void **)&z, (size_t)count * 4));
    CUDA(cudaMemset(x, 0, (size_t)count * 4));
    CUDA(cudaMemset(y, 0, (size_t)count * 4));
    CUDA(cudaMemset(z, 0, (size_t)count * 4));
    double bytes = (double)count * 4;
    measure("copy of the runtime", copy, 2 * bytes);
    measure("add", add, 3 * bytes);
    measure("add, not aligned", add_skewed, 3 * bytes);
    measure("max", max, 3 * bytes);
    measure("fill", fill, bytes);
    measure("convert to bf16", convert, 1.5 * bytes);
    measure("digest", digest, bytes);
    measure("pack half the heads", pack, bytes);
    measure("unpack half the heads", unpack, bytes);
    measure("add to half the heads", add_pieces, 1.5 * bytes);
    measure("row dot, d 128", row_dot, 1.5 * bytes);
    dim = 64;
    measure("row dot, d 64", row_dot, 1.5 * bytes);
    dim = 72;
    heads = 25;
    measure("row dot, d 72", row_dot, 1.5 * bytes);
    measure("sink gradient", sink_grad, 2 * bytes);
    measure("inputs in bf16", inputs, bytes / 2);
    backend_cuda.destroy(backend);
    return 0;
}
