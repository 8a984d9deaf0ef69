// SPDX-License-Identifier: Apache-2.0
// Backward for any dtype in fp32 arithmetic, without tensor cores. Visits tiles and steps like
// kernels/cuda/smxx_backward_kernel.cuh, with one stage and all operands of a step in shared
// memory.
#include "kernels/cuda/backward_work.cuh"

// The threads form a square of ACROSS x ACROSS. Thread (x, y) computes rows y + i * ACROSS and
// columns x + j * ACROSS of every result.
#define ACROSS 16

template <int D_, int ROWS_> struct plain_config {
    static constexpr int D = D_, ROWS = ROWS_, PARTS = ROWS / ACROSS, WIDTH = D / ACROSS;
    // Rows in shared memory, in floats; odd to avoid bank conflicts.
    static constexpr int STRIDE = D + 1, SCORE_STRIDE = ROWS + 1;
};

template <class C> struct plain_memory {
    float q[C::ROWS][C::STRIDE], k[C::ROWS][C::STRIDE], v[C::ROWS][C::STRIDE];
    float d_out[C::ROWS][C::STRIDE];
    float p[C::ROWS][C::SCORE_STRIDE], ds[C::ROWS][C::SCORE_STRIDE];
    float gradient[C::ROWS][C::SCORE_STRIDE]; // of the biased logits, if queries share a bias
    float lse[C::ROWS], d[C::ROWS];
    struct backward_cursor cursor;
    struct backward_step steps[2];
};

template <typename T, class C>
__device__ void plain_load(float (*tile)[C::STRIDE], const T *source, int64_t stride, int rows,
                           int d)
{
    for (int i = threadIdx.x; i < C::ROWS * C::D; i += BACKWARD_THREADS) {
        int row = i / C::D, column = i % C::D;
        tile[row][column] = row < rows && column < d ? to_float(source[row * stride + column]) : 0;
    }
}

template <typename T, class C>
__device__ void plain_queries(const struct backward_params &p, const struct backward_step *step,
                              struct plain_memory<C> *m)
{
    int64_t vector = step->vector, stride = p.row_step * p.heads;
    plain_load<T, C>(m->q, (const T *)p.q + vector * p.d_qk, stride * p.d_qk, step->rows, p.d_qk);
    plain_load<T, C>(m->d_out, (const T *)p.d_out + vector * p.d_v, stride * p.d_v, step->rows,
                     p.d_v);
    int row = threadIdx.x;
    if (row < C::ROWS) {
        int64_t scalar = step->scalar + row * p.row_step;
        float lse = row < step->rows ? p.lse[scalar] : -INFINITY;
        m->lse[row] = lse;
        m->d[row] = lse == -INFINITY ? 0 : p.d[scalar];
    }
}

// Stores P and dS of one score in shared memory and adds the gradient of its bias to dbias, unless
// queries share the bias.
template <typename T, class C>
__device__ void plain_score(const struct backward_params &p, const struct backward_step *step,
                            int keys, int row, int key, float s, float dp,
                            struct plain_memory<C> *m)
{
    int diagonal = key - row;
    bool visible = diagonal >= step->low && diagonal <= step->high && row < step->rows &&
                   key < keys && m->lse[row] != -INFINITY;
    float x = s * p.product_factor, slope = 1;
    if (p.cap_factor != 0) {
        float inverse = 1 / coshf(x);
        x = tanhf(x) * p.cap_factor;
        slope = inverse * inverse; // 1 - tanh^2, without cancellation
    }
    int64_t element = step->bias + row * p.bias_query_stride + key;
    if (visible && p.bias)
        x = fmaf(to_float(((const T *)p.bias)[element]), LOG2_E, x);
    float probability = visible ? exp2f(x - m->lse[row] * LOG2_E) : 0;
    float gradient = probability == 0 ? 0 : probability * (dp - m->d[row]);
    m->p[row][key] = probability;
    m->ds[row][key] = gradient * slope;
    m->gradient[row][key] = gradient;
    if (!visible || !p.dbias || p.bias_query_stride == 0)
        return;
    if (p.tickets)
        p.dbias[element] += gradient;
    else
        add_float(p.dbias + element, gradient);
}

