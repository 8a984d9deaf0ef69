// SPDX-License-Identifier: Apache-2.0
#include "common/amx.h"

#include <stddef.h>

// Number of products that the matrix unit accumulates before the partial sum is added to C. Partial
// sums have a smaller rounding error than one long sum.
#define SUM_MAX 512

int64_t amx_right_elements(int64_t k, int64_t n)
{
    return amx_depth_padded(k) * amx_rows_padded(n);
}

struct amx_right amx_right(const uint16_t *tiles, int64_t n)
{
    return (struct amx_right){tiles, AMX_TILE, amx_rows_padded(n) / AMX_ROWS * AMX_TILE};
}

struct amx_right amx_right_transposed(const uint16_t *tiles, int64_t k)
{
    return (struct amx_right){tiles, amx_depth_padded(k) / AMX_DEPTH * AMX_TILE, AMX_TILE};
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TARGET     __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))
#define INLINE     static inline __attribute__((always_inline)) TARGET
#define TILE_BYTES 64 // between rows of a tile

// ---- detection ----------------------------------------------------------------------------------

#define PERMISSION_REQUEST 0x1023 // ARCH_REQ_XCOMP_PERM
#define TILE_DATA          18     // XFEATURE_XTILEDATA

#define LEAF_FEATURES 7
#define HAS_AMX_BF16  (1U << 22) // edx
#define HAS_AMX_TILE  (1U << 24) // edx
#define HAS_512_BF16  (1U << 5)  // eax of subleaf 1

static bool processor_has(void)
{
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl"))
        return false;
    if (!__get_cpuid_count(LEAF_FEATURES, 0, &a, &b, &c, &d) ||
        (d & (HAS_AMX_BF16 | HAS_AMX_TILE)) != (HAS_AMX_BF16 | HAS_AMX_TILE))
        return false;
    return __get_cpuid_count(LEAF_FEATURES, 1, &a, &b, &c, &d) && (a & HAS_512_BF16);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

// The permission belongs to the process: its threads and children have it, too.
static void find_out(void)
{
    const char *setting = getenv(AMX_VARIABLE);
    usable = (!setting || strcmp(setting, "no") != 0) && processor_has() &&
             syscall(SYS_arch_prctl, PERMISSION_REQUEST, TILE_DATA) == 0;
}

bool amx_usable(void)
{
    pthread_once(&once, find_out);
    return usable;
}

// ---- packing ------------------------------------------------------------------------------------

// Interleaves up to 16 columns of two rows: the two elements of a column become neighbours. Columns
// from `columns` on, and the second row if `second` is NULL, become 0.
INLINE void pack_pair(const uint16_t *first, const uint16_t *second, int64_t columns, uint16_t *to)
{
    __mmask16 there = columns >= AMX_ROWS ? 0xffff : (__mmask16)((1u << columns) - 1);
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, first));
    __m512i high = _mm512_setzero_si512();
    if (second)
        high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, second));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

TARGET void amx_pack(int64_t k, int64_t n, const uint16_t *b, int64_t ld, uint16_t *tiles)
{
    for (int64_t row = 0; row < k; row += AMX_DEPTH)
        for (int64_t column = 0; column < n; column += AMX_ROWS, tiles += AMX_TILE)
            for (int i = 0; i < AMX_DEPTH; i += 2) {
                const uint16_t *first = b + (row + i) * ld + column;
                uint16_t *to = tiles + (ptrdiff_t)i * AMX_ROWS;
                if (row + i < k)
                    pack_pair(first, row + i + 1 < k ? first + ld : NULL, n - column, to);
                else
                    memset(to, 0, TILE_BYTES);
            }
}

