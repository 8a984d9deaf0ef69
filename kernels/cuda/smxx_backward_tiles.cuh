// SPDX-License-Identifier: Apache-2.0
// Backward for 16-bit types: configuration and shared memory layout of a kernel, loads of tiles
// into shared memory, and products of tiles.
#ifndef CPATTN_KERNELS_CUDA_SMXX_BACKWARD_TILES_CUH
#define CPATTN_KERNELS_CUDA_SMXX_BACKWARD_TILES_CUH

#include "kernels/cuda/backward_work.cuh"

// Tiles of KV_ROWS keys, blocks of Q_ROWS queries. The warps form a grid over each result:
// SCORE_WARPS rows of SCORE_ACROSS warps over the scores, likewise KEY_* and QUERY_*. STAGES:
// blocks of queries in shared memory. AHEAD: products load the fragments of the next step before
// the mma of this one, where registers suffice.
template <int D_QK_, int D_V_, int Q_ROWS_, int KV_ROWS_, int SCORE_WARPS_, int KEY_WARPS_,
          int QUERY_WARPS_, int STAGES_, bool AHEAD_ = false>
struct backward_config {
    static constexpr int D_QK = D_QK_, D_V = D_V_, Q_ROWS = Q_ROWS_, KV_ROWS = KV_ROWS_,
                         STAGES = STAGES_;
    static constexpr bool AHEAD = AHEAD_;
    // Scores: queries x keys. Keys: keys x elements (dK, dV). Queries: queries x elements (dQ).
    static constexpr int SCORE_WARPS = SCORE_WARPS_, SCORE_ACROSS = BACKWARD_WARPS / SCORE_WARPS;
    static constexpr int KEY_WARPS = KEY_WARPS_, KEY_ACROSS = BACKWARD_WARPS / KEY_WARPS;
    static constexpr int QUERY_WARPS = QUERY_WARPS_, QUERY_ACROSS = BACKWARD_WARPS / QUERY_WARPS;
    // A warp's part of each result, in C fragments of 16 x 8.
    static constexpr int SCORE_M = Q_ROWS / SCORE_WARPS / 16, SCORE_N = KV_ROWS / SCORE_ACROSS / 8;
    static constexpr int KEY_M = KV_ROWS / KEY_WARPS / 16;
    static constexpr int DK_N = D_QK / KEY_ACROSS / 8, DV_N = D_V / KEY_ACROSS / 8;
    static constexpr int DQ_M = Q_ROWS / QUERY_WARPS / 16, DQ_N = D_QK / QUERY_ACROSS / 8;
    static_assert(SCORE_N % 2 == 0 && DK_N % 2 == 0 && DV_N % 2 == 0 && DQ_N % 2 == 0,
                  "fragments come in pairs");
    static_assert(SCORE_M > 0 && KEY_M > 0 && DQ_M > 0, "every warp has a part");
    // Byte offsets in shared memory.
    static constexpr int Q_BYTES = Q_ROWS * D_QK * 2, DO_BYTES = Q_ROWS * D_V * 2;
    static constexpr int P_BYTES = Q_ROWS * KV_ROWS * 2;
    static constexpr int K = 0, V = K + KV_ROWS * D_QK * 2, Q = V + KV_ROWS * D_V * 2;
    static constexpr int DO = Q + STAGES * Q_BYTES, P = DO + STAGES * DO_BYTES, DS = P + P_BYTES;
    static constexpr int LSE = DS + P_BYTES, D = LSE + STAGES * Q_ROWS * 4;
    static constexpr int TURN = D + STAGES * Q_ROWS * 4;
    static constexpr int STEPS = TURN + 16, STEP_COUNT = 3;
    static constexpr int CURSOR = STEPS + STEP_COUNT * (int)sizeof(struct backward_step);
    static constexpr int PLAIN_BYTES = CURSOR + (int)sizeof(struct backward_cursor);
    static constexpr int COLUMNS = PLAIN_BYTES; // column sums of dbias, if queries share a bias
    static constexpr int GENERAL_BYTES = COLUMNS + SCORE_WARPS * KV_ROWS * 4;
};

// ---- loads --------------------------------------------------------------------------------------

