// SPDX-License-Identifier: Apache-2.0
// Admission of cases, and values derived from a case.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/slice.h"
#include "plan/team.h"
#include "tests/support/cases.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

// ---- check ----

START_TEST(initial_case_is_admitted)
{
    struct cp_case c = cases_usual();
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
        struct cp_case c = cases_usual();                                                          \
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
    REFUSED(c.format = (enum case_format)9, "format is '9'; accepted is bshd, sbhd or thd");
    REFUSED(c.comm = (enum case_comm) - 1,
            "comm is '-1'; accepted is p2p, all_gather, a2a, a2a+p2p or auto");
    REFUSED(c.sharding = (enum case_sharding)3,
            "sharding is '3'; accepted is zigzag or contiguous");
    REFUSED(c.mask = (enum case_mask)5,
            "mask is '5'; accepted is none, causal, causal_bottom_right or none_bottom_right");
    REFUSED(c.softmax = (enum case_softmax)0,
            "softmax is 'unspecified'; accepted is vanilla, off_by_one or learnable");
    REFUSED(c.bias = (enum case_bias)10, "bias is '10'; accepted is none, 111s, 11ss, 1h1s, 1hss, "
                                         "b11s, b1ss, bh1s or bhss");
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
    REFUSED((c.world_size = 8, c.nodes = 3),
            "nodes is 3 and world_size is 8; accepted is a divisor of world_size, or 0");
    REFUSED(
        (c.world_size = 8, c.ranks_per_node = 3),
        "ranks_per_node is 3, world_size is 8 and nodes is 0; accepted is 0 or world_size / nodes, "
        "and any divisor of world_size if nodes is 0");
    REFUSED(
        (c.world_size = 8, c.nodes = 4, c.ranks_per_node = 4),
        "ranks_per_node is 4, world_size is 8 and nodes is 4; accepted is 0 or world_size / nodes, "
        "and any divisor of world_size if nodes is 0");
    REFUSED(
        (c.mask = MASK_CAUSAL_BOTTOM_RIGHT, c.window_right = 1),
        "window_right is 1 with mask causal_bottom_right; accepted is -1 or 0 there, or mask none");
}
END_TEST

START_TEST(scales_without_finite_logits_are_refused)
{
    REFUSED(c.scale = NAN, "scale is 'nan'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = INFINITY, "scale is 'inf'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = -0.5, "scale is '-0.5'; accepted is a number from 0 to 1000000");
    REFUSED(c.scale = 1e-7,
            "scale is 1e-07; accepted is 0 (meaning 1/sqrt(head_dim_qk)) or 1e-6 to 1e6");
}
END_TEST

START_TEST(scales_without_a_verdict_are_refused)
{
    REFUSED((c.inputs = INPUTS_TE, c.scale = 1000),
            "scale is 1000 with inputs te and head_dim_qk 128; accepted is up to 67.991 there, or "
            "inputs sharp, or verify off");
    REFUSED((c.dtype = DTYPE_FP16, c.scale = 1e-5),
            "scale is 1e-05 with dtype fp16 and head_dim 128/128; accepted is 4.31584e-05 to "
            "181.019 there, or another dtype, or verify off");
    REFUSED((c.dtype = DTYPE_FP16, c.inputs = INPUTS_TE, c.head_dim_qk = 1, c.scale = 182),
            "scale is 182 with dtype fp16 and head_dim 1/128; accepted is 0 to 181.019 there, or "
            "another dtype, or verify off");
    struct cp_case c = cases_usual();
    c.scale = 1000;
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
    c.dtype = DTYPE_FP16;
    c.inputs = INPUTS_TE;
    c.verify = VERIFY_OFF;
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
}
END_TEST

START_TEST(soft_caps_without_logits_are_refused)
{
    REFUSED(c.softcap = 1e-4, "softcap is 0.0001; accepted is 0 (none) or 1e-3 to 1e6");
    REFUSED(c.softcap = NAN, "softcap is 'nan'; accepted is a number from 0 to 1000000");
    REFUSED(c.softcap = 2e6, "softcap is '2000000'; accepted is a number from 0 to 1000000");
    REFUSED(c.lse_tolerance = 0.02, "lse_tolerance is '0.02'; accepted is a number from 0 to 0.01");
    REFUSED(c.lse_tolerance = -1e-9,
            "lse_tolerance is '-1e-09'; accepted is a number from 0 to 0.01");
}
END_TEST

