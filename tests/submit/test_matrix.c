// SPDX-License-Identifier: Apache-2.0
// Matrix files: product, order and ids, exclusions, subsets, choices of the command line, and the
// place of each mistake.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/fields.h"
#include "client/submit/matrix/matrix_list.h"
#include "tests/support/runner.h"

static struct matrix *read_matrix(const char *text)
{
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct error error = {.text = ""};
    ck_assert_msg(!yaml_load_text("f", text, strlen(text), &yaml, &error), "%s", error.text);
    ck_assert_msg(!matrix_create(yaml, &matrix, &error), "%s", error.text);
    return matrix;
}

static struct matrix_list *expand(const struct matrix *matrix, const struct matrix_choice *choice)
{
    static const struct matrix_choice everything;
    struct matrix_list *list = NULL;
    struct error error = {.text = ""};
    ck_assert_msg(!matrix_list_create(matrix, choice ? choice : &everything, &list, &error), "%s",
                  error.text);
    return list;
}

static const struct cp_case *case_of(const struct matrix_list *list, int index)
{
    static struct job_spec spec;
    matrix_case_load(&list->cases[index], &spec);
    return &spec.attention;
}

// Returns the ids of the cases of one fate, one per line.
static const char *ids(const struct matrix_list *list, enum matrix_fate fate)
{
    static char text[16384];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count; i++)
        if (list->cases[i].fate == fate)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\n", list->cases[i].id);
    return text;
}

static void assert_ids(const char *text, const struct matrix_choice *choice, const char *expected)
{
    struct matrix *matrix = read_matrix(text);
    struct matrix_list *list = expand(matrix, choice);
    ck_assert_str_eq(ids(list, MATRIX_RUNS), expected);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}

#define SMALL                                                                                      \
    "defaults: {batch: 3, head_dim: 64}\n"                                                         \
    "models:\n"                                                                                    \
    "  a: {heads: 12, kv_heads: 12}\n"                                                             \
    "  b: {heads: 9, kv_heads: 3, mask: none}\n"                                                   \
    "axes:\n"                                                                                      \
    "  dtype: [bf16, fp16]\n"                                                                      \
    "  world_size: [2, 4]\n"

// ---- the product ------------------------------------------------------------------------------

START_TEST(models_first_then_axes_the_last_fastest)
{
    assert_ids(SMALL, NULL,
               "a/bf16/w2\na/bf16/w4\na/fp16/w2\na/fp16/w4\n"
               "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n");
    assert_ids(SMALL "  model: all\n", NULL,
               "bf16/w2/a\nbf16/w2/b\nbf16/w4/a\nbf16/w4/b\n"
               "fp16/w2/a\nfp16/w2/b\nfp16/w4/a\nfp16/w4/b\n");
    assert_ids(SMALL "  model: [b]\n", NULL, "bf16/w2/b\nbf16/w4/b\nfp16/w2/b\nfp16/w4/b\n");
    assert_ids("axes: {seqlen: [0, 17]}", NULL, "s0\ns17\n");
    assert_ids("models: {only: {}}", NULL, "only\n");
}
END_TEST

