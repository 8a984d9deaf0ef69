// SPDX-License-Identifier: Apache-2.0
// Backward for 16-bit types on sm_80 and later, with mma.sync.
//
// A thread block owns a tile of keys of one key head. K and V stay in shared memory, dK and dV in
// register accumulators. Blocks of queries stream through shared memory; with two stages, one is
// processed while the next is copied. For each block, with S and dP in registers and P and dS in
// shared memory:
//   S = Q K', dP = dO V' | P, dS | dV += P' dO, dQ = dS K, dK += dS' Q
// Two barriers of the thread block per step suffice: after the queries have arrived, and after P
// and dS are written. With one stage, a third precedes the next copy.
#ifndef CPATTN_KERNELS_CUDA_SMXX_BACKWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SMXX_BACKWARD_KERNEL_CUH

#include "kernels/cuda/smxx_backward_tiles.cuh"

// ---- P and dS -----------------------------------------------------------------------------------

// Position of a thread's scores in the block: rows row + 16 m + 8 h, columns column + 8 n and
// column + 8 n + 1.
template <class C> struct score_place {
    int row, column;

    __device__ __forceinline__ score_place()
    {
        int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
        row = warp / C::SCORE_ACROSS * C::SCORE_M * 16 + lane / 4;
        column = warp % C::SCORE_ACROSS * C::SCORE_N * 8 + lane % 4 * 2;
    }
};

// LSE of a row in base 2. Returns +inf for -inf, so that all P of the row are 0.
static __device__ __forceinline__ float row_lse(const float *lse)
{
    float x = *lse;
    return x == -INFINITY ? INFINITY : x * LOG2_E;
}

template <typename T> __device__ __forceinline__ void store_pair(uint32_t address, float x, float y)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(pack<T>(x, y)) : "memory");
}

// Byte offset of a pair of scores in the tiles of P and dS.
template <class C> __device__ __forceinline__ uint32_t pair_offset(int row, int column)
{
    return tile_offset<C::KV_ROWS>(row, column / CHUNK_ELEMENTS) + column % CHUNK_ELEMENTS * 2;
}

// Tells which scores of a block exist and are not masked.
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

// Sets hidden scores to an infinity that makes their P 0.
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

// Replaces S by P in one fragment and stores P in shared memory, rounded to T.
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

// Replaces S by P (in s) and dP by dS (in ds) for one score, with bias and softcap. `lse` is in
// base 2. Sets `gradient` to the summand of dbias.
template <typename T>
__device__ __forceinline__ void make_general(const struct backward_params &p, const T *bias,
                                             bool visible, float lse, float d, float &s, float &ds,
                                             float &gradient)
{
    float x = s * p.product_factor, slope = 1;
    if (p.cap_factor != 0) {
        float inverse = 1 / coshf(x);
        x = tanhf(x) * p.cap_factor;
        slope = inverse * inverse; // 1 - tanh^2, without cancellation
    }
    if (p.bias && visible)
        x = fmaf(to_float(*bias), LOG2_E, x);
    s = visible ? fast_exp2(x - lse) : 0;
    gradient = s == 0 ? 0 : s * (ds - d);
    ds = gradient * slope;
}

// For dbias shared by the queries: reduces sums[n][i], a thread's sums for each key over its rows,
// to sums over the warp's rows, and stores them in columns[row of warps][key].
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

// Adds `columns` to dbias. A barrier must separate it from sum_columns(). With tickets no other
// thread block adds to these elements.
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

// make_general() for all scores of a thread: stores P and dS in shared memory and adds to dbias, or
// leaves sums for add_columns().
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