// Transposes 16 x 16 elements of 32 bits: interleaves pairs of rows, then pairs of these pairs, and
// then exchanges the 128-bit quarters of the registers.
INLINE void transpose(__m512i r[AMX_ROWS])
{
    __m512i t[AMX_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < AMX_ROWS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < AMX_ROWS; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { // 0x88 selects even quarters, 0xdd odd ones
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
        r[4 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
        r[12 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
    }
}

// Packs up to 32 elements of up to 16 rows as a tile. The rows become columns; the rest of the tile
// becomes 0.
INLINE void pack_columns(const uint16_t *from, int64_t ld, int64_t columns, int64_t count,
                         uint16_t *tile)
{
    __mmask32 there = count >= AMX_DEPTH ? UINT32_MAX : (__mmask32)((UINT32_C(1) << count) - 1);
    __m512i rows[AMX_ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < AMX_ROWS; i++)
        rows[i] =
            i < columns ? _mm512_maskz_loadu_epi16(there, from + i * ld) : _mm512_setzero_si512();
    transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < AMX_ROWS; i++)
        _mm512_storeu_si512(tile + (ptrdiff_t)i * AMX_DEPTH, rows[i]);
}

TARGET void amx_pack_transposed(int64_t n, int64_t k, const uint16_t *b, int64_t ld,
                                uint16_t *tiles)
{
    for (int64_t column = 0; column < n; column += AMX_ROWS)
        for (int64_t row = 0; row < k; row += AMX_DEPTH, tiles += AMX_TILE)
            pack_columns(b + column * ld + row, ld, n - column, k - row, tiles);
}

TARGET void amx_transpose(int64_t rows, int64_t columns, const float *from, int64_t ld_from,
                          float *to, int64_t ld_to)
{
    for (int64_t row = 0; row < rows; row += AMX_ROWS)
        for (int64_t column = 0; column < columns; column += AMX_ROWS) {
            int64_t down = rows - row, across = columns - column;
            __mmask16 read = across >= AMX_ROWS ? 0xffff : (__mmask16)((1u << across) - 1);
            __mmask16 written = down >= AMX_ROWS ? 0xffff : (__mmask16)((1u << down) - 1);
            __m512i block[AMX_ROWS];
#pragma GCC unroll 16
            for (int i = 0; i < AMX_ROWS; i++)
                block[i] = i < down
                               ? _mm512_maskz_loadu_epi32(read, from + (row + i) * ld_from + column)
                               : _mm512_setzero_si512();
            transpose(block);
            for (int i = 0; i < AMX_ROWS && i < across; i++)
                _mm512_mask_storeu_epi32(to + (column + i) * ld_to + row, written, block[i]);
        }
}

TARGET void amx_split(int64_t count, const float *x, uint16_t *head, uint16_t *rest)
{
    for (int64_t i = 0; i < count; i += 16) {
        __mmask16 there = count - i >= 16 ? 0xffff : (__mmask16)((1u << (count - i)) - 1);
        __m512 value = _mm512_maskz_loadu_ps(there, x + i);
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(value);
        _mm256_mask_storeu_epi16(head + i, there, rounded);
        if (!rest)
            continue;
        __m512 held = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
        __mmask16 finite =
            _mm512_cmp_ps_mask(_mm512_abs_ps(held), _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
        rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_sub_ps(finite, value, held));
        _mm256_mask_storeu_epi16(rest + i, there, rounded);
    }
}

// ---- products -----------------------------------------------------------------------------------

struct product {
    const uint16_t *a; // first element of A that is left
    int64_t lda;
    struct amx_right b;
    int64_t a_rest, b_rest; // elements from the first to the second piece of a factor; 0: one piece
    float *c;
    int64_t ldc;
    int64_t rows, columns; // of C, from `c` on
};

INLINE void rows_load(const struct product *p, const uint16_t *a, bool second_row)
{
    int64_t stride = p->lda * (int64_t)sizeof(uint16_t);
    _tile_loadd(4, a, stride);
    if (second_row)
        _tile_loadd(5, a + AMX_ROWS * p->lda, stride);
}

INLINE void columns_load(const struct product *p, const uint16_t *b, bool second_column)
{
    _tile_loadd(6, b, TILE_BYTES);
    if (second_column)
        _tile_loadd(7, b + p->b.next_columns, TILE_BYTES);
}

INLINE void sums_add(bool second_row, bool second_column)
{
    _tile_dpbf16ps(0, 4, 6);
    if (second_column)
        _tile_dpbf16ps(1, 4, 7);
    if (second_row)
        _tile_dpbf16ps(2, 5, 6);
    if (second_row && second_column)
        _tile_dpbf16ps(3, 5, 7);
}

// Accumulates `steps` * 32 products for (1 or 2) x (1 or 2) tiles of C in tile registers 0 to 3.
INLINE void sums_make(const struct product *p, int64_t steps, bool second_row, bool second_column)
{
    const uint16_t *a = p->a, *b = p->b.tiles;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; steps > 0; steps--, a += AMX_DEPTH, b += p->b.next_rows) {
        rows_load(p, a, second_row);
        columns_load(p, b, second_column);
        sums_add(second_row, second_column);
        if (p->a_rest != 0) {
            rows_load(p, a + p->a_rest, second_row);
            sums_add(second_row, second_column);
        }
        if (p->b_rest != 0) {
            columns_load(p, b + p->b_rest, second_column);
            sums_add(second_row, second_column);
        }
    }
}

// Stores up to 16 columns of a row of C, or adds to them.
INLINE void columns_put(const float *sums, int64_t count, float *c, bool add)
{
    __mmask16 there = count >= AMX_ROWS ? 0xffff : (__mmask16)((1u << count) - 1);
    __m512 value = _mm512_loadu_ps(sums);
    if (add)
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(there, c));
    _mm512_mask_storeu_ps(c, there, value);
}

INLINE void sums_put(const struct product *p, bool second_row, bool second_column, bool add)
{
    float sums[2 * AMX_ROWS][2 * AMX_ROWS] __attribute__((aligned(64)));
    int64_t rows = p->rows < 2 * AMX_ROWS ? p->rows : 2 * AMX_ROWS;
    _tile_stored(0, sums, sizeof(*sums));
    if (second_column)
        _tile_stored(1, &sums[0][AMX_ROWS], sizeof(*sums));
    if (second_row)
        _tile_stored(2, sums[AMX_ROWS], sizeof(*sums));
    if (second_row && second_column)
        _tile_stored(3, &sums[AMX_ROWS][AMX_ROWS], sizeof(*sums));
    for (int64_t i = 0; i < rows; i++) {
        columns_put(sums[i], p->columns, p->c + i * p->ldc, add);
        if (second_column)
            columns_put(sums[i] + AMX_ROWS, p->columns - AMX_ROWS, p->c + i * p->ldc + AMX_ROWS,
                        add);
    }
}

