// SPDX-License-Identifier: Apache-2.0
// Portable forward for bf16 and fp16: loads of rows into shared memory, and the walk through the
// keys of a tile.
#ifndef CPATTN_KERNELS_CUDA_SMXX_FORWARD_LOADS_CUH
#define CPATTN_KERNELS_CUDA_SMXX_FORWARD_LOADS_CUH

#include "kernels/cuda/forward_work.h"
#include "kernels/cuda/mma.cuh"

#define FORWARD_THREADS 128

// Copies up to `rows` rows of d elements, `stride` elements apart, to a tile of ROWS x COLUMNS; the
// rest of the tile becomes 0. By cp.async: the caller commits. Called by the whole block.
template <int ROWS, int COLUMNS, typename T>
__device__ __forceinline__ void load_rows_aligned(uint32_t tile, const T *source, int64_t stride,
                                                  int rows, int d)
{
    // 8 neighbouring lanes read 128 contiguous bytes.
    const int passes = ROWS * 8 / FORWARD_THREADS;
    int row = (int)threadIdx.x >> 3, chunk = (int)threadIdx.x & 7;
    uint32_t to = tile + tile_offset<COLUMNS>(row, chunk);
    const T *from = source + row * stride + chunk * CHUNK_ELEMENTS;
#pragma unroll
    for (int pass = 0; pass < passes; pass++) {
        const int down = pass * (FORWARD_THREADS / 8);
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 64)
            copy_chunk(to + (uint32_t)(down * COLUMNS * 2 + column * 2), from + column,
                       row + down < rows && column + chunk * CHUNK_ELEMENTS < d);
        from += stride * (FORWARD_THREADS / 8);
    }
}

// The same for rows of any alignment, without cp.async.
template <int ROWS, int COLUMNS, typename T>
__device__ __noinline__ void load_rows_unaligned(uint32_t tile, const T *source, int64_t stride,
                                                 int rows, int d)
{
    for (int i = (int)threadIdx.x; i < ROWS * COLUMNS; i += FORWARD_THREADS) {
        int row = i / COLUMNS, column = i % COLUMNS;
        uint32_t to = tile + tile_offset<COLUMNS>(row, column / CHUNK_ELEMENTS) +
                      (uint32_t)(column % CHUNK_ELEMENTS) * 2;
        uint16_t bits = 0;
        if (row < rows && column < d)
            bits = *(const uint16_t *)(source + row * stride + column);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
    }
}

template <int ROWS, int COLUMNS, bool GENERAL, typename T>
__device__ __forceinline__ void load_rows(uint32_t tile, const T *source, int64_t stride, int rows,
                                          int d, bool aligned)
{
    if (!GENERAL || aligned)
        load_rows_aligned<ROWS, COLUMNS>(tile, source, stride, rows, d);
    else
        load_rows_unaligned<ROWS, COLUMNS>(tile, source, stride, rows, d);
}

// Position in the keys of a tile, which are walked block by block through its fragments. Fields of
// a fragment are read at each use: that costs less than registers for them.
struct key_walk {
    int fragment; // index in the work list; -1 after the last fragment of the tile
    int key;      // first key of the block, counted in the fragment
};

template <int N>
__device__ __forceinline__ void key_walk_next(struct key_walk *walk,
                                              const struct work_fragment *fragments)
{
    walk->key += N;
    const struct work_fragment &fragment = fragments[walk->fragment];
    if (walk->key >= fragment.keys) {
        walk->fragment = fragment.last ? -1 : walk->fragment + 1;
        walk->key = 0;
    }
}

// Starts the copy of the block of `tensor` (K or V) at `walk` to `tile`: N rows of d elements. The
// caller commits.
template <class S, int COLUMNS>
__device__ __forceinline__ void load_block(const struct forward_work &work, const void *tensor,
                                           int d, int kv_head, const struct key_walk &walk,
                                           uint32_t tile)
{
    typedef typename S::T T;
    const struct work_fragment &fragment = work.fragments[walk.fragment];
    int64_t vector = (fragment.kv_row + walk.key * work.row_step) * work.kv_heads + kv_head;
    load_rows<S::N, COLUMNS, S::GENERAL>(tile, (const T *)tensor + vector * d,
                                         work.row_step * work.kv_heads * d,
                                         fragment.keys - walk.key, d, work.aligned);
}

#endif
