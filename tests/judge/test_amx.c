// SPDX-License-Identifier: Apache-2.0
// Products on the matrix unit compared with sums in fp64, at sizes with and without partial tiles.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/amx.h"
#include "tests/support/runner.h"

#define SENTINEL 77.0f
#define RUBBISH  0x4049 // a finite number around the matrices

// A [m][k], B [k][n], C [m][n], and the memory around them.
struct sample {
    int64_t m, n, k, lda, ldb, ldc;
    uint16_t *a, *b, *b_transposed; // rows of b and of b_transposed [n][k] are ldb apart
    uint16_t *tiles;
    float *c;
};

static float value_of(uint16_t element)
{
    uint32_t bits = (uint32_t)element << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

// Between 2^-3 and 2^3 with either sign.
static uint16_t random_element(uint32_t *state)
{
    uint32_t sign = random_next(state) & 1, exponent = 124 + random_next(state) % 6;
    return (uint16_t)(sign << 15 | exponent << 7 | (random_next(state) & 127));
}

static void *memory_of(int64_t count, size_t size)
{
    void *data = malloc((size_t)count * size);
    ck_assert_ptr_nonnull(data);
    return data;
}

static struct sample sample_make(int64_t m, int64_t n, int64_t k, int64_t gap, uint32_t state)
{
    struct sample s = {.m = m, .n = n, .k = k, .lda = amx_depth_padded(k) + gap, .ldc = n + gap};
    int64_t rows = amx_rows_padded(m);
    s.ldb = (n > k ? n : k) + gap;
    s.a = memory_of(rows * s.lda, sizeof(*s.a));
    s.b = memory_of((k + 1) * s.ldb, sizeof(*s.b));
    s.b_transposed = memory_of((n + 1) * s.ldb, sizeof(*s.b));
    s.tiles = memory_of(amx_right_elements(k, n) + 1, sizeof(*s.tiles));
    s.c = memory_of((m + 1) * s.ldc, sizeof(*s.c));
    for (int64_t i = 0; i < rows * s.lda; i++)
        s.a[i] = RUBBISH;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++)
            s.a[i * s.lda + j] = random_element(&state);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            s.b[i * s.ldb + j] = s.b_transposed[j * s.ldb + i] = random_element(&state);
    for (int64_t i = 0; i < (m + 1) * s.ldc; i++)
        s.c[i] = SENTINEL;
    s.tiles[amx_right_elements(k, n)] = RUBBISH;
    return s;
}

static void sample_free(struct sample *s)
{
    free(s->a);
    free(s->b);
    free(s->b_transposed);
    free(s->tiles);
    free(s->c);
}

// Compares C with start + A B; elements outside must be as they were.
static void sample_check(const struct sample *s, double start)
{
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->ldc; j++) {
            double sum = start, size = fabs(start);
            for (int64_t l = 0; l < s->k && j < s->n; l++) {
                double term =
                    (double)value_of(s->a[i * s->lda + l]) * value_of(s->b[l * s->ldb + j]);
                sum += term;
                size += fabs(term);
            }
            float got = s->c[i * s->ldc + j];
            ck_assert_msg(j < s->n ? fabs(got - sum) <= 0x1p-22 * size : got == SENTINEL,
                          "[%d][%d] of %d x %d x %d is %g, not %g", (int)i, (int)j, (int)s->m,
                          (int)s->n, (int)s->k, got, j < s->n ? sum : SENTINEL);
        }
    ck_assert_float_eq(s->c[s->m * s->ldc], SENTINEL);
    ck_assert_uint_eq(s->tiles[amx_right_elements(s->k, s->n)], RUBBISH);
}

