// SPDX-License-Identifier: Apache-2.0
// Operations of linear layers on a device: activations, sums, and matrix products without a library
// (with one: kernels/cuda/cublaslt.c). All compute in fp32 and round once. The order of additions
// depends only on the sizes.
#include "kernels/cuda/linear_cuda.h"

#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/internal.h"

#define THREADS 256
#define WIDTH   8 // elements per access, if sizes are multiples of it and arrays are aligned

static unsigned int blocks_for(int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return (unsigned int)(blocks < (1 << 20) ? blocks : 1 << 20);
}

// Grid-stride loop over i = 0..count - 1.
#define FOR_EACH(i, count)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < (count);                     \
         i += (int64_t)gridDim.x * THREADS)

// ---- activations --------------------------------------------------------------------------------

#define SQRT_HALF        0.70710678f
#define SQRT_2_OVER_PI   0.79788456f
#define INVERSE_SQRT_2PI 0.39894228f
#define GELU_CUBE        0.044715f

static __device__ __forceinline__ float logistic(float x)
{
    return __fdividef(1, 1 + expf(-x));
}

// Twice the argument of tanh in GELU_TANH: (1 + tanh(y)) / 2 = logistic(2 y).
static __device__ __forceinline__ float tanh_argument(float x)
{
    return 2 * SQRT_2_OVER_PI * (x + GELU_CUBE * x * x * x);
}

// Value and derivative of an activation at x. For SwiGLU: those of x * logistic(x), its factor that
// depends on g.
template <int KIND> static __device__ __forceinline__ float value_of(float x)
{
    if (KIND == ACTIVATION_GELU)
        return 0.5f * x * erfcf(-x * SQRT_HALF);
    if (KIND == ACTIVATION_GELU_TANH)
        return x * logistic(tanh_argument(x));
    return KIND == ACTIVATION_SWIGLU ? x * logistic(x) : x;
}

template <int KIND> static __device__ __forceinline__ float slope_of(float x)
{
    if (KIND == ACTIVATION_GELU)
        return 0.5f * erfcf(-x * SQRT_HALF) + x * INVERSE_SQRT_2PI * expf(-0.5f * x * x);
    if (KIND == ACTIVATION_GELU_TANH) {
        float s = logistic(tanh_argument(x));
        return s + x * s * (1 - s) * 2 * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBE * x * x);
    }
    if (KIND == ACTIVATION_SWIGLU) {
        float s = logistic(x);
        return s * (1 + x * (1 - s));
    }
    return 1;
}

// h is [m][gates n], `to` [m][n]. A thread handles W elements of a row at a time.
template <class Dtype, int KIND, int W>
__global__ void __launch_bounds__(THREADS)
    activate(int64_t m, int64_t n, const typename Dtype::stored *h, typename Dtype::stored *to)
{
    const int gates = KIND == ACTIVATION_SWIGLU ? 2 : 1;
    FOR_EACH(i, m * (n / W))
    {
        int64_t row = i / (n / W), column = i % (n / W) * W;
        auto g = vec_load<W>(h + row * gates * n + column), u = g;
        if (gates == 2)
            u = vec_load<W>(h + (row * gates + 1) * n + column);
        for (int k = 0; k < W; k++) {
            float value = value_of<KIND>(Dtype::value(g.at[k]));
            g.at[k] = Dtype::round(gates == 2 ? value * Dtype::value(u.at[k]) : value);
        }
        vec_store(to + row * n + column, g);
    }
}

// d [m][n] is the gradient of the activation, `to` [m][gates n] that of h.
template <class Dtype, int KIND, int W>
__global__ void __launch_bounds__(THREADS)
    activate_backward(int64_t m, int64_t n, const typename Dtype::stored *h,
                      const typename Dtype::stored *d, typename Dtype::stored *to)
{
    const int gates = KIND == ACTIVATION_SWIGLU ? 2 : 1;
    FOR_EACH(i, m * (n / W))
    {
        int64_t row = i / (n / W), column = i % (n / W) * W, first = row * gates * n + column;
        auto g = vec_load<W>(h + first), u = g, da = vec_load<W>(d + row * n + column);
        if (gates == 2)
            u = vec_load<W>(h + first + n);
        for (int k = 0; k < W; k++) {
            float x = Dtype::value(g.at[k]), up = Dtype::value(u.at[k]);
            float gradient = Dtype::value(da.at[k]);
            u.at[k] = Dtype::round(gradient * value_of<KIND>(x));
            g.at[k] = Dtype::round(gates == 2 ? gradient * up * slope_of<KIND>(x)
                                              : gradient * slope_of<KIND>(x));
        }
        vec_store(to + first, g);
        if (gates == 2)
            vec_store(to + first + n, u);
    }
}

