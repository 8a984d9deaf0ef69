// SPDX-License-Identifier: Apache-2.0
// Backward for 16-bit types on sm_80 and later, with mma.sync.
//
// A thread block owns a tile of keys of one key head. K and V stay in shared memory, dK and dV in
// registers; blocks of queries pass by, two of them in shared memory: one at work, one on its way.
// For each block, with S and dP in registers and P and dS in shared memory:
//   S = Q K', dP = dO V' | P, dS | dV += P' dO, dQ = dS K, dK += dS' Q
// so that two barriers a block suffice: behind the arrival of the queries, and behind P and dS.
#ifndef CPATTN_KERNELS_CUDA_SMXX_BACKWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SMXX_BACKWARD_KERNEL_CUH

#include "kernels/cuda/smxx_backward.cuh"

// Tiles of KV_ROWS keys, blocks of Q_ROWS queries. The warps lie in a grid of so many rows over
// each of the results; STAGES blocks of queries in shared memory.
template <int D_QK_, int D_V_, int Q_ROWS_, int KV_ROWS_, int SCORE_WARPS_, int KEY_WARPS_,
          int QUERY_WARPS_, int STAGES_>
struct backward_config {
    static constexpr int D_QK = D_QK_, D_V = D_V_, Q_ROWS = Q_ROWS_, KV_ROWS = KV_ROWS_,
                         STAGES = STAGES_;
    // Scores: queries x keys. Keys: keys x elements (dK, dV). Queries: queries x elements (dQ).
    static constexpr int SCORE_WARPS = SCORE_WARPS_, SCORE_ACROSS = BACKWARD_WARPS / SCORE_WARPS;
    static constexpr int KEY_WARPS = KEY_WARPS_, KEY_ACROSS = BACKWARD_WARPS / KEY_WARPS;
    static constexpr int QUERY_WARPS = QUERY_WARPS_, QUERY_ACROSS = BACKWARD_WARPS / QUERY_WARPS;
    // What a warp has of them, in C fragments of 16 x 8.
    static constexpr int SCORE_M = Q_ROWS / SCORE_WARPS / 16, SCORE_N = KV_ROWS / SCORE_ACROSS / 8;
    static constexpr int KEY_M = KV_ROWS / KEY_WARPS / 16;
    static constexpr int DK_N = D_QK / KEY_ACROSS / 8, DV_N = D_V / KEY_ACROSS / 8;
    static constexpr int DQ_M = Q_ROWS / QUERY_WARPS / 16, DQ_N = D_QK / QUERY_ACROSS / 8;
    static_assert(SCORE_N % 2 == 0 && DK_N % 2 == 0 && DV_N % 2 == 0 && DQ_N % 2 == 0,
                  "fragments come in pairs");
    static_assert(SCORE_M > 0 && KEY_M > 0 && DQ_M > 0, "every warp has a part");
    // Shared memory, in bytes from its beginning.
    static constexpr int Q_BYTES = Q_ROWS * D_QK * 2, DO_BYTES = Q_ROWS * D_V * 2;
    static constexpr int P_BYTES = Q_ROWS * KV_ROWS * 2;
    static constexpr int K = 0, V = K + KV_ROWS * D_QK * 2, Q = V + KV_ROWS * D_V * 2;
    static constexpr int DO = Q + STAGES * Q_BYTES, P = DO + STAGES * DO_BYTES, DS = P + P_BYTES;
    static constexpr int LSE = DS + P_BYTES, D = LSE + STAGES * Q_ROWS * 4;
    static constexpr int COLUMNS = D + STAGES * Q_ROWS * 4; // of dbias, where queries share it
    static constexpr int STEPS = COLUMNS + SCORE_WARPS * KV_ROWS * 4;
    static constexpr int STEP_COUNT = 3;
    static constexpr int CURSOR = STEPS + STEP_COUNT * (int)sizeof(struct backward_step);
    static constexpr int TICKET = CURSOR + (int)sizeof(struct backward_cursor);
    static constexpr int SHARED_BYTES = TICKET + 16;
};

