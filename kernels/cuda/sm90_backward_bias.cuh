// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: the bias of the scores, and its gradient dbias.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_BIAS_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_BIAS_CUH

#include "kernels/cuda/sm90_backward_load.cuh"

// Loads four 8 x 8 matrices of 16-bit elements (ldmatrix). Lane 8 i + r gives the shared address of
// row r of matrix i. pairs[i] of lane l is elements 2 (l % 4) and the next of row l / 4. Called by
// a warp.
static __device__ __forceinline__ void matrices_load_rows(uint32_t address, uint32_t (&pairs)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
}

// As matrices_load_rows(), transposed: pairs[i] of lane l is from column l / 4.
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

// Shared address of this lane's row, for matrices_load(), of the first four matrices of the bias:
// two blocks of 8 queries, each with the two blocks of 8 keys of this warp.
template <class C> __device__ __forceinline__ uint32_t bias_place(int group, uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    return shared + C::BIAS + group * C::BIAS_PANEL +
           panel_offset(0, lane % 8 + lane / 16 * 8, thread / WARP_LANES * 2 + lane / 8 % 2);
}

// ---- dbias --------------------------------------------------------------------------------------

// Where a thread adds its scores of a step to dbias.
struct dbias_place {
    float *to;      // element of the thread's first query and key
    int key;        // that key, in the tile
    int64_t stride; // floats between queries; 0: all queries share one row
};

static __device__ __forceinline__ struct dbias_place dbias_place_of(const struct backward_params &p,
                                                                    const struct sm90_step *step)
{
    unsigned thread = thread_number(), lane = thread % WARP_LANES;
    int key = (int)((thread / WARP_LANES - 4) * 16 + lane / 4);
    int64_t stride = p.bias_query_stride;
    return {p.dbias + step->bias + lane % 4 * 2 * stride + key, key, stride};
}

// Adds to a dbias that all queries share: sums each of the thread's two keys over all queries of
// the block first, then adds it with an atomic. Called by whole warps.
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

// Adds a step without a mask by atomics of two floats: lanes of neighbouring keys exchange scores,
// so that each lane has both keys of one query. Called by whole warps.
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

// Stages dbias of a warpgroup's keys (x: keys x queries) in shared memory, in the layout of the TMA
// boxes: a row for each query, panels of 32 keys. Called by a consumer warpgroup.
template <class C>
__device__ __forceinline__ void dbias_stage(int group, const float (&x)[C::SCORES], uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    unsigned key = thread / WARP_LANES * 16 + lane / 4, query = lane % 4 * 2;
    uint32_t at[4]; // for i % 4: query + i % 2, key + i / 2 * 8
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

// Adds a thread's x = dS before the scale to dbias in memory, without staging. x is 0 where a query
// does not see a key, so a block that is all there may be written whole if dbias_once. seen(i):
// whether score i is visible.
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
