// SPDX-License-Identifier: Apache-2.0
// Four steps: warps judge rows and blocks add up what they found; one block per chunk adds up the
// blocks; then it is known what rows are measured against, and the worst is looked for, first by
// many blocks and then among their answers. Everything is added in a fixed order.
#include "kernels/cuda/compare_cuda.h"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/internal.h"

#define WARP         32
#define THREADS      256
#define WARPS        (THREADS / WARP)
#define WORST_BLOCKS 128

#define INDEX_NONE INT64_MAX

// RMS of the error of one row, and what it is measured against.
struct row_errors {
    float error, expected;
};

// What rows add up to.
struct found {
    double error_squares, expected_squares, terms_squares, max_abs, worst_element;
    int64_t elements, mismatches, nonfinite;
    int64_t first_bad; // INDEX_NONE: none
    double first_bad_got, first_bad_expected;
    int chunk;
};

struct worst {
    double error; // negative: none
    int64_t index;
};

struct scratch {
    found *blocks; // of the first step
    worst *worsts; // [chunks][WORST_BLOCKS]
    row_errors *rows;
};

struct rules {
    compare_rule chunk[COMPARE_CHUNKS];
};

// ---- rows ---------------------------------------------------------------------------------------

// Where a row lies.
struct row_place {
    int64_t got, expected; // of its first element
    int64_t count;
    int64_t index;   // among all rows of the comparison
    int64_t element; // number of the first element in the chunk
    double terms;
};

// The rows of a tile and head, to each block one.
struct tile_rows {
    compare_tensor tensor;
    const reference_tile *tiles;
    int64_t rows, chunk_rows;

    __device__ int chunk() const
    {
        return tiles[blockIdx.x / tensor.heads].chunk;
    }
    __device__ bool place(int i, row_place &p) const
    {
        const compare_tensor &t = tensor;
        const reference_tile &tile = tiles[blockIdx.x / t.heads];
        int head = blockIdx.x % t.heads;
        if (i >= tile.count)
            return false;
        int64_t local = tile.local_row + i * t.row_step, row = tile.row + i;
        p.got = t.heads_outside ? head * t.local_rows + local : (local * t.heads + head) * t.dim;
        p.expected = (head * t.group * rows + row) * t.width;
        p.count = t.dim;
        p.terms = t.terms ? terms(head * t.group * rows + row) : 0;
        p.index = row * t.heads + head;
        p.element = ((row - (tile.chunk > 0 ? chunk_rows : 0)) * t.heads + head) * t.dim;
        return true;
    }
    __device__ float got(int64_t at) const
    {
        return element_loaded(tensor.dtype, tensor.data, at);
    }
    __device__ double expected(int64_t at) const
    {
        double sum = 0;
        for (int i = 0; i < tensor.group; i++)
            sum += tensor.expected[at + i * rows * tensor.width];
        return sum;
    }
    __device__ double terms(int64_t at) const
    {
        double squares = 0;
        for (int i = 0; i < tensor.group; i++)
            squares += tensor.terms[at + i * rows] * tensor.terms[at + i * rows];
        return sqrt(squares);
    }
};

// A line for each warp.
struct line_rows {
    compare_lines lines;
    int64_t count;

    __device__ int chunk() const
    {
        return 0;
    }
    __device__ bool place(int i, row_place &p) const
    {
        int64_t line = (int64_t)blockIdx.x * WARPS + i;
        if (i >= WARPS || line >= count)
            return false;
        int64_t begin = (lines.begin / lines.columns + line) * lines.columns;
        int64_t from = max(begin, lines.begin), to = min(begin + lines.columns, lines.end);
        p.got = p.expected = p.element = from - lines.begin;
        p.count = to - from;
        p.terms = 1;
        p.index = line;
        return true;
    }
    __device__ float got(int64_t at) const
    {
        return element_loaded(lines.dtype, lines.data, at);
    }
    __device__ double expected(int64_t at) const
    {
        return lines.expected[at];
    }
};

