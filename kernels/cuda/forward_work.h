// SPDX-License-Identifier: Apache-2.0
// Argument of the forward kernels, and the interface to their instances.
#ifndef CPATTN_KERNELS_CUDA_FORWARD_WORK_H
#define CPATTN_KERNELS_CUDA_FORWARD_WORK_H

#include <cuda_runtime.h>

#include "kernels/cuda/cap_series.h"
#include "kernels/cuda/worklist.h"

// Argument of a forward kernel. Tensors have the layouts of struct attention_forward.
struct forward_work {
    const void *q, *k, *v, *bias;
    float *o, *lse, *max_logit;
    struct attention_fold fold;    // only for the sm_90a kernels
    const struct work_tile *tiles; // device memory, as are `fragments`
    const struct work_fragment *fragments;
    // Device counter, 0 at the launch: tiles that persistent thread blocks took after their first.
    int32_t *taken;
    int32_t tile_count;
    // Tiles are computed in the order section of heads (slowest), tile, head within the section,
    // so that thread blocks that run at the same time read the same keys. `section`: heads of a
    // section; the last of the `sections` sections has all remaining heads.
    int32_t section, sections;
    int32_t heads, kv_heads, group, head_phase, d_qk, d_v; // as in struct attention_shape
    int64_t q_rows, row_step;
    int64_t q_positions, kv_positions; // sm90_extent.positions of the slices
    int32_t multiprocessors;
    int64_t bias_head_stride, bias_query_stride;
    bool bias_once; // no two scores share an element of the bias
    // Logit in base 2: factor * qk or, with a cap (not 0), cap * tanh(factor * qk); plus
    // log2(e) * bias.
    float factor, cap;
    // The sm_90a kernels add bias_factor * bias to qk or, with a cap, to the capped logit.
    float bias_factor;
    struct cap_series cap_series; // capped logit for small |qk|; only for the sm_90a kernels
    bool aligned; // rows of each head of Q, K and V: address and size are multiples of 16 bytes
};

// The tile (index in the work list) and the heads that a thread block computes.
struct forward_place {
    int32_t tile, head, kv_head;
};

#ifdef __CUDACC__
// The place with number `block`, in the order described at forward_work.section.
static __device__ __forceinline__ struct forward_place
forward_place_of(const struct forward_work &work, int32_t block)
{
    int32_t whole = work.tile_count * work.section;
    int32_t section = min(block / whole, work.sections - 1), rest = block - section * whole;
    int32_t first = section * work.section;
    int32_t heads = section < work.sections - 1 ? work.section : work.heads - first;
    int32_t head = first + rest % heads;
    return {rest / heads, head, (head + work.head_phase) / work.group};
}

// The place of this thread block. The volatile read of the block index makes each call compute the
// place again, so that no register holds it between calls.
static __device__ __forceinline__ struct forward_place
forward_place(const struct forward_work &work)
{
    int32_t block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return forward_place_of(work, block);
}
#endif

// Relative times, for worklist_time(). group[i]: one block of keys of a tile with rows for i + 1
// warpgroups; tile: the fixed time of a tile. All 0: unknown.
struct forward_times {
    int32_t group[WORK_GROUPS_MOST], tile;
};

// Kernels for head dimensions up to d_qk and d_v.
struct forward_instance {
    int32_t d_qk, d_v;
    struct work_cut cut;
    int32_t shared_bytes; // dynamic shared memory of a thread block, at most
    // Bounds on the bytes of K and V that a section of heads reads: those of two key heads, but at
    // least section_least and at most section_bytes.
    int64_t section_bytes, section_least;
    // Enqueues the kernel of one call. `plain`: without bias, cap and max_logit, aligned, and
    // with a positive factor.
    cudaError_t (*launch)(const struct forward_work &work, enum case_dtype dtype, bool plain,
                          cudaStream_t stream);
    struct forward_times times;
    bool folds; // takes any struct attention_fold
};
extern const struct forward_instance forward_64, forward_128, forward_192_128, forward_256;
extern const struct forward_instance forward_fp32_64, forward_fp32_128, forward_fp32_256;

// Largest section_bytes. Thread blocks of one head read the same keys at about the same time, so
// that even twice the capacity of L2 costs little. With fewer sections the last thread blocks are
// spread better over the multiprocessors.
#define FORWARD_SECTION_BYTES (INT64_C(96) << 20)

#endif