// Computes S and dP of a step and stores P and dS in shared memory. Called by all threads.
template <typename T, class C, bool GENERAL>
__device__ __forceinline__ void
make_scores(const struct backward_params &p, const struct backward_step *step,
            const struct backward_cursor *cursor, int stage, char *memory, uint32_t shared)
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int warp_row = warp / C::SCORE_ACROSS, warp_column = warp % C::SCORE_ACROSS;
    score_place<C> place;
    float s[C::SCORE_M][C::SCORE_N][4], dp[C::SCORE_M][C::SCORE_N][4];
    clear(s);
    product<T, C::AHEAD, C::D_QK / 16, C::D_QK, 0, C::D_QK, 0>(
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
        product<T, C::AHEAD, C::D_V / 16, C::D_V, 0, C::D_V, 0>(dp, d_out, v, nothing());
        make_all_general<T, C>(p, step, cursor->tile_rows, s, dp, place, stage, memory, shared);
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
        hide_scores<C>(p, step, cursor->tile_rows, place, s);
    // The exponentials of S are interleaved with the products for dP.
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
    product<T, C::AHEAD, DEPTH, C::D_V, 0, C::D_V, 0>(dp, d_out, v, between);
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

// Adds factor * acc, C fragments, to a gradient in global memory: `rows` rows of d elements,
// `stride` floats apart. The warp's blocks of 16 rows are BELOW * 16 rows apart, its pairs of
// fragments BESIDE * 16 columns apart. row, column: the lane's first. pairs: rows are 8-byte
// aligned. WHOLE: all rows and columns exist, and pairs is true.
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

// Adds dK or dV of the tile to global memory.
template <class C, int N, int D>
__device__ __forceinline__ void
add_keys(const struct backward_params &p, const struct backward_cursor *cursor,
         const float (&acc)[C::KEY_M][N][4], float *gradient, int d, float factor)
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int row = warp / C::KEY_ACROSS * 16 + lane / 4;
    int column = warp % C::KEY_ACROSS * 16 + lane % 4 * 2;
    add_gradient<C::KEY_M, N, C::KEY_WARPS, C::KEY_ACROSS, C::KV_ROWS, D>(
        acc, factor, gradient + cursor->kv_vector * d, p.row_step * p.kv_heads * d, row,
        cursor->tile_rows, column, d, p.pairs);
}

// ---- kernel -------------------------------------------------------------------------------------

// This warp's counter of turns at dQ of the step's block and head.
static __device__ __forceinline__ unsigned *step_taken(const struct backward_params &p,
                                                       const struct backward_step *step)
{
    return p.taken + (int64_t)step->block * BACKWARD_WARPS + thread_number() / WARP_LANES;
}

// The step's turn, which load_queries() has copied into the stage.
template <class C> __device__ __forceinline__ unsigned step_turn(int stage, uint32_t shared)
{
    unsigned turn;
    asm volatile("ld.shared.u32 %0, [%1];"
                 : "=r"(turn)
                 : "r"(shared + C::TURN + stage * 4)
                 : "memory");
    return turn;
}

// dV += P' dO, dK += dS' Q; adds dQ = dS K to global memory. Called by all threads.
template <typename T, class C>
__device__ __forceinline__ void step_gradients(const struct backward_params &p,
                                               const struct backward_step *step, int stage,
                                               uint32_t shared, float (&dk)[C::KEY_M][C::DK_N][4],
                                               float (&dv)[C::KEY_M][C::DV_N][4])
{
    int thread = thread_number(), warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    int key_row = warp / C::KEY_ACROSS, key_column = warp % C::KEY_ACROSS;
    uint32_t q = shared + C::Q + stage * C::Q_BYTES, d_out = shared + C::DO + stage * C::DO_BYTES;
    // Loaded early to hide the latency: in most cases the turn comes before dQ is computed.
    unsigned now = p.tickets ? turn_look(step_taken(p, step)) : 0;
    product<T, C::AHEAD, C::Q_ROWS / 16, C::KV_ROWS, C::KEY_WARPS, C::D_V, C::KEY_ACROSS>(
        dv,
        fragment_step<C::KV_ROWS>(fragment_halves_first<C::KV_ROWS>(shared + C::P, 0, lane), 0,
                                  key_row),
        fragment_step<C::D_V>(fragment_rows_first<C::D_V>(d_out, 0, lane), 0, key_column),
        nothing());
    {
        int query_row = warp / C::QUERY_ACROSS, query_column = warp % C::QUERY_ACROSS;
        float dq[C::DQ_M][C::DQ_N][4];
        clear(dq);
        product<T, C::AHEAD, C::KV_ROWS / 16, C::KV_ROWS, 0, C::D_QK, C::QUERY_ACROSS>(
            dq, fragment_rows_first<C::KV_ROWS>(shared + C::DS, query_row * C::DQ_M * 16, lane),
            fragment_step<C::D_QK>(fragment_rows_first<C::D_QK>(shared + C::K, 0, lane), 0,
                                   query_column),
            nothing());
        if (p.tickets)
            turn_wait(step_taken(p, step), step_turn<C>(stage, shared), now);
        add_dq<C>(p, step, dq);
    }
    product<T, C::AHEAD, C::Q_ROWS / 16, C::KV_ROWS, C::KEY_WARPS, C::D_QK, C::KEY_ACROSS>(
        dk,
        fragment_step<C::KV_ROWS>(fragment_halves_first<C::KV_ROWS>(shared + C::DS, 0, lane), 0,
                                  key_row),
        fragment_step<C::D_QK>(fragment_rows_first<C::D_QK>(q, 0, lane), 0, key_column), nothing());
    if (p.tickets)
        turn_end(step_taken(p, step), step_turn<C>(stage, shared));
}