// If the two pieces of a factor are equal, the result is twice the product.
static void pieces_check(const struct sample *s)
{
    int64_t left = amx_rows_padded(s->m) * s->lda, right = amx_right_elements(s->k, s->n);
    uint16_t *a = memory_of(2 * left + 1, sizeof(*a)), *b = memory_of(2 * right + 1, sizeof(*b));
    float *c = memory_of(s->m * s->n + 1, sizeof(*c)), *once = memory_of(s->m * s->n + 1, 4);
    memcpy(a, s->a, (size_t)left * sizeof(*a));
    memcpy(a + left, s->a, (size_t)left * sizeof(*a));
    memcpy(b, s->tiles, (size_t)right * sizeof(*b));
    memcpy(b + right, s->tiles, (size_t)right * sizeof(*b));
    amx_multiply(s->m, s->n, s->k, a, s->lda, amx_right_transposed(b, s->k), once, s->n, false);
    for (int pieces_of_b = 0; pieces_of_b < 2; pieces_of_b++) {
        amx_multiply_pieces(s->m, s->n, s->k, a, s->lda, pieces_of_b ? 0 : left,
                            amx_right_transposed(b, s->k), pieces_of_b ? right : 0, c, s->n, false);
        for (int64_t i = 0; i < s->m * s->n; i++)
            ck_assert_float_eq_tol(c[i], 2 * once[i], 0x1p-14f * (float)(s->k + 1));
    }
    free(a);
    free(b);
    free(c);
    free(once);
}

static void product_check(int64_t m, int64_t n, int64_t k, int64_t gap)
{
    struct sample s = sample_make(m, n, k, gap, (uint32_t)(m * 977 + n * 31 + k));
    amx_pack(k, n, s.b, s.ldb, s.tiles);
    amx_multiply(m, n, k, s.a, s.lda, amx_right(s.tiles, n), s.c, s.ldc, false);
    sample_check(&s, 0);
    amx_pack_transposed(n, k, s.b_transposed, s.ldb, s.tiles);
    pieces_check(&s);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            s.c[i * s.ldc + j] = 3;
    amx_multiply(m, n, k, s.a, s.lda, amx_right_transposed(s.tiles, k), s.c, s.ldc, true);
    sample_check(&s, 3);
    sample_free(&s);
}

START_TEST(products_are_right)
{
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 100};
    int count = sizeof(sizes) / sizeof(*sizes);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            for (int k = 0; k < count; k++)
                product_check(sizes[i], sizes[j], sizes[k], (i + j + k) % 3);
    product_check(5, 6, 0, 1);
    product_check(33, 40, 511, 0);
    product_check(20, 130, 512, 5);
    product_check(64, 17, 1500, 1);
}
END_TEST

// Tiles packed in pieces equal tiles packed at once.
START_TEST(tiles_grow)
{
    int64_t n = 80, k = 100, cut_rows = 64, cut_columns = 32;
    struct sample s = sample_make(1, n, k, 3, 5);
    int64_t count = amx_right_elements(k, n);
    uint16_t *pieces = memory_of(count, sizeof(*pieces));
    amx_pack(k, n, s.b, s.ldb, s.tiles);
    amx_pack(cut_rows, n, s.b, s.ldb, pieces);
    amx_pack(k - cut_rows, n, s.b + cut_rows * s.ldb, s.ldb,
             pieces + amx_right_elements(cut_rows, n));
    ck_assert_mem_eq(pieces, s.tiles, (size_t)count * sizeof(*pieces));
    amx_pack_transposed(n, k, s.b_transposed, s.ldb, s.tiles);
    amx_pack_transposed(cut_columns, k, s.b_transposed, s.ldb, pieces);
    amx_pack_transposed(n - cut_columns, k, s.b_transposed + cut_columns * s.ldb, s.ldb,
                        pieces + amx_right_elements(k, cut_columns));
    ck_assert_mem_eq(pieces, s.tiles, (size_t)count * sizeof(*pieces));
    free(pieces);
    sample_free(&s);
}
END_TEST

// 2^24 and 2^20 - 1 ones. In fp32 2^24 + 1 is 2^24, so a plain sum would stay there.
START_TEST(long_sums_do_not_stagnate)
{
    int64_t k = INT64_C(1) << 20;
    uint16_t *a = memory_of(AMX_ROWS * k, sizeof(*a)), *tiles = memory_of(AMX_ROWS * k, 2);
    float c;
    for (int64_t i = 0; i < AMX_ROWS * k; i++)
        a[i] = tiles[i] = 0x3f80;
    a[0] = 0x4b80; // 2^24
    amx_multiply(1, 1, k, a, k, amx_right(tiles, 1), &c, 1, false);
    ck_assert_float_eq_tol(c, 0x1p24f + 0x1p20f, 0x1p11f);
    free(a);
    free(tiles);
}
END_TEST

