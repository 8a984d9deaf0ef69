// SPDX-License-Identifier: Apache-2.0
// The cache of drawn inputs: it returns the right elements, draws each row once, and respects its
// upper bounds.
#include "tests/support/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/drawn.h"
#include "tests/support/cases.h"

#define TOKENS 96
#define DIM    32

static struct cp_case the_case(int64_t tokens, int heads)
{
    struct cp_case c = cases_usual();
    c.world_size = 1;
    c.batch = 2;
    c.heads = c.kv_heads = heads;
    c.head_dim_qk = c.head_dim_v = DIM;
    c.seqlen_q = c.seqlen_kv = tokens;
    c.dtype = DTYPE_BF16;
    return c;
}

static void expect_rows(const struct cp_case *c, enum input_tensor tensor, int sequence, int head,
                        struct range positions, const float *rows, float rms)
{
    double squares = 0;
    for (int64_t position = positions.begin; position < positions.end; position++, rows += DIM) {
        float expected[DIM];
        input_token_head(c, tensor, sequence, position, head, expected);
        ck_assert_mem_eq(rows, expected, sizeof(expected));
        for (int i = 0; i < DIM; i++)
            squares += expected[i] * expected[i];
    }
    double count = (double)(positions.end - positions.begin) * DIM;
    ck_assert_double_eq_tol(rms, sqrt(squares / count), 1e-6);
}

START_TEST(rows_are_drawn_once)
{
    struct cp_case c = the_case(TOKENS, 4);
    struct drawn *all = drawn_create();
    float scratch[TOKENS * DIM], rms;
    static const struct range ranges[] = {{40, 60}, {0, 50}, {59, TOKENS}, {0, TOKENS}};
    for (int i = 0; i < 4; i++) {
        drawn_begin(all, &c);
        for (enum input_tensor tensor = INPUT_Q; tensor <= INPUT_DO; tensor++)
            for (int head = 0; head < 4; head++) {
                const float *rows =
                    drawn_rows(all, &c, tensor, head % 2, head, ranges[i], scratch, &rms);
                expect_rows(&c, tensor, head % 2, head, ranges[i], rows, rms);
            }
    }
    float *kept = (float *)(uintptr_t)drawn_rows(all, &c, INPUT_K, 1, 1, ranges[0], scratch, &rms);
    float before = *kept;
    *kept = 1234;
    drawn_begin(all, &c);
    const float *again = drawn_rows(all, &c, INPUT_K, 1, 1, (struct range){0, 60}, scratch, &rms);
    ck_assert_float_eq(again[40 * DIM], 1234);
    c.seed++; // another case
    drawn_begin(all, &c);
    ck_assert_uint_eq(drawn_bytes(all), 0);
    again = drawn_rows(all, &c, INPUT_K, 1, 1, ranges[0], scratch, &rms);
    ck_assert_float_ne(*again, before);
    expect_rows(&c, INPUT_K, 1, 1, ranges[0], again, rms);
    drawn_destroy(all);
}
END_TEST

// More heads than fit: in each call the rows of one head stay in use while those of others replace
// each other.
START_TEST(memory_is_bounded)
{
    enum { LONG = 8192, HEADS = 64 };
    struct cp_case c = the_case(LONG, HEADS);
    struct drawn *all = drawn_create();
    float scratch[8 * DIM], rms[2];
    for (int call = 0; call < 3; call++) {
        drawn_begin(all, &c);
        struct range few = {LONG - 8, LONG};
        const float *first = drawn_rows(all, &c, INPUT_K, 0, 0, few, scratch, &rms[0]);
        ck_assert_ptr_ne(first, scratch);
        for (int head = 0; head < HEADS; head++) {
            const float *rows = drawn_rows(all, &c, INPUT_Q, 1, head, few, scratch, &rms[1]);
            expect_rows(&c, INPUT_Q, 1, head, few, rows, rms[1]);
            ck_assert_uint_le(drawn_bytes(all), DRAWN_BYTES_MAX);
            ck_assert_uint_gt(drawn_bytes(all), 0);
        }
        expect_rows(&c, INPUT_K, 0, 0, few, first, rms[0]);
    }
    c = the_case(DRAWN_ROW_BYTES_MAX / DIM / sizeof(float),
                 1); // rows of DRAWN_ROW_BYTES_MAX; with the squares of rows, more
    drawn_begin(all, &c);
    ck_assert_ptr_eq(drawn_rows(all, &c, INPUT_V, 0, 0, (struct range){0, 8}, scratch, rms),
                     scratch);
    expect_rows(&c, INPUT_V, 0, 0, (struct range){0, 8}, scratch, rms[0]);
    ck_assert_ptr_eq(drawn_rows(NULL, &c, INPUT_V, 0, 0, (struct range){3, 5}, scratch, rms),
                     scratch);
    expect_rows(&c, INPUT_V, 0, 0, (struct range){3, 5}, scratch, rms[0]);
    drawn_destroy(all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drawn");
    TCase *tcase = tcase_create("drawn");
    tcase_add_test(tcase, rows_are_drawn_once);
    tcase_add_test(tcase, memory_is_bounded);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
