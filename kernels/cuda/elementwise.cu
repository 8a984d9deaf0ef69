// SPDX-License-Identifier: Apache-2.0
// Elementwise operations on fp32 arrays. They are memory-bound: each thread has several 16-byte
// accesses in flight, or accesses to single elements if an array is not aligned to 16 bytes.
#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/internal.h"

extern "C" {
#include "kernels/backend.h"
}

#define THREADS 256
#define UNROLL  4 // units per thread; a thread reads all of them before it writes one

// An operation has a type `input<WIDTH>` for the operands of WIDTH elements, and
//     template <int WIDTH> input<WIDTH> read(int64_t i)           loads elements i..i + WIDTH - 1
//     template <int WIDTH> void write(int64_t i, input<WIDTH>)    stores the same elements

struct add_operation {
    const float *source;
    float *destination;
    template <int WIDTH> struct input {
        vec<float, WIDTH> source, destination;
    };
    template <int WIDTH> __device__ __forceinline__ input<WIDTH> read(int64_t i) const
    {
        return {vec_load<WIDTH>(source + i), vec_load<WIDTH>(destination + i)};
    }
    template <int WIDTH> __device__ __forceinline__ void write(int64_t i, input<WIDTH> x) const
    {
        for (int k = 0; k < WIDTH; k++)
            x.destination.at[k] += x.source.at[k];
        vec_store(destination + i, x.destination);
    }
};

// If either operand is NaN, so is the result.
struct max_operation : add_operation {
    template <int WIDTH> __device__ __forceinline__ void write(int64_t i, input<WIDTH> x) const
    {
        for (int k = 0; k < WIDTH; k++)
            if (!(x.source.at[k] <= x.destination.at[k]) && !isnan(x.destination.at[k]))
                x.destination.at[k] = x.source.at[k];
        vec_store(destination + i, x.destination);
    }
};

struct fill_operation {
    float *destination;
    float value;
    template <int WIDTH> struct input {
    };
    template <int WIDTH> __device__ __forceinline__ input<WIDTH> read(int64_t) const
    {
        return {};
    }
    template <int WIDTH> __device__ __forceinline__ void write(int64_t i, input<WIDTH>) const
    {
        vec<float, WIDTH> values;
        for (int k = 0; k < WIDTH; k++)
            values.at[k] = value;
        vec_store(destination + i, values);
    }
};

template <class Dtype> struct convert_operation {
    const float *source;
    typename Dtype::stored *destination;
    template <int WIDTH> using input = vec<float, WIDTH>;
    template <int WIDTH> __device__ __forceinline__ input<WIDTH> read(int64_t i) const
    {
        return vec_load<WIDTH>(source + i);
    }
    template <int WIDTH> __device__ __forceinline__ void write(int64_t i, input<WIDTH> x) const
    {
        vec<typename Dtype::stored, WIDTH> rounded;
        for (int k = 0; k < WIDTH; k++)
            rounded.at[k] = Dtype::round(x.at[k]);
        vec_store(destination + i, rounded);
    }
};

// Adds the sources in order and converts the sum. The loop over sources is unrolled; its exit is
// uniform, because all threads have the same source_count.
template <class Dtype> struct convert_sum_operation {
    const float *sources[CONVERT_SUMMANDS_MAX];
    int source_count;
    typename Dtype::stored *destination;
    template <int WIDTH> using input = vec<float, WIDTH>;
    template <int WIDTH> __device__ __forceinline__ input<WIDTH> read(int64_t i) const
    {
        input<WIDTH> sum = vec_load<WIDTH>(sources[0] + i);
#pragma unroll
        for (int n = 1; n < CONVERT_SUMMANDS_MAX; n++) {
            if (n == source_count)
                break;
            input<WIDTH> next = vec_load<WIDTH>(sources[n] + i);
            for (int k = 0; k < WIDTH; k++)
                sum.at[k] += next.at[k];
        }
        return sum;
    }
    template <int WIDTH> __device__ __forceinline__ void write(int64_t i, input<WIDTH> x) const
    {
        vec<typename Dtype::stored, WIDTH> rounded;
        for (int k = 0; k < WIDTH; k++)
            rounded.at[k] = Dtype::round(x.at[k]);
        vec_store(destination + i, rounded);
    }
};

