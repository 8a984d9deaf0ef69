// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: the bias of scores, and its gradient.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_BIAS_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_BIAS_CUH

#include "kernels/cuda/sm90_backward_load.cuh"

// Loads four 8 x 8 matrices: pairs of elements of their rows. Lane 8 i + r has the address of row r
// of matrix i.
static __device__ __forceinline__ void matrices_load_rows(uint32_t address, uint32_t (&pairs)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
}

// The same with pairs of elements of their columns.
static __device__ __forceinline__ void matrices_load(uint32_t address, uint32_t (&pairs)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
}

template <typename T> __device__ __forceinline__ float2 pair_floats(uint32_t pair);
template <> __device__ __forceinline__ float2 pair_floats<__nv_bfloat16>(uint32_t pair)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000));
}
template <> __device__ __forceinline__ float2 pair_floats<__half>(uint32_t pair)
{
    return __half22float2(*(__half2 *)&pair);
}

// Where this lane's row of the first four matrices of the bias is: two blocks of 8 queries, of each
// both of 8 keys of its warp.
template <class C> __device__ __forceinline__ uint32_t bias_place(int group, uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    return shared + C::BIAS + group * C::BIAS_PANEL +
           panel_offset(0, lane % 8 + lane / 16 * 8, thread / WARP_LANES * 2 + lane / 8 % 2);
}

// ---- its gradient -------------------------------------------------------------------------------

// A thread's part of a step: where it adds, element of its first query and key.
struct dbias_place {
    float *to;
    int key; // of the tile
    int64_t stride;
};

static __device__ __forceinline__ struct dbias_place dbias_place_of(const struct backward_params &p,
                                                                    const struct sm90_step *step)
{
    unsigned thread = thread_number(), lane = thread % WARP_LANES;
    int key = (int)((thread / WARP_LANES - 4) * 16 + lane / 4);
    int64_t stride = p.bias_query_stride;
    return {p.dbias + step->bias + lane % 4 * 2 * stride + key, key, stride};
}

// Where all queries share it: two rows of keys, first over all queries.
template <class C>
__device__ __forceinline__ void dbias_add_shared(const struct sm90_step *step,
                                                 const struct dbias_place &place,
                                                 const float (&x)[C::SCORES])
{
    float sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        sums[i / 2 % 2] += x[i];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = quad_sum(sums[h]);
        if (threadIdx.x % 4 == 0 && (step->keys == 0 || place.key + h * 8 < step->keys))
            add_float(place.to + h * 8, sum);
    }
}

// Where all is seen: lanes of neighbouring keys exchange scores, so that each adds two keys of one
// query.
template <class C>
__device__ __forceinline__ void dbias_add_pairs(const struct dbias_place &place,
                                                const float (&x)[C::SCORES])
{
    const bool odd = place.key % 2 != 0;
    float *to = place.to + (odd ? place.stride - 1 : 0);
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 2) {
        float mine = odd ? x[i + 1] : x[i];
        float other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 4);
        add_pair(to + i / 4 * 8 * place.stride + i / 2 % 2 * 8, odd ? other : mine,
                 odd ? mine : other);
    }
}

// Lays a warpgroup's out in shared memory as the boxes want it, rows of queries.
template <class C>
__device__ __forceinline__ void dbias_stage(int group, const float (&x)[C::SCORES], uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    unsigned key = thread / WARP_LANES * 16 + lane / 4, query = lane % 4 * 2;
    uint32_t at[4]; // by query and key
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
        at[i] = shared + C::DBIAS_AT + group * 2 * C::DBIAS_PANEL +
                key / PANEL_FLOATS * C::DBIAS_PANEL + key % 4 * 4 +
                panel_offset(0, query + i % 2, key % PANEL_FLOATS / 4 + i / 2 * 2);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        asm volatile("st.shared.f32 [%0], %1;"
                     :
                     : "r"(at[i % 4] + i / 4 * 8 * 128), "f"(x[i])
                     : "memory");
}

// Adds dS before the scale, which is 0 where a query does not see the key.
template <class C, class Seen>
__device__ __forceinline__ void dbias_add(const struct backward_params &p,
                                          const struct sm90_step *step, const float (&x)[C::SCORES],
                                          const Seen &seen)
{
    const struct dbias_place place = dbias_place_of(p, step);
    if (place.stride == 0) {
        dbias_add_shared<C>(step, place, x);
        return;
    }
    bool pairs = ((uintptr_t)(p.dbias + step->bias) % 8 | (place.stride & 1)) == 0;
    if (p.dbias_once && step_is_there<C>(step)) {
#pragma unroll
        for (int i = 0; i < C::SCORES; i++)
            place.to[(i / 4 * 8 + i % 2) * place.stride + i / 2 % 2 * 8] = x[i];
        return;
    }
    if (pairs && step->keys == 0) {
        dbias_add_pairs<C>(place, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        if (step->keys == 0 || (i / 4 * 8 + i % 2 + threadIdx.x % 4 * 2 < step->rows && seen(i)))
            add_float(place.to + (i / 4 * 8 + i % 2) * place.stride + i / 2 % 2 * 8, x[i]);
}

#endif
