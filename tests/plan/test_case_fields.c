// SPDX-License-Identifier: Apache-2.0
// The fields of a case as text, its lists, its description and its command.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

static bool same(const struct cp_case *a, const struct cp_case *b)
{
    for (const struct case_field *field = case_fields(); field->name; field++) {
        static char text[2][CASE_VALUE_MAX];
        case_get(a, field, text[0], sizeof text[0]);
        case_get(b, field, text[1], sizeof text[1]);
        if (strcmp(text[0], text[1]) != 0)
            return false;
    }
    return true;
}

// ---- lists and copies ----

static void expect_list(const struct cp_case *c, const char *name, const char *expected)
{
    char text[CASE_VALUE_MAX];
    case_get(c, case_field_find(name), text, sizeof text);
    ck_assert_str_eq(text, expected);
}

START_TEST(lists_do_not_touch_each_other)
{
    struct cp_case c = cases_thd("1,2,3", "4", "5,6", "7,8,9,10"), other = cases_usual();
    expect_list(&c, "lengths_q", "1,2,3");
    expect_list(&c, "lengths_kv", "4");
    cases_set(&c, "lengths_q", "11");
    cases_set(&c, "padded_q", "12,13,14,15");
    cases_set(&c, "lengths_kv", "");
    expect_list(&c, "lengths_q", "11");
    expect_list(&c, "lengths_kv", "");
    expect_list(&c, "padded_q", "12,13,14,15");
    expect_list(&c, "padded_kv", "7,8,9,10");
    // Another order of calls gives the same bytes: nothing remains of earlier values.
    other.format = FORMAT_THD;
    cases_set(&other, "padded_kv", "7,8,9,10");
    cases_set(&other, "padded_q", "12,13,14,15");
    cases_set(&other, "lengths_q", "11");
    ck_assert_mem_eq(&c, &other, sizeof c);
}
END_TEST

START_TEST(lists_can_be_full)
{
    static int32_t values[SEQUENCES_MAX];
    static char text[CASE_VALUE_MAX + 8];
    struct cp_case c = cases_usual(), copy = cases_usual();
    for (int i = 0; i < SEQUENCES_MAX; i++)
        values[i] = (int32_t)SEQLEN_MAX - i;
    for (int list = 0; list < CASE_LISTS; list++)
        case_list_set(&c, (enum case_list)list, values, SEQUENCES_MAX);
    ck_assert_uint_eq(case_bytes(&c), offsetof(struct cp_case, source));
    for (const struct case_field *field = case_fields(); field->name; field++) {
        ck_assert_int_lt(case_get(&c, field, text, sizeof text), sizeof text);
        cases_set(&copy, field->name, text);
    }
    ck_assert_mem_eq(&c, &copy, sizeof c);
    ck_assert_int_eq(case_get(&c, case_field_find("padded_q"), text, sizeof text), 9 * 1024 - 1);
    strcat(text, ",1");
    ck_assert_int_eq(case_set(&c, "padded_q", text, NULL), STATUS_INVALID_ARGUMENT);
    ck_assert_mem_eq(&c, &copy, sizeof c);
    static char command[CASE_COMMAND_MAX];
    ck_assert_int_lt(case_command(&c, command, sizeof command), sizeof command);
}
END_TEST

START_TEST(cases_travel_without_their_empty_end)
{
    struct cp_case c = cases_thd("9,8", "", "12,8", ""), got;
    size_t size = case_bytes(&c);
    char *bytes = malloc(size); // a sanitizer notices a read past the end
    memcpy(bytes, &c, size);
    memset(&got, 0xff, sizeof got);
    ck_assert_uint_eq(size, offsetof(struct cp_case, list_values) + 4 * sizeof(int32_t));
    ck_assert_int_eq(case_load(&got, bytes, size, NULL), STATUS_OK);
    ck_assert_mem_eq(&got, &c, sizeof c);
    struct error error;
    ck_assert_int_eq(case_load(&got, bytes, size - 4, &error), STATUS_DATA_LOSS);
    ck_assert_int_eq(case_load(&got, bytes, 12, &error), STATUS_DATA_LOSS);
    ck_assert_str_eq(error.text, "12 bytes are no case");
    ck_assert_int_eq(case_load(&got, NULL, sizeof c + 4, &error), STATUS_DATA_LOSS);
    c.list_count[LIST_PADDED_KV] = -2;
    memcpy(bytes, &c, size);
    ck_assert_int_eq(case_load(&got, bytes, size - 8, &error), STATUS_DATA_LOSS);
    free(bytes);
}
END_TEST

// ---- set and get ----

