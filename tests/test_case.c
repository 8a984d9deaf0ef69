// SPDX-License-Identifier: Apache-2.0
#include "plan/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

#include "plan/slice.h"
#include "tests/generate.h"
#include "tests/runner.h"
#include "tests/symbolic.h"

static struct cp_case usual(void)
{
    struct cp_case c;
    case_init(&c);
    return c;
}

static bool same(const struct cp_case *a, const struct cp_case *b)
{
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char text[2][128];
        case_get(a, field, text[0], sizeof text[0]);
        case_get(b, field, text[1], sizeof text[1]);
        if (strcmp(text[0], text[1]) != 0)
            return false;
    }
    return true;
}

// ---- check ----

START_TEST(initial_case_is_admitted)
{
    struct cp_case c = usual();
    struct error error;
    ck_assert_int_eq(case_check(&c, &error), STATUS_OK);
    ck_assert_int_eq(c.world_size, 2);
    ck_assert_int_eq(c.seqlen_q, 512);
    ck_assert(c.training);
}
END_TEST

START_TEST(generated_cases_are_admitted)
{
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct cp_case c;
        struct error error = {.text = ""};
        generate_case(seed, 8, 100, &c);
        ck_assert_msg(case_check(&c, &error) == STATUS_OK, "seed %llu: %s",
                      (unsigned long long)seed, error.text);
    }
}
END_TEST

static void expect_refused(const struct cp_case *c, enum status status, const char *text)
{
    struct error error = {.text = ""};
    ck_assert_int_eq(case_check(c, &error), status);
    ck_assert_int_eq(error.status, status);
    ck_assert_str_eq(error.text, text);
    ck_assert_int_eq(case_check(c, NULL), status);
}

#define REFUSED(change, text)                                                                      \
    do {                                                                                           \
        struct cp_case c = usual();                                                                \
        change;                                                                                    \
        expect_refused(&c, STATUS_INVALID_ARGUMENT, text);                                         \
    } while (0)

START_TEST(fields_outside_their_range_are_refused)
{
    REFUSED(c.world_size = 0, "world_size is '0'; accepted is 1 to 64");
    REFUSED(c.world_size = 65, "world_size is '65'; accepted is 1 to 64");
    REFUSED(c.batch = 0, "batch is '0'; accepted is 1 to 4096");
    REFUSED(c.heads = 4097, "heads is '4097'; accepted is 1 to 4096");
    REFUSED(c.kv_heads = 0, "kv_heads is '0'; accepted is 1 to 4096");
    REFUSED(c.head_dim_qk = 257, "head_dim_qk is '257'; accepted is 1 to 256");
    REFUSED(c.head_dim_v = -3, "head_dim_v is '-3'; accepted is 1 to 256");
    REFUSED(c.seqlen_q = -1, "seqlen_q is '-1'; accepted is 0 to 16777216");
    REFUSED(c.seqlen_kv = INT64_C(1) << 40,
            "seqlen_kv is '1099511627776'; accepted is 0 to 16777216");
    REFUSED(c.window_left = -2, "window_left is '-2'; accepted is -1 to 16777216");
    REFUSED(c.window_right = SEQLEN_MAX + 1,
            "window_right is '16777217'; accepted is -1 to 16777216");
}
END_TEST

START_TEST(choices_outside_their_list_are_refused)
{
    REFUSED(c.dtype = (enum case_dtype)0, "dtype is 'unspecified'; accepted is bf16, fp16 or fp32");
    REFUSED(c.format = (enum case_format)9, "format is '9'; accepted is bshd or sbhd");
    REFUSED(c.comm = (enum case_comm) - 1,
            "comm is '-1'; accepted is p2p, all_gather, a2a or a2a+p2p");
    REFUSED(c.sharding = (enum case_sharding)3,
            "sharding is '3'; accepted is zigzag or contiguous");
    REFUSED(c.mask = (enum case_mask)4,
            "mask is '4'; accepted is none, causal or causal_bottom_right");
    REFUSED(c.inputs = (enum case_inputs)0, "inputs is 'unspecified'; accepted is sharp or te");
}
END_TEST