START_TEST(labels_that_would_garble_a_terminal_are_refused)
{
    REFUSED(strcpy(c.model, "a\033[2J"),
            "model is 'a?[2J'; accepted is up to 63 printable ASCII characters");
    struct cp_case c = cases_usual();
    memset(c.model, 'x', sizeof c.model); // no end
    ck_assert_int_eq(case_check(&c, NULL), STATUS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(sizes_that_no_machine_holds_are_refused)
{
    struct cp_case c = cases_usual();
    c.batch = BATCH_MAX;
    c.heads = c.kv_heads = HEADS_MAX;
    c.seqlen_q = c.seqlen_kv = SEQLEN_MAX;
    c.head_dim_qk = c.head_dim_v = HEAD_DIM_MAX;
    expect_refused(
        &c, STATUS_RESOURCE_EXHAUSTED,
        "batch 4096 x seqlen 16777216/16777216 x heads 4096/4096 x head_dim 256/256 needs "
        "more than 1 PiB of memory per rank (world_size 2)");
    c.batch = c.heads = c.kv_heads = 1; // one sequence of this length is admitted
    ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
}
END_TEST

START_TEST(edges_are_admitted)
{
    struct cp_case c = cases_usual();
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

#define LISTS_REFUSED(q, kv, padded_q, padded_kv, text)                                            \
    do {                                                                                           \
        struct cp_case c = cases_thd(q, kv, padded_q, padded_kv);                                  \
        expect_refused(&c, STATUS_INVALID_ARGUMENT, text);                                         \
    } while (0)

START_TEST(lengths_that_fit_no_sequence_are_refused)
{
    LISTS_REFUSED("1,2,3", "", "", "",
                  "lengths_q has 3 numbers and batch is 2; accepted is one for each sequence, or "
                  "none");
    LISTS_REFUSED("", "7", "", "",
                  "lengths_kv has 1 numbers and batch is 2; accepted is one for each sequence, or "
                  "none");
    LISTS_REFUSED("", "", "", "7",
                  "padded_kv has 1 numbers and batch is 2; accepted is one for each sequence, or "
                  "none");
    LISTS_REFUSED("512,513", "", "", "",
                  "lengths_q[1] is 513 and seqlen_q is 512; accepted is 0 to seqlen_q");
    LISTS_REFUSED("", "600,1", "", "",
                  "lengths_kv[0] is 600 and seqlen_kv is 512; accepted is 0 to seqlen_kv");
    LISTS_REFUSED("9,8", "", "9,7", "",
                  "padded_q[1] is 7 and the sequence has 8 tokens; accepted is at least that");
    LISTS_REFUSED("9,8", "", "", "8,8",
                  "padded_kv[0] is 8 and the sequence has 9 tokens; accepted is at least that");
    LISTS_REFUSED("", "", "512,511", "",
                  "padded_q[1] is 511 and the sequence has 512 tokens; accepted is at least that");
}
END_TEST

START_TEST(padding_without_effect_is_refused)
{
    struct cp_case listed = cases_thd("9,8", "", "12,8", ""), outside = listed;
    ck_assert_int_eq(case_check(&listed, NULL), STATUS_OK);
    listed.pad_multiple = 4;
    expect_refused(&listed, STATUS_INVALID_ARGUMENT,
                   "pad_multiple is 4 with padded lengths for both sides; accepted is 1 there");
    cases_set(&listed, "lengths_kv", "1,2"); // pad_multiple applies to these
    ck_assert_int_eq(case_check(&listed, NULL), STATUS_OK);
    outside.format = FORMAT_SBHD;
    expect_refused(&outside, STATUS_INVALID_ARGUMENT,
                   "padded_q is given with format sbhd; accepted is none there, or format thd");
    REFUSED(c.pad_multiple = 4,
            "pad_multiple is 4 with format bshd; accepted is 1 there, or format thd");
    REFUSED(c.pad_multiple = 0, "pad_multiple is '0'; accepted is 1 to 65536");
}
END_TEST

START_TEST(lists_without_an_end_are_refused)
{
    REFUSED(c.list_count[LIST_PADDED_Q] = SEQUENCES_MAX + 1,
            "padded_q is '1025 numbers'; accepted is up to 1024 whole numbers from 0 to 16777216 "
            "with commas between them");
    REFUSED(c.list_count[LIST_LENGTHS_KV] = -1,
            "lengths_kv is '-1 numbers'; accepted is up to 1024 whole numbers from 0 to 16777216 "
            "with commas between them");
    struct cp_case negative = cases_thd("5,6", "", "", "");
    negative.list_values[1] = -2;
    expect_refused(&negative, STATUS_INVALID_ARGUMENT,
                   "lengths_q is '5,-2'; accepted is up to 1024 whole numbers from 0 to 16777216 "
                   "with commas between them");
    struct cp_case many = cases_usual();
    many.batch = SEQUENCES_MAX + 1; // possible without lists
    ck_assert_int_eq(case_check(&many, NULL), STATUS_OK);
}
END_TEST

// ---- derived facts ----

START_TEST(band_is_the_mask)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        generate_case(seed, 8, 12, &c);
        for (int32_t sequence = 0; sequence < c.batch; sequence++) {
            struct case_band band = case_band(&c, sequence);
            for (int64_t i = 0; i < definition_length(&c, SIDE_Q, sequence); i++)
                for (int64_t j = 0; j < definition_length(&c, SIDE_KV, sequence); j++) {
                    int64_t at = j - i + band.shift;
                    bool visible = definition_visible(&c, sequence, i, j);
                    if ((-band.left <= at && at <= band.right) != visible)
                        ck_abort_msg("seed %llu: query %lld, key %lld", (unsigned long long)seed,
                                     (long long)i, (long long)j);
                }
        }
    }
}
END_TEST

// Tokens of a sequence, with and without padding.
START_TEST(lengths_come_from_lists_or_defaults)
{
    static const struct {
        const char *lists[4];
        int pad_multiple, length_q, length_kv, occupied_q, occupied_kv; // of sequence 1 of 2
    } samples[] = {
        {{"", "", "", ""}, 1, 512, 512, 512, 512},     {{"9,8", "", "", ""}, 1, 8, 8, 8, 8},
        {{"9,8", "", "12,8", ""}, 1, 8, 8, 8, 8},      {{"8,9", "", "8,12", ""}, 1, 9, 9, 12, 12},
        {{"8,9", "", "", "8,12"}, 1, 9, 9, 9, 12},     {{"8,9", "7,5", "8,12", ""}, 1, 9, 5, 12, 5},
        {{"8,9", "7,5", "", ""}, 4, 9, 5, 12, 8},      {{"", "7,5", "", ""}, 1, 512, 5, 512, 5},
        {{"", "", "", ""}, 500, 512, 512, 1000, 1000}, {{"1,0", "", "", ""}, 3, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const char *const *lists = samples[i].lists;
        struct cp_case c = cases_thd(lists[0], lists[1], lists[2], lists[3]);
        c.pad_multiple = samples[i].pad_multiple;
        ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
        ck_assert_int_eq(case_length(&c, SIDE_Q, 1), samples[i].length_q);
        ck_assert_int_eq(case_length(&c, SIDE_KV, 1), samples[i].length_kv);
        ck_assert_int_eq(case_occupied(&c, SIDE_Q, 1), samples[i].occupied_q);
        ck_assert_int_eq(case_occupied(&c, SIDE_KV, 1), samples[i].occupied_kv);
        ck_assert_int_eq(case_is_even(&c, SIDE_Q), i == 0 || i == 7);
        ck_assert_int_eq(case_is_even(&c, SIDE_KV), i == 0);
    }
    struct cp_case c = cases_thd("9,8", "", "", "");
    c.seqlen_kv = 700; // lengths of keys follow those of queries only if seqlen is the same
    ck_assert_int_eq(case_length(&c, SIDE_KV, 1), 700);
    c.format = FORMAT_BSHD;
    ck_assert_int_eq(case_length(&c, SIDE_Q, 1), 8);
    ck_assert_int_eq(case_occupied(&c, SIDE_Q, 1), 512);
    ck_assert(!case_is_even(&c, SIDE_Q));
}
END_TEST

START_TEST(lengths_follow_the_definition)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct cp_case c;
        generate_case(seed, 8, 100, &c);
        for (int side = SIDE_Q; side <= SIDE_KV; side++)
            for (int32_t i = 0; i < c.batch; i++) {
                enum shard_side s = (enum shard_side)side;
                ck_assert_int_eq(case_length(&c, s, i), definition_length(&c, s, i));
                ck_assert_int_eq(case_occupied(&c, s, i), definition_occupied(&c, s, i));
            }
    }
}
END_TEST