// Like load_tile(), but copies element by element, so rows need no alignment. Slow, and not
// inlined, to keep it out of the fast path.
template <int ROWS, int COLUMNS>
__device__ __noinline__ void gather_tile(uint32_t tile, const unsigned short *source,
                                         int64_t stride, int rows, int d)
{
#pragma unroll 1
    for (int index = threadIdx.x; index < ROWS * COLUMNS; index += BACKWARD_THREADS) {
        int row = index / COLUMNS, column = index % COLUMNS;
        unsigned short x = row < rows && column < d ? source[row * stride + column] : 0;
        asm volatile("st.shared.u16 [%0], %1;"
                     :
                     : "r"(tile + tile_offset<COLUMNS>(row, column / CHUNK_ELEMENTS) +
                           column % CHUNK_ELEMENTS * 2),
                       "h"(x)
                     : "memory");
    }
}

// Copies `rows` rows of d elements, `stride` elements apart, into a swizzled tile of ROWS x COLUMNS
// and clears the rest of the tile. Called by all threads. Asynchronous (cp.async): rows are 16-byte
// aligned and d is a multiple of 8.
template <typename T, int ROWS, int COLUMNS>
__device__ __forceinline__ void load_tile(uint32_t tile, const T *source, int64_t stride, int rows,
                                          int d)
{
    // If the sizes divide, a thread copies one column of chunks, every STEP rows. STEP is a
    // multiple of 8, so the swizzle is the same in all of them. Otherwise chunks are dealt row by
    // row.
    constexpr int CHUNKS = COLUMNS / CHUNK_ELEMENTS, TOTAL = ROWS * CHUNKS;
    static_assert(TOTAL % BACKWARD_THREADS == 0, "threads share the chunks evenly");
    int thread = thread_number();
    if constexpr (BACKWARD_THREADS % CHUNKS == 0 && BACKWARD_THREADS / CHUNKS % 8 == 0) {
        constexpr int STEP = BACKWARD_THREADS / CHUNKS;
        int row = thread / CHUNKS, chunk = thread % CHUNKS;
        uint32_t destination = tile + tile_offset<COLUMNS>(row, chunk);
        const T *from = source + row * stride + chunk * CHUNK_ELEMENTS;
        if (chunk * CHUNK_ELEMENTS >= d)
            rows = 0;
#pragma unroll
        for (int i = 0; i < ROWS / STEP; i++) {
            bool there = row + i * STEP < rows;
            copy_chunk(destination + i * STEP * COLUMNS * 2, there ? from : source, there);
            from += STEP * stride;
        }
    } else {
#pragma unroll
        for (int i = 0; i < TOTAL / BACKWARD_THREADS; i++) {
            int index = i * BACKWARD_THREADS + thread;
            int row = index / CHUNKS, chunk = index % CHUNKS;
            bool there = row < rows && chunk * CHUNK_ELEMENTS < d;
            copy_chunk(tile + tile_offset<COLUMNS>(row, chunk),
                       there ? source + row * stride + chunk * CHUNK_ELEMENTS : source, there);
        }
    }
}

// Loads K and V of the tile. Called by all threads, which have to commit and wait.
template <typename T, class C>
__device__ __forceinline__ void load_keys(const struct backward_params &p,
                                          const struct backward_cursor *cursor, uint32_t shared)
{
    int64_t vector = cursor->kv_vector, stride = p.row_step * p.kv_heads;
    const T *k = (const T *)p.k + vector * p.d_qk, *v = (const T *)p.v + vector * p.d_v;
    int rows = cursor->tile_rows;
    if (p.vectors) {
        load_tile<T, C::KV_ROWS, C::D_QK>(shared + C::K, k, stride * p.d_qk, rows, p.d_qk);
        load_tile<T, C::KV_ROWS, C::D_V>(shared + C::V, v, stride * p.d_v, rows, p.d_v);
    } else {
        gather_tile<C::KV_ROWS, C::D_QK>(shared + C::K, (const unsigned short *)k, stride * p.d_qk,
                                         rows, p.d_qk);
        gather_tile<C::KV_ROWS, C::D_V>(shared + C::V, (const unsigned short *)v, stride * p.d_v,
                                        rows, p.d_v);
    }
}