START_TEST(fields_that_contradict_each_other_are_refused)
{
    REFUSED((c.heads = 12, c.kv_heads = 5),
            "heads is 12 and kv_heads is 5; accepted is a heads that is a multiple of kv_heads");
    REFUSED((c.heads = 2, c.kv_heads = 4),
            "heads is 2 and kv_heads is 4; accepted is a heads that is a multiple of kv_heads");
    REFUSED(c.window_right = 3,
            "window_right is 3 with mask causal; accepted is -1 or 0 there, or mask none");
    REFUSED(c.a2a_size = 4, "a2a_size is 4 with comm p2p; accepted is 2 there, or comm a2a+p2p");
    REFUSED((c.comm = COMM_A2A_P2P, c.world_size = 6, c.a2a_size = 4),
            "a2a_size is 4 and world_size is 6; accepted is a divisor of world_size");
    REFUSED(
        (c.mask = MASK_CAUSAL_BOTTOM_RIGHT, c.window_right = 1),
        "window_right is 1 with mask causal_bottom_right; accepted is -1 or 0 there, or mask none");
}
END_TEST

START_TEST(scales_that_no_logit_survives_are_refused)
{
    REFUSED(c.scale = NAN, "scale is 'nan'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = INFINITY, "scale is 'inf'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = -0.5, "scale is '-0.5'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = 1e-7,
            "scale is 1e-07; accepted is 0 (meaning 1/sqrt(head_dim_qk)) or 1e-6 to 1e6");
}
END_TEST

