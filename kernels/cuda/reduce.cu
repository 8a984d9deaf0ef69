// SPDX-License-Identifier: Apache-2.0
// Elementwise reductions of collectives on a device. Results have the same bits as those of
// kernels/cpu/reduce.c: each operation rounds to nearest even, minimum and maximum are those of
// IEEE 754-2019, every NaN result has the same bit pattern, integers wrap around.
#include "kernels/cuda/reduce_cuda.h"

#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/internal.h"

#define THREADS    256
#define UNROLL     4  // units per thread; a thread reads all of them before it writes one
#define UNIT_BYTES 16 // of an access, if the arrays are aligned to it

// ---- element types: `stored` is the type in memory, `wide` the type of the computation ----------

// fp32, bf16, fp16; computed in fp32.
template <class Dtype> struct real_type {
    typedef typename Dtype::stored stored;
    typedef float wide;
    static __device__ __forceinline__ wide load(stored x)
    {
        return Dtype::value(x);
    }
    static __device__ __forceinline__ stored store(wide x)
    {
        return Dtype::round(x);
    }
    // Replaces any NaN by the canonical NaN.
    static __device__ __forceinline__ wide quiet(wide x)
    {
        return x == x ? x : __uint_as_float(0x7fc00000);
    }
    static __device__ __forceinline__ wide divide(wide x, int divisor)
    {
        return quiet(__fdiv_rn(x, (float)divisor));
    }
    static __device__ __forceinline__ wide add(wide a, wide b)
    {
        return quiet(__fadd_rn(a, b));
    }
    static __device__ __forceinline__ wide multiply(wide a, wide b)
    {
        return quiet(__fmul_rn(a, b));
    }
    // Equal numbers have the same bits, except +0 and -0. For these OR gives -0, the minimum, and
    // AND gives +0, the maximum.
    static __device__ __forceinline__ wide least(wide a, wide b)
    {
        wide both = __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
        return quiet(a == b ? both : b < a ? b : a <= b ? a : a + b);
    }
    static __device__ __forceinline__ wide most(wide a, wide b)
    {
        wide both = __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
        return quiet(a == b ? both : b > a ? b : a >= b ? a : a + b);
    }
};

// Integers. `Unsigned` is the type for sums and products, whose overflow is defined.
template <class Stored, class Unsigned> struct whole_type {
    typedef Stored stored;
    typedef Stored wide;
    static __device__ __forceinline__ wide load(stored x)
    {
        return x;
    }
    static __device__ __forceinline__ stored store(wide x)
    {
        return x;
    }
    static __device__ __forceinline__ wide divide(wide x, int divisor)
    {
        return (wide)(x / (wide)divisor);
    }
    static __device__ __forceinline__ wide add(wide a, wide b)
    {
        return (wide)((Unsigned)a + (Unsigned)b);
    }
    static __device__ __forceinline__ wide multiply(wide a, wide b)
    {
        return (wide)((Unsigned)a * (Unsigned)b);
    }
    static __device__ __forceinline__ wide least(wide a, wide b)
    {
        return b < a ? b : a;
    }
    static __device__ __forceinline__ wide most(wide a, wide b)
    {
        return b > a ? b : a;
    }
};

// ---- operations ---------------------------------------------------------------------------------

template <class Type, int REDUCTION> struct reduce_operation { // REDUCTION: collective_reduction
    static const bool reads_source = true;
    const typename Type::stored *source;
    typename Type::stored *destination;
    int divisor;
    __device__ __forceinline__ typename Type::stored result(typename Type::stored from,
                                                            typename Type::stored to) const
    {
        typename Type::wide a = Type::load(to), b = Type::load(from);
        if (REDUCTION == REDUCTION_PROD)
            return Type::store(Type::multiply(a, b));
        if (REDUCTION == REDUCTION_MIN)
            return Type::store(Type::least(a, b));
        if (REDUCTION == REDUCTION_MAX)
            return Type::store(Type::most(a, b));
        return Type::store(Type::add(a, b));
    }
};

template <class Type> struct divide_operation {
    static const bool reads_source = false;
    const typename Type::stored *source;
    typename Type::stored *destination;
    int divisor;
    __device__ __forceinline__ typename Type::stored result(typename Type::stored,
                                                            typename Type::stored to) const
    {
        return Type::store(Type::divide(Type::load(to), divisor));
    }
};