// Loads Q, dO, LSE, D and, if deterministic, the turn of a step into a stage. Called by all
// threads, which have to commit and wait.
template <typename T, class C>
__device__ __forceinline__ void load_queries(const struct backward_params &p,
                                             const struct backward_step *step, int stage,
                                             uint32_t shared)
{
    int64_t vector = step->vector, stride = p.row_step * p.heads;
    const T *q = (const T *)p.q + vector * p.d_qk, *d_out = (const T *)p.d_out + vector * p.d_v;
    uint32_t q_tile = shared + C::Q + stage * C::Q_BYTES;
    uint32_t d_out_tile = shared + C::DO + stage * C::DO_BYTES;
    int rows = step->rows;
    if (p.vectors) {
        load_tile<T, C::Q_ROWS, C::D_QK>(q_tile, q, stride * p.d_qk, rows, p.d_qk);
        load_tile<T, C::Q_ROWS, C::D_V>(d_out_tile, d_out, stride * p.d_v, rows, p.d_v);
    } else {
        gather_tile<C::Q_ROWS, C::D_QK>(q_tile, (const unsigned short *)q, stride * p.d_qk, rows,
                                        p.d_qk);
        gather_tile<C::Q_ROWS, C::D_V>(d_out_tile, (const unsigned short *)d_out, stride * p.d_v,
                                       rows, p.d_v);
    }
    static_assert(2 * C::Q_ROWS <= BACKWARD_THREADS, "a thread loads one number at most");
    int thread = thread_number(), row = thread % C::Q_ROWS;
    bool there = row < rows;
    uint32_t word = shared + (stage * C::Q_ROWS + row) * 4 + (thread < C::Q_ROWS ? C::LSE : C::D);
    const float *from = (thread < C::Q_ROWS ? p.lse : p.d) + step->scalar;
    if (thread < 2 * C::Q_ROWS)
        copy_word(word, from + (there ? row * p.row_step : 0), there);
    if (p.tickets && thread == 0)
        copy_word(shared + C::TURN + stage * 4, p.turns + step->turn, true);
}

// ---- products -----------------------------------------------------------------------------------

// For products with no other work between their steps.
struct nothing {
    __device__ __forceinline__ void operator()(int) const
    {
    }
};

// acc += A B over DEPTH steps of 16 in k. Called by a whole warp; a and b are the addresses of its
// first fragments. `between(k)` is called after step k.
// A_BESIDE = 0: A is a tile [m][k], and the warp's blocks of 16 rows are adjacent. A_BESIDE > 0: A
// is a transposed tile [k][m], and they are A_BESIDE * 16 elements apart. B_BESIDE says the same of
// B's pairs of fragments, with tiles [n][k] and [k][n].
template <typename T, bool AHEAD, int DEPTH, int A_COLUMNS, int A_BESIDE, int B_COLUMNS,
          int B_BESIDE, int M, int N, typename F>
__device__ __forceinline__ void product(float (&acc)[M][N][4], uint32_t a, uint32_t b, F between)
{
    constexpr int PAIRS = N / 2;
    uint32_t fa[2][M][4], fb[2][4];
    auto load_a = [&](int k) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            if (A_BESIDE > 0)
                load_fragment_transposed(fa[k % 2][m],
                                         fragment_step<A_COLUMNS>(a, k * 16, m * A_BESIDE));
            else
                load_fragment(fa[k % 2][m], fragment_step<A_COLUMNS>(a, m * 16, k));
        }
    };
    auto load_b = [&](int i) {
        int k = i / PAIRS, n = i % PAIRS;
        if (B_BESIDE > 0)
            load_fragment_transposed(fb[i % 2], fragment_step<B_COLUMNS>(b, k * 16, n * B_BESIDE));
        else
            load_fragment(fb[i % 2], fragment_step<B_COLUMNS>(b, n * 16, k));
    };
    if (AHEAD) {
        load_a(0);
        load_b(0);
    }
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        if (!AHEAD)
            load_a(k);
#pragma unroll
        for (int n = 0; n < PAIRS; n++) {
            int i = k * PAIRS + n;
            if (!AHEAD)
                load_b(i);
            if (AHEAD && i + 1 < DEPTH * PAIRS)
                load_b(i + 1);
            if (AHEAD && n == 0 && k + 1 < DEPTH)
                load_a(k + 1);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma<T>(acc[m][2 * n], fa[k % 2][m], fb[i % 2][0], fb[i % 2][1]);
                mma<T>(acc[m][2 * n + 1], fa[k % 2][m], fb[i % 2][2], fb[i % 2][3]);
            }
        }
        between(k);
    }
}

template <int M, int N> __device__ __forceinline__ void clear(float (&acc)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++)
        (&acc[0][0][0])[i] = 0;
}

#endif