START_TEST(labels_that_would_garble_a_terminal_are_refused)
{
    REFUSED(strcpy(c.model, "a\033[2J"),
            "model is 'a?[2J'; accepted is up to 63 printable ASCII characters");
    struct cp_case c = usual();
    memset(c.model, 'x', sizeof c.model); // no end
    ck_assert_int_eq(case_check(&c, NULL), STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(sizes_that_no_machine_holds_are_refused)
{
    struct cp_case c = usual();
    c.batch = BATCH_MAX;
    c.heads = c.kv_heads = HEADS_MAX;
    c.seqlen_q = c.seqlen_kv = SEQLEN_MAX;
    c.head_dim_qk = c.head_dim_v = HEAD_DIM_MAX;
    expect_refused(
        &c, STATUS_RESOURCE_EXHAUSTED,
        "batch 4096 x seqlen 16777216/16777216 x heads 4096/4096 x head_dim 256/256 needs "
        "more than 1 PiB of memory per rank (world_size 2)");
    c.batch = c.heads = c.kv_heads = 1; // the longest sequence alone is none of them
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
}
END_TEST

START_TEST(edges_are_admitted)
{
    struct cp_case c = usual();
    c.seqlen_q = c.seqlen_kv = 0;
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
    c.world_size = WORLD_SIZE_MAX;
    c.window_left = 0;
    c.window_right = 0;
    c.seqlen_q = 1;
    c.scale = 1e6;
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
}
END_TEST

// ---- set and get ----

static void expect_unset(const char *name, const char *value, const char *text)
{
    struct cp_case c = usual(), before = c;
    struct error error = {.text = ""};
    ck_assert_int_eq(case_set(&c, name, value, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, text);
    ck_assert_msg(same(&c, &before), "%s=%s changed the case", name, value);
}

START_TEST(set_refuses_what_is_not_plain)
{
    static const char *const malformed[] = {"",     " 5",  "5 ",    "+5",
                                            "0x10", "1e3", "5.0",   "--5",
                                            "-",    "4k",  "1,000", "99999999999999999999",
                                            "5\n"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        struct cp_case c = usual();
        ck_assert_msg(case_set(&c, "seqlen_q", malformed[i], NULL) == STATUS_INVALID_ARGUMENT,
                      "'%s' was taken", malformed[i]);
    }
    expect_unset("seqlen_q", "4k", "seqlen_q is '4k'; accepted is 0 to 16777216");
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
    expect_unset("scale", "0x1p-3", "scale is '0x1p-3'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "1e400", "scale is '1e400'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "0,5", "scale is '0,5'; accepted is a number from 0 to 1000000");
    expect_unset("scale", "nan", "scale is 'nan'; accepted is a number from 0 to 1000000");
}
END_TEST

START_TEST(set_knows_one_zero)
{
    struct cp_case c = usual(), before = c;
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
    expect_unset("colour", "red", "'colour' is not a field of a case");
    expect_unset("", "", "'' is not a field of a case");
}
END_TEST

START_TEST(names_take_a_dash_for_an_underscore)
{
    struct cp_case c = usual();
    ck_assert_int_eq(case_set(&c, "head-dim-qk", "64", NULL), STATUS_OK);
    ck_assert_int_eq(c.head_dim_qk, 64);
    ck_assert_ptr_eq(case_field_find("head_dim-qk"), case_field_find("head_dim_qk"));
    ck_assert_ptr_null(case_field_find("head"));
    ck_assert_ptr_null(case_field_find("heads2"));
}
END_TEST

// Sets every field of a fresh case to what case_get() prints of another.
static void copy_by_text(const struct cp_case *from, struct cp_case *to)
{
    case_init(to);
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char text[128];
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
        generate_case(seed, 64, SEQLEN_MAX, &c);
        c.scale = seed % 3 == 0 ? ldexp((double)(generate_next(&seed) >> 11), -60) : 0.1;
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
    ck_assert_int_eq(covered + 11, sizeof(struct cp_case)); // the rest is padding
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
    struct cp_case c = usual();
    ck_assert_str_eq(describe(&c), "bf16 bshd p2p w2 b2 h8 s512 d128 causal");
    strcpy(c.model, "cp_1_0");
    c.heads = c.kv_heads = 12;
    ck_assert_str_eq(describe(&c), "cp_1_0 bf16 bshd p2p w2 b2 h12 s512 d128 causal");
    c = usual();
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
    ck_assert_str_eq(describe(&c), "bf16 bshd p2p w2 b2 h8/2 s512/700 d192/128 full window(100,7) "
                                   "contiguous scale=0.25 forward inputs=te seed=7 explore=3");
}
END_TEST

START_TEST(lines_are_cut_as_snprintf_does)
{
    struct cp_case c = usual();
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

// Runs the words of a command through case_set(), as the command line would.
static void read_command(const char *command, struct cp_case *c)
{
    wordexp_t words;
    ck_assert_msg(wordexp(command, &words, WRDE_NOCMD) == 0, "no shell reads: %s", command);
    ck_assert_str_eq(words.we_wordv[0], "cpattn-submit");
    ck_assert_str_eq(words.we_wordv[1], "case");
    case_init(c);
    for (size_t i = 2; i + 1 < words.we_wordc; i += 2) {
        struct error error = {.text = ""};
        ck_assert_int_eq(strncmp(words.we_wordv[i], "--", 2), 0);
        ck_assert_msg(case_set(c, words.we_wordv[i] + 2, words.we_wordv[i + 1], &error) ==
                          STATUS_OK,
                      "%s", error.text);
    }
    ck_assert_int_eq(words.we_wordc % 2, 0);
    wordfree(&words);
}

START_TEST(command_reproduces_the_case)
{
    char command[1024];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct cp_case c, read;
        generate_case(seed, 64, SEQLEN_MAX, &c);
        if (seed % 2)
            strcpy(c.model, "it's $(odd) \"`*\\");
        ck_assert_int_lt(case_command(&c, command, sizeof command), sizeof command);
        read_command(command, &read);
        ck_assert(same(&c, &read));
    }
    struct cp_case c = usual();
    case_command(&c, command, sizeof command);
    ck_assert_str_eq(command, "cpattn-submit case");
    c.head_dim_v = 64;
    c.training = false;
    case_command(&c, command, sizeof command);
    ck_assert_str_eq(command, "cpattn-submit case --head-dim-v 64 --training false");
}
END_TEST

// ---- derived facts ----

START_TEST(band_is_the_mask)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        generate_case(seed, 8, 12, &c);
        struct case_band band = case_band(&c);
        for (int64_t i = 0; i < c.seqlen_q; i++)
            for (int64_t j = 0; j < c.seqlen_kv; j++) {
                int64_t at = j - i + band.shift;
                if ((-band.left <= at && at <= band.right) != symbolic_visible(&c, i, j))
                    ck_abort_msg("seed %llu: query %lld, key %lld", (unsigned long long)seed,
                                 (long long)i, (long long)j);
            }
    }
}
END_TEST

START_TEST(flops_count_visible_pairs)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct cp_case c;
        generate_case(seed, 8, 12, &c);
        int64_t pairs = 0;
        for (int64_t i = 0; i < c.seqlen_q; i++)
            for (int64_t j = 0; j < c.seqlen_kv; j++)
                pairs += symbolic_visible(&c, i, j);
        double each = 2.0 * c.batch * c.heads * (c.head_dim_qk + c.head_dim_v);
        ck_assert_double_eq(case_flops_forward(&c), each * (double)pairs);
    }
}
END_TEST