// Block 0 also handles the last count % WIDTH elements, one by one.
template <class Stored, int WIDTH, class Operation>
__global__ __launch_bounds__(THREADS) void elements_kernel(Operation operation, int64_t count)
{
    int64_t units = count / WIDTH, first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    vec<Stored, WIDTH> from[UNROLL], to[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        int64_t unit = first + k * THREADS;
        if (unit >= units)
            continue;
        if (Operation::reads_source)
            from[k] = vec_load<WIDTH>(operation.source + unit * WIDTH);
        to[k] = vec_load<WIDTH>((const Stored *)operation.destination + unit * WIDTH);
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        int64_t unit = first + k * THREADS;
        if (unit >= units)
            continue;
#pragma unroll
        for (int w = 0; w < WIDTH; w++)
            to[k].at[w] = operation.result(from[k].at[w], to[k].at[w]);
        vec_store(operation.destination + unit * WIDTH, to[k]);
    }
    int64_t rest = units * WIDTH + threadIdx.x;
    if (blockIdx.x == 0 && rest < count)
        operation.destination[rest] =
            operation.result(Operation::reads_source ? operation.source[rest] : Stored(),
                             operation.destination[rest]);
}

template <class Type, class Operation>
static void elements(struct attention_backend *backend, Operation operation, int64_t count)
{
    typedef typename Type::stored stored;
    const int width = UNIT_BYTES / (int)sizeof(stored);
    bool wide = aligned(operation.destination, UNIT_BYTES) &&
                (!Operation::reads_source || aligned(operation.source, UNIT_BYTES));
    int64_t units = wide ? count / width : count;
    unsigned blocks = (unsigned)((units + THREADS * UNROLL - 1) / (THREADS * UNROLL));
    blocks = blocks > 0 ? blocks : 1; // fewer elements than a unit
    if (wide)
        elements_kernel<stored, width>
            <<<blocks, THREADS, 0, backend->queue.stream>>>(operation, count);
    else
        elements_kernel<stored, 1><<<blocks, THREADS, 0, backend->queue.stream>>>(operation, count);
    cuda_launched(backend, "the elements of a collective");
}

template <class Type>
static void reduce_typed(struct attention_backend *backend, enum collective_reduction reduction,
                         const void *source, void *destination, int64_t count)
{
    typedef typename Type::stored stored;
    const stored *from = (const stored *)source;
    stored *to = (stored *)destination;
    switch (reduction) {
    case REDUCTION_PROD:
        return elements<Type>(backend, reduce_operation<Type, REDUCTION_PROD>{from, to, 1}, count);
    case REDUCTION_MIN:
        return elements<Type>(backend, reduce_operation<Type, REDUCTION_MIN>{from, to, 1}, count);
    case REDUCTION_MAX:
        return elements<Type>(backend, reduce_operation<Type, REDUCTION_MAX>{from, to, 1}, count);
    default:
        return elements<Type>(backend, reduce_operation<Type, REDUCTION_SUM>{from, to, 1}, count);
    }
}

// Calls `run` with an object of the real_type or whole_type of the element.
template <class Run> static void with_element(enum collective_element element, Run run)
{
    switch (element) {
    case ELEMENT_FP16:
        return run(real_type<fp16>());
    case ELEMENT_BF16:
        return run(real_type<bf16>());
    case ELEMENT_INT32:
        return run(whole_type<int32_t, uint32_t>());
    case ELEMENT_INT64:
        return run(whole_type<int64_t, uint64_t>());
    case ELEMENT_UINT8:
        return run(whole_type<uint8_t, uint32_t>());
    default:
        return run(real_type<fp32>());
    }
}

void reduce_cuda(struct attention_backend *backend, enum collective_element element,
                 enum collective_reduction reduction, const void *source, void *destination,
                 int64_t count)
{
    if (count > 0)
        with_element(element, [&](auto type) {
            reduce_typed<decltype(type)>(backend, reduction, source, destination, count);
        });
}

void divide_cuda(struct attention_backend *backend, enum collective_element element, int divisor,
                 void *destination, int64_t count)
{
    if (count > 0)
        with_element(element, [&](auto type) {
            typedef decltype(type) Type;
            divide_operation<Type> operation = {nullptr, (typename Type::stored *)destination,
                                                divisor};
            elements<Type>(backend, operation, count);
        });
}