// d: NULL for the forward.
template <class Dtype, int KIND>
static void activation_launch(struct attention_backend *backend, const struct product *shape,
                              const void *h, const void *d, void *to)
{
    typedef const typename Dtype::stored *in;
    typedef typename Dtype::stored *out;
    int64_t m = shape->m, n = shape->n;
    bool wide = n % WIDTH == 0 && aligned(h, 16) && aligned(to, 16) && aligned(d, 16);
    unsigned int blocks = blocks_for(wide ? m * n / WIDTH : m * n);
    cudaStream_t stream = backend->queue.stream;
    if (d && wide)
        activate_backward<Dtype, KIND, WIDTH>
            <<<blocks, THREADS, 0, stream>>>(m, n, (in)h, (in)d, (out)to);
    else if (d)
        activate_backward<Dtype, KIND, 1>
            <<<blocks, THREADS, 0, stream>>>(m, n, (in)h, (in)d, (out)to);
    else if (wide)
        activate<Dtype, KIND, WIDTH><<<blocks, THREADS, 0, stream>>>(m, n, (in)h, (out)to);
    else
        activate<Dtype, KIND, 1><<<blocks, THREADS, 0, stream>>>(m, n, (in)h, (out)to);
    cuda_launched(backend, "an activation");
}

static void activation(struct attention_backend *backend, enum case_dtype dtype,
                       const struct product *shape, const void *h, const void *d, void *to)
{
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        switch (shape->activation) {
        case ACTIVATION_GELU:
            return activation_launch<Dtype, ACTIVATION_GELU>(backend, shape, h, d, to);
        case ACTIVATION_GELU_TANH:
            return activation_launch<Dtype, ACTIVATION_GELU_TANH>(backend, shape, h, d, to);
        case ACTIVATION_SWIGLU:
            return activation_launch<Dtype, ACTIVATION_SWIGLU>(backend, shape, h, d, to);
        default:
            return activation_launch<Dtype, ACTIVATION_NONE>(backend, shape, h, d, to);
        }
    });
}

void activate_cuda(struct attention_backend *backend, enum case_dtype dtype,
                   const struct product *shape, const void *h, void *to)
{
    activation(backend, dtype, shape, h, nullptr, to);
}

void activate_backward_cuda(struct attention_backend *backend, enum case_dtype dtype,
                            const struct product *shape, const void *h, const void *d, void *to)
{
    activation(backend, dtype, shape, h, d, to);
}

// ---- sums ---------------------------------------------------------------------------------------

// column_sum(): a block sums 64 columns. Each of its SUM_LANES warps takes every SUM_LANES-th row,
// each thread two adjacent columns. Then one thread per column adds the sums of the warps in order.
#define SUM_LANES (THREADS / 32)

template <class Dtype>
__global__ void __launch_bounds__(THREADS)
    column_sum(int64_t m, int64_t n, const typename Dtype::stored *source,
               typename Dtype::stored *destination)
{
    __shared__ float sums[SUM_LANES][64];
    int lane = (int)threadIdx.x / 32, place = (int)threadIdx.x % 32 * 2;
    int64_t column = (int64_t)blockIdx.x * 64 + place;
    float first = 0, second = 0;
    for (int64_t row = lane; row < m; row += SUM_LANES) {
        if (column < n)
            first += Dtype::value(source[row * n + column]);
        if (column + 1 < n)
            second += Dtype::value(source[row * n + column + 1]);
    }
    sums[lane][place] = first;
    sums[lane][place + 1] = second;
    __syncthreads();
    int64_t own = (int64_t)blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x >= 64 || own >= n)
        return;
    float sum = 0;
    for (int i = 0; i < SUM_LANES; i++)
        sum += sums[i][threadIdx.x];
    destination[own] = Dtype::round(sum);
}

void column_sum_cuda(struct attention_backend *backend, enum case_dtype dtype,
                     const struct product *shape, const void *source, void *destination)
{
    with_dtype(dtype, [&](auto type) {
        typedef typename decltype(type)::stored stored;
        column_sum<decltype(type)>
            <<<(unsigned int)((shape->n + 63) / 64), THREADS, 0, backend->queue.stream>>>(
                shape->m, shape->n, (const stored *)source, (stored *)destination);
    });
    cuda_launched(backend, "a sum over rows");
}