template <typename T, class C>
__device__ void plain_scores(const struct backward_params &p, const struct backward_step *step,
                             int keys, struct plain_memory<C> *m)
{
    int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    float s[C::PARTS][C::PARTS] = {}, dp[C::PARTS][C::PARTS] = {};
    for (int i = 0; i < p.d_qk; i++)
#pragma unroll
        for (int a = 0; a < C::PARTS; a++)
#pragma unroll
            for (int b = 0; b < C::PARTS; b++)
                s[a][b] = fmaf(m->q[y + a * ACROSS][i], m->k[x + b * ACROSS][i], s[a][b]);
    for (int i = 0; i < p.d_v; i++)
#pragma unroll
        for (int a = 0; a < C::PARTS; a++)
#pragma unroll
            for (int b = 0; b < C::PARTS; b++)
                dp[a][b] = fmaf(m->d_out[y + a * ACROSS][i], m->v[x + b * ACROSS][i], dp[a][b]);
#pragma unroll
    for (int a = 0; a < C::PARTS; a++)
#pragma unroll
        for (int b = 0; b < C::PARTS; b++)
            plain_score<T, C>(p, step, keys, y + a * ACROSS, x + b * ACROSS, s[a][b], dp[a][b], m);
}

// For dbias shared by the queries: adds the sum over the rows for each key.
template <class C>
__device__ void plain_columns(const struct backward_params &p, const struct backward_step *step,
                              int keys, const struct plain_memory<C> *m)
{
    int key = threadIdx.x;
    if (key >= keys || key >= C::ROWS)
        return;
    float sum = 0;
    for (int row = 0; row < C::ROWS; row++)
        sum += m->gradient[row][key];
    if (p.tickets)
        p.dbias[step->bias + key] += sum;
    else
        add_float(p.dbias + step->bias + key, sum);
}

// acc += left' * right over the queries of a step.
template <class C>
__device__ void plain_keys(float (&acc)[C::PARTS][C::WIDTH], const float (*left)[C::SCORE_STRIDE],
                           const float (*right)[C::STRIDE])
{
    int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    for (int i = 0; i < C::ROWS; i++)
#pragma unroll
        for (int a = 0; a < C::PARTS; a++)
#pragma unroll
            for (int b = 0; b < C::WIDTH; b++)
                acc[a][b] = fmaf(left[i][y + a * ACROSS], right[i][x + b * ACROSS], acc[a][b]);
}

template <class C>
__device__ void plain_dq(const struct backward_params &p, const struct backward_step *step,
                         struct plain_memory<C> *m)
{
    int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    float dq[C::PARTS][C::WIDTH] = {};
    for (int i = 0; i < C::ROWS; i++)
#pragma unroll
        for (int a = 0; a < C::PARTS; a++)
#pragma unroll
            for (int b = 0; b < C::WIDTH; b++)
                dq[a][b] = fmaf(m->ds[y + a * ACROSS][i], m->k[i][x + b * ACROSS], dq[a][b]);
    unsigned *taken = p.taken + (int64_t)step->block * BACKWARD_WARPS + threadIdx.x / WARP_LANES;
    unsigned turn = p.tickets ? (unsigned)p.turns[step->turn] : 0;
    if (p.tickets)
        turn_wait(taken, turn, turn + 1);
#pragma unroll
    for (int a = 0; a < C::PARTS; a++)
#pragma unroll
        for (int b = 0; b < C::WIDTH; b++) {
            int row = y + a * ACROSS, column = x + b * ACROSS;
            int64_t vector = step->vector + row * p.row_step * p.heads;
            if (row < step->rows && column < p.d_qk)
                add_float(p.dq + vector * p.d_qk + column, dq[a][b] * p.scale);
        }
    if (p.tickets)
        turn_end(taken, turn);
}