// ---- loads --------------------------------------------------------------------------------------

// The thread's number, read anew: addresses that are made of it are not worth a register each for
// the whole of a kernel that is short of them.
static __device__ __forceinline__ int thread_number(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// As load_tile(), element by element. Slow, and kept out of the way of what is not.
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

// `rows` rows of d elements, `stride` elements apart, into a tile of ROWS x COLUMNS; the rest of it
// is cleared.
template <typename T, int ROWS, int COLUMNS>
__device__ __forceinline__ void load_tile(uint32_t tile, const T *source, int64_t stride, int rows,
                                          int d)
{
    // A thread's chunks lie in one column, STEP rows apart, where those divide; else anywhere.
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

template <typename T, class C>
__device__ __forceinline__ void load_keys(const struct backward_params &p,
                                          const struct backward_tile *tile, int kv_head,
                                          uint32_t shared)
{
    int64_t vector = tile->kv_row * p.kv_heads + kv_head, stride = p.row_step * p.kv_heads;
    const T *k = (const T *)p.k + vector * p.d_qk, *v = (const T *)p.v + vector * p.d_v;
    int rows = tile->rows;
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
}

// ---- products -----------------------------------------------------------------------------------

struct nothing {
    __device__ __forceinline__ void operator()(int) const
    {
    }
};

// acc += A B over DEPTH steps of 16. A_BESIDE: A's 16-row blocks are that many fragments of 16
// elements apart in a transposed tile [k][m]; 0: they follow each other in a tile [m][k].
// B_BESIDE: the same of B's pairs and tiles [k][n] and [n][k]. A and B name the warp's first ones.
// `between` is called after each step.
template <typename T, int M, int N, int DEPTH, int A_COLUMNS, int A_BESIDE, int B_COLUMNS,
          int B_BESIDE, typename F>
__device__ __forceinline__ void product(float (&acc)[M][N][4], uint32_t a, uint32_t b, F between)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            if (A_BESIDE > 0)
                load_fragment_transposed(fa[m], fragment_step<A_COLUMNS>(a, k * 16, m * A_BESIDE));
            else
                load_fragment(fa[m], fragment_step<A_COLUMNS>(a, m * 16, k));
        }
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            uint32_t fb[4];
            if (B_BESIDE > 0)
                load_fragment_transposed(fb, fragment_step<B_COLUMNS>(b, k * 16, n * B_BESIDE));
            else
                load_fragment(fb, fragment_step<B_COLUMNS>(b, n * 16, k));
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma<T>(acc[m][2 * n], fa[m], fb[0], fb[1]);
                mma<T>(acc[m][2 * n + 1], fa[m], fb[2], fb[3]);
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

// ---- P and dS -----------------------------------------------------------------------------------

// Where a thread is in the scores: its rows are row() + 16 m + 8 h, its columns column() + 8 n and
// the next.
template <class C> struct score_place {
    int row, column;

    __device__ __forceinline__ score_place()
    {
        int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
        row = warp / C::SCORE_ACROSS * C::SCORE_M * 16 + lane / 4;
        column = warp % C::SCORE_ACROSS * C::SCORE_N * 8 + lane % 4 * 2;
    }
};

// The LSE of a row in base 2; +inf for -inf, so that all its P are 0.
static __device__ __forceinline__ float row_lse(const float *lse)
{
    float x = *lse;
    return x == -INFINITY ? INFINITY : x * 1.4426950408889634f;
}

template <typename T> __device__ __forceinline__ void store_pair(uint32_t address, float x, float y)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(pack<T>(x, y)) : "memory");
}

// Where a pair of scores of a thread lies in the tiles of P and dS.
template <class C> __device__ __forceinline__ uint32_t pair_offset(int row, int column)
{
    return tile_offset<C::KV_ROWS>(row, column / CHUNK_ELEMENTS) + column % CHUNK_ELEMENTS * 2;
}

// Which scores of a block are visible.
struct score_mask {
    int low, high, rows, keys;

