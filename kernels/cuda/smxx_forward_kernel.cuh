// SPDX-License-Identifier: Apache-2.0
// Forward for bf16 and fp16. A thread block owns a tile of queries of one head, runs one online
// softmax over all keys that the tile sees, and merges once into the running result.
//
// Four warps share the tile's rows. V of a block is copied to shared memory while its scores are
// computed. K of the next block is copied at the same time or, if there is room for one block of K
// only, while the weights are multiplied by V. A second thread block on the same multiprocessor
// fills the waits. Scores and output stay in registers.
#ifndef CPATTN_KERNELS_CUDA_SMXX_FORWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SMXX_FORWARD_KERNEL_CUH

#include <math_constants.h>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/smxx_forward_loads.cuh"

// `out` and `sum` are rescaled to a new row maximum only if one exceeds the old one by more than
// this, in base 2. Until then weights are at most 2^8, and no precision is lost.
#define FORWARD_SLACK     8.0f
// Above this cap, in base 2, tanh needs a small relative error: an absolute one that is small
// beside 1 would show in the logit.
#define FORWARD_CAP_LARGE 256.0f

static const float LOG2_E = 1.4426950408889634f;
static const float LN_2 = 0.6931471805599453f;

// The shape of one instance: head dimensions up to DQK and DV, 16 * M rows for each warp, blocks of
// N keys.
template <typename TYPE, int DQK_, int DV_, int M_, int N_, bool GENERAL_, bool KEEP_Q_>
struct forward_traits {
    typedef TYPE T;
    static const int DQK = DQK_, DV = DV_, M = M_, N = N_;
    static const bool GENERAL = GENERAL_; // with bias, cap, max_logit, unaligned rows, any factor
    static const bool KEEP_Q = KEEP_Q_;   // fragments of Q stay in registers
    static const bool MIX = DV <= 128; // weights are computed between the previous step's products
    static const int STAGES = DQK <= 192 ? 2 : 1; // blocks of K in shared memory
    static const int ROWS = 4 * 16 * M;
    static const int Q_BYTES = ROWS * DQK * 2, K_BYTES = N * DQK * 2, V_BYTES = N * DV * 2;
    static const int SHARED_BYTES = Q_BYTES + STAGES * K_BYTES + V_BYTES;
};

// ---- products -----------------------------------------------------------------------------------

// Registers of a thread. For each 16 rows of its warp: C fragments of 8 columns, with rows g and
// g + 8 (g = lane / 4), which are indices 0 and 1 of the arrays of two.
template <class S> struct forward_state {
    float scores[S::M][S::N / 8][4];
    float out[S::M][S::DV / 8][4];
    float max[S::M][2]; // reference maximum of the row, base 2, for `out` and `sum`
    float sum[S::M][2]; // of the weights in this thread's columns
    // The same for the current block alone, added to `sum` at once: single weights could be lost to
    // rounding beside the `sum` of a long row.
    float part[S::M][2];
    float seen; // largest logit of this thread's rows, base 2
    uint32_t q[S::KEEP_Q ? S::M : 1][S::KEEP_Q ? S::DQK / 16 : 1][4];
};

// scores = Q K'. `q`, `k`: addresses of this lane for ldmatrix. Called by whole warps.
template <class S>
__device__ __forceinline__ void scores_compute(struct forward_state<S> &state, uint32_t q,
                                               uint32_t k)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                state.scores[m][n][i] = 0;
#pragma unroll
    for (int step = 0; step < S::DQK / 16; step++) {
        uint32_t a[S::M][4];
#pragma unroll
        for (int m = 0; m < S::M; m++) {
            if constexpr (S::KEEP_Q) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = state.q[m][step][i];
            } else {
                load_fragment(a[m], fragment_step<S::DQK>(q, 16 * m, step));
            }
        }
