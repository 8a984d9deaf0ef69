// SPDX-License-Identifier: Apache-2.0
// What the forward kernels take, and how each file of instances is called.
#ifndef CPATTN_KERNELS_CUDA_FORWARD_WORK_H
#define CPATTN_KERNELS_CUDA_FORWARD_WORK_H

#include <cuda_runtime.h>

#include "kernels/cuda/cap_series.h"
#include "kernels/cuda/worklist.h"

// Tensors as in struct attention_forward.
struct forward_work {
    const void *q, *k, *v, *bias;
    float *o, *lse, *max_logit;
    struct attention_fold fold;    // of the kernels for sm_90a alone
    const struct work_tile *tiles; // device
    const struct work_fragment *fragments;
    int32_t *taken; // device; 0, for thread blocks that take one tile after the other
    int32_t tile_count;
    // Thread blocks come in the order section of heads, tile, head in the section, so that those
    // that run at one time read the same keys. The last of the sections has all heads that the
    // others leave.
    int32_t section, sections;
    int32_t heads, kv_heads, group, head_phase, d_qk, d_v;
    int64_t q_rows, row_step;
    int64_t q_positions, kv_positions; // of the slices, as in struct sm90_extent
    int32_t multiprocessors;
    int64_t bias_head_stride, bias_query_stride;
    bool bias_once; // no two scores share an element of the bias
    // Logit in base 2: factor * qk, or, with a cap, cap * tanh(factor * qk); then the bias.
    float factor, cap;
    // The kernels for sm_90a add the bias times this to qk or, with a cap, to the logit.
    float bias_factor;
    struct cap_series cap_series; // the same where qk is small; of the kernels for sm_90a alone
    bool aligned; // every row of Q, K and V begins at a multiple of 16 bytes and has whole ones
};

// What a tile and its head are to the thread block.
struct forward_place {
    int32_t tile, head, kv_head;
};

#ifdef __CUDACC__
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

// Of this thread block. Computed afresh by each call, so that nothing is kept in registers from one
// to the next.
static __device__ __forceinline__ struct forward_place
forward_place(const struct forward_work &work)
{
    int32_t block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return forward_place_of(work, block);
}
#endif

// What a block of keys takes, of a tile with rows for so many groups of warps ([0] for one), and a
// tile beside its blocks. All 0: nothing is known.
struct forward_times {
    int32_t group[WORK_GROUPS_MOST], tile;
};

// Kernels for head dimensions up to these, one file each.
struct forward_instance {
    int32_t d_qk, d_v;
    struct work_cut cut;
    int32_t shared_bytes; // at most, of a thread block
    // How many bytes of keys and values are worked on at a time: those of two heads, but at least
    // section_least and at most section_bytes.
    int64_t section_bytes, section_least;
    // Enqueues one call's thread blocks. `plain`: without bias, cap and max_logit, aligned, and
    // with a positive factor.
    cudaError_t (*launch)(const struct forward_work &work, enum case_dtype dtype, bool plain,
                          cudaStream_t stream);
    struct forward_times times;
    bool folds; // takes any struct attention_fold
};
extern const struct forward_instance forward_64, forward_128, forward_192_128, forward_256;
extern const struct forward_instance forward_fp32_64, forward_fp32_128, forward_fp32_256;

// Thread blocks of one head read the same keys at about the same time, so that even twice what the
// L2 cache holds hurts little, and the fewer sections, the better the last thread blocks spread.
#define FORWARD_SECTION_BYTES (INT64_C(96) << 20)

#endif