static __device__ __forceinline__ double warp_sum(double x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

static __device__ __forceinline__ found found_nothing(int chunk)
{
    found f = {};
    f.first_bad = INDEX_NONE;
    f.chunk = chunk;
    return f;
}

static __device__ __forceinline__ void found_add(found &f, const found &more)
{
    f.error_squares += more.error_squares;
    f.expected_squares += more.expected_squares;
    f.terms_squares += more.terms_squares;
    f.max_abs = fmax(f.max_abs, more.max_abs);
    f.worst_element = fmax(f.worst_element, more.worst_element);
    f.elements += more.elements;
    f.mismatches += more.mismatches;
    f.nonfinite += more.nonfinite;
    if (more.first_bad < f.first_bad) {
        f.first_bad = more.first_bad;
        f.first_bad_got = more.first_bad_got;
        f.first_bad_expected = more.first_bad_expected;
    }
}

// What one lane finds at one element; the square of its error is returned.
static __device__ __forceinline__ double element_judge(found &f, const compare_rule &rule,
                                                       double least, double got, double expected,
                                                       int64_t element)
{
    bool finite = isfinite(got) && isfinite(expected);
    double error = finite ? fabs(got - expected) : 0;
    double admitted = least + rule.tolerance * fabs(got);
    bool bad = finite ? error > admitted : !(got == expected);
    f.nonfinite += !isfinite(got) && isfinite(expected);
    f.max_abs = fmax(f.max_abs, error);
    if (finite)
        f.worst_element = fmax(f.worst_element, error / admitted);
    f.mismatches += bad;
    if (bad && element < f.first_bad) {
        f.first_bad = element;
        f.first_bad_got = got;
        f.first_bad_expected = expected;
    }
    return error * error;
}

template <typename ROWS>
static __device__ __forceinline__ void row_judge(const ROWS &rows, const compare_rule &rule,
                                                 const row_place &p, found &f, row_errors *errors)
{
    int lane = threadIdx.x % WARP;
    double squares = 0, count = (double)p.count;
    for (int64_t k = lane; k < p.count; k += WARP) {
        double expected = rows.expected(p.expected + k);
        squares += isfinite(expected) ? expected * expected : 0;
    }
    double rms = sqrt(warp_sum(squares) / count);
    double unit = fmax(fmax(rule.unit, rms), rule.terms_element * p.terms);
    double least = rule.tolerance * (rule.absolute ? 1 : unit);
    squares = 0;
    for (int64_t k = lane; k < p.count; k += WARP)
        squares += element_judge(f, rule, least, rows.got(p.got + k), rows.expected(p.expected + k),
                                 p.element + k);
    squares = warp_sum(squares);
    if (lane > 0)
        return;
    f.elements += p.count;
    f.error_squares += squares;
    f.expected_squares += rms * rms * count;
    f.terms_squares += p.terms * p.terms * count;
    errors[p.index].error = (float)sqrt(squares / count);
    errors[p.index].expected = (float)fmax(rms, rule.terms_row * p.terms);
}

// Adds up what all threads of the block have found; all[0] is the sum.
static __device__ void block_add(found all[THREADS])
{
    for (int threads = THREADS / 2; threads > 0; threads /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < threads)
            found_add(all[threadIdx.x], all[threadIdx.x + threads]);
    }
}

template <typename ROWS> __global__ void rows_kernel(const ROWS rows, const rules r, scratch s)
{
    __shared__ found all[THREADS];
    int chunk = rows.chunk();
    found &f = all[threadIdx.x];
    f = found_nothing(chunk);
    row_place p;
    for (int i = threadIdx.x / WARP; rows.place(i, p); i += WARPS)
        row_judge(rows, r.chunk[chunk], p, f, s.rows);
    block_add(all);
    if (threadIdx.x == 0)
        s.blocks[blockIdx.x] = all[0];
}

// ---- chunks -------------------------------------------------------------------------------------

// One block for each chunk.
__global__ void chunk_kernel(const found *blocks, int64_t count, compare_result *results)
{
    __shared__ found all[THREADS];
    found &f = all[threadIdx.x];
    f = found_nothing(blockIdx.x);
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        if (blocks[i].chunk == (int)blockIdx.x)
            found_add(f, blocks[i]);
    block_add(all);
    if (threadIdx.x > 0)
        return;
    compare_result &result = results[blockIdx.x];
    result.elements = f.elements;
    result.mismatches = f.mismatches;
    result.nonfinite = f.nonfinite;
    result.error_squares = f.error_squares;
    result.expected_squares = f.expected_squares;
    result.terms_squares = f.terms_squares;
    result.max_abs = f.max_abs;
    result.worst_element = f.worst_element;
    result.first_bad = f.first_bad == INDEX_NONE ? -1 : f.first_bad;
    result.first_bad_got = f.first_bad_got;
    result.first_bad_expected = f.first_bad_expected;
}

static __device__ __forceinline__ void worst_add(worst &w, const worst &other)
{
    if (other.error > w.error || (other.error == w.error && other.index < w.index))
        w = other;
}

static __device__ void block_worst(worst all[THREADS])
{
    for (int threads = THREADS / 2; threads > 0; threads /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < threads)
            worst_add(all[threadIdx.x], all[threadIdx.x + threads]);
    }
}