#pragma unroll
        for (int n = 0; n < S::N / 16; n++) {
            uint32_t b[4];
            load_fragment(b, fragment_step<S::DQK>(k, 16 * n, step));
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma<typename S::T>(state.scores[m][2 * n], a[m], b[0], b[1]);
                mma<typename S::T>(state.scores[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// ---- softmax ------------------------------------------------------------------------------------

// Row in the tile of this thread's fragment m: row g in half 0, row g + 8 in half 1.
template <class S> __device__ __forceinline__ int thread_row(int m, int half)
{
    int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES;
    return (warp * S::M + m) * 16 + half * 8 + lane / 4;
}

// Sets the scores of invisible keys to -inf. `key`: first key of the block.
template <class S>
__device__ __forceinline__ void scores_mask(struct forward_state<S> &state,
                                            const struct work_fragment &fragment, int key)
{
    int column = key + 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = thread_row<S>(m, half);
            int low = fragment.low + row - column;
            int high = min(fragment.high + row, fragment.keys) - column;
#pragma unroll
            for (int n = 0; n < S::N / 8; n++) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (n * 8 + i < low || n * 8 + i >= high)
                        state.scores[m][n][2 * half + i] = -CUDART_INF_F;
            }
        }
    }
}

// True if some of the tile's `rows` rows does not see all of the N keys from `key` on.
template <int N>
__device__ __forceinline__ bool block_is_masked(const struct work_fragment &fragment, int key,
                                                int rows)
{
    return key < fragment.low + rows - 1 || key + N > min(fragment.high, fragment.keys);
}

template <class S, class Map>
__device__ __forceinline__ void scores_map(struct forward_state<S> &state, float factor, float cap)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int n = 0; n < S::N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                state.scores[m][n][i] = cap * Map::of(factor * state.scores[m][n][i]);
}

// Turns products of Q and K into logits in base 2, without the bias.
template <class S>
__device__ __forceinline__ void scores_scale(struct forward_state<S> &state, float factor,
                                             float cap)
{
    if (cap == 0)
        scores_map<S, as_it_is>(state, factor, 1);
    else if (cap > FORWARD_CAP_LARGE)
        scores_map<S, tanh_relative>(state, factor, cap);
    else
        scores_map<S, tanh_absolute>(state, factor, cap);
}

// Adds the bias of visible keys to the logits. For other keys the bias need not exist in memory.
template <class S>
__device__ __forceinline__ void
scores_add_bias(struct forward_state<S> &state, const struct forward_work &work,
                const struct work_fragment &fragment, int key, int head, int rows)
{
    typedef typename S::T T;
    int column = key + 2 * ((int)threadIdx.x % 4);
    const T *head_bias = (const T *)work.bias + head * work.bias_head_stride + fragment.bias;
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = thread_row<S>(m, half);
            int low = fragment.low + row - column;
            int high = row < rows ? min(fragment.high + row, fragment.keys) - column : -1;
            const T *bias = head_bias + row * work.bias_query_stride + column;
#pragma unroll
            for (int n = 0; n < S::N / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (n * 8 + i >= low && n * 8 + i < high)
                        state.scores[m][n][2 * half + i] += to_float(bias[n * 8 + i]) * LOG2_E;
        }
    }
}

// Raises the reference maxima to `max`, where that is larger, and rescales `sum` and `out`.
template <class S>
__device__ __forceinline__ void state_rescale(struct forward_state<S> &state,
                                              const float max[S::M][2])
{
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float before = state.max[m][half], after = fmaxf(before, max[m][half]);
            float shrink = before == -CUDART_INF_F ? 0 : fast_exp2(before - after);
            state.max[m][half] = after;
            state.sum[m][half] *= shrink;
#pragma unroll
            for (int n = 0; n < S::DV / 8; n++) {
                state.out[m][n][2 * half] *= shrink;
                state.out[m][n][2 * half + 1] *= shrink;
            }
        }
    }
}