START_TEST(fields_come_from_defaults_model_axes_and_set)
{
    struct matrix *matrix = read_matrix(SMALL);
    const char *const sets[] = {"seqlen=100", "seqlen_kv=200", "heads=3", "kv_heads=1"};
    struct matrix_choice choice = {.sets = sets, .set_count = 4};
    struct matrix_list *list = expand(matrix, NULL);
    const struct cp_case *c = case_of(list, 7);
    ck_assert_str_eq(c->model, "b");
    ck_assert_int_eq(c->batch, 3);
    ck_assert_int_eq(c->head_dim_qk, 64);
    ck_assert_int_eq(c->head_dim_v, 64);
    ck_assert_int_eq(c->heads, 9);
    ck_assert_int_eq(c->kv_heads, 3);
    ck_assert_int_eq(c->mask, MASK_NONE);
    ck_assert_int_eq(c->dtype, DTYPE_FP16);
    ck_assert_int_eq(c->world_size, 4);
    ck_assert_int_eq(case_of(list, 3)->mask, MASK_CAUSAL); // model a leaves the default
    matrix_list_destroy(list);
    list = expand(matrix, &choice);
    c = case_of(list, 7);
    ck_assert_int_eq(c->seqlen_q, 100);
    ck_assert_int_eq(c->seqlen_kv, 200);
    ck_assert_int_eq(c->heads, 3);
    ck_assert_int_eq(c->kv_heads, 1);
    ck_assert_int_eq(c->mask, MASK_NONE);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(values_of_an_axis_can_set_several_fields)
{
    static const char text[] = "axes:\n"
                               "  view: {full: {mask: none}, swa: {mask: none, window_left: 5}}\n"
                               "  training: [true, false]\n";
    assert_ids(text, NULL,
               "full/training=true\nfull/training=false\nswa/training=true\nswa/training=false\n");
    struct matrix *matrix = read_matrix(text);
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_int_eq(case_of(list, 1)->window_left, WINDOW_UNBOUNDED);
    ck_assert_int_eq(case_of(list, 3)->window_left, 5);
    ck_assert(!case_of(list, 3)->training);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(set_of_an_axis_leaves_it_one_value)
{
    const char *const sets[] = {"world_size=3"};
    struct matrix_choice choice = {.sets = sets, .set_count = 1};
    assert_ids(SMALL, &choice, "a/bf16/w3\na/fp16/w3\nb/bf16/w3\nb/fp16/w3\n");
}
END_TEST

START_TEST(labels_tell_numbers_apart)
{
    static const struct {
        const char *field, *value, *label;
    } wanted[] = {
        {"world_size", "4", "w4"},       {"batch", "2", "b2"},
        {"heads", "12", "h12"},          {"kv_heads", "2", "kv2"},
        {"head_dim", "64", "d64"},       {"head_dim_v", "64", "dv64"},
        {"seqlen_q", "512", "s512"},     {"seqlen_kv", "0", "skv0"},
        {"dtype", "fp32", "fp32"},       {"training", "false", "training=false"},
        {"scale", "0.5", "scale=0.5"},   {"window_left", "-1", "window_left=-1"},
        {"mask", "none", "none"},        {"a2a_size", "4", "a4"},
        {"lengths_q", "9,8", "len9,8"},  {"lengths_kv", "", "lenkv"},
        {"pad_multiple", "8", "padto8"}, {"nodes", "2", "nodes2"},
        {"ranks_per_node", "1", "per1"},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct job_spec spec;
        char label[MATRIX_LABEL_MAX];
        job_spec_init(&spec, &job_kind_attention);
        ck_assert_int_eq(job_spec_set(&spec, wanted[i].field, wanted[i].value, NULL), STATUS_OK);
        fields_label(&spec, wanted[i].field, label, sizeof(label));
        ck_assert_str_eq(label, wanted[i].label);
    }
}
END_TEST

static void assert_list(const struct cp_case *c, const char *field, const char *expected)
{
    char text[CASE_VALUE_MAX];
    case_get(c, case_field_find(field), text, sizeof(text));
    ck_assert_str_eq(text, expected);
}

// A list of numbers may be a text or a YAML list, in defaults, models and axes.
START_TEST(lists_are_texts_or_lists)
{
    struct matrix *matrix = read_matrix("defaults: {format: thd, batch: 3, lengths_q: [5, 0, 7]}\n"
                                        "models:\n"
                                        "  a: {padded_q: '8,8,8'}\n"
                                        "  b: {padded_q: [5, 1, 7]}\n"
                                        "  c: {padded_q: []}\n"
                                        "axes:\n"
                                        "  lengths_kv: [[1, 2, 3], '4,5,6', 7, []]\n");
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_str_eq(ids(list, MATRIX_RUNS),
                     "a/lenkv1,2,3\na/lenkv4,5,6\na/lenkv\nb/lenkv1,2,3\nb/lenkv4,5,6\nb/lenkv\n"
                     "c/lenkv1,2,3\nc/lenkv4,5,6\nc/lenkv\n");
    ck_assert_str_eq(list->cases[2].reason, "lengths_kv has 1 numbers and batch is 3; accepted is "
                                            "one for each sequence, or none");
    for (int i = 0; i < list->count; i++)
        assert_list(case_of(list, i), "lengths_q", "5,0,7");
    assert_list(case_of(list, 1), "lengths_kv", "4,5,6");
    assert_list(case_of(list, 1), "padded_q", "8,8,8");
    assert_list(case_of(list, 4), "lengths_kv", "1,2,3");
    assert_list(case_of(list, 4), "padded_q", "5,1,7");
    assert_list(case_of(list, 8), "padded_q", "");
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(lists_are_filtered_as_texts)
{
    static const char text[] = "defaults: {batch: 2}\n"
                               "axes: {lengths_q: [[9, 8], [9, 1], [2, 8], []]}\n"
                               "exclude: [{when: {lengths_q: ['2,8', '3,*']}, reason: r}]\n";
    const char *filters[] = {"lengths_q=9,8"};
    struct matrix_choice choice = {.filters = filters, .filter_count = 1};
    assert_ids(text, NULL, "len9,8\nlen9,1\nlen\n");
    assert_ids(text, &choice, "len9,8\n");
    filters[0] = "lengths_q=9,*";
    assert_ids(text, &choice, "len9,8\nlen9,1\n");
    filters[0] = "lengths_q!=";
    assert_ids(text, &choice, "len9,8\nlen9,1\n");
}
END_TEST

// ---- exclusion, subsets, filters --------------------------------------------------------------

// A `when:` and the cases that it excludes from the eight of SMALL.
static const struct {
    const char *when, *excluded;
} conditions[] = {
    {"{dtype: bf16}", "a/bf16/w2\na/bf16/w4\nb/bf16/w2\nb/bf16/w4\n"},
    {"{dtype: bf16, world_size: 4}", "a/bf16/w4\nb/bf16/w4\n"},
    {"{dtype: [bf16, fp16], model: b, world_size: [4, 8]}", "b/bf16/w4\nb/fp16/w4\n"},
    {"{dtype: {not: bf16}, model: a}", "a/fp16/w2\na/fp16/w4\n"},
    {"{dtype: {not: [bf16, fp32]}, model: a}", "a/fp16/w2\na/fp16/w4\n"},
    {"{heads: {not: {multiple_of: 2}}, dtype: bf16}", "b/bf16/w2\nb/bf16/w4\n"},
    {"{heads: {multiple_of: 2}, dtype: bf16}", "a/bf16/w2\na/bf16/w4\n"},
    {"{heads: {min: 10}, dtype: bf16}", "a/bf16/w2\na/bf16/w4\n"},
    {"{heads: {max: 9}, dtype: bf16}", "b/bf16/w2\nb/bf16/w4\n"},
    {"{heads: {min: 9, max: 9}, dtype: bf16}", "b/bf16/w2\nb/bf16/w4\n"},
    {"{heads: {min: 10, multiple_of: 3, max: 12}, dtype: bf16}", "a/bf16/w2\na/bf16/w4\n"},
    {"{heads: [{min: 12}, 9], world_size: 2, dtype: bf16}", "a/bf16/w2\nb/bf16/w2\n"},
    {"{heads: {field: kv_heads}, dtype: bf16}", "a/bf16/w2\na/bf16/w4\n"},
    {"{heads: {not: {field: kv_heads}}, dtype: bf16}", "b/bf16/w2\nb/bf16/w4\n"},
    {"{model: '*', dtype: bf16, world_size: 2}", "a/bf16/w2\nb/bf16/w2\n"},
    {"{scale: 0, batch: 3, training: true, mask: none, world_size: 2}", "b/bf16/w2\nb/fp16/w2\n"},
    {"{window_left: -1, head_dim_v: 64, seed: 1234, model: {not: a}}",
     "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
    {"{scale: {min: 0.5}}", ""},
};

START_TEST(conditions_exclude_matching_cases)
{
    char text[1024];
    snprintf(text, sizeof(text), SMALL "exclude:\n  - {when: %s, reason: because}\n",
             conditions[_i].when);
    struct matrix *matrix = read_matrix(text);
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_str_eq(ids(list, MATRIX_EXCLUDED), conditions[_i].excluded);
    ck_assert_int_eq(list->fate_count[MATRIX_RUNS] + list->fate_count[MATRIX_EXCLUDED], 8);
    for (int i = 0; i < list->count; i++)
        if (list->cases[i].fate == MATRIX_EXCLUDED)
            ck_assert_str_eq(list->cases[i].reason, "because");
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(the_first_rule_that_matches_gives_the_reason)
{
    struct matrix *matrix = read_matrix(SMALL "exclude:\n"
                                              "  - {when: {dtype: bf16, model: a}, reason: one}\n"
                                              "  - {when: {model: a}, reason: two}\n");
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_int_eq(list->fate_count[MATRIX_EXCLUDED], 4);
    ck_assert_str_eq(list->cases[0].reason, "one");
    ck_assert_str_eq(list->cases[2].reason, "two");
    ck_assert_ptr_null(list->cases[4].reason);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(an_invalid_case_is_refused_with_the_reason)
{
    struct matrix *matrix = read_matrix("models: {good: {}, bad: {heads: 12, kv_heads: 5}}\n"
                                        "axes: {dtype: [bf16]}\n");
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_str_eq(ids(list, MATRIX_RUNS), "good/bf16\n");
    ck_assert_str_eq(ids(list, MATRIX_REFUSED), "bad/bf16\n");
    ck_assert_int_eq(list->cases[1].status, STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(list->cases[1].reason, "heads is 12 and kv_heads is 5; accepted is a heads "
                                            "that is a multiple of kv_heads");
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

#define SUBSETS                                                                                    \
    SMALL "subsets:\n"                                                                             \
          "  quick: {model: a, world_size: 2}\n"                                                   \
          "  corners: [{model: a, dtype: bf16, world_size: 2}, {model: b, dtype: fp16}]\n"

START_TEST(subsets_and_filters_choose)
{
    struct matrix_choice choice = {.subset = "quick"};
    assert_ids(SUBSETS, &choice, "a/bf16/w2\na/fp16/w2\n");
    choice.subset = "corners";
    assert_ids(SUBSETS, &choice, "a/bf16/w2\nb/fp16/w2\nb/fp16/w4\n");
    const char *const filters[] = {"dtype=fp16,fp32", "world_size!=2"};
    choice.filters = filters;
    choice.filter_count = 2;
    assert_ids(SUBSETS, &choice, "b/fp16/w4\n");
    choice.subset = NULL;
    assert_ids(SUBSETS, &choice, "a/fp16/w4\nb/fp16/w4\n");
    const char *const seeds[] = {"seed>1"};
    choice = (struct matrix_choice){.filters = seeds, .filter_count = 1, .subset = "fives"};
    assert_ids("axes: {seed: [1, 5, 18446744073709551614, 18446744073709551615]}\n"
               "subsets: {fives: {seed: {multiple_of: 5}}}\n",
               &choice, "seed5\nseed18446744073709551615\n");
}
END_TEST

static const struct {
    const char *filter, *chosen;
} filters[] = {
    {"model=a", "a/bf16/w2\na/bf16/w4\na/fp16/w2\na/fp16/w4\n"},
    {"model!=a", "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
    {"world-size=4", "a/bf16/w4\na/fp16/w4\nb/bf16/w4\nb/fp16/w4\n"},
    {"heads=12,9", "a/bf16/w2\na/bf16/w4\na/fp16/w2\na/fp16/w4\n"
                   "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
    {"a/*/w2", "a/bf16/w2\na/fp16/w2\n"},
    {"16/w2", "a/bf16/w2\na/fp16/w2\nb/bf16/w2\nb/fp16/w2\n"},
    {"[b]/bf*", "b/bf16/w2\nb/bf16/w4\n"},
    {"nothing like it", ""},
    {"world_size>2", "a/bf16/w4\na/fp16/w4\nb/bf16/w4\nb/fp16/w4\n"},
    {"world_size>=4", "a/bf16/w4\na/fp16/w4\nb/bf16/w4\nb/fp16/w4\n"},
    {"world_size<4", "a/bf16/w2\na/fp16/w2\nb/bf16/w2\nb/fp16/w2\n"},
    {"world_size<=2", "a/bf16/w2\na/fp16/w2\nb/bf16/w2\nb/fp16/w2\n"},
    {"world_size*batch>1k", ""},
    {"softcap>=0.5", ""},
    {"seqlen>=512 or b/bf*", "a/bf16/w2\na/bf16/w4\na/fp16/w2\na/fp16/w4\n"
                             "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
    {"seqlen>1k or b/bf*", "b/bf16/w2\nb/bf16/w4\n"},
    {"model=a or world_size>2 or b/bf16/w2", "a/bf16/w2\na/bf16/w4\na/fp16/w2\na/fp16/w4\n"
                                             "b/bf16/w2\nb/bf16/w4\nb/fp16/w4\n"},
    {"world_size!=2 or model=b",
     "a/bf16/w4\na/fp16/w4\nb/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
    {"[!a]*", "b/bf16/w2\nb/bf16/w4\nb/fp16/w2\nb/fp16/w4\n"},
};

START_TEST(filters_select_matching_cases)
{
    struct matrix *matrix = read_matrix(SMALL);
    struct matrix_choice choice = {.filters = &filters[_i].filter, .filter_count = 1};
    struct matrix_list *list = expand(matrix, &choice);
    ck_assert_str_eq(ids(list, MATRIX_RUNS), filters[_i].chosen);
    ck_assert_int_eq(list->count + list->left_out, 8);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

// ---- mistakes ---------------------------------------------------------------------------------

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"", "f:1:1: neither 'models' nor 'axes' is given: there is no case"},
    {"- a\n", "f:1:1: a list: expected a map"},
    {"titel: x\n",
     "f:1:1: unknown key 'titel' (did you mean 'title'?); known: title, kind, timeout, "
     "defaults, models, axes, set, exclude, subsets"},
    {"timeout: soon\n", "f:1:10: key 'timeout': value 'soon': expected a length of time such as "
                        "90, 90s, 1.5s, 250ms, 10us, 2m or 1h"},
    {"defaults:\n  hedas: 3\n", "f:2:3: 'hedas' is not a field of a case (did you mean 'heads'?)"},
    {"defaults:\n  heads: 0\n", "f:2:10: heads is '0'; accepted is 1 to 4096"},
    {"defaults:\n  heads: [1]\n", "f:2:10: key 'heads': a list: expected a single value"},
    {"defaults: {seqlen: -1}\n", "f:1:20: seqlen_q is '-1'; accepted is 0 to 16777216"},
    {"defaults: {seqlen: 1099511627776}\n",
     "f:1:20: seqlen_q is '1099511627776'; accepted is 0 to 16777216"},
    {"defaults: {lengths_q: [1, x]}\n",
     "f:1:23: lengths_q is '1,x'; accepted is up to 1024 whole numbers from 0 to 16777216 with "
     "commas between them"},
    {"defaults: {lengths_q: [1, [2]]}\n",
     "f:1:27: item 2 of key 'lengths_q': a list: expected a single value"},
    {"defaults: {lengths_q: ['1,2', 3]}\n",
     "f:1:24: item 1 of key 'lengths_q': value '1,2': expected a number"},
    {"defaults: {seqlen_q: [1, 2]}\n", "f:1:22: key 'seqlen_q': a list: expected a single value"},
    {"axes: {lengths_q: ['1000001,1000002,1000003,1000004,1000005,1000006,1000007,1000008']}\n",
     "f:1:20: the value is longer than the 63 characters that an id has for it; give it a name in "
     "an axis with named values"},
    {"defaults: {seqlen: 4, seqlen_kv: 5}\n", "f:1:23: 'seqlen_kv' sets seqlen_kv once more"},
    {"models: [a]\n", "f:1:9: key 'models': a list: expected a map"},
    {"models: {}\n", "f:1:9: key 'models': a map: expected at least one value"},
    {"models: {a: 5}\n", "f:1:13: key 'a': value '5': expected a map"},
    {"models: {a b: {}}\n", "f:1:10: 'a b' is no name for a model; names are 1 to 63 letters, "
                            "digits and _.+-"},
    {"models: {a: {mask: diagonal}}\n", "f:1:20: mask is 'diagonal'; accepted is none, causal, "
                                        "causal_bottom_right or none_bottom_right"},
    {"models: {a: {}, b: {dtype: int8}}\naxes: {model: [a]}\n",
     "f:1:28: dtype is 'int8'; accepted is bf16, fp16 or fp32"},
    {"axes: {dtype: bf16}\n", "f:1:15: key 'dtype': value 'bf16': expected a list"},
    {"axes: {dtype: {x: {}}}\n", "f:1:15: key 'dtype': a map: expected a list"},
    {"axes: {dtype: []}\n", "f:1:15: key 'dtype': a list: expected at least one value"},
    {"axes: {dtype: [bf16, bf17]}\n", "f:1:22: dtype is 'bf17'; accepted is bf16, fp16 or fp32"},
    {"axes: {world_size: [0]}\n", "f:1:21: world_size is '0'; accepted is 1 to 64"},
    {"axes: {world_size: [65]}\n", "f:1:21: world_size is '65'; accepted is 1 to 64"},
    {"axes: {dtype: [bf16, bf16]}\n", "f:1:22: 'bf16' occurs twice in axis 'dtype'"},
    {"axes: {dtyp: [bf16]}\n", "f:1:8: 'dtyp' is not a field of a case (did you mean 'dtype'?)"},
    {"axes: {model: all}\n", "f:1:8: axis 'model' needs a map 'models' beside 'axes'"},
    {"models: {a: {}}\naxes: {model: [a, c]}\n",
     "f:2:19: item 2 of key 'model': value 'c': expected the name of a model of this file"},
    {"models: {a: {}}\naxes: {model: [a, a]}\n", "f:2:19: 'a' occurs twice in axis 'model'"},
    {"models: {a: {dtype: bf16}}\naxes: {dtype: [fp16]}\n",
     "f:2:8: axis 'dtype' sets dtype, which axis 'model' sets too"},
    {"defaults: {dtype: bf16}\naxes: {dtype: [fp16]}\n",
     "f:2:8: axis 'dtype' sets dtype, which 'defaults' sets too"},
    {SMALL "exclude: {}\n", "f:8:10: key 'exclude': a map: expected a list"},
    {SMALL "exclude: [{when: {dtype: bf16}}]\n", "f:8:11: key 'reason' is missing"},
    {SMALL "exclude: [{reason: x}]\n", "f:8:11: key 'when' is missing"},
    {SMALL "exclude: [{when: {}, reason: x}]\n",
     "f:8:18: key 'when': a map: expected at least one condition"},
    {SMALL "exclude: [{when: {dtype: bf17}, reason: x}]\n",
     "f:8:26: dtype is 'bf17'; accepted is bf16, fp16 or fp32"},
    {SMALL "exclude: [{when: {model: c}, reason: x}]\n", "f:8:26: no model is called 'c'"},
    {SMALL "exclude: [{when: {colour: c}, reason: x}]\n",
     "f:8:19: 'colour' is neither a field nor an axis"},
    {SMALL "exclude: [{when: {heads: {mni: 3}}, reason: x}]\n",
     "f:8:27: unknown key 'mni' (did you mean 'min'?); known: min, max, multiple_of, field"},
    {SMALL "exclude: [{when: {heads: {not: 3, min: 1}}, reason: x}]\n",
     "f:8:26: 'not' must be the only key; move the other tests into it"},
    {SMALL "exclude: [{when: {heads: {}}, reason: x}]\n",
     "f:8:26: key 'heads': a map: expected a test: min, max, multiple_of or field"},
    {SMALL "exclude: [{when: {heads: []}, reason: x}]\n",
     "f:8:26: key 'heads': a list: expected at least one value"},
    {SMALL "exclude: [{when: {heads: {multiple_of: 0}}, reason: x}]\n",
     "f:8:40: key 'multiple_of': value '0': expected an integer from 1 to 2147483647"},
    {SMALL "exclude: [{when: {dtype: {min: 2}}, reason: x}]\n",
     "f:8:27: 'min' needs a field that is a number"},
    {SMALL "exclude: [{when: {dtype: {field: heads}}, reason: x}]\n",
     "f:8:26: 'field' compares two fields of one kind"},
    {SMALL "exclude: [{when: {model: {field: heads}}, reason: x}]\n",
     "f:8:26: 'field' compares two fields of one kind"},
    {SMALL "exclude: [{when: {heads: {field: model}}, reason: x}]\n",
     "f:8:34: key 'field': value 'model': expected the name of a field of a case, not of a text or "
     "a list"},
    {SMALL "subsets: {s: []}\n",
     "f:8:14: key 's': a list: expected at least one map of conditions"},
    {SMALL "subsets: {s: {model: c}}\n", "f:8:22: no model is called 'c'"},
};

START_TEST(every_mistake_of_a_file_has_its_place)
{
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct error error = {.text = ""};
    const char *text = mistakes[_i].text;
    ck_assert_int_eq(yaml_load_text("f", text, strlen(text), &yaml, &error), STATUS_OK);
    ck_assert_int_eq(matrix_create(yaml, &matrix, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, mistakes[_i].message);
    ck_assert_ptr_null(matrix);
    matrix_destroy(NULL);
}
END_TEST

static const struct {
    const char *set, *filter, *subset, *message;
} wrong_choices[] = {
    {"heads", NULL, NULL, "--set heads: expected FIELD=VALUE"},
    {"heads=x", NULL, NULL, "--set heads=x: heads is 'x'; accepted is 1 to 4096"},
    {"hedas=1", NULL, NULL,
     "--set hedas=1: 'hedas' is not a field of a case (did you mean 'heads'?)"},
    {"model=a", NULL, NULL, "--set model=a: choose models with --filter model=a"},
    {NULL, "model=c", NULL, "--filter model=c: no model is called 'c'"},
    {NULL, "dtyp=bf16", NULL,
     "--filter dtyp=bf16: 'dtyp' is neither a field nor an axis (did you mean 'dtype'?)"},
    {NULL, "dtype=bf16,x", NULL,
     "--filter dtype=bf16,x: dtype is 'x'; accepted is bf16, fp16 or fp32"},
    {NULL, "dtype>bf16", NULL,
     "--filter dtype>bf16: '>' needs a field that is a number; dtype takes only = and !="},
    {NULL, "heads<many", NULL, "--filter heads<many: 'many' is no number to compare heads with"},
    {NULL, "model=a or ", NULL, "--filter model=a or : a filter is missing after 'or'"},
    {NULL, "model=a or", NULL, "--filter model=a or: a filter is missing after 'or'"},
    {NULL, NULL, "qiuck",
     "--subset qiuck: the file has no subset of this name (did you mean 'quick'?); known: quick, "
     "corners"},
};

START_TEST(every_wrong_choice_is_named)
{
    struct matrix *matrix = read_matrix(SUBSETS);
    struct matrix_list *list = NULL;
    struct error error = {.text = ""};
    struct matrix_choice choice = {.sets = &wrong_choices[_i].set,
                                   .set_count = wrong_choices[_i].set != NULL,
                                   .filters = &wrong_choices[_i].filter,
                                   .filter_count = wrong_choices[_i].filter != NULL,
                                   .subset = wrong_choices[_i].subset};
    ck_assert_int_eq(matrix_list_create(matrix, &choice, &list, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, wrong_choices[_i].message);
    ck_assert_ptr_null(list);
    matrix_destroy(matrix);
}
END_TEST

// Adds an axis `name` with the values 1 to `count`. Returns the length of the text.
static size_t add_axis(char *text, size_t used, size_t size, const char *name, int count)
{
    used += (size_t)snprintf(text + used, size - used, "  %s: [1", name);
    for (int i = 2; i <= count; i++)
        used += (size_t)snprintf(text + used, size - used, ",%d", i);
    return used + (size_t)snprintf(text + used, size - used, "]\n");
}

START_TEST(the_product_is_bounded)
{
    static char text[65536];
    for (int extra = 0; extra < 2; extra++) {
        struct matrix_choice everything = {0};
        struct matrix_list *list = NULL;
        struct error error;
        size_t used = (size_t)snprintf(text, sizeof(text), "axes:\n");
        used = add_axis(text, used, sizeof(text), "batch", 1000 + extra);
        add_axis(text, used, sizeof(text), "seqlen", 100);
        struct matrix *matrix = read_matrix(text);
        enum status status = matrix_list_create(matrix, &everything, &list, &error);
        ck_assert_int_eq(status, extra ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
        if (extra)
            ck_assert_str_eq(error.text, "the matrix has more than 100000 combinations; split it "
                                         "into several files");
        else
            ck_assert_str_eq(list->cases[MATRIX_CASES_MAX - 1].id, "b1000/s100");
        matrix_list_destroy(list);
        matrix_destroy(matrix);
    }
}
END_TEST

// The test extends the axis in memory. Reading a file compares each value with all before it, which
// would take long.
START_TEST(an_axis_may_have_more_values_than_fit_in_16_bits)
{
    enum { LAST = 32768 };
    struct matrix *matrix = read_matrix("axes: {seqlen: [17]}");
    struct matrix_axis *axis = &matrix->axes[0];
    axis->values = reallocarray(axis->values, LAST + 1, sizeof(*axis->values));
    ck_assert_ptr_nonnull(axis->values);
    for (axis->count = 1; axis->count <= LAST; axis->count++)
        axis->values[axis->count] = axis->values[0];
    strcpy(axis->values[LAST].label, "last");
    struct matrix_list *list = expand(matrix, NULL);
    ck_assert_int_eq(list->count, LAST + 1);
    ck_assert_int_eq(list->cases[LAST].value[0], LAST);
    ck_assert_str_eq(list->cases[LAST].id, "last");
    matrix_list_destroy(list);
    matrix_destroy(matrix);
}
END_TEST

START_TEST(axes_are_bounded)
{
    char text[2048];
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct error error;
    size_t used = (size_t)snprintf(text, sizeof(text), "axes:\n");
    for (int i = 0; i <= MATRIX_AXES_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "  x%d: {v: {}}\n", i);
    ck_assert_int_eq(yaml_load_text("f", text, used, &yaml, &error), STATUS_OK);
    ck_assert_int_eq(matrix_create(yaml, &matrix, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "f:18:3: more than 16 axes");
}
END_TEST

#define LOOP(tcase, test, table)                                                                   \
    tcase_add_loop_test(tcase, test, 0, (int)(sizeof(table) / sizeof((table)[0])))

int main(void)
{
    Suite *suite = suite_create("matrix");
    TCase *product = tcase_create("product"), *choice = tcase_create("choice"),
          *wrong = tcase_create("mistakes");
    tcase_set_timeout(product, 60); // 100,000 cases
    tcase_add_test(product, models_first_then_axes_the_last_fastest);
    tcase_add_test(product, fields_come_from_defaults_model_axes_and_set);
    tcase_add_test(product, values_of_an_axis_can_set_several_fields);
    tcase_add_test(product, set_of_an_axis_leaves_it_one_value);
    tcase_add_test(product, labels_tell_numbers_apart);
    tcase_add_test(product, lists_are_texts_or_lists);
    tcase_add_test(product, lists_are_filtered_as_texts);
    tcase_add_test(product, the_product_is_bounded);
    tcase_add_test(product, an_axis_may_have_more_values_than_fit_in_16_bits);
    tcase_add_test(product, axes_are_bounded);
    LOOP(choice, conditions_exclude_matching_cases, conditions);
    tcase_add_test(choice, the_first_rule_that_matches_gives_the_reason);
    tcase_add_test(choice, an_invalid_case_is_refused_with_the_reason);
    tcase_add_test(choice, subsets_and_filters_choose);
    LOOP(choice, filters_select_matching_cases, filters);
    LOOP(wrong, every_mistake_of_a_file_has_its_place, mistakes);
    LOOP(wrong, every_wrong_choice_is_named, wrong_choices);
    suite_add_tcase(suite, product);
    suite_add_tcase(suite, choice);
    suite_add_tcase(suite, wrong);
    return runner_run(suite);
}