START_TEST(scale_and_element_have_defaults)
{
    struct cp_case c = cases_usual();
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

START_TEST(the_hash_covers_the_computation)
{
    struct cp_case c = cases_usual(), same = c;
    ck_assert_uint_eq(case_hash(&c), UINT64_C(0x8124ee4fabd54bd9));
    strcpy(same.model, "label");
    same.scale = 1 / sqrt(128);
    same.window_right = 0;
    ck_assert_uint_eq(case_hash(&c), case_hash(&same));
    c.mask = MASK_NONE; // without a window there is no diagonal
    same.mask = MASK_NONE_BOTTOM_RIGHT;
    same.window_right = WINDOW_UNBOUNDED;
    ck_assert_uint_eq(case_hash(&c), case_hash(&same));
    c.window_left = same.window_left = 4;
    ck_assert_uint_ne(case_hash(&c), case_hash(&same));
}
END_TEST

// One diagonal starts at the first key, the other ends at the last key.
START_TEST(windows_are_measured_from_either_diagonal)
{
    struct cp_case c = cases_usual();
    c.seqlen_q = 3;
    c.seqlen_kv = 5;
    c.mask = MASK_NONE;
    c.window_left = c.window_right = 0;
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 5; j++) {
            c.mask = MASK_NONE;
            ck_assert_int_eq(definition_visible(&c, 0, i, j), j == i);
            c.mask = MASK_NONE_BOTTOM_RIGHT;
            ck_assert_int_eq(definition_visible(&c, 0, i, j), j == i + 2);
        }
}
END_TEST