// Raises the maxima of the warp's rows if a logit exceeds one of them by more than FORWARD_SLACK. A
// logit in base 2 is factor * score, factor > 0. `rows`: rows of the tile. Called by whole warps.
template <class S>
__device__ __forceinline__ void maxima_raise(struct forward_state<S> &state, float factor, int rows)
{
    float max[S::M][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = -CUDART_INF_F;
#pragma unroll
            for (int n = 0; n < S::N / 8; n++)
                most = fmaxf(most,
                             fmaxf(state.scores[m][n][2 * half], state.scores[m][n][2 * half + 1]));
            max[m][half] = quad_max(most) * factor;
            if (S::GENERAL && thread_row<S>(m, half) < rows)
                state.seen = fmaxf(state.seen, max[m][half]);
            grown |= max[m][half] > state.max[m][half] + FORWARD_SLACK;
        }
    }
    if (__any_sync(0xffffffffu, grown))
        state_rescale<S>(state, max);
}

// Computes weights of the 16 keys of `step`, as A fragments: registers [begin, end) of 4 * M. Adds
// them to `part`. The exponent is factor * score - shift.
template <class S>
__device__ __forceinline__ void weights_some(struct forward_state<S> &state, float factor,
                                             const float shift[S::M][2], int step, int begin,
                                             int end, uint32_t a[S::M][4])
{
#pragma unroll
    for (int i = 0; i < 4 * S::M; i++) {
        if (i < begin || i >= end)
            continue;
        const int m = i / 4, half = i % 2;
        const float *pair = &state.scores[m][2 * step + i % 4 / 2][2 * half];
        float low = fast_exp2(fmaf(pair[0], factor, -shift[m][half]));
        float high = fast_exp2(fmaf(pair[1], factor, -shift[m][half]));
        state.part[m][half] += low + high;
        a[m][i % 4] = pack<typename S::T>(low, high);
    }
}

// Turns the scores of a block into weights and adds weights times V to `out`. `v`: address of this
// lane for ldmatrix. Called by whole warps.
template <class S>
__device__ __forceinline__ void out_accumulate(struct forward_state<S> &state, float factor,
                                               uint32_t v)
{
    const int steps = S::N / 16, parts = S::DV / 16, registers = 4 * S::M;
    float shift[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            shift[m][half] = state.max[m][half] == -CUDART_INF_F ? 0 : state.max[m][half];
            state.part[m][half] = 0;
        }
    uint32_t a[steps][S::M][4];
#pragma unroll
    for (int step = 0; step < (S::MIX ? 1 : steps); step++)
        weights_some<S>(state, factor, shift, step, 0, registers, a[step]);
#pragma unroll
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int n = 0; n < parts; n++) {
            uint32_t b[4];
            load_fragment_transposed(b, fragment_step<S::DV>(v, 16 * step, n));
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                mma<typename S::T>(state.out[m][2 * n], a[step][m], b[0], b[1]);
                mma<typename S::T>(state.out[m][2 * n + 1], a[step][m], b[2], b[3]);
            }
            if (S::MIX && step + 1 < steps)
                weights_some<S>(state, factor, shift, step + 1, n * registers / parts,
                                (n + 1) * registers / parts, a[(step + 1) % steps]);
        }
    }
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            state.sum[m][half] += state.part[m][half];
}

// ---- merge --------------------------------------------------------------------------------------

// Merges the thread's part of a row of O: o = keep * o + take * out, in pairs if d_v is even. If
// keep is 0, o is not read.
template <int DV>
__device__ __forceinline__ void row_blend(float *o, float keep, const float (*out)[4], int half,
                                          float take, int d_v)
{
    int column = 2 * ((int)threadIdx.x % 4);
    if (d_v % 2 == 0) {
        float2 before[DV / 8];
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
            before[n] = make_float2(0, 0);
            if (keep != 0 && n * 8 + column < d_v)
                before[n] = *(const float2 *)(o + n * 8 + column);
        }
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
            float2 after = make_float2(keep * before[n].x + take * out[n][2 * half],
                                       keep * before[n].y + take * out[n][2 * half + 1]);
            if (n * 8 + column < d_v)
                *(float2 *)(o + n * 8 + column) = after;
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < DV / 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float *element = o + n * 8 + column + i;
            if (n * 8 + column + i < d_v)
                *element = (keep != 0 ? keep * *element : 0) + take * out[n][2 * half + i];
        }
    }
}