    __device__ __forceinline__ score_mask(const struct backward_step *step, int tile_rows)
        : low(step->low), high(step->high), rows(step->rows), keys(tile_rows)
    {
    }

    __device__ __forceinline__ bool visible(int row, int column) const
    {
        int diagonal = column - row;
        return diagonal >= low && diagonal <= high && row < rows && column < keys;
    }
};

// Makes the hidden scores such that their P is 0.
template <class C>
__device__ __forceinline__ void
hide_scores(const struct backward_params &p, const struct backward_step *step, int keys,
            const score_place<C> &place, float (&s)[C::SCORE_M][C::SCORE_N][4])
{
    const score_mask mask(step, keys);
    float hidden = p.product_factor < 0 ? INFINITY : -INFINITY;
#pragma unroll
    for (int m = 0; m < C::SCORE_M; m++)
#pragma unroll
        for (int n = 0; n < C::SCORE_N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!mask.visible(place.row + m * 16 + i / 2 * 8, place.column + n * 8 + i % 2))
                    s[m][n][i] = hidden;
}

// S to P for one fragment. P stays in s and goes to shared memory.
template <typename T, class C>
__device__ __forceinline__ void make_p(float factor, float (&s)[4], const float (&lse)[2], int row,
                                       int column, uint32_t shared)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] = fast_exp2(fmaf(s[i], factor, -lse[i / 2]));
    store_pair<T>(shared + C::P + pair_offset<C>(row, column), s[0], s[1]);
    store_pair<T>(shared + C::P + pair_offset<C>(row + 8, column), s[2], s[3]);
}

// S to P and dP to dS for one score, with bias and softcap. What dbias gets is left in `gradient`.
template <typename T>
__device__ __forceinline__ void make_general(const struct backward_params &p, const T *bias,
                                             bool visible, float lse, float d, float &s, float &ds,
                                             float &gradient)
{
    float x = s * p.product_factor, slope = 1;
    if (p.cap_factor != 0) {
        float tangent = tanhf(x);
        x = tangent * p.cap_factor;
        slope = 1 - tangent * tangent;
    }
    if (p.bias && visible)
        x = fmaf(to_float(*bias), 1.4426950408889634f, x);
    s = visible ? fast_exp2(x - lse) : 0;
    gradient = s == 0 ? 0 : s * (ds - d);
    ds = gradient * slope;
}

// Adds what queries share of dbias: a sum for each key, first over a thread's rows, then over the
// rows of a warp; those of the warps meet in shared memory.
template <class C>
__device__ __forceinline__ void sum_columns(float (&sums)[C::SCORE_N][2],
                                            const score_place<C> &place, float *columns)
{
    int warp_row = threadIdx.x / WARP_LANES / C::SCORE_ACROSS;
#pragma unroll
    for (int n = 0; n < C::SCORE_N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = sums[n][i];
            for (int lanes = 4; lanes < WARP_LANES; lanes *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
            if (threadIdx.x % WARP_LANES < 4)
                columns[warp_row * C::KV_ROWS + place.column + n * 8 + i] = sum;
        }
}

// Behind the barrier after sum_columns().
template <class C>
__device__ __forceinline__ void add_columns(const struct backward_params &p,
                                            const struct backward_step *step, int keys,
                                            const float *columns)
{
    int key = threadIdx.x;
    if (key >= keys)
        return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C::SCORE_WARPS; i++)
        sum += columns[i * C::KV_ROWS + key];
    float *where = p.dbias + step->bias + key;
    if (p.tickets)
        *where += sum;
    else
        add_float(where, sum);
}

