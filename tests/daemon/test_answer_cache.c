// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/answer_cache.h"

#include <stdint.h>
#include <string.h>

#include "tests/support/runner.h"

static struct answer_cache answers;
static uint8_t bytes[ANSWERS_BYTES_MAX / 8];

// Stores the n-th answer at its index.
static void keep(uint32_t n, size_t size)
{
    memcpy(bytes, &n, sizeof(n));
    answer_cache_keep(&answers, (int)(n % ANSWERED_IDS_MAX), bytes, size);
}

static bool kept(uint32_t n, size_t size)
{
    const void *data;
    size_t got;
    if (!answer_cache_find(&answers, (int)(n % ANSWERED_IDS_MAX), &data, &got))
        return false;
    ck_assert_uint_eq(got, size);
    ck_assert_mem_eq(data, &n, sizeof(n));
    return true;
}

START_TEST(answers_are_stored_at_their_index)
{
    ck_assert(!kept(0, 8));
    for (uint32_t n = 0; n < 3 * ANSWERED_IDS_MAX; n++) {
        keep(n, 8 + n % 8);
        if (n > 0)
            ck_assert(kept(n - 1, 8 + (n - 1) % 8));
    }
    for (uint32_t n = 2 * ANSWERED_IDS_MAX; n < 3 * ANSWERED_IDS_MAX; n++)
        ck_assert(kept(n, 8 + n % 8));
    answer_cache_clear(&answers);
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

// An answer that cannot be encoded removes the older one at its index.
START_TEST(an_answer_without_data_leaves_its_index_empty)
{
    keep(0, 8);
    answer_cache_keep(&answers, 0, NULL, 0);
    ck_assert(!kept(0, 8));
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

// At several positions of the ring.
START_TEST(the_oldest_answers_are_freed_first)
{
    uint32_t first = (uint32_t)_i * 1000;
    for (uint32_t n = 0; n < first; n++)
        keep(n, 4);
    answer_cache_clear(&answers);
    for (uint32_t n = first; n < first + 12; n++) {
        keep(n, sizeof(bytes));
        for (uint32_t k = first; k <= n; k++)
            ck_assert_int_eq(kept(k, sizeof(bytes)), k + 8 > n);
    }
    keep(first + 12, 4);
    ck_assert(!kept(first + 4, sizeof(bytes)));
    ck_assert(kept(first + 5, sizeof(bytes)));
    answer_cache_clear(&answers);
}
END_TEST

START_TEST(a_too_large_answer_is_not_stored)
{
    static uint8_t large[ANSWERS_BYTES_MAX + 1];
    keep(0, 8);
    answer_cache_keep(&answers, 1, large, sizeof(large));
    ck_assert(!kept(1, sizeof(large)));
    keep(2, 8);
    ck_assert(kept(2, 8));
    answer_cache_clear(&answers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answer_cache");
    TCase *tcase = tcase_create("answer_cache");
    tcase_add_test(tcase, answers_are_stored_at_their_index);
    tcase_add_test(tcase, an_answer_without_data_leaves_its_index_empty);
    tcase_add_loop_test(tcase, the_oldest_answers_are_freed_first, 0, 9);
    tcase_add_test(tcase, a_too_large_answer_is_not_stored);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