template <class S>
__device__ __forceinline__ void state_merge(const struct forward_state<S> &state,
                                            const struct forward_work &work,
                                            const struct work_tile &tile, int head)
{
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = quad_sum(state.sum[m][half]);
            int row = thread_row<S>(m, half);
            bool some = row < tile.rows && sum != 0;
            int64_t q_row = tile.q_row + row * work.row_step;
            float *running = work.lse + head * work.q_rows + q_row;
            float before = some ? *running : 0;
            float lse = (state.max[m][half] + log2f(sum)) * LN_2;
            __syncwarp(); // all four lanes have read *running before one of them writes it
            if (!some)
                continue;
            float most = fmaxf(before, lse);
            float keep = expf(before - most), take = expf(lse - most), both = keep + take;
            if (threadIdx.x % 4 == 0)
                *running = most + logf(both);
            row_blend<S::DV>(work.o + (q_row * work.heads + head) * work.d_v, keep / both,
                             state.out[m], half, take / (both * sum), work.d_v);
        }
    }
}

static __device__ __forceinline__ void raise_max_logit(float seen, float *max_logit)
{
    float most = warp_max(seen);
    if (threadIdx.x % WARP_LANES == 0 && most > -CUDART_INF_F)
        atomic_max(max_logit, most * LN_2);
}

// ---- kernel -------------------------------------------------------------------------------------

template <class S> __device__ __forceinline__ void state_clear(struct forward_state<S> &state)
{
    state.seen = -CUDART_INF_F;
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            state.max[m][half] = -CUDART_INF_F;
            state.sum[m][half] = 0;
        }
#pragma unroll
        for (int n = 0; n < S::DV / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                state.out[m][n][i] = 0;
    }
}

template <class S>
__device__ __forceinline__ void state_keep_q(struct forward_state<S> &state, uint32_t q)
{
#pragma unroll
    for (int m = 0; m < S::M; m++)
#pragma unroll
        for (int step = 0; step < S::DQK / 16; step++)
            load_fragment(state.q[m][step], fragment_step<S::DQK>(q, 16 * m, step));
}

// Applies bias, cap and mask to the scores of a block. With GENERAL they become logits in base 2;
// without, out_accumulate() multiplies them by work.factor.
template <class S>
__device__ __forceinline__ void block_logits(struct forward_state<S> &state,
                                             const struct forward_work &work,
                                             const struct key_walk &walk, int head, int rows)
{
    const struct work_fragment &fragment = work.fragments[walk.fragment];
    if (S::GENERAL) {
        scores_scale<S>(state, work.factor, work.cap);
        if (work.bias)
            scores_add_bias<S>(state, work, fragment, walk.key, head, rows);
    }
    if (block_is_masked<S::N>(fragment, walk.key, S::ROWS))
        scores_mask<S>(state, fragment, walk.key);
}

// Computes all keys of the tile. The copies of Q to `q_tile` have been issued, but not committed.
template <class S>
__device__ __forceinline__ void
tile_work(struct forward_state<S> &state, const struct forward_work &work,
          const struct work_tile &tile, const struct forward_place &place, uint32_t q_tile)
{
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES;
    const float factor = S::GENERAL ? 1 : work.factor;
    const uint32_t k_tile = q_tile + S::Q_BYTES, v_tile = k_tile + S::STAGES * S::K_BYTES;
    uint32_t q = fragment_rows_first<S::DQK>(q_tile, warp * 16 * S::M, lane);
    uint32_t k = fragment_halves_first<S::DQK>(k_tile, 0, lane);
    uint32_t v = fragment_rows_first<S::DV>(v_tile, 0, lane);

    struct key_walk walk = {tile.fragment, 0};
    load_block<S, S::DQK>(work, work.k, work.d_qk, place.kv_head, walk, k_tile);
    copy_commit();
    if constexpr (S::KEEP_Q) {
        copy_wait<0>();
        __syncthreads();
        state_keep_q<S>(state, q);
    }
    for (int stage = 0; walk.fragment >= 0; stage ^= S::STAGES - 1) {
        copy_wait<0>();
        __syncthreads(); // K is visible to all; the block before is no longer read
        load_block<S, S::DV>(work, work.v, work.d_v, place.kv_head, walk, v_tile);
        copy_commit();
        struct key_walk next = walk;
        key_walk_next<S::N>(&next, work.fragments);
        if (S::STAGES == 2) {
            if (next.fragment >= 0)
                load_block<S, S::DQK>(work, work.k, work.d_qk, place.kv_head, next,
                                      k_tile + (stage ^ 1) * S::K_BYTES);
            copy_commit();
        }
        scores_compute<S>(state, q, k + stage * S::K_BYTES);
        block_logits<S>(state, work, walk, place.head, tile.rows);
        maxima_raise<S>(state, factor, tile.rows);
        copy_wait<S::STAGES - 1>();
        __syncthreads(); // V is visible to all; K is no longer read
        if (S::STAGES == 1 && next.fragment >= 0) {
            load_block<S, S::DQK>(work, work.k, work.d_qk, place.kv_head, next, k_tile);
            copy_commit();
        }
        out_accumulate<S>(state, factor, v);
        walk = next;
    }
}