template <class C>
__device__ void plain_add(const struct backward_params &p, const struct backward_cursor *cursor,
                          const float (&acc)[C::PARTS][C::WIDTH], float *gradient, int d,
                          float factor)
{
    int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
#pragma unroll
    for (int a = 0; a < C::PARTS; a++)
#pragma unroll
        for (int b = 0; b < C::WIDTH; b++) {
            int row = y + a * ACROSS, column = x + b * ACROSS;
            int64_t vector = cursor->kv_vector + row * p.row_step * p.kv_heads;
            if (row < cursor->tile_rows && column < d)
                add_float(gradient + vector * d + column, acc[a][b] * factor);
        }
}

// Processes all steps of the cursor's tile and unit head, then adds dK and dV to global memory.
// Called by all threads.
template <typename T, class C>
__device__ void plain_tile(const struct backward_params &p, struct plain_memory<C> *m)
{
    int64_t vector = m->cursor.kv_vector, stride = p.row_step * p.kv_heads;
    int rows = m->cursor.tile_rows;
    plain_load<T, C>(m->k, (const T *)p.k + vector * p.d_qk, stride * p.d_qk, rows, p.d_qk);
    plain_load<T, C>(m->v, (const T *)p.v + vector * p.d_v, stride * p.d_v, rows, p.d_v);
    float dk[C::PARTS][C::WIDTH] = {}, dv[C::PARTS][C::WIDTH] = {};
    for (int now = 0;; now = 1 - now) {
        __syncthreads();
        const struct backward_step *step = &m->steps[now];
        if (step->rows == 0)
            break;
        if (threadIdx.x == 0)
            cursor_next<C::ROWS, C::ROWS>(p, &m->cursor, step, &m->steps[1 - now]);
        plain_queries<T, C>(p, step, m);
        __syncthreads();
        plain_scores<T, C>(p, step, rows, m);
        __syncthreads();
        if (p.dbias && p.bias_query_stride == 0)
            plain_columns<C>(p, step, rows, m);
        plain_keys<C>(dv, m->p, m->d_out);
        plain_keys<C>(dk, m->ds, m->q);
        plain_dq<C>(p, step, m);
    }
    turn_keys turn(p, &m->cursor);
    plain_add<C>(p, &m->cursor, dv, p.dv, p.d_v, 1);
    plain_add<C>(p, &m->cursor, dk, p.dk, p.d_qk, p.scale);
    turn.end();
}

template <typename T, class C>
__global__ void __launch_bounds__(BACKWARD_THREADS)
    plain_run(const __grid_constant__ struct backward_params p)
{
    extern __shared__ __align__(16) char memory[];
    struct plain_memory<C> *m = (struct plain_memory<C> *)memory;
    if (threadIdx.x == 0)
        cursor_begin(p, &m->cursor);
    for (;;) {
        if (threadIdx.x == 0 && m->cursor.tile < m->cursor.unit.tile_end) {
            cursor_tile(p, &m->cursor);
            cursor_fragment<C::ROWS, C::ROWS>(p, &m->cursor, &m->steps[0]);
        }
        __syncthreads();
        if (m->cursor.tile == m->cursor.unit.tile_end)
            break;
        plain_tile<T, C>(p, m);
        __syncthreads();
        if (threadIdx.x == 0)
            cursor_advance(&m->cursor);
    }
}

template <typename T, class C> constexpr struct backward_kernel plain_instance()
{
    return {plain_run<T, C>, C::ROWS, C::ROWS, C::D, C::D, (int32_t)sizeof(struct plain_memory<C>)};
}

typedef plain_config<64, 32> plain_64;
typedef plain_config<256, 16> plain_256;

const struct backward_kernel *backward_kernel_plain(enum case_dtype dtype, int d_qk, int d_v)
{
    static const struct backward_kernel all[][2] = {
        {plain_instance<float, plain_64>(), plain_instance<float, plain_256>()},
        {plain_instance<__nv_bfloat16, plain_64>(), plain_instance<__nv_bfloat16, plain_256>()},
        {plain_instance<__half, plain_64>(), plain_instance<__half, plain_256>()}};
    int row = dtype == DTYPE_FP32 ? 0 : dtype == DTYPE_BF16 ? 1 : 2;
    return backward_kernel_find(all[row], 2, d_qk, d_v, INT32_MAX);
}
