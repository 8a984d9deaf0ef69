// SPDX-License-Identifier: Apache-2.0
// Copies between bytes in pieces, compared with copies byte by byte.
#include "transport/strided.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define BYTES_MAX 4096

// Where byte i lies.
static int64_t byte_place(const struct strides *s, int64_t i)
{
    if (s->bytes == 0)
        return i;
    int64_t piece = i / s->bytes, rows = s->rows > 1 ? s->rows : 1;
    return piece / rows * s->block_stride + piece % rows * s->stride + i % s->bytes;
}

static void copy_run(const struct strided_copy *copy, const char *from, char *to)
{
    for (int64_t i = 0; i < strided_runs(copy, 0); i++) {
        int64_t at_from, at_to;
        strided_run(copy, 0, i, &at_from, &at_to);
        memcpy(to + at_to, from + at_from, (size_t)copy->bytes);
    }
}

// The copy must move each byte to its place and touch no other byte.
static void expect_copies(const struct strides *from, const struct strides *to, int64_t total)
{
    static char source[BYTES_MAX], wanted[BYTES_MAX], got[BYTES_MAX];
    struct strided_copy copy;
    ck_assert_int_le(strides_reach(from, total), BYTES_MAX);
    ck_assert_int_le(strides_reach(to, total), BYTES_MAX);
    for (int i = 0; i < BYTES_MAX; i++)
        source[i] = (char)(i * 7 + i / 251);
    memset(wanted, 0, sizeof(wanted));
    memset(got, 0, sizeof(got));
    for (int64_t i = 0; i < total; i++)
        wanted[byte_place(to, i)] = source[byte_place(from, i)];
    ck_assert(strided_copy_make(from, to, total, &copy));
    ck_assert_int_eq(copy.bytes * strided_runs(&copy, 0), total);
    copy_run(&copy, source, got);
    ck_assert_mem_eq(got, wanted, sizeof(got));
}

// Draws strides from the factors of a total. Two sides with the same factors have common loops.
static struct strides strides_draw(uint64_t *seed, const int64_t factors[4], int64_t total)
{
    struct strides s = {0};
    int first = (int)generate_below(seed, 4), second = first + (int)generate_below(seed, 4 - first);
    if (generate_below(seed, 5) == 0)
        return s;
    s.bytes = s.rows = s.blocks = 1;
    for (int i = 0; i < 4; i++)
        *(i <= first ? &s.bytes : i <= second ? &s.rows : &s.blocks) *= factors[i];
    s.stride = s.bytes + (int64_t)generate_below(seed, 5);
    s.block_stride = (s.rows - 1) * s.stride + s.bytes + (int64_t)generate_below(seed, 7);
    ck_assert_int_eq(s.bytes * s.rows * s.blocks, total);
    return s;
}

START_TEST(copies_are_those_of_bytes)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        uint64_t random = seed;
        int64_t factors[4], total = 1;
        for (int i = 0; i < 4; i++)
            total *= factors[i] = 1 + (int64_t)generate_below(&random, 5);
        struct strides from = strides_draw(&random, factors, total);
        struct strides to = strides_draw(&random, factors, total);
        expect_copies(&from, &to, total);
    }
}
END_TEST

// Some heads of each row are copied to a tensor of these heads only. The copy is one box.
START_TEST(heads_of_rows_are_one_box)
{
    const struct strides own = {512, 1024, 4096, 2, INT64_C(4096) * 2048};
    const struct strides team = {INT64_C(512) * 1024, 2, INT64_C(512) * 4096, 0, 0};
    struct strided_copy copy;
    ck_assert(strided_copy_make(&own, &team, INT64_C(512) * 1024 * 2, &copy));
    ck_assert_int_eq(copy.bytes, 512);
    ck_assert_int_eq(copy.loop_count, 2);
    ck_assert_int_eq(copy.loops[0].count, 1024);
    ck_assert_int_eq(copy.loops[0].from, 4096);
    ck_assert_int_eq(copy.loops[0].to, 512);
    ck_assert_int_eq(copy.loops[1].count, 2);
    ck_assert_int_eq(copy.loops[1].from, 4096 * 2048);
    ck_assert_int_eq(copy.loops[1].to, 512 * 4096);
}
END_TEST

START_TEST(sides_without_common_loops_are_refused)
{
    const struct strides twos = {2, 3, 8, 0, 0}, threes = {3, 2, 8, 0, 0}, whole = {0};
    struct strided_copy copy;
    ck_assert(!strided_copy_make(&twos, &threes, 6, &copy));
    ck_assert(strided_copy_make(&twos, &whole, 6, &copy));
    ck_assert(!strided_copy_make(&twos, &whole, 8, &copy)); // the side has six bytes
    ck_assert(!strided_copy_make(&whole, &whole, 0, &copy));
    const struct strides vast = {INT64_MAX / 2, 3, INT64_MAX / 2, 3, INT64_MAX / 2};
    ck_assert(!strided_copy_make(&vast, &whole, 8, &copy));
    ck_assert_int_eq(strides_reach(&vast, 8), -1);
    const struct strides backward = {2, 3, -8, 0, 0};
    ck_assert_int_eq(strides_reach(&backward, 6), -1);
    ck_assert_int_eq(strides_reach(&twos, 6), 18);
    ck_assert_int_eq(strides_reach(&whole, 6), 6);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("strided");
    TCase *tcase = tcase_create("strided");
    tcase_add_test(tcase, copies_are_those_of_bytes);
    tcase_add_test(tcase, heads_of_rows_are_one_box);
    tcase_add_test(tcase, sides_without_common_loops_are_refused);
    suite_add_tcase(s, tcase);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