template <class S, int BLOCKS>
__global__ void __launch_bounds__(FORWARD_THREADS, BLOCKS)
    forward_kernel(const __grid_constant__ struct forward_work work)
{
    typedef typename S::T T;
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t q_tile = shared_address(shared);
    struct forward_place place = forward_place(work);
    struct work_tile tile = work.tiles[place.tile];
    int64_t vector = tile.q_row * work.heads + place.head;
    load_rows<S::ROWS, S::DQK, S::GENERAL>(q_tile, (const T *)work.q + vector * work.d_qk,
                                           work.row_step * work.heads * work.d_qk, tile.rows,
                                           work.d_qk, work.aligned);
    struct forward_state<S> state;
    state_clear<S>(state);
    tile_work<S>(state, work, tile, place, q_tile);

    place = forward_place(work); // again, instead of keeping it in registers
    tile = work.tiles[place.tile];
    state_merge<S>(state, work, tile, place.head);
    if (S::GENERAL && work.max_logit)
        raise_max_logit(state.seen, work.max_logit + place.head);
}

// ---- launch -------------------------------------------------------------------------------------

template <class S, int BLOCKS>
static cudaError_t forward_launch_instance(const struct forward_work &work, cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        forward_kernel<S, BLOCKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
    if (error != cudaSuccess)
        return error;
    unsigned blocks = (unsigned)work.tile_count * (unsigned)work.heads;
    forward_kernel<S, BLOCKS><<<blocks, FORWARD_THREADS, S::SHARED_BYTES, stream>>>(work);
    return cudaGetLastError();
}

template <template <typename> class PLAIN, template <typename> class GENERAL, int BLOCKS>
static cudaError_t forward_launch_dtype(const struct forward_work &work, enum case_dtype dtype,
                                        bool plain, cudaStream_t stream)
{
    if (dtype == DTYPE_BF16)
        return plain ? forward_launch_instance<PLAIN<__nv_bfloat16>, BLOCKS>(work, stream)
                     : forward_launch_instance<GENERAL<__nv_bfloat16>, BLOCKS>(work, stream);
    return plain ? forward_launch_instance<PLAIN<__half>, BLOCKS>(work, stream)
                 : forward_launch_instance<GENERAL<__half>, BLOCKS>(work, stream);
}

// BLOCKS: resident thread blocks per multiprocessor, for __launch_bounds__.
template <template <typename> class PLAIN, template <typename> class GENERAL, int BLOCKS>
constexpr struct forward_instance forward_instance_of()
{
    typedef PLAIN<__half> plain;
    typedef GENERAL<__half> general;
    static_assert(plain::ROWS == general::ROWS, "both take the same work list");
    return {plain::DQK,
            plain::DV,
            {plain::ROWS, plain::N < general::N ? plain::N : general::N},
            plain::SHARED_BYTES > general::SHARED_BYTES ? plain::SHARED_BYTES
                                                        : general::SHARED_BYTES,
            FORWARD_SECTION_BYTES,
            FORWARD_SECTION_BYTES,
            forward_launch_dtype<PLAIN, GENERAL, BLOCKS>};
}

#endif