template <typename T, class C>
__device__ void
make_all_general(const struct backward_params &p, const struct backward_step *step, int keys,
                 float (&s)[C::SCORE_M][C::SCORE_N][4], float (&dp)[C::SCORE_M][C::SCORE_N][4],
                 const score_place<C> &place, int stage, char *memory, uint32_t shared)
{
    const float *lse = (const float *)(memory + C::LSE) + stage * C::Q_ROWS;
    const float *d = (const float *)(memory + C::D) + stage * C::Q_ROWS;
    bool masked = step->masked;
    const score_mask mask(step, keys);
    int64_t first = step->bias;
    float sums[C::SCORE_N][2];
#pragma unroll
    for (int n = 0; n < C::SCORE_N; n++)
        sums[n][0] = sums[n][1] = 0;
#pragma unroll
    for (int m = 0; m < C::SCORE_M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = place.row + m * 16 + h * 8;
            float row_l = row_lse(lse + row), row_d = row_l == INFINITY ? 0 : d[row];
#pragma unroll
            for (int n = 0; n < C::SCORE_N; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int column = place.column + n * 8 + i;
                    bool visible = !masked || mask.visible(row, column);
                    int64_t element = first + row * p.bias_query_stride + column;
                    float gradient;
                    make_general<T>(p, (const T *)p.bias + element, visible, row_l, row_d,
                                    s[m][n][2 * h + i], dp[m][n][2 * h + i], gradient);
                    if (p.bias_query_stride == 0) {
                        sums[n][i] += gradient;
                    } else if (p.dbias && visible) {
                        float *where = p.dbias + step->bias + row * p.bias_query_stride + column;
                        if (p.tickets)
                            *where += gradient;
                        else
                            add_float(where, gradient);
                    }
                }
                uint32_t offset = pair_offset<C>(row, place.column + n * 8);
                store_pair<T>(shared + C::P + offset, s[m][n][2 * h], s[m][n][2 * h + 1]);
                store_pair<T>(shared + C::DS + offset, dp[m][n][2 * h], dp[m][n][2 * h + 1]);
            }
        }
    if (p.dbias && p.bias_query_stride == 0)
        sum_columns<C>(sums, place, (float *)(memory + C::COLUMNS));
}

// Leaves P and dS of a step in shared memory.
template <typename T, class C, bool GENERAL>
__device__ __forceinline__ void make_scores(const struct backward_params &p,
                                            const struct backward_step *step, int keys, int stage,
                                            char *memory, uint32_t shared)
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int warp_row = warp / C::SCORE_ACROSS, warp_column = warp % C::SCORE_ACROSS;
    score_place<C> place;
    float s[C::SCORE_M][C::SCORE_N][4], dp[C::SCORE_M][C::SCORE_N][4];
    clear(s);
    product<T, C::SCORE_M, C::SCORE_N, C::D_QK / 16, C::D_QK, 0, C::D_QK, 0>(
        s,
        fragment_rows_first<C::D_QK>(shared + C::Q + stage * C::Q_BYTES, warp_row * C::SCORE_M * 16,
                                     lane),
        fragment_halves_first<C::D_QK>(shared + C::K, warp_column * C::SCORE_N * 8, lane),
        nothing());
    clear(dp);
    uint32_t d_out = fragment_rows_first<C::D_V>(shared + C::DO + stage * C::DO_BYTES,
                                                 warp_row * C::SCORE_M * 16, lane);
    uint32_t v = fragment_halves_first<C::D_V>(shared + C::V, warp_column * C::SCORE_N * 8, lane);
    if (GENERAL) {
        product<T, C::SCORE_M, C::SCORE_N, C::D_V / 16, C::D_V, 0, C::D_V, 0>(dp, d_out, v,
                                                                              nothing());
        make_all_general<T, C>(p, step, keys, s, dp, place, stage, memory, shared);
        return;
    }
    const float *lse = (const float *)(memory + C::LSE) + stage * C::Q_ROWS;
    const float *d = (const float *)(memory + C::D) + stage * C::Q_ROWS;
    float row_l[C::SCORE_M][2], row_d[C::SCORE_M][2];
