// SPDX-License-Identifier: Apache-2.0
// The two passes of judge/rules.h over the rows. In each pass a warp judges one row at a time, a
// block reduces the findings of its threads, and one block per chunk reduces the findings of the
// blocks in a fixed order.
#include "judge/cuda/compare_cuda.h"

#include "judge/cuda/attend.cuh"

#define WARP    32
#define THREADS 256
#define WARPS   (THREADS / WARP)

#define INDEX_NONE INT64_MAX

// Errors of one row: their RMS, and the unit of rules_row_unit(). For LSE the unit is the admitted
// error.
struct row_errors {
    float error, unit;
};

// Findings of one thread or block: sums in the first pass, worst values in the second.
struct block_sums {
    rules_sums sums;
    int chunk;
};
struct block_worst {
    rules_worst worst;
    int64_t index;        // of the worst row, in its chunk
    int64_t first_bad;    // first mismatched element of the chunk; INDEX_NONE: none
    double got, expected; // of first_bad
    int chunk;
};

struct scratch {
    block_sums *sums_of_blocks;   // [blocks]
    block_worst *worst_of_blocks; // [blocks]
    row_errors *rows;             // [rows of the comparison]
};

// ---- rows ---------------------------------------------------------------------------------------

// A row of the comparison.
struct row_place {
    int64_t got, expected; // index of its first element in the results and in the reference
    int64_t count;         // elements
    int64_t index;         // among all rows of the comparison
    int64_t element;       // number of its first element in the chunk
    int64_t visible;       // number of tokens of the other side that the row sees
    double terms_squares;  // squares of the terms that cancel, summed over its elements
};

// Rows of a tensor of tokens. Each block has the rows of one tile and head.
struct tile_rows {
    compare_tensor tensor;
    attend_case c;
    const reference_tile *tiles;
    int64_t rows, chunk_rows;

    __device__ int chunk() const
    {
        return tiles[blockIdx.x / tensor.heads].chunk;
    }
    // Number of rows of the comparison before the chunk.
    __device__ int64_t before(int chunk) const
    {
        return chunk > 0 ? chunk_rows * tensor.heads : 0;
    }
    __device__ int64_t visible(const reference_tile &tile, int i) const
    {
        attend_place p;
        int begin, end;
        p.tile = tile;
        attend_sequence(c, p);
        if (tensor.side == SIDE_KV)
            attend_columns<true>(c, p, (int)tile.position + i, 1, &begin, &end);
        else
            attend_columns<false>(c, p, (int)tile.position + i, 1, &begin, &end);
        return end > begin ? end - begin : 0;
    }
    __device__ bool place(int i, row_place &p) const
    {
        const compare_tensor &t = tensor;
        const reference_tile &tile = tiles[blockIdx.x / t.heads];
        int head = blockIdx.x % t.heads;
        if (i >= tile.count)
            return false;
        int64_t local = tile.local_row + i * t.row_step, row = tile.row + i;
        double terms = t.terms ? t.terms[head * rows + row] * t.terms_factor : 0;
        p.got = t.heads_outside ? head * t.local_rows + local : (local * t.heads + head) * t.dim;
        p.expected = (head * rows + row) * t.width;
        p.count = t.dim;
        p.index = row * t.heads + head;
        p.element = (p.index - before(tile.chunk)) * t.dim;
        p.visible = visible(tile, i);
        p.terms_squares = terms * terms * t.dim;
        return true;
    }
    __device__ float got(int64_t at) const
    {
        return element_loaded(tensor.dtype, tensor.data, at);
    }
    __device__ double expected(int64_t at) const
    {
        if (tensor.stats64)
            return tensor.stats64[at].lse;
        if (tensor.stats)
            return ((double)tensor.stats[at].lse_high + tensor.stats[at].lse_low) * M_LN2;
        return tensor.expected.exact64 ? tensor.expected.exact64[at] : tensor.expected.exact[at];
    }
    __device__ double twin(int64_t at) const
    {
        return element_loaded(tensor.twin_dtype, tensor.expected.twin, at);
    }
    // RMS of the terms that cancel in an element of the row.
    __device__ double row_terms(const row_place &p) const
    {
        return sqrt(p.terms_squares / (double)p.count);
    }
    __device__ bool sparse() const
    {
        return false;
    }
    // True if the row sees no token, so that it must be zero. False for LSE, which is not zero in
    // such a row.
    __device__ bool must_be_zero(const row_place &p) const
    {
        return p.visible == 0 && !tensor.stats;
    }
};