// Adds the parts in the order of ranks. `parts` has no slot for own_rank, whose part is `own`.
template <class Dtype, int W>
__global__ void __launch_bounds__(THREADS)
    sum_parts(int64_t m, int64_t n, int ranks, int own_rank, const typename Dtype::stored *parts,
              const typename Dtype::stored *own, const typename Dtype::stored *bias,
              typename Dtype::stored *destination)
{
    FOR_EACH(i, m * n / W)
    {
        int64_t at = i * W;
        float sum[W] = {};
        for (int rank = 0; rank < ranks; rank++) {
            int64_t slot = rank - (rank > own_rank);
            auto part = vec_load<W>(rank == own_rank ? own + at : parts + slot * m * n + at);
            for (int k = 0; k < W; k++)
                sum[k] += Dtype::value(part.at[k]);
        }
        vec<typename Dtype::stored, W> result;
        for (int k = 0; k < W; k++)
            result.at[k] = Dtype::round(bias ? sum[k] + Dtype::value(bias[(at + k) % n]) : sum[k]);
        vec_store(destination + at, result);
    }
}

void sum_parts_cuda(struct attention_backend *backend, enum case_dtype dtype,
                    const struct product *shape, int own_rank, const void *parts, const void *own,
                    const void *bias, void *destination)
{
    int64_t m = shape->m, n = shape->n;
    bool wide =
        m * n % WIDTH == 0 && aligned(parts, 16) && aligned(own, 16) && aligned(destination, 16);
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        typedef typename Dtype::stored stored;
        auto kernel = wide ? sum_parts<Dtype, WIDTH> : sum_parts<Dtype, 1>;
        kernel<<<blocks_for(wide ? m * n / WIDTH : m * n), THREADS, 0, backend->queue.stream>>>(
            m, n, (int)shape->k, own_rank, (const stored *)parts, (const stored *)own,
            (const stored *)bias, (stored *)destination);
    });
    cuda_launched(backend, "the sum of the ranks' parts");
}

// ---- products -----------------------------------------------------------------------------------

template <class Dtype>
__global__ void __launch_bounds__(THREADS)
    bias_round(int64_t m, int64_t n, const float *wide, const typename Dtype::stored *bias,
               typename Dtype::stored *c)
{
    FOR_EACH(i, m * n)
    c[i] = Dtype::round(wide[i] + Dtype::value(bias[i % n]));
}

void bias_round_cuda(struct attention_backend *backend, enum case_dtype dtype, int64_t m, int64_t n,
                     const float *wide, const void *bias, void *c)
{
    with_dtype(dtype, [&](auto type) {
        typedef typename decltype(type)::stored stored;
        bias_round<decltype(type)><<<blocks_for(m * n), THREADS, 0, backend->queue.stream>>>(
            m, n, wide, (const stored *)bias, (stored *)c);
    });
    cuda_launched(backend, "the bias of a product");
}

// A thread computes whole elements of C, each as one sum over k.
template <class Dtype>
__global__ void __launch_bounds__(THREADS)
    product(int form, int64_t m, int64_t n, int64_t k, const typename Dtype::stored *a,
            const typename Dtype::stored *b, const typename Dtype::stored *bias,
            typename Dtype::stored *c)
{
    int64_t a_row = form == PRODUCT_TN ? 1 : k, a_step = form == PRODUCT_TN ? m : 1;
    int64_t b_column = form == PRODUCT_NT ? k : 1, b_step = form == PRODUCT_NT ? 1 : n;
    FOR_EACH(i, m * n)
    {
        const typename Dtype::stored *x = a + i / n * a_row, *y = b + i % n * b_column;
        float sum = 0;
        for (int64_t step = 0; step < k; step++)
            sum = fmaf(Dtype::value(x[step * a_step]), Dtype::value(y[step * b_step]), sum);
        c[i] = Dtype::round(bias ? sum + Dtype::value(bias[i % n]) : sum);
    }
}

void product_cuda(struct attention_backend *backend, const struct gemm *g)
{
    with_dtype(g->dtype, [&](auto type) {
        typedef typename decltype(type)::stored stored;
        product<decltype(type)><<<blocks_for(g->m * g->n), THREADS, 0, backend->queue.stream>>>(
            (int)g->form, g->m, g->n, g->k, (const stored *)g->a, (const stored *)g->b,
            (const stored *)g->bias, (stored *)g->c);
    });
    cuda_launched(backend, "a product");
}