// Processes all steps of the cursor's tile and unit head, then adds dK and dV to global memory.
// Called by all threads.
template <typename T, class C, bool GENERAL>
__device__ __forceinline__ void backward_tile_run(const struct backward_params &p, char *memory,
                                                  uint32_t shared)
{
    struct backward_step *steps = (struct backward_step *)(memory + C::STEPS);
    struct backward_cursor *cursor = (struct backward_cursor *)(memory + C::CURSOR);
    load_keys<T, C>(p, cursor, shared);
    load_queries<T, C>(p, &steps[0], 0, shared);
    copy_commit();
    float dk[C::KEY_M][C::DK_N][4], dv[C::KEY_M][C::DV_N][4];
    clear(dk);
    clear(dv);
    for (int now = 0, stage = 0;; stage = C::STAGES - 1 - stage) {
        const struct backward_step *step = &steps[now];
        int next = now + 1 == C::STEP_COUNT ? 0 : now + 1;
        copy_wait<0>();
        __syncthreads();
        if (thread_number() == 0)
            cursor_next<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[next],
                                               &steps[next + 1 == C::STEP_COUNT ? 0 : next + 1]);
        bool more = steps[next].rows > 0;
        if (C::STAGES > 1 && more) {
            load_queries<T, C>(p, &steps[next], C::STAGES - 1 - stage, shared);
            copy_commit();
        }
        make_scores<T, C, GENERAL>(p, step, cursor, stage, memory, shared);
        __syncthreads();
        if (GENERAL && p.dbias && p.bias_query_stride == 0)
            add_columns<C>(p, step, cursor->tile_rows, (const float *)(memory + C::COLUMNS));
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
    turn_keys turn(p, cursor);
    add_keys<C, C::DV_N, C::D_V>(p, cursor, dv, p.dv, p.d_v, 1);
    add_keys<C, C::DK_N, C::D_QK>(p, cursor, dk, p.dk, p.d_qk, p.scale);
    turn.end();
}

template <typename T, class C, bool GENERAL>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1)
    backward_run(const __grid_constant__ struct backward_params p)
{
    extern __shared__ __align__(1024) char memory[];
    struct backward_cursor *cursor = (struct backward_cursor *)(memory + C::CURSOR);
    struct backward_step *steps = (struct backward_step *)(memory + C::STEPS);
    if (threadIdx.x == 0)
        cursor_begin(p, cursor);
    for (;;) {
        if (threadIdx.x == 0 && cursor->tile < cursor->unit.tile_end) {
            cursor_tile(p, cursor);
            cursor_fragment<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[0]);
            cursor_next<C::Q_ROWS, C::KV_ROWS>(p, cursor, &steps[0], &steps[1]);
        }
        __syncthreads();
        if (cursor->tile == cursor->unit.tile_end)
            break;
        backward_tile_run<T, C, GENERAL>(p, memory, shared_address(memory));
        __syncthreads(); // shared memory is free for the next tile
        if (threadIdx.x == 0)
            cursor_advance(cursor);
    }
}

// ---- instantiations -----------------------------------------------------------------------------

// Arguments: D_QK, D_V, Q_ROWS, KV_ROWS, SCORE_WARPS, KEY_WARPS, QUERY_WARPS, STAGES, AHEAD.
typedef backward_config<64, 64, 128, 128, 4, 4, 4, 2> backward_64;
typedef backward_config<128, 128, 64, 128, 2, 4, 2, 2, true> backward_128;
typedef backward_config<192, 128, 64, 64, 4, 2, 2, 2, true> backward_192;
typedef backward_config<256, 256, 64, 64, 4, 2, 2, 2> backward_256;
typedef backward_config<256, 256, 64, 64, 4, 2, 2, 1> backward_256_small;

// Largest shared memory of a thread block on sm_80, the smallest among the chips that these
// configurations are for.
#define SHARED_BYTES_SM_80 (163 * 1024)
static_assert(backward_64::PLAIN_BYTES <= SHARED_BYTES_SM_80, "d 64 on sm_80");
static_assert(backward_128::GENERAL_BYTES <= SHARED_BYTES_SM_80, "d 128 on sm_80");
static_assert(backward_192::GENERAL_BYTES <= SHARED_BYTES_SM_80, "d 192 on sm_80");
static_assert(backward_256_small::GENERAL_BYTES <= SHARED_BYTES_SM_80, "d 256 on sm_80");

template <typename T, class C, bool GENERAL> constexpr struct backward_kernel backward_instance()
{
    return {backward_run<T, C, GENERAL>,
            C::Q_ROWS,
            C::KV_ROWS,
            C::D_QK,
            C::D_V,
            GENERAL ? C::GENERAL_BYTES : C::PLAIN_BYTES};
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