// Computes a block of up to 32 x 32 elements of C. A whole block that is not added to C is stored
// directly from the tile registers.
INLINE void block_make(const struct product *p, int64_t steps, bool second_row, bool second_column,
                       bool add)
{
    sums_make(p, steps, second_row, second_column);
    if (add || !second_row || !second_column || p->rows < 2 * AMX_ROWS ||
        p->columns < 2 * AMX_ROWS) {
        sums_put(p, second_row, second_column, add);
        return;
    }
    size_t stride = (size_t)p->ldc * sizeof(float);
    _tile_stored(0, p->c, stride);
    _tile_stored(1, p->c + AMX_ROWS, stride);
    _tile_stored(2, p->c + AMX_ROWS * p->ldc, stride);
    _tile_stored(3, p->c + AMX_ROWS * p->ldc + AMX_ROWS, stride);
}

// Computes the block of C that begins at this row and column.
INLINE void block_at(const struct product *all, int64_t row, int64_t column, int64_t steps,
                     bool add)
{
    struct product p = *all;
    p.a += row * p.lda;
    p.b.tiles += column / AMX_ROWS * p.b.next_columns;
    p.c += row * p.ldc + column;
    p.rows -= row;
    p.columns -= column;
    if (p.rows > AMX_ROWS && p.columns > AMX_ROWS)
        block_make(&p, steps, true, true, add);
    else if (p.rows > AMX_ROWS)
        block_make(&p, steps, true, false, add);
    else if (p.columns > AMX_ROWS)
        block_make(&p, steps, false, true, add);
    else
        block_make(&p, steps, false, false, add);
}

// Two tile rows of A, or two tile columns of B, stay in the L1 cache while the other factor streams
// through it. A factor in two pieces stays, since streaming it moves more bytes. If both factors
// have as many pieces, B stays.
TARGET static void product_make(const struct product *all, int64_t steps, bool add)
{
    if (all->a_rest != 0 && all->b_rest == 0) {
        for (int64_t row = 0; row < all->rows; row += 2 * AMX_ROWS)
            for (int64_t column = 0; column < all->columns; column += 2 * AMX_ROWS)
                block_at(all, row, column, steps, add);
        return;
    }
    for (int64_t column = 0; column < all->columns; column += 2 * AMX_ROWS)
        for (int64_t row = 0; row < all->rows; row += 2 * AMX_ROWS)
            block_at(all, row, column, steps, add);
}

// The operand of LDTILECFG.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static const struct tile_config config = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

TARGET void amx_multiply_pieces(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                                int64_t a_rest, struct amx_right b, int64_t b_rest, float *c,
                                int64_t ldc, bool add)
{
    struct product p = {a, lda, b, a_rest, b_rest, c, ldc, m, n};
    int64_t steps = (k + AMX_DEPTH - 1) / AMX_DEPTH, part = SUM_MAX / AMX_DEPTH;
    _tile_loadconfig(&config);
    for (int64_t first = 0; first < steps || first == 0; first += part) {
        product_make(&p, steps - first < part ? steps - first : part, add || first > 0);
        p.a += SUM_MAX;
        p.b.tiles += part * p.b.next_rows;
    }
    _tile_release();
}

#else

bool amx_usable(void)
{
    return false;
}

// Never called.
void amx_pack(int64_t k, int64_t n, const uint16_t *b, int64_t ld, uint16_t *tiles)
{
    (void)k, (void)n, (void)b, (void)ld, (void)tiles;
}

void amx_pack_transposed(int64_t n, int64_t k, const uint16_t *b, int64_t ld, uint16_t *tiles)
{
    (void)k, (void)n, (void)b, (void)ld, (void)tiles;
}

void amx_transpose(int64_t rows, int64_t columns, const float *from, int64_t ld_from, float *to,
                   int64_t ld_to)
{
    (void)rows, (void)columns, (void)from, (void)ld_from, (void)to, (void)ld_to;
}

void amx_multiply_pieces(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         int64_t a_rest, struct amx_right b, int64_t b_rest, float *c, int64_t ldc,
                         bool add)
{
    (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)c, (void)ldc, (void)add;
    (void)a_rest, (void)b_rest;
}

void amx_split(int64_t count, const float *x, uint16_t *head, uint16_t *rest)
{
    (void)count, (void)x, (void)head, (void)rest;
}
#endif

void amx_multiply(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                  struct amx_right b, float *c, int64_t ldc, bool add)
{
    amx_multiply_pieces(m, n, k, a, lda, 0, b, 0, c, ldc, add);
}