// Rows of the gradient of the bias. Each warp has one line.
struct line_rows {
    compare_lines lines;
    int64_t count;

    __device__ int chunk() const
    {
        return 0;
    }
    __device__ int64_t before(int) const
    {
        return 0;
    }
    // Squares of the terms that cancel, for the compared elements: a share of the sum over the
    // whole array.
    __device__ double terms_squares() const
    {
        double sum = 0;
        for (int rank = 0; rank < lines.terms_ranks; rank++)
            for (int k = 0; k < lines.terms_count; k++)
                sum += lines.terms[rank * lines.terms_step + k];
        return sum * (double)(lines.end - lines.begin) / (double)lines.terms_elements;
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
        p.index = line;
        p.visible = 1;
        p.terms_squares = line == 0 ? terms_squares() : 0;
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
    __device__ double twin(int64_t at) const
    {
        return element_rounded(lines.dtype, lines.twin[at]);
    }
    // Elements that are zero in both reference and twin count as elements without a visible pair.
    __device__ bool sparse() const
    {
        return true;
    }
    // The terms are known only for all lines together.
    __device__ double row_terms(const row_place &) const
    {
        return 0;
    }
    __device__ bool must_be_zero(const row_place &) const
    {
        return false;
    }
};

// ---- sums over warps and blocks -----------------------------------------------------------------

template <class X> static __device__ __forceinline__ X warp_sum(X x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

static __device__ __forceinline__ block_sums block_sums_zero(int chunk)
{
    block_sums f = {};
    f.chunk = chunk;
    return f;
}

static __device__ void block_add(block_sums &f, const block_sums &more)
{
    rules_sums &s = f.sums;
    const rules_sums &m = more.sums;
    s.elements += m.elements;
    s.rows += m.rows;
    s.empty += m.empty;
    s.nonfinite += m.nonfinite;
    s.zeros += m.zeros;
    s.te_mismatches += m.te_mismatches;
    s.long_sums += m.long_sums;
    s.error_squares += m.error_squares;
    s.twin_squares += m.twin_squares;
    s.reference_squares += m.reference_squares;
    s.terms_squares += m.terms_squares;
    s.product += m.product;
    s.twin_product += m.twin_product;
    s.twin_product_squares += m.twin_product_squares;
    s.twin_fourths += m.twin_fourths;
    s.admitted_squares += m.admitted_squares;
    s.error_largest = fmax(s.error_largest, m.error_largest);
    s.twin_largest = fmax(s.twin_largest, m.twin_largest);
}

static __device__ __forceinline__ block_worst block_worst_none(int chunk)
{
    block_worst w = {};
    w.worst.row = -1;
    w.index = w.first_bad = INDEX_NONE;
    w.chunk = chunk;
    return w;
}

static __device__ void block_add(block_worst &w, const block_worst &more)
{
    if (more.worst.row > w.worst.row || (more.worst.row == w.worst.row && more.index < w.index)) {
        w.worst.row = more.worst.row;
        w.index = more.index;
    }
    w.worst.element = fmax(w.worst.element, more.worst.element);
    w.worst.mismatches += more.worst.mismatches;
    if (more.first_bad < w.first_bad) {
        w.first_bad = more.first_bad;
        w.got = more.got;
        w.expected = more.expected;
    }
}

// Reduces the findings of all threads of the block into all[0]. Called by the whole block.
template <class FOUND> static __device__ void block_add(FOUND all[THREADS])
{
    for (int threads = THREADS / 2; threads > 0; threads /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < threads)
            block_add(all[threadIdx.x], all[threadIdx.x + threads]);
    }
}

// ---- the first pass -----------------------------------------------------------------------------

// A lane's sums over its elements of a row: squared errors; squared errors of the twin (LSE:
// squared admitted errors); the twin's error times the reference.
struct row_sums {
    double error, twin, product;
};

template <class ROWS>
static __device__ __forceinline__ void element_add(const ROWS &rows, const rules &r,
                                                   const row_place &p, int64_t k, rules_sums &s,
                                                   row_sums &row)
{
    double got = rows.got(p.got + k), expected = rows.expected(p.expected + k);
    if (!isfinite(got) || !isfinite(expected)) {
        s.nonfinite += !rules_infinite(&r, got, expected);
        return;
    }
    double error = got - expected;
    s.zeros += got != 0 && rows.must_be_zero(p);
    s.te_mismatches += !rules_te(&r, got, expected);
    s.error_squares += error * error;
    s.reference_squares += expected * expected;
    s.product += error * expected;
    s.error_largest = fmax(s.error_largest, fabs(error));
    row.error += error * error;
    if (r.absolute) {
        double admitted = rules_logarithm(&r, expected);
        double all = admitted + rules_logarithm_keys(p.visible);
        s.long_sums += fabs(error) > admitted && fabs(error) <= all;
        s.admitted_squares += all * all;
        row.twin += all * all;
        return;
    }
    double rounded = rows.twin(p.expected + k), twin = rules_twin(&r, rounded, expected);
    s.empty += rows.sparse() && expected == 0 && rounded == 0;
    row.twin += twin * twin;
    row.product += twin * expected;
    s.twin_largest = fmax(s.twin_largest, fabs(twin));
}

template <class ROWS>
static __device__ __forceinline__ void row_add(const ROWS &rows, const rules &r, const row_place &p,
                                               rules_sums &s, row_errors *errors)
{
    row_sums row = {};
    for (int64_t k = threadIdx.x % WARP; k < p.count; k += WARP)
        element_add(rows, r, p, k, s, row);
    row = {warp_sum(row.error), warp_sum(row.twin), warp_sum(row.product)};
    if (threadIdx.x % WARP > 0)
        return;
    s.elements += p.count;
    s.rows++;
    s.empty += rows.must_be_zero(p) ? p.count : 0;
    s.terms_squares += p.terms_squares;
    if (!r.absolute) {
        s.twin_squares += row.twin;
        s.twin_fourths += row.twin * row.twin;
        s.twin_product += row.product;
        s.twin_product_squares += row.product * row.product;
    }
    errors[p.index].error = (float)sqrt(row.error / (double)p.count);
    errors[p.index].unit =
        (float)rules_row_unit(&r, sqrt(row.twin / (double)p.count), rows.row_terms(p));
}

template <class ROWS> __global__ void rows_kernel(const ROWS rows, const rules r, scratch s)
{
    __shared__ block_sums all[THREADS];
    block_sums &f = all[threadIdx.x];
    f = block_sums_zero(rows.chunk());
    row_place p;
    for (int i = threadIdx.x / WARP; rows.place(i, p); i += WARPS)
        row_add(rows, r, p, f.sums, s.rows);
    block_add(all);
    if (threadIdx.x == 0)
        s.sums_of_blocks[blockIdx.x] = all[0];
}

// Reduces the sums of the blocks. Grid: one block per chunk.
__global__ void sums_kernel(const block_sums *blocks, int64_t count, compare_result *results)
{
    __shared__ block_sums all[THREADS];
    block_sums &f = all[threadIdx.x];
    f = block_sums_zero(blockIdx.x);
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        if (blocks[i].chunk == (int)blockIdx.x)
            block_add(f, blocks[i]);
    block_add(all);
    if (threadIdx.x == 0)
        results[blockIdx.x].sums = all[0].sums;
}

// ---- the second pass ----------------------------------------------------------------------------

template <class ROWS>
static __device__ __forceinline__ void
element_again(const ROWS &rows, const rules &r, const struct rules_units &units, const row_place &p,
              int64_t k, double unit, block_worst &w)
{
    double got = rows.got(p.got + k), expected = rows.expected(p.expected + k);
    bool bad = !rules_infinite(&r, got, expected);
    if (isfinite(got) && isfinite(expected) && rows.must_be_zero(p)) {
        bad = got != 0;
    } else if (isfinite(got) && isfinite(expected)) {
        double error = fabs(got - expected);
        double part = r.absolute ? error / unit : rules_element(&r, &units, error, got, unit);
        w.worst.element = fmax(w.worst.element, part);
        bad = !(part <= 1);
    }
    if (!bad)
        return;
    w.worst.mismatches++;
    if (p.element + k < w.first_bad) {
        w.first_bad = p.element + k;
        w.got = got;
        w.expected = expected;
    }
}

template <class ROWS>
__global__ void rows_again_kernel(const ROWS rows, const rules r, scratch s,
                                  const compare_result *results)
{
    __shared__ block_worst all[THREADS];
    int chunk = rows.chunk();
    struct rules_units units = rules_units(&r, &results[chunk].sums);
    block_worst &w = all[threadIdx.x];
    w = block_worst_none(chunk);
    row_place p;
    for (int i = threadIdx.x / WARP; rows.place(i, p); i += WARPS) {
        row_errors row = s.rows[p.index];
        for (int64_t k = threadIdx.x % WARP; k < p.count; k += WARP)
            element_again(rows, r, units, p, k, row.unit, w);
        double part = r.absolute ? row.error / fmax((double)row.unit, 1e-300)
                                 : rules_row(&units, row.error, row.unit);
        if (threadIdx.x % WARP == 0 && part > w.worst.row) {
            w.worst.row = part;
            w.index = p.index - rows.before(chunk);
        }
    }
    block_add(all);
    if (threadIdx.x == 0)
        s.worst_of_blocks[blockIdx.x] = all[0];
}

// Reduces the worst values of the blocks. Grid: one block per chunk.
__global__ void worst_kernel(const block_worst *blocks, int64_t count, compare_result *results)
{
    __shared__ block_worst all[THREADS];
    block_worst &w = all[threadIdx.x];
    w = block_worst_none(blockIdx.x);
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        if (blocks[i].chunk == (int)blockIdx.x)
            block_add(w, blocks[i]);
    block_add(all);
    if (threadIdx.x > 0)
        return;
    compare_result &result = results[blockIdx.x];
    result.worst = w.worst;
    result.worst.row = fmax(w.worst.row, 0.0);
    result.worst_index = w.index == INDEX_NONE ? -1 : w.index;
    result.first_bad = w.first_bad == INDEX_NONE ? -1 : w.first_bad;
    result.first_bad_got = w.got;
    result.first_bad_expected = w.expected;
}

// ---- launches -----------------------------------------------------------------------------------

static int64_t scratch_bytes(int64_t rows, int64_t blocks)
{
    return blocks * (int64_t)(sizeof(block_sums) + sizeof(block_worst)) +
           rows * (int64_t)sizeof(row_errors);
}

static scratch scratch_of(void *memory, int64_t blocks)
{
    scratch s;
    s.sums_of_blocks = (block_sums *)memory;
    s.worst_of_blocks = (block_worst *)(s.sums_of_blocks + blocks);
    s.rows = (row_errors *)(s.worst_of_blocks + blocks);
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

template <typename ROWS>
static void compare(struct cuda_queue *queue, const ROWS &rows, int64_t blocks, int chunks,
                    const rules &r, void *memory, struct compare_result *results)
{
    cudaStream_t stream = queue->stream;
    scratch s = scratch_of(memory, blocks);
    if (blocks > 0)
        rows_kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(rows, r, s);
    sums_kernel<<<chunks, THREADS, 0, stream>>>(s.sums_of_blocks, blocks, results);
    if (blocks > 0)
        rows_again_kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(rows, r, s, results);
    worst_kernel<<<chunks, THREADS, 0, stream>>>(s.worst_of_blocks, blocks, results);
    queue_launched(queue, "the comparison");
}

void compare_cuda_rows(const struct reference_cuda *r, const struct compare_tensor *tensor,
                       const struct reference_rows *rows, int64_t chunk_rows,
                       const struct rules *rules, void *scratch,
                       struct compare_result results[COMPARE_CHUNKS])
{
    tile_rows t = {*tensor, attend_case_of(r), rows->tiles, rows->rows, chunk_rows};
    compare(r->queue, t, rows->tile_count * tensor->heads, COMPARE_CHUNKS, *rules, scratch,
            results);
}

void compare_cuda_lines(struct cuda_queue *queue, const struct compare_lines *lines,
                        const struct rules *rules, void *scratch, struct compare_result *result)
{
    line_rows l = {*lines, 0};
    if (lines->end > lines->begin)
        l.count = (lines->end - 1) / lines->columns - lines->begin / lines->columns + 1;
    compare(queue, l, (l.count + WARPS - 1) / WARPS, 1, *rules, scratch, result);
}