static void expect_unset(const char *name, const char *value, const char *text)
{
    struct cp_case c = cases_usual(), before = c;
    struct error error = {.text = ""};
    ck_assert_int_eq(case_set(&c, name, value, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, text);
    ck_assert_msg(same(&c, &before), "%s=%s changed the case", name, value);
}

static void expect_set(const char *name, const char *value, const char *field, const char *got)
{
    struct cp_case c = cases_usual();
    char text[CASE_VALUE_MAX];
    ck_assert_msg(case_set(&c, name, value, NULL) == STATUS_OK, "%s=%s", name, value);
    case_get(&c, case_field_find(field), text, sizeof text);
    ck_assert_str_eq(text, got);
}

START_TEST(tokens_are_counted_in_thousands_of_1024)
{
    expect_set("seqlen_q", "16k", "seqlen_q", "16384");
    expect_set("seqlen_kv", "1M", "seqlen_kv", "1048576");
    expect_set("window_left", "4k", "window_left", "4096");
    expect_set("lengths_q", "1k,7", "lengths_q", "1024,7");
}
END_TEST

START_TEST(a_pair_sets_both_of_its_fields_or_none)
{
    expect_set("seqlen", "16k", "seqlen_q", "16384");
    expect_set("seqlen", "16k", "seqlen_kv", "16384");
    expect_set("head-dim", "64", "head_dim_qk", "64");
    expect_set("head_dim", "64", "head_dim_v", "64");
    expect_unset("head_dim", "257", "head_dim_qk is '257'; accepted is 1 to 256");
}
END_TEST

START_TEST(set_refuses_what_is_not_plain)
{
    static const char *const malformed[] = {"",     " 5",  "5 ",    "+5",
                                            "0x10", "1e3", "5.0",   "--5",
                                            "-",    "4 k", "1,000", "99999999999999999999",
                                            "5\n"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        struct cp_case c = cases_usual();
        ck_assert_msg(case_set(&c, "seqlen_q", malformed[i], NULL) == STATUS_INVALID_ARGUMENT,
                      "'%s' was taken", malformed[i]);
    }
    expect_unset("seqlen_q", "4kk", "seqlen_q is '4kk'; accepted is 0 to 16777216");
    expect_unset("seqlen_q", "k", "seqlen_q is 'k'; accepted is 0 to 16777216");
    expect_unset("seqlen_q", "17m", "seqlen_q is '17m'; accepted is 0 to 16777216");
    expect_unset("seqlen_q", "9007199254740992k",
                 "seqlen_q is '9007199254740992k'; accepted is 0 to 16777216");
    expect_unset("heads", "1k", "heads is '1k'; accepted is 1 to 4096");
    expect_unset("seqlen_q", "-1", "seqlen_q is '-1'; accepted is 0 to 16777216");
    expect_unset("seed", "-1",
                 "seed is '-1'; accepted is a whole number from 0 to 18446744073709551615");
    expect_unset("seed", "18446744073709551616",
                 "seed is '18446744073709551616'; accepted is a whole number from 0 to "
                 "18446744073709551615");
    // As a signed number this would be -1.
    expect_unset("window_left", "18446744073709551615",
                 "window_left is '18446744073709551615'; accepted is -1 to 16777216");
    expect_unset("training", "yes", "training is 'yes'; accepted is true or false");
    expect_unset("dtype", "BF16", "dtype is 'BF16'; accepted is bf16, fp16 or fp32");
    static const char *const lists[] = {",", "1,", ",1", "1,,2", "1, 2", "-1", "1;2", "16777217"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct cp_case c = cases_usual();
        ck_assert_msg(case_set(&c, "lengths_q", lists[i], NULL) == STATUS_INVALID_ARGUMENT,
                      "'%s' was taken", lists[i]);
    }
    expect_unset("lengths_q", "9,x",
                 "lengths_q is '9,x'; accepted is up to 1024 whole numbers from 0 to 16777216 with "
                 "commas between them");
    expect_unset("scale", "0x1p-3", "scale is '0x1p-3'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "1e400", "scale is '1e400'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "0,5", "scale is '0,5'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "nan", "scale is 'nan'; accepted is a number from 0 to 1000000");
}
END_TEST

START_TEST(set_knows_one_zero)
{
    struct cp_case c = cases_usual(), before = c;
    ck_assert_int_eq(case_set(&c, "scale", "-0.0", NULL), STATUS_OK);
    ck_assert(same(&c, &before));
}
END_TEST

START_TEST(set_cuts_and_cleans_what_it_quotes)
{
    char value[200];
    memset(value, 'z', sizeof value);
    value[0] = '\033';
    value[sizeof value - 1] = '\0';
    expect_unset(
        "dtype", value,
        "dtype is '?zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz...'; accepted is bf16, fp16 "
        "or fp32");
}
END_TEST

START_TEST(set_names_the_nearest_field)
{
    expect_unset("head_dim_kq", "64",
                 "'head_dim_kq' is not a field of a case (did you mean 'head_dim_qk'?)");
    expect_unset("seqlen-qv", "64",
                 "'seqlen-qv' is not a field of a case (did you mean 'seqlen_q'?)");
    expect_unset("seqlne", "64", "'seqlne' is not a field of a case (did you mean 'seqlen'?)");
    expect_unset("is-causal", "true",
                 "'is-causal' is not a field of a case (did you mean 'mask'?)");
    expect_unset("num_heads", "8", "'num_heads' is not a field of a case (did you mean 'heads'?)");
    expect_unset("colour", "red", "'colour' is not a field of a case; cpattn-submit(1) lists them");
    expect_unset("", "", "'' is not a field of a case; cpattn-submit(1) lists them");
}
END_TEST

START_TEST(names_take_a_dash_for_an_underscore)
{
    struct cp_case c = cases_usual();
    ck_assert_int_eq(case_set(&c, "head-dim-qk", "64", NULL), STATUS_OK);
    ck_assert_int_eq(c.head_dim_qk, 64);
    ck_assert_ptr_eq(case_field_find("head_dim-qk"), case_field_find("head_dim_qk"));
    ck_assert_ptr_null(case_field_find("head"));
    ck_assert_ptr_null(case_field_find("heads2"));
}
END_TEST

START_TEST(additional_names_are_read_but_not_written)
{
    static const char *const names[][3] = {
        {"dtype", "bfloat16", "bf16"},
        {"dtype", "float16", "fp16"},
        {"dtype", "float32", "fp32"},
        {"mask", "no_mask", "none_bottom_right"},
        {"mask", "padding", "none_bottom_right"},
        {"mask", "padding_causal", "causal"},
        {"mask", "padding_causal_bottom_right", "causal_bottom_right"},
        {"softmax", "off-by-one", "off_by_one"},
        {"bias", "no_bias", "none"},
        {"verify", "true", "auto"},
        {"verify", "false", "off"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct cp_case c = cases_usual();
        cases_set(&c, names[i][0], names[i][1]);
        expect_list(&c, names[i][0], names[i][2]);
    }
    expect_unset("mask", "padding_bottom_right",
                 "mask is 'padding_bottom_right'; accepted is none, causal, causal_bottom_right or "
                 "none_bottom_right");
}
END_TEST

// Copies every field through its text: case_get() and case_set().
static void copy_by_text(const struct cp_case *from, struct cp_case *to)
{
    case_init(to);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        static char text[CASE_VALUE_MAX];
        struct error error = {.text = ""};
        int length = case_get(from, field, text, sizeof text);
        ck_assert_int_eq(length, strlen(text));
        ck_assert_msg(case_set(to, field->name, text, &error) == STATUS_OK, "%s", error.text);
    }
}

START_TEST(every_field_survives_as_text)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c, copy;
        uint64_t state = seed;
        generate_case(seed, 64, SEQLEN_MAX, &c);
        c.scale = seed % 3 == 0 ? ldexp((double)(generate_next(&state) >> 11), -60) : 0.1;
        copy_by_text(&c, &copy);
        ck_assert(same(&c, &copy));
    }
}
END_TEST