#pragma unroll
    for (int m = 0; m < C::SCORE_M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            row_l[m][h] = row_lse(lse + place.row + m * 16 + h * 8);
            row_d[m][h] = row_l[m][h] == INFINITY ? 0 : d[place.row + m * 16 + h * 8];
        }
    if (step->masked)
        hide_scores<C>(p, step, keys, place, s);
    // The exponentials of S lie between the products for dP.
    float factor = p.product_factor;
    constexpr int FRAGMENTS = C::SCORE_M * C::SCORE_N, DEPTH = C::D_V / 16;
    auto between = [&](int k) {
#pragma unroll
        for (int i = 0; i < FRAGMENTS; i++) {
            int m = i / C::SCORE_N, n = i % C::SCORE_N;
            if (i >= FRAGMENTS * k / DEPTH && i < FRAGMENTS * (k + 1) / DEPTH)
                make_p<T, C>(factor, s[m][n], row_l[m], place.row + m * 16, place.column + n * 8,
                             shared);
        }
    };
    product<T, C::SCORE_M, C::SCORE_N, DEPTH, C::D_V, 0, C::D_V, 0>(dp, d_out, v, between);
#pragma unroll
    for (int m = 0; m < C::SCORE_M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = place.row + m * 16 + h * 8;
#pragma unroll
            for (int n = 0; n < C::SCORE_N; n++) {
                float x = s[m][n][2 * h] * (dp[m][n][2 * h] - row_d[m][h]);
                float y = s[m][n][2 * h + 1] * (dp[m][n][2 * h + 1] - row_d[m][h]);
                store_pair<T>(shared + C::DS + pair_offset<C>(row, place.column + n * 8), x, y);
            }
        }
}

// ---- dQ, dK, dV ---------------------------------------------------------------------------------

// Adds factor * acc, fragments of rows x elements, to d elements of `rows` rows, `stride` apart,
// where they are. The warp's blocks of 16 rows are BELOW of them apart, its pairs of fragments
// BESIDE. Row and column: the lane's first.
template <int M, int N, int BELOW, int BESIDE, int D, bool WHOLE>
__device__ __forceinline__ void add_fragments(const float (&acc)[M][N][4], float factor,
                                              float *gradient, int64_t stride, int row, int rows,
                                              int column, int d, bool pairs)
{
    float *base = gradient + row * stride + column;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int down = m * BELOW * 16 + h * 8;
            float *to = base + down * stride;
#pragma unroll
            for (int n = 0; n < N; n++) {
                int shift = n / 2 * BESIDE * 16 + n % 2 * 8;
                float x = acc[m][n][2 * h] * factor, y = acc[m][n][2 * h + 1] * factor;
                bool there = WHOLE || (row + down < rows && column + shift < d);
                if (WHOLE || (there && pairs)) {
                    add_pair(to + shift, x, y);
                } else if (there) {
                    add_float(to + shift, x);
                    if (column + shift + 1 < d)
                        add_float(to + shift + 1, y);
                }
            }
        }
}

template <int M, int N, int BELOW, int BESIDE, int ROWS, int D>
__device__ __forceinline__ void add_gradient(const float (&acc)[M][N][4], float factor,
                                             float *gradient, int64_t stride, int row, int rows,
                                             int column, int d, bool pairs)
{
    if (rows == ROWS && d == D && pairs)
        add_fragments<M, N, BELOW, BESIDE, D, true>(acc, factor, gradient, stride, row, rows,
                                                    column, d, pairs);
    else
        add_fragments<M, N, BELOW, BESIDE, D, false>(acc, factor, gradient, stride, row, rows,
                                                     column, d, pairs);
}

template <class C>
__device__ __forceinline__ void add_dq(const struct backward_params &p,
                                       const struct backward_step *step,
                                       const float (&dq)[C::DQ_M][C::DQ_N][4])
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int row = warp / C::QUERY_ACROSS * C::DQ_M * 16 + lane / 4;
    int column = warp % C::QUERY_ACROSS * 16 + lane % 4 * 2;
    add_gradient<C::DQ_M, C::DQ_N, 1, C::QUERY_ACROSS, C::Q_ROWS, C::D_QK>(
        dq, p.scale, p.dq + step->vector * p.d_qk, p.row_step * p.heads * p.d_qk, row, step->rows,
        column, p.d_qk, p.pairs);
}