// The same lengths in another notation are the same case.
START_TEST(hash_is_of_lengths_not_of_lists)
{
    struct cp_case c = cases_usual(), same = c;
    cases_set(&same, "lengths_q", "512,512");
    ck_assert_uint_eq(case_hash(&c), case_hash(&same));
    c = cases_thd("9,8", "", "", "");
    c.pad_multiple = 4;
    same = cases_thd("9,8", "9,8", "12,8", "12,8");
    ck_assert_uint_eq(case_hash(&c), case_hash(&same));
    same = cases_thd("9,8", "9,8", "12,8", "");
    ck_assert_uint_ne(case_hash(&c), case_hash(&same));
}
END_TEST

START_TEST(hash_sees_every_field)
{
    static const char *const other[][2] = {{"world_size", "3"},
                                           {"sharding", "contiguous"},
                                           {"dtype", "fp16"},
                                           {"format", "sbhd"},
                                           {"batch", "1"},
                                           {"heads", "16"},
                                           {"kv_heads", "4"},
                                           {"head_dim_qk", "64"},
                                           {"head_dim_v", "64"},
                                           {"seqlen_q", "513"},
                                           {"seqlen_kv", "513"},
                                           {"mask", "none"},
                                           {"window_left", "4"},
                                           {"scale", "0.5"},
                                           {"training", "false"},
                                           {"inputs", "te"},
                                           {"comm", "a2a"},
                                           {"softcap", "5"},
                                           {"softmax", "learnable"},
                                           {"bias", "11ss"},
                                           {"max_logit", "true"},
                                           {"provider", "mine"},
                                           {"deterministic", "false"},
                                           {"verify", "off"},
                                           {"verify", "full"},
                                           {"lse_tolerance", "0.001"},
                                           {"lengths_q", "512,5"},
                                           {"lengths_kv", "512,5"},
                                           {"seed", "1"},
                                           {"explore_seed", "1"},
                                           {"nodes", "2"},
                                           {"ranks_per_node", "1"},
                                           {"graph", "true"},
                                           {"operation_times", "true"}};
    struct cp_case c = cases_usual();
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        struct cp_case changed = c;
        ck_assert_int_eq(case_set(&changed, other[i][0], other[i][1], NULL), STATUS_OK);
        ck_assert_msg(case_hash(&changed) != case_hash(&c), "%s", other[i][0]);
    }
    c.mask = MASK_NONE;
    struct cp_case window = c;
    window.window_right = 4;
    ck_assert_uint_ne(case_hash(&window), case_hash(&c));
    c.format = FORMAT_THD;
    struct cp_case padded = c;
    padded.pad_multiple = 1000;
    ck_assert_uint_ne(case_hash(&padded), case_hash(&c));
    c.comm = COMM_A2A_P2P;
    struct cp_case teams = c;
    teams.a2a_size = 1;
    ck_assert_uint_ne(case_hash(&teams), case_hash(&c));
}
END_TEST