START_TEST(pieces_hold_a_number)
{
    enum { COUNT = 1000 };
    float x[COUNT];
    uint16_t head[COUNT + 1], rest[COUNT + 1];
    uint32_t state = 9;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)random_next(&state) * 0x1p-20f - 7;
    x[0] = 0x1.01p0f; // halfway between two numbers of bf16: rounds to the even one
    x[1] = 0x1.03p0f;
    for (int count = 0; count <= COUNT; count += count < 40 ? 1 : 96) {
        head[count] = rest[count] = RUBBISH;
        amx_split(count, x, head, rest);
        for (int i = 0; i < count; i++) {
            ck_assert_float_le(fabsf(x[i] - value_of(head[i])), 0x1p-8f * fabsf(x[i]));
            ck_assert_float_le(fabsf(x[i] - value_of(head[i]) - value_of(rest[i])),
                               0x1p-17f * fabsf(x[i]));
        }
        ck_assert(head[count] == RUBBISH && rest[count] == RUBBISH);
    }
    x[2] = INFINITY;
    amx_split(3, x, head, rest);
    ck_assert(value_of(head[2]) == INFINITY && rest[2] == 0);
    amx_split(2, x, head, NULL);
    ck_assert_float_eq(value_of(head[0]), 1);
    ck_assert_float_eq(value_of(head[1]), 0x1.04p0f);
}
END_TEST

static void *sample_multiply(void *context)
{
    struct sample *s = context;
    for (int i = 0; i < 200; i++)
        amx_multiply(s->m, s->n, s->k, s->a, s->lda, amx_right(s->tiles, s->n), s->c, s->ldc,
                     i == 0);
    amx_multiply(s->m, s->n, s->k, s->a, s->lda, amx_right(s->tiles, s->n), s->c, s->ldc, false);
    return NULL;
}

START_TEST(threads_have_tiles_of_their_own)
{
    struct sample samples[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        samples[i] = sample_make(70, 90, 130 + i, 2, i);
        amx_pack(samples[i].k, 90, samples[i].b, samples[i].ldb, samples[i].tiles);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, sample_multiply, &samples[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        sample_check(&samples[i], 0);
        sample_free(&samples[i]);
    }
}
END_TEST

START_TEST(this_process_may_use_amx)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        product_check(40, 50, 60, 0);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

// Asks in a new process: the answer in this process is fixed.
static int asked_again(const char *setting)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        setenv(AMX_VARIABLE, setting, 1);
        execl("/proc/self/exe", "test_amx", "usable?", (char *)NULL);
        _exit(99);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(the_environment_disables_amx)
{
    ck_assert_int_eq(asked_again("no"), 0);
    ck_assert_int_ge(asked_again("yes"), amx_usable());
}
END_TEST

START_TEST(transposes_are_right)
{
    static const int64_t sizes[] = {1, 7, 15, 16, 17, 40};
    static float from[40 * 43], to[40 * 45];
    for (int i = 0; i < 40 * 43; i++)
        from[i] = (float)i;
    for (int i = 0; i < 36; i++) {
        int64_t rows = sizes[i / 6], columns = sizes[i % 6];
        for (int k = 0; k < 40 * 45; k++)
            to[k] = -1;
        amx_transpose(rows, columns, from, 43, to, 45);
        for (int k = 0; k < 40 * 45; k++) {
            int64_t row = k % 45, column = k / 45;
            bool there = row < rows && column < columns;
            ck_assert_float_eq(to[k], there ? from[row * 43 + column] : -1);
        }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("amx");
    TCase *t = tcase_create("amx");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_environment_disables_amx);
    suite_add_tcase(s, t);
    if (!amx_usable()) {
        runner_skip("products and all after it", "this process may use no AMX");
        return s;
    }
    tcase_add_test(t, products_are_right);
    tcase_add_test(t, tiles_grow);
    tcase_add_test(t, transposes_are_right);
    tcase_add_test(t, long_sums_do_not_stagnate);
    tcase_add_test(t, pieces_hold_a_number);
    tcase_add_test(t, threads_have_tiles_of_their_own);
    tcase_add_test(t, this_process_may_use_amx);
    return s;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "usable?") == 0)
        return amx_usable();
    return runner_run(suite());
}