START_TEST(every_field_is_described)
{
    size_t covered = 0;
    for (const struct case_field *field = case_fields(); field->name; field++) {
        ck_assert_msg(field->help && field->help[0], "%s", field->name);
        ck_assert_ptr_eq(case_field_find(field->name), field);
        ck_assert_int_eq(field->kind == FIELD_CHOICE, field->choices != NULL);
        covered += field->size;
    }
    // 6 bytes of the struct are padding.
    ck_assert_int_eq(covered + 6, offsetof(struct cp_case, list_values));
}
END_TEST

// ---- lines ----

static const char *describe(const struct cp_case *c)
{
    static char text[512];
    ck_assert_int_lt(case_describe(c, text, sizeof text), sizeof text);
    return text;
}

START_TEST(describe_tells_cases_apart)
{
    struct cp_case c = cases_usual();
    ck_assert_str_eq(describe(&c), "bf16 bshd p2p w2 b2 h8 s512 d128 causal");
    strcpy(c.model, "cp_1_0");
    c.heads = c.kv_heads = 12;
    ck_assert_str_eq(describe(&c), "cp_1_0 bf16 bshd p2p w2 b2 h12 s512 d128 causal");
    c = cases_usual();
    c.kv_heads = 2;
    c.seqlen_kv = 700;
    c.head_dim_qk = 192;
    c.mask = MASK_NONE;
    c.window_left = 100;
    c.window_right = 7;
    c.sharding = SHARDING_CONTIGUOUS;
    c.scale = 0.25;
    c.training = false;
    c.inputs = INPUTS_TE;
    c.seed = 7;
    c.explore_seed = 3;
    c.graph = true;
    c.operation_times = true;
    c.nodes = 2;
    c.ranks_per_node = 1;
    ck_assert_str_eq(
        describe(&c),
        "bf16 bshd p2p w2 b2 h8/2 s512/700 d192/128 full window(100,7) "
        "nodes=2 per_node=1 contiguous scale=0.25 graph times forward inputs=te seed=7 explore=3");
    c = cases_usual();
    c.mask = MASK_NONE_BOTTOM_RIGHT;
    ck_assert_str_eq(describe(&c), "bf16 bshd p2p w2 b2 h8 s512 d128 full");
    c.window_right = 0;
    ck_assert_str_eq(describe(&c),
                     "bf16 bshd p2p w2 b2 h8 s512 d128 full window(-1,0) bottom_right");
    c = cases_thd("9,8", "", "12,8", "");
    c.comm = COMM_A2A_P2P;
    c.a2a_size = 1;
    c.softcap = 30;
    c.softmax = SOFTMAX_LEARNABLE;
    c.bias = BIAS_1HSS;
    c.max_logit = true;
    c.deterministic = false;
    c.verify = VERIFY_OFF;
    ck_assert_str_eq(describe(&c), "bf16 thd a2a+p2p w2 b2 h8 s512 d128 lengths[9,8] padded[12,8] "
                                   "causal a2a=1 softcap=30 learnable bias=1hss max_logit "
                                   "nondeterministic verify=off");
    c.verify = VERIFY_FULL;
    c.deterministic = true;
    ck_assert_ptr_nonnull(strstr(describe(&c), " max_logit verify=full"));
    c = cases_thd("", "1,2,3,4,5,6,7,8,9", "", "");
    c.pad_multiple = 8;
    ck_assert_str_eq(describe(&c), "bf16 thd p2p w2 b2 h8 s512 d128 "
                                   "lengths_kv[1,2,3,4,5,6,... 9 of 45] pad8 causal");
}
END_TEST