// Grid (WORST_BLOCKS, chunks). The rows of chunk 0 are [0, first), those of chunk 1 [first, count).
__global__ void worst_kernel(const rules r, scratch s, int64_t first, int64_t count,
                             const compare_result *results)
{
    __shared__ worst all[THREADS];
    int chunk = blockIdx.y;
    const compare_rule &rule = r.chunk[chunk];
    const compare_result &result = results[chunk];
    int64_t begin = chunk == 0 ? 0 : first, end = chunk == 0 ? first : count;
    double elements = result.elements > 0 ? (double)result.elements : 1;
    double terms = rule.terms_chunk * sqrt(result.terms_squares / elements);
    double rms = sqrt(result.expected_squares / elements);
    double least = rule.row_part * fmax(fmax(rms, terms), rule.chunk);
    worst &w = all[threadIdx.x];
    w.error = -1;
    w.index = INDEX_NONE;
    for (int64_t i = begin + blockIdx.x * THREADS + threadIdx.x; i < end;
         i += WORST_BLOCKS * THREADS) {
        double scale = rule.absolute ? 1 : fmax((double)s.rows[i].expected, least);
        worst_add(w, {s.rows[i].error / scale, i - begin});
    }
    block_worst(all);
    if (threadIdx.x == 0)
        s.worsts[chunk * WORST_BLOCKS + blockIdx.x] = all[0];
}

__global__ void answer_kernel(scratch s, compare_result *results)
{
    __shared__ worst all[THREADS];
    worst &w = all[threadIdx.x];
    w.error = -1;
    w.index = INDEX_NONE;
    if (threadIdx.x < WORST_BLOCKS)
        w = s.worsts[blockIdx.x * WORST_BLOCKS + threadIdx.x];
    block_worst(all);
    if (threadIdx.x > 0)
        return;
    results[blockIdx.x].worst_row = w.error < 0 ? 0 : w.error;
    results[blockIdx.x].worst_index = w.error < 0 ? -1 : w.index;
}

// ---- launches -----------------------------------------------------------------------------------

static int64_t scratch_bytes(int64_t rows, int64_t blocks)
{
    return blocks * (int64_t)sizeof(found) +
           COMPARE_CHUNKS * WORST_BLOCKS * (int64_t)sizeof(worst) +
           rows * (int64_t)sizeof(row_errors);
}

static scratch scratch_of(void *memory, int64_t blocks)
{
    scratch s;
    s.blocks = (found *)memory;
    s.worsts = (worst *)(s.blocks + blocks);
    s.rows = (row_errors *)(s.worsts + COMPARE_CHUNKS * WORST_BLOCKS);
    return s;
}

int64_t compare_cuda_rows_scratch_bytes(const struct reference_rows *rows, int heads)
{
    return scratch_bytes(rows->rows * heads, rows->tile_count * heads);
}

int64_t compare_cuda_lines_scratch_bytes(int64_t lines)
{
    return scratch_bytes(lines, (lines + WARPS - 1) / WARPS);
}

// `first` of the `count` rows are those of chunk 0.
template <typename ROWS>
static void compare(struct attention_backend *backend, const ROWS &rows, int64_t blocks,
                    int64_t first, int64_t count, int chunks, const rules &r, void *memory,
                    struct compare_result *results)
{
    cudaStream_t stream = backend->stream;
    scratch s = scratch_of(memory, blocks);
    if (blocks > 0) {
        rows_kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(rows, r, s);
        cuda_launched(backend, "the comparison of rows");
    }
    chunk_kernel<<<chunks, THREADS, 0, stream>>>(s.blocks, blocks, results);
    worst_kernel<<<dim3(WORST_BLOCKS, chunks), THREADS, 0, stream>>>(r, s, first, count, results);
    answer_kernel<<<chunks, THREADS, 0, stream>>>(s, results);
    cuda_launched(backend, "the comparison");
}

void compare_cuda_rows(struct attention_backend *backend, const struct compare_tensor *tensor,
                       const struct reference_rows *rows, int64_t chunk_rows,
                       const struct compare_rule rules_[COMPARE_CHUNKS], void *scratch,
                       struct compare_result results[COMPARE_CHUNKS])
{
    tile_rows t = {*tensor, rows->tiles, rows->rows, chunk_rows};
    rules r = {{rules_[0], rules_[1]}};
    compare(backend, t, rows->tile_count * tensor->heads, chunk_rows * tensor->heads,
            rows->rows * tensor->heads, COMPARE_CHUNKS, r, scratch, results);
}

void compare_cuda_lines(struct attention_backend *backend, const struct compare_lines *lines,
                        const struct compare_rule *rule, void *scratch,
                        struct compare_result *result)
{
    line_rows l = {*lines, 0};
    if (lines->end > lines->begin)
        l.count = (lines->end - 1) / lines->columns - lines->begin / lines->columns + 1;
    rules r = {{*rule, *rule}};
    compare(backend, l, (l.count + WARPS - 1) / WARPS, l.count, l.count, 1, r, scratch, result);
}