// dK or dV of the tile, whose elements no other thread block touches.
template <class C, int N, int D>
__device__ __forceinline__ void
add_keys(const struct backward_params &p, const struct backward_tile *tile, int kv_head,
         const float (&acc)[C::KEY_M][N][4], float *gradient, int d, float factor)
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int row = warp / C::KEY_ACROSS * 16 + lane / 4;
    int column = warp % C::KEY_ACROSS * 16 + lane % 4 * 2;
    add_gradient<C::KEY_M, N, C::KEY_WARPS, C::KEY_ACROSS, C::KV_ROWS, D>(
        acc, factor, gradient + (tile->kv_row * p.kv_heads + kv_head) * d,
        p.row_step * p.kv_heads * d, row, tile->rows, column, d, p.pairs);
}

// ---- kernel -------------------------------------------------------------------------------------

template <typename T, class C>
__device__ __forceinline__ void step_gradients(const struct backward_params &p,
                                               const struct backward_step *step, int stage,
                                               uint32_t shared, float (&dk)[C::KEY_M][C::DK_N][4],
                                               float (&dv)[C::KEY_M][C::DV_N][4])
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int key_row = warp / C::KEY_ACROSS, key_column = warp % C::KEY_ACROSS;
    uint32_t q = shared + C::Q + stage * C::Q_BYTES, d_out = shared + C::DO + stage * C::DO_BYTES;
    product<T, C::KEY_M, C::DV_N, C::Q_ROWS / 16, C::KV_ROWS, C::KEY_WARPS, C::D_V, C::KEY_ACROSS>(
        dv,
        fragment_step<C::KV_ROWS>(fragment_halves_first<C::KV_ROWS>(shared + C::P, 0, lane), 0,
                                  key_row),
        fragment_step<C::D_V>(fragment_rows_first<C::D_V>(d_out, 0, lane), 0, key_column),
        nothing());
    unsigned *taken = NULL;
    unsigned turn = 0;
    {
        int query_row = warp / C::QUERY_ACROSS, query_column = warp % C::QUERY_ACROSS;
        float dq[C::DQ_M][C::DQ_N][4];
        clear(dq);
        product<T, C::DQ_M, C::DQ_N, C::KV_ROWS / 16, C::KV_ROWS, 0, C::D_QK, C::QUERY_ACROSS>(
            dq, fragment_rows_first<C::KV_ROWS>(shared + C::DS, query_row * C::DQ_M * 16, lane),
            fragment_step<C::D_QK>(fragment_rows_first<C::D_QK>(shared + C::K, 0, lane), 0,
                                   query_column),
            nothing());
        if (p.tickets) {
            taken = p.taken + (int64_t)step->block * BACKWARD_WARPS + warp;
            turn = (unsigned)p.turns[step->turn];
            turn_wait(taken, turn);
        }
        add_dq<C>(p, step, dq);
    }
    product<T, C::KEY_M, C::DK_N, C::Q_ROWS / 16, C::KV_ROWS, C::KEY_WARPS, C::D_QK, C::KEY_ACROSS>(
        dk,
        fragment_step<C::KV_ROWS>(fragment_halves_first<C::KV_ROWS>(shared + C::DS, 0, lane), 0,
                                  key_row),
        fragment_step<C::D_QK>(fragment_rows_first<C::D_QK>(q, 0, lane), 0, key_column), nothing());
    if (p.tickets)
        turn_end(taken, turn);
}