// Block 0 also handles the last count % WIDTH elements, one by one.
template <int WIDTH, class Operation>
__global__ __launch_bounds__(THREADS) void each_kernel(Operation operation, int64_t count)
{
    int64_t units = count / WIDTH, first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    typename Operation::template input<WIDTH> inputs[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k * THREADS < units)
            inputs[k] = operation.template read<WIDTH>((first + k * THREADS) * WIDTH);
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k * THREADS < units)
            operation.template write<WIDTH>((first + k * THREADS) * WIDTH, inputs[k]);
    int64_t rest = units * WIDTH + threadIdx.x;
    if (blockIdx.x == 0 && rest < count)
        operation.template write<1>(rest, operation.template read<1>(rest));
}

// `wide`: all arrays are aligned for units of WIDTH elements; otherwise a unit is one element.
template <int WIDTH, class Operation>
static void each(struct attention_backend *backend, Operation operation, int64_t count, bool wide,
                 const char *what)
{
    if (count <= 0)
        return;
    int64_t units = wide ? count / WIDTH : count;
    unsigned blocks = (unsigned)((units + THREADS * UNROLL - 1) / (THREADS * UNROLL));
    if (blocks == 0) // fewer elements than a unit
        blocks = 1;
    if (wide)
        each_kernel<WIDTH><<<blocks, THREADS, 0, backend->queue.stream>>>(operation, count);
    else
        each_kernel<1><<<blocks, THREADS, 0, backend->queue.stream>>>(operation, count);
    cuda_launched(backend, what);
}

cudaError_t elementwise_cuda_check(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, each_kernel<1, fill_operation>);
}

void add_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count)
{
    bool wide = aligned(source, 16) && aligned(destination, 16);
    each<4>(backend, add_operation{source, destination}, count, wide, "add");
}

void max_cuda(struct attention_backend *backend, const float *source, float *destination,
              int64_t count)
{
    bool wide = aligned(source, 16) && aligned(destination, 16);
    each<4>(backend, max_operation{{source, destination}}, count, wide, "max");
}

void fill_cuda(struct attention_backend *backend, float *destination, float value, int64_t count)
{
    each<4>(backend, fill_operation{destination, value}, count, aligned(destination, 16), "fill");
}

void convert_cuda(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                  void *destination, int64_t count)
{
    if (count <= 0)
        return;
    int64_t bytes = dtype == DTYPE_FP32 ? 4 : 2;
    bool wide = aligned(source, 16) && aligned(destination, 16);
    if (dtype == DTYPE_FP32)
        cuda_note(backend,
                  cudaMemcpyAsync(destination, source, (size_t)(count * bytes),
                                  cudaMemcpyDeviceToDevice, backend->queue.stream),
                  "convert");
    else if (dtype == DTYPE_BF16)
        each<8>(backend, convert_operation<bf16>{source, (uint16_t *)destination}, count, wide,
                "convert");
    else
        each<8>(backend, convert_operation<fp16>{source, (uint16_t *)destination}, count, wide,
                "convert");
}

template <class Dtype>
static void convert_sum_as(struct attention_backend *backend, const float *const *sources,
                           int source_count, void *destination, int64_t count)
{
    convert_sum_operation<Dtype> operation = {};
    bool wide = aligned(destination, 16);
    for (int n = 0; n < source_count; n++) {
        operation.sources[n] = sources[n];
        wide = wide && aligned(sources[n], 16);
    }
    operation.source_count = source_count;
    operation.destination = (typename Dtype::stored *)destination;
    each<4>(backend, operation, count, wide, "convert");
}

void convert_sum_cuda(struct attention_backend *backend, enum case_dtype dtype,
                      const float *const *sources, int source_count, void *destination,
                      int64_t count)
{
    if (dtype == DTYPE_FP32)
        convert_sum_as<fp32>(backend, sources, source_count, destination, count);
    else if (dtype == DTYPE_BF16)
        convert_sum_as<bf16>(backend, sources, source_count, destination, count);
    else
        convert_sum_as<fp16>(backend, sources, source_count, destination, count);
}