START_TEST(scale_and_element_have_defaults)
{
    struct cp_case c = usual();
    c.head_dim_qk = 64;
    ck_assert_double_eq(case_scale(&c), 0.125);
    c.scale = 0.3;
    ck_assert_double_eq(case_scale(&c), 0.3);
    ck_assert_int_eq(case_element_bytes(&c), 2);
    c.dtype = DTYPE_FP16;
    ck_assert_int_eq(case_element_bytes(&c), 2);
    c.dtype = DTYPE_FP32;
    ck_assert_int_eq(case_element_bytes(&c), 4);
}
END_TEST

START_TEST(hash_is_of_what_is_computed)
{
    struct cp_case c = usual(), same = c;
    ck_assert_uint_eq(case_hash(&c), UINT64_C(0xb1a04e1659900fc1));
    strcpy(same.model, "label");
    same.scale = 1 / sqrt(128);
    same.window_right = 0;
    ck_assert_uint_eq(case_hash(&c), case_hash(&same));
}
END_TEST

START_TEST(hash_sees_every_field)
{
    static const char *const other[][2] = {{"world_size", "3"},   {"sharding", "contiguous"},
                                           {"dtype", "fp16"},     {"format", "sbhd"},
                                           {"batch", "1"},        {"heads", "16"},
                                           {"kv_heads", "4"},     {"head_dim_qk", "64"},
                                           {"head_dim_v", "64"},  {"seqlen_q", "513"},
                                           {"seqlen_kv", "513"},  {"mask", "none"},
                                           {"window_left", "4"},  {"scale", "0.5"},
                                           {"training", "false"}, {"inputs", "te"},
                                           {"seed", "1"},         {"explore_seed", "1"}};
    struct cp_case c = usual();
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        struct cp_case changed = c;
        ck_assert_int_eq(case_set(&changed, other[i][0], other[i][1], NULL), STATUS_OK);
        ck_assert_msg(case_hash(&changed) != case_hash(&c), "%s", other[i][0]);
    }
    c.mask = MASK_NONE;
    struct cp_case window = c;
    window.window_right = 4;
    ck_assert_uint_ne(case_hash(&window), case_hash(&c));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("case");
    TCase *check = tcase_create("check");
    tcase_add_test(check, initial_case_is_admitted);
    tcase_add_test(check, generated_cases_are_admitted);
    tcase_add_test(check, fields_outside_their_range_are_refused);
    tcase_add_test(check, choices_outside_their_list_are_refused);
    tcase_add_test(check, fields_that_contradict_each_other_are_refused);
    tcase_add_test(check, scales_that_no_logit_survives_are_refused);
    tcase_add_test(check, labels_that_would_garble_a_terminal_are_refused);
    tcase_add_test(check, sizes_that_no_machine_holds_are_refused);
    tcase_add_test(check, edges_are_admitted);
    suite_add_tcase(s, check);
    TCase *fields = tcase_create("fields");
    tcase_add_test(fields, set_refuses_what_is_not_plain);
    tcase_add_test(fields, set_knows_one_zero);
    tcase_add_test(fields, set_cuts_and_cleans_what_it_quotes);
    tcase_add_test(fields, set_names_the_nearest_field);
    tcase_add_test(fields, names_take_a_dash_for_an_underscore);
    tcase_add_test(fields, every_field_survives_as_text);
    tcase_add_test(fields, every_field_is_described);
    suite_add_tcase(s, fields);
    TCase *lines = tcase_create("lines");
    tcase_add_test(lines, describe_tells_cases_apart);
    tcase_add_test(lines, lines_are_cut_as_snprintf_does);
    tcase_add_test(lines, command_reproduces_the_case);
    suite_add_tcase(s, lines);
    TCase *facts = tcase_create("facts");
    tcase_add_test(facts, band_is_the_mask);
    tcase_add_test(facts, flops_count_visible_pairs);
    tcase_add_test(facts, scale_and_element_have_defaults);
    tcase_add_test(facts, hash_is_of_what_is_computed);
    tcase_add_test(facts, hash_sees_every_field);
    suite_add_tcase(s, facts);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