template <typename T, class C, bool GENERAL>
__device__ __forceinline__ void backward_tile_head(const struct backward_params &p,
                                                   const struct backward_tile *tile, int index,
                                                   int kv_head, char *memory, uint32_t shared)
{
    struct backward_step *steps = (struct backward_step *)(memory + C::STEPS);
    struct backward_cursor *cursor = (struct backward_cursor *)(memory + C::CURSOR);
    bool leads = threadIdx.x == 0;
    if (leads) {
        cursor_init(p, cursor, index, kv_head);
        cursor_fragment<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[0]);
        cursor_next<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[0], &steps[1]);
    }
    __syncthreads();
    load_keys<T, C>(p, tile, kv_head, shared);
    load_queries<T, C>(p, &steps[0], 0, shared);
    copy_commit();
    float dk[C::KEY_M][C::DK_N][4], dv[C::KEY_M][C::DV_N][4];
    clear(dk);
    clear(dv);
    int keys = tile->rows;
    for (int now = 0, stage = 0;; stage = C::STAGES - 1 - stage) {
        const struct backward_step *step = &steps[now];
        int next = now + 1 == C::STEP_COUNT ? 0 : now + 1;
        int later = next + 1 == C::STEP_COUNT ? 0 : next + 1;
        copy_wait<0>();
        __syncthreads();
        if (leads)
            cursor_next<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[next], &steps[later]);
        bool more = steps[next].rows > 0;
        if (C::STAGES > 1 && more) {
            load_queries<T, C>(p, &steps[next], C::STAGES - 1 - stage, shared);
            copy_commit();
        }
        make_scores<T, C, GENERAL>(p, step, keys, stage, memory, shared);
        __syncthreads();
        if (GENERAL && p.dbias && p.bias_query_stride == 0)
            add_columns<C>(p, step, keys, (const float *)(memory + C::COLUMNS));
        step_gradients<T, C>(p, step, stage, shared, dk, dv);
        if (!more)
            break;
        if (C::STAGES == 1) {
            __syncthreads();
            load_queries<T, C>(p, &steps[next], 0, shared);
            copy_commit();
        }
        now = next;
    }
    add_keys<C, C::DV_N, C::D_V>(p, tile, kv_head, dv, p.dv, p.d_v, 1);
    add_keys<C, C::DK_N, C::D_QK>(p, tile, kv_head, dk, p.dk, p.d_qk, p.scale);
    __syncthreads(); // the memory is free for the next tile
}

template <typename T, class C, bool GENERAL>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1)
    backward_run(const __grid_constant__ struct backward_params p)
{
    extern __shared__ __align__(1024) char memory[];
    uint32_t shared = shared_address(memory);
    int32_t index = blockIdx.x;
    if (p.tickets) { // so that those who wait for each other began in that order
        int32_t *ticket = (int32_t *)(memory + C::TICKET);
        if (threadIdx.x == 0)
            *ticket = (int32_t)atomicAdd(p.tickets, 1u);
        __syncthreads();
        index = *ticket;
    }
    struct backward_unit unit = unit_of(p, index);
    for (int32_t tile = unit.tile; tile < unit.tile_end; tile++)
        for (int32_t head = unit.head; head < unit.head_end; head++)
            backward_tile_head<T, C, GENERAL>(p, &p.tiles[tile], tile, head, memory, shared);
}

// ---- instantiations -----------------------------------------------------------------------------

typedef backward_config<64, 64, 128, 128, 4, 4, 4, 2> backward_64;
typedef backward_config<128, 128, 64, 128, 2, 4, 2, 2> backward_128;
typedef backward_config<192, 128, 64, 64, 4, 4, 4, 2> backward_192;
typedef backward_config<256, 256, 64, 64, 4, 4, 4, 2> backward_256;
typedef backward_config<256, 256, 64, 64, 4, 4, 4, 1> backward_256_small;

template <typename T, class C, bool GENERAL> constexpr struct backward_kernel backward_instance()
{
    return {backward_run<T, C, GENERAL>, C::Q_ROWS, C::KV_ROWS, C::D_QK, C::D_V, C::SHARED_BYTES};
}

template <typename T, bool GENERAL>
const struct backward_kernel *backward_kernel_16(int d_qk, int d_v, int shared_bytes_max)
{
    static const struct backward_kernel all[] = {
        backward_instance<T, backward_64, GENERAL>(), backward_instance<T, backward_128, GENERAL>(),
        backward_instance<T, backward_192, GENERAL>(),
        backward_instance<T, backward_256, GENERAL>(),
        backward_instance<T, backward_256_small, GENERAL>()};
    return backward_kernel_find(all, (int)(sizeof(all) / sizeof(all[0])), d_qk, d_v,
                                shared_bytes_max);
}

#endif
