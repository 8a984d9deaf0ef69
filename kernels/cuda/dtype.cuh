// SPDX-License-Identifier: Apache-2.0
// The element types of a case on the device. Conversions give the bits of kernels/dtype.h: rounding
// to nearest even, denormals kept, NaN quieted with the leading bits of its payload.
//
// struct bf16, fp16, fp32: `stored` is the type of an element in memory; round() converts float to
// it, value() converts it to float.
#ifndef CPATTN_KERNELS_CUDA_DTYPE_CUH
#define CPATTN_KERNELS_CUDA_DTYPE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

extern "C" {
#include "plan/dtype.h"
}

struct bf16 {
    typedef uint16_t stored;
    static __device__ __forceinline__ stored round(float x)
    {
        stored rounded = __bfloat16_as_ushort(__float2bfloat16_rn(x));
        return x == x ? rounded : (stored)(__float_as_uint(x) >> 16 | 0x40);
    }
    static __device__ __forceinline__ float value(stored x)
    {
        return __uint_as_float((uint32_t)x << 16);
    }
};

struct fp16 {
    typedef uint16_t stored;
    static __device__ __forceinline__ stored round(float x)
    {
        stored rounded = __half_as_ushort(__float2half_rn(x));
        uint32_t bits = __float_as_uint(x);
        stored nan = (stored)((bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff));
        return x == x ? rounded : nan;
    }
    static __device__ __forceinline__ float value(stored x)
    {
        return __half2float(__ushort_as_half(x));
    }
};

struct fp32 {
    typedef float stored;
    static __device__ __forceinline__ stored round(float x)
    {
        return x;
    }
    static __device__ __forceinline__ float value(stored x)
    {
        return x;
    }
};

// Calls run(bf16()), run(fp16()) or run(fp32()), depending on the dtype.
template <class Run> static void with_dtype(enum case_dtype dtype, Run run)
{
    switch (dtype) {
    case DTYPE_BF16:
        return run(bf16());
    case DTYPE_FP16:
        return run(fp16());
    case DTYPE_FP32:
        return run(fp32());
    }
}

// ---- several elements at once -------------------------------------------------------------------

// WIDTH contiguous elements. One memory access if they are up to 16 bytes, otherwise several. The
// address must be a multiple of their size or of 16 bytes, whichever is less.
template <class T, int WIDTH> struct alignas(sizeof(T) * WIDTH < 16 ? sizeof(T) * WIDTH : 16) vec {
    T at[WIDTH];
};

template <int WIDTH, class T> __device__ __forceinline__ vec<T, WIDTH> vec_load(const T *address)
{
    return *reinterpret_cast<const vec<T, WIDTH> *>(address);
}

template <class T, int WIDTH>
__device__ __forceinline__ void vec_store(T *address, const vec<T, WIDTH> &values)
{
    *reinterpret_cast<vec<T, WIDTH> *>(address) = values;
}

// True if the address is a multiple of `bytes`.
static inline bool aligned(const void *address, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

#endif