START_TEST(lines_are_cut_as_snprintf_does)
{
    struct cp_case c = cases_usual();
    char whole[512], part[10];
    int length = case_describe(&c, whole, sizeof whole);
    ck_assert_int_eq(length, strlen(whole));
    ck_assert_int_eq(case_describe(&c, part, sizeof part), length);
    ck_assert_str_eq(part, "bf16 bshd");
    ck_assert_int_eq(case_describe(&c, NULL, 0), length);
    length = case_command(&c, whole, sizeof whole);
    ck_assert_int_eq(case_command(&c, part, 1), length);
    ck_assert_str_eq(part, "");
}
END_TEST

START_TEST(command_reproduces_the_case)
{
    static char command[CASE_COMMAND_MAX];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c, read;
        generate_case(seed, 64, SEQLEN_MAX, &c);
        if (seed % 2)
            strcpy(c.model, "it's $(odd) \"`*\\");
        ck_assert_int_lt(case_command(&c, command, sizeof command), sizeof command);
        cases_read_command(command, &read);
        ck_assert(same(&c, &read));
    }
    struct cp_case c = cases_usual();
    case_command(&c, command, sizeof command);
    ck_assert_str_eq(command, "cpattn-submit case");
    c.head_dim_v = 64;
    c.training = false;
    case_command(&c, command, sizeof command);
    ck_assert_str_eq(command, "cpattn-submit case --head-dim-v 64 --training false");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("case_fields");
    TCase *lists = tcase_create("lists");
    tcase_add_test(lists, lists_do_not_touch_each_other);
    tcase_add_test(lists, lists_can_be_full);
    tcase_add_test(lists, cases_travel_without_their_empty_end);
    suite_add_tcase(s, lists);
    TCase *fields = tcase_create("fields");
    tcase_add_test(fields, tokens_are_counted_in_thousands_of_1024);
    tcase_add_test(fields, a_pair_sets_both_of_its_fields_or_none);
    tcase_add_test(fields, set_refuses_what_is_not_plain);
    tcase_add_test(fields, set_knows_one_zero);
    tcase_add_test(fields, set_cuts_and_cleans_what_it_quotes);
    tcase_add_test(fields, set_names_the_nearest_field);
    tcase_add_test(fields, names_take_a_dash_for_an_underscore);
    tcase_add_test(fields, additional_names_are_read_but_not_written);
    tcase_add_test(fields, every_field_survives_as_text);
    tcase_add_test(fields, every_field_is_described);
    suite_add_tcase(s, fields);
    TCase *lines = tcase_create("lines");
    tcase_add_test(lines, describe_tells_cases_apart);
    tcase_add_test(lines, lines_are_cut_as_snprintf_does);
    tcase_add_test(lines, command_reproduces_the_case);
    suite_add_tcase(s, lines);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