START_TEST(auto_stays_inside_hosts)
{
    static const struct {
        int world_size, nodes, ranks_per_node, kv_heads, size;
        enum case_comm comm;
    } is[] = {{16, 2, 0, 8, 8, COMM_A2A_P2P},  {16, 0, 8, 4, 4, COMM_A2A_P2P},
              {16, 2, 8, 12, 4, COMM_A2A_P2P}, {12, 2, 0, 4, 2, COMM_A2A_P2P},
              {4, 1, 0, 8, 4, COMM_A2A},       {4, 0, 0, 8, 4, COMM_A2A},
              {4, 0, 0, 2, 2, COMM_A2A_P2P},   {4, 4, 0, 8, 1, COMM_P2P},
              {8, 2, 0, 1, 1, COMM_P2P},       {1, 0, 0, 8, 1, COMM_P2P}};
    for (size_t i = 0; i < sizeof is / sizeof is[0]; i++) {
        struct cp_case c = cases_usual();
        c.comm = COMM_AUTO;
        c.world_size = is[i].world_size;
        c.nodes = is[i].nodes;
        c.ranks_per_node = is[i].ranks_per_node;
        c.heads = c.kv_heads = is[i].kv_heads;
        ck_assert_int_eq(case_check(&c, NULL), STATUS_OK);
        ck_assert_int_eq(team_comm(&c), is[i].comm);
        ck_assert_int_eq(team_size(&c), is[i].size);
        struct cp_case named = c;
        named.comm = is[i].comm;
        if (named.comm == COMM_A2A_P2P)
            named.a2a_size = is[i].size;
        int64_t bytes, named_bytes;
        ck_assert_int_eq(case_memory(&c, &bytes, NULL), STATUS_OK);
        ck_assert_int_eq(case_memory(&named, &named_bytes, NULL), STATUS_OK);
        ck_assert_int_eq(bytes, named_bytes);
        c.a2a_size = 4;
        ck_assert_int_eq(case_check(&c, NULL), STATUS_INVALID_ARGUMENT);
    }
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
    tcase_add_test(check, scales_without_finite_logits_are_refused);
    tcase_add_test(check, scales_without_a_verdict_are_refused);
    tcase_add_test(check, soft_caps_without_logits_are_refused);
    tcase_add_test(check, lengths_that_fit_no_sequence_are_refused);
    tcase_add_test(check, padding_without_effect_is_refused);
    tcase_add_test(check, lists_without_an_end_are_refused);
    tcase_add_test(check, auto_stays_inside_hosts);
    tcase_add_test(check, labels_that_would_garble_a_terminal_are_refused);
    tcase_add_test(check, sizes_that_no_machine_holds_are_refused);
    tcase_add_test(check, edges_are_admitted);
    suite_add_tcase(s, check);
    TCase *facts = tcase_create("facts");
    tcase_add_test(facts, lengths_come_from_lists_or_defaults);
    tcase_add_test(facts, lengths_follow_the_definition);
    tcase_add_test(facts, band_is_the_mask);
    tcase_add_test(facts, scale_and_element_have_defaults);
    tcase_add_test(facts, the_hash_covers_the_computation);
    tcase_add_test(facts, windows_are_measured_from_either_diagonal);
    tcase_add_test(facts, hash_is_of_lengths_not_of_lists);
    tcase_add_test(facts, hash_sees_every_field);
    suite_add_tcase(s, facts);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
