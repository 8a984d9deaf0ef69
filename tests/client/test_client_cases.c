// SPDX-License-Identifier: Apache-2.0
// The library without a daemon: cases, their fields, the names of codes.
#include <stdlib.h>
#include <string.h>

#include "client/cpattn.h"
#include "tests/support/runner.h"

static struct cpattn_error error;

START_TEST(statuses_have_names)
{
    ck_assert_str_eq(cpattn_status_name(CPATTN_DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
    ck_assert_str_eq(cpattn_status_text(CPATTN_DEADLINE_EXCEEDED), "deadline exceeded");
    ck_assert_str_eq(cpattn_status_name((enum cpattn_status)999), "UNKNOWN");
    ck_assert_str_eq(cpattn_verdict_name(CPATTN_VERDICT_PASS), "pass");
    ck_assert_str_eq(cpattn_verdict_name(CPATTN_VERDICT_FAIL), "fail");
    ck_assert_str_eq(cpattn_verdict_name(CPATTN_VERDICT_UNVERIFIED), "unverified");
    ck_assert_str_eq(cpattn_verdict_name(CPATTN_VERDICT_NONE), "none");
    ck_assert_str_ne(cpattn_version(), "");
}
END_TEST

START_TEST(cases_are_set_and_read_by_name)
{
    struct cpattn_case *c = cpattn_case_create(), *copy;
    char text[64];
    ck_assert_int_eq(cpattn_case_check(c, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "seqlen_q", "4096", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_get(c, "seqlen_q", text, sizeof text), 4);
    ck_assert_str_eq(text, "4096");
    ck_assert_int_eq(cpattn_case_get(c, "seqlen_q", text, 3), 4);
    ck_assert_str_eq(text, "40");
    ck_assert_int_eq(cpattn_case_get(c, "no_such", text, sizeof text), -1);

    ck_assert_int_eq(cpattn_case_set(c, "seqlen_q", "-1", &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(error.status, CPATTN_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "seqlen_q"));
    ck_assert_int_eq(cpattn_case_set(c, "no_such", "1", NULL), CPATTN_INVALID_ARGUMENT);
    cpattn_case_get(c, "seqlen_q", text, sizeof text);
    ck_assert_str_eq(text, "4096");

    copy = cpattn_case_copy(c);
    ck_assert_int_eq(cpattn_case_set(copy, "kv_heads", "3", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_check(copy, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(cpattn_case_check(c, &error), CPATTN_OK);
    ck_assert_int_gt(cpattn_case_describe(c, text, sizeof text), 0);
    ck_assert_int_gt(cpattn_case_command(c, text, sizeof text), 0);
    ck_assert_ptr_nonnull(strstr(text, "4096"));
    cpattn_case_destroy(c);
    cpattn_case_destroy(copy);
    cpattn_case_destroy(NULL);
}
END_TEST

// A failure that needs 3 heads and more than 100 query tokens. *context counts the calls.
static bool needs_heads_and_tokens(const struct cpattn_case *c, void *context)
{
    char heads[16], tokens[16];
    (*(int *)context)++;
    cpattn_case_get(c, "heads", heads, sizeof heads);
    cpattn_case_get(c, "seqlen_q", tokens, sizeof tokens);
    return atoi(heads) >= 3 && atoi(tokens) > 100;
}

START_TEST(a_failing_case_is_reduced)
{
    char text[256];
    int calls = 0;
    struct cpattn_case *c = cpattn_case_create(), *job = cpattn_case_create_kind("collective");
    ck_assert_int_eq(cpattn_case_set(c, "dtype", "fp16", &error), CPATTN_OK);
    int tried = cpattn_case_minimize(c, needs_heads_and_tokens, &calls, 1000);
    ck_assert_int_eq(tried, calls);
    ck_assert_int_eq(cpattn_case_check(c, &error), CPATTN_OK);
    cpattn_case_command(c, text, sizeof text);
    ck_assert_str_eq(text, "cpattn-submit case --world-size 1 --sharding contiguous --batch 1 "
                           "--heads 3 --head-dim-qk 1 --head-dim-v 1 --seqlen-q 101 "
                           "--seqlen-kv 0 --mask none --training false");
    ck_assert_int_eq(cpattn_case_minimize(job, needs_heads_and_tokens, &calls, 1000), 0);
    ck_assert_int_eq(calls, tried);
    cpattn_case_destroy(c);
    cpattn_case_destroy(job);
}
END_TEST

// The library checks the values of kinds that it knows, and accepts any field of other kinds.
START_TEST(jobs_of_other_kinds_are_set_and_read_by_name)
{
    char text[128], *long_text = text;
    int64_t shape[4];
    int dims;
    const char *dtype;
    struct cpattn_case *c = cpattn_case_create_kind("collective"), *copy, *other;
    ck_assert_int_eq(cpattn_case_get(c, "count", text, sizeof text), -1);
    ck_assert_int_eq(cpattn_case_set(c, "count", "99", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "in-place", "false", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "in_place", "true", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_get(c, "in-place", text, sizeof text), 4);
    ck_assert_str_eq(text, "true");
    ck_assert_int_eq(cpattn_case_check(c, &error), CPATTN_OK);
    cpattn_case_describe(c, text, sizeof text);
    ck_assert_str_eq(text, "collective all_reduce w2 count=99 in_place=true");
    ck_assert_int_eq(cpattn_case_command(c, text, sizeof text), 62);
    ck_assert_str_eq(text, "cpattn-submit collective all_reduce --count 99 --in-place true");
    ck_assert_int_eq(cpattn_case_tensor(c, "out", shape, &dims, &dtype), -1);
    copy = cpattn_case_copy(c);
    ck_assert_int_eq(cpattn_case_set(copy, "root", "2", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_check(copy, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "root is 2 with 2 ranks; accepted is 0 to 1");
    ck_assert_int_eq(cpattn_case_check(c, &error), CPATTN_OK);
    memset(text, 'a', sizeof text);
    long_text[sizeof text - 1] = '\0';
    ck_assert_int_eq(cpattn_case_set(c, "seed", text, &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(cpattn_case_set(c, text, "1", &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(cpattn_case_set(c, "seed", "\n", &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_str_eq(cpattn_case_kind(c), "collective");
    other = cpattn_case_create_kind("no_such");
    ck_assert_int_eq(cpattn_case_set(other, "x", "1", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_check(other, &error), CPATTN_OK);
    cpattn_case_describe(other, text, sizeof text);
    ck_assert_str_eq(text, "no_such x=1");
    cpattn_case_destroy(c);
    cpattn_case_destroy(copy);
    cpattn_case_destroy(other);
    ck_assert_ptr_null(cpattn_case_create_kind(""));
    ck_assert_ptr_null(cpattn_case_create_kind("a\tb"));
    c = cpattn_case_create_kind("attention");
    ck_assert_int_eq(cpattn_case_get(c, "heads", text, sizeof text), 1);
    cpattn_case_destroy(c);
}
END_TEST

static const char *kv_heads_of(const struct cpattn_case *c)
{
    static char text[16];
    cpattn_case_get(c, "kv_heads", text, sizeof text);
    return text;
}

START_TEST(key_heads_follow_heads_until_they_are_given)
{
    struct cpattn_case *c = cpattn_case_create(), *copy;
    ck_assert_int_eq(cpattn_case_set(c, "heads", "12", &error), CPATTN_OK);
    ck_assert_str_eq(kv_heads_of(c), "12");
    copy = cpattn_case_copy(c);
    ck_assert_int_eq(cpattn_case_set(c, "kv-heads", "0", &error), CPATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(cpattn_case_set(c, "heads", "8", &error), CPATTN_OK);
    ck_assert_str_eq(kv_heads_of(c), "8");
    ck_assert_int_eq(cpattn_case_set(c, "kv-heads", "8", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "heads", "16", &error), CPATTN_OK);
    ck_assert_str_eq(kv_heads_of(c), "8");
    ck_assert_int_eq(cpattn_case_set(copy, "heads", "6", &error), CPATTN_OK);
    ck_assert_str_eq(kv_heads_of(copy), "6");
    cpattn_case_destroy(c);
    cpattn_case_destroy(copy);
}
END_TEST

START_TEST(pairs_set_two_fields)
{
    struct cpattn_case *c = cpattn_case_create();
    char text[16];
    ck_assert_int_eq(cpattn_case_set(c, "seqlen", "2k", &error), CPATTN_OK);
    cpattn_case_get(c, "seqlen_kv", text, sizeof text);
    ck_assert_str_eq(text, "2048");
    ck_assert_ptr_null(cpattn_field_find("seqlen"));
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(fields_are_listed)
{
    const struct cpattn_field *field = NULL;
    struct cpattn_case *c = cpattn_case_create();
    char text[64];
    int count = 0;
    while ((field = cpattn_field_next(field)) != NULL) {
        count++;
        ck_assert_ptr_eq(cpattn_field_find(cpattn_field_name(field)), field);
        ck_assert_str_ne(cpattn_field_help(field), "");
        ck_assert_int_ge(cpattn_case_get(c, cpattn_field_name(field), text, sizeof text), 0);
        bool choices = cpattn_field_choice(field, 0) != NULL;
        ck_assert_int_eq(choices, cpattn_field_kind(field) == CPATTN_FIELD_CHOICE);
        for (int i = 0; cpattn_field_choice(field, i); i++)
            ck_assert_int_eq(
                cpattn_case_set(c, cpattn_field_name(field), cpattn_field_choice(field, i), &error),
                CPATTN_OK);
    }
    ck_assert_int_gt(count, 20);
    field = cpattn_field_find("world_size");
    ck_assert_int_eq(cpattn_field_kind(field), CPATTN_FIELD_INT);
    ck_assert_int_eq(cpattn_field_min(field), 1);
    ck_assert_int_eq(cpattn_field_max(field), 64);
    ck_assert_int_eq(cpattn_field_kind(cpattn_field_find("model")), CPATTN_FIELD_TEXT);
    ck_assert_int_eq(cpattn_field_kind(cpattn_field_find("seed")), CPATTN_FIELD_UINT);
    ck_assert_int_eq(cpattn_field_kind(cpattn_field_find("scale")), CPATTN_FIELD_REAL);
    ck_assert_int_eq(cpattn_field_kind(cpattn_field_find("training")), CPATTN_FIELD_BOOL);
    field = cpattn_field_find("padded_kv");
    ck_assert_int_eq(cpattn_field_kind(field), CPATTN_FIELD_LIST);
    ck_assert_int_eq(cpattn_field_max(field), 16777216);
    ck_assert_int_eq(cpattn_case_set(c, "padded_kv", "7,0", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_get(c, "padded_kv", text, sizeof text), 3);
    ck_assert_str_eq(text, "7,0");
    ck_assert_ptr_null(cpattn_field_choice(cpattn_field_find("dtype"), -1));
    ck_assert_ptr_null(cpattn_field_find("no_such"));
    cpattn_case_destroy(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_cases");
    TCase *cases = tcase_create("cases");
    tcase_add_test(cases, statuses_have_names);
    tcase_add_test(cases, cases_are_set_and_read_by_name);
    tcase_add_test(cases, a_failing_case_is_reduced);
    tcase_add_test(cases, jobs_of_other_kinds_are_set_and_read_by_name);
    tcase_add_test(cases, key_heads_follow_heads_until_they_are_given);
    tcase_add_test(cases, pairs_set_two_fields);
    tcase_add_test(cases, fields_are_listed);
    suite_add_tcase(suite, cases);
    return runner_run(suite);
}
