// SPDX-License-Identifier: Apache-2.0
// Matrix files: changes under conditions, kinds of exclusion, products, shorter sequences. The
// shipped matrix of TransformerEngine's tests has the cases of transformer_engine.txt.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/matrix_list.h"
#include "client/submit/matrix/shrink.h"
#include "plan/slice.h"
#include "tests/support/runner.h"

// A matrix and its cases.
struct made {
    struct matrix *matrix;
    struct matrix_list *list;
};

static struct made make(struct yaml *yaml, const struct matrix_choice *choice)
{
    static const struct matrix_choice everything;
    struct made made = {NULL, NULL};
    struct error error = {.text = ""};
    ck_assert_msg(!matrix_create(yaml, &made.matrix, &error), "%s", error.text);
    ck_assert_msg(
        !matrix_list_create(made.matrix, choice ? choice : &everything, &made.list, &error), "%s",
        error.text);
    return made;
}

static struct made make_text(const char *text, const struct matrix_choice *choice)
{
    struct yaml *yaml = NULL;
    struct error error = {.text = ""};
    ck_assert_msg(!yaml_load_text("f", text, strlen(text), &yaml, &error), "%s", error.text);
    return make(yaml, choice);
}

static void unmake(struct made *made)
{
    matrix_list_destroy(made->list);
    matrix_destroy(made->matrix);
}

static const struct matrix_case *find(const struct made *made, const char *id)
{
    for (int i = 0; i < made->list->count; i++)
        if (strcmp(made->list->cases[i].id, id) == 0)
            return &made->list->cases[i];
    ck_abort_msg("no case %s", id);
    return NULL;
}

static const struct cp_case *load(const struct matrix_case *one)
{
    static struct job_spec spec;
    matrix_case_load(one, &spec);
    return &spec.attention;
}

static const char *list_value(const struct cp_case *c, const char *field)
{
    static char text[CASE_VALUE_MAX];
    case_get(c, case_field_find(field), text, sizeof(text));
    return text;
}

// ---- set --------------------------------------------------------------------------------------

#define CHANGES                                                                                    \
    "models: {a: {heads: 4, kv_heads: 4}, b: {}}\n"                                                \
    "axes: {comm: [p2p, a2a+p2p], format: [bshd, thd], kind: {one: {}, two: {}}}\n"                \
    "set:\n"                                                                                       \
    "  - {when: {comm: a2a+p2p}, fields: {world_size: 4}}\n"                                       \
    "  - {when: {format: thd, kind: two}, fields: {lengths_q: [5, 512]}}\n"                        \
    "  - {when: {world_size: 4, model: b}, fields: {seed: 7}}\n"                                   \
    "  - {when: {world_size: 4, seed: 7, kind: two}, fields: {heads: 16, world_size: 8}}\n"

START_TEST(changes_apply_in_order_where_they_match)
{
    struct made made = make_text(CHANGES, NULL);
    ck_assert_int_eq(made.list->fate_count[MATRIX_RUNS], 16);
    ck_assert_int_eq(load(find(&made, "a/p2p/bshd/one"))->world_size, 2);
    ck_assert_int_eq(load(find(&made, "a/a2a+p2p/bshd/one"))->world_size, 4);
    ck_assert_str_eq(list_value(load(find(&made, "a/p2p/thd/one")), "lengths_q"), "");
    ck_assert_str_eq(list_value(load(find(&made, "a/p2p/thd/two")), "lengths_q"), "5,512");
    ck_assert_int_eq(load(find(&made, "a/a2a+p2p/bshd/two"))->seed, 1234);
    ck_assert_int_eq(load(find(&made, "b/a2a+p2p/bshd/one"))->seed, 7);
    ck_assert_int_eq(load(find(&made, "b/a2a+p2p/bshd/one"))->heads, 8);
    ck_assert_int_eq(load(find(&made, "b/a2a+p2p/bshd/two"))->heads, 16);
    ck_assert_int_eq(load(find(&made, "b/a2a+p2p/bshd/two"))->world_size, 8);
    unmake(&made);
}
END_TEST

START_TEST(the_command_line_is_seen_by_changes_and_has_the_last_word)
{
    const char *const sets[] = {"world_size=4"};
    struct matrix_choice choice = {.sets = sets, .set_count = 1};
    struct made made = make_text(CHANGES, &choice);
    ck_assert_int_eq(load(find(&made, "b/p2p/bshd/two"))->seed, 7);
    ck_assert_int_eq(load(find(&made, "b/p2p/bshd/two"))->heads, 16);
    ck_assert_int_eq(load(find(&made, "b/p2p/bshd/two"))->world_size, 4);
    unmake(&made);
}
END_TEST

START_TEST(exclusions_see_what_changes_made)
{
    struct made made =
        make_text(CHANGES "exclude: [{when: {world_size: {min: 8}}, reason: wide}]\n", NULL);
    ck_assert_int_eq(made.list->fate_count[MATRIX_EXCLUDED], 2);
    ck_assert_int_eq(find(&made, "b/a2a+p2p/thd/two")->fate, MATRIX_EXCLUDED);
    unmake(&made);
}
END_TEST

// ---- kinds ------------------------------------------------------------------------------------

START_TEST(unskip_lifts_only_rules_of_the_backend)
{
    static const char text[] = "axes: {seqlen: [1, 2, 3, 4, 5, 6]}\n"
                               "exclude:\n"
                               "  - {when: {seqlen_q: [1, 2]}, reason: no, kind: backend}\n"
                               "  - {when: {seqlen_q: [2, 3]}, reason: same, kind: duplicate}\n"
                               "  - {when: {seqlen_q: 4}, reason: senseless, kind: meaningless}\n"
                               "  - {when: {seqlen_q: 5}, reason: unsaid}\n";
    struct matrix_choice unskip = {.unskip = true};
    struct made made = make_text(text, NULL);
    ck_assert_int_eq(made.list->fate_count[MATRIX_RUNS], 1);
    ck_assert_str_eq(find(&made, "s2")->reason, "no");
    ck_assert_int_eq(find(&made, "s2")->kind, KIND_BACKEND);
    ck_assert_int_eq(find(&made, "s5")->kind, KIND_UNSAID);
    unmake(&made);
    made = make_text(text, &unskip);
    ck_assert_int_eq(made.list->fate_count[MATRIX_RUNS], 2);
    ck_assert_int_eq(find(&made, "s1")->fate, MATRIX_RUNS);
    ck_assert_int_eq(find(&made, "s6")->fate, MATRIX_RUNS);
    ck_assert_str_eq(find(&made, "s2")->reason, "same");
    ck_assert_int_eq(find(&made, "s2")->kind, KIND_DUPLICATE);
    unmake(&made);
}
END_TEST

// ---- products ---------------------------------------------------------------------------------

static const struct {
    const char *when, *excluded;
} products[] = {
    {"{heads*batch: 24}", "h12"},
    {"{heads*batch: [16, 48]}", "h8 h24"},
    {"{batch*heads: {min: 24}}", "h12 h24"},
    {"{batch*heads: {max: 24, multiple_of: 16}}", "h8"},
    {"{batch*heads: {not: {min: 24}}}", "h8"},
    {"{heads*heads*heads*heads*heads*heads*heads*heads: {min: 100000000000}}", "h24"},
    {"{seqlen_q*seqlen_q*seqlen_q*seqlen_q*heads: 9223372036854775807}", "h8 h12 h24"},
};

START_TEST(products_of_fields_can_be_compared)
{
    char text[512], excluded[64] = "";
    snprintf(text, sizeof(text),
             "defaults: {batch: 2, kv_heads: 4, seqlen: 16777216, head_dim: 1}\n"
             "axes: {heads: [8, 12, 24]}\n"
             "exclude: [{when: %s, reason: x}]\n",
             products[_i].when);
    struct made made = make_text(text, NULL);
    for (int i = 0; i < made.list->count; i++)
        if (made.list->cases[i].fate == MATRIX_EXCLUDED)
            strcat(strcat(excluded, excluded[0] ? " " : ""), made.list->cases[i].id);
    ck_assert_str_eq(excluded, products[_i].excluded);
    unmake(&made);
}
END_TEST

START_TEST(a_product_can_be_a_filter)
{
    const char *const filters[] = {"heads*batch=24,48"};
    struct matrix_choice choice = {.filters = filters, .filter_count = 1};
    struct made made = make_text("axes: {batch: [1, 2], heads: [8, 24, 48]}", &choice);
    ck_assert_int_eq(made.list->count, 3);
    ck_assert_str_eq(made.list->cases[0].id, "b1/h24");
    ck_assert_str_eq(made.list->cases[2].id, "b2/h24");
    unmake(&made);
}
END_TEST

// ---- mistakes ---------------------------------------------------------------------------------

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"set: {}", "f:2:6: key 'set': a map: expected a list"},
    {"set: [x]", "f:2:7: item 1 of key 'set': value 'x': expected a map"},
    {"set: [{when: {heads: 8}}]", "f:2:7: key 'fields' is missing"},
    {"set: [{fields: {heads: 8}}]", "f:2:7: key 'when' is missing"},
    {"set: [{when: {heads: 8}, fields: {heds: 8}}]",
     "f:2:35: 'heds' is not a field of a case (did you mean 'heads'?)"},
    {"set: [{when: {heads: 8}, fields: {heads: 0}}]",
     "f:2:42: heads is '0'; accepted is 1 to 4096"},
    {"set: [{when: {heads: 8}, fields: {seqlen: 8, seqlen_q: 9}}]",
     "f:2:46: 'seqlen_q' sets seqlen_q once more"},
    {"set: [{when: {heads: 8}, fields: {}, reason: x}]",
     "f:2:38: unknown key 'reason'; known: when, fields"},
    {"exclude: [{when: {heads: 8}, reason: x, kind: funny}]",
     "f:2:47: key 'kind': value 'funny': expected backend, duplicate or meaningless"},
    {"exclude: [{when: {heads*mask: 8}, reason: x}]",
     "f:2:19: 'heads*mask' is not a product of up to 8 integer fields"},
    {"exclude: [{when: {heads*: 8}, reason: x}]",
     "f:2:19: 'heads*' is not a product of up to 8 integer fields"},
    {"exclude: [{when: {heads*heads*heads*heads*heads*heads*heads*heads*heads: 8}, reason: x}]",
     "f:2:19: 'heads*heads*heads*heads*heads*heads*heads*heads*heads' is not a product of up to 8 "
     "integer fields"},
    {"exclude: [{when: {heads*batch: many}, reason: x}]",
     "f:2:32: 'many' is no value of a product; accepted is a whole number"},
    {"exclude: [{when: {heads*batch: 99999999999999999999}, reason: x}]",
     "f:2:32: '99999999999999999999' is no value of a product; accepted is a whole number"},
    {"exclude: [{when: {heads*batch: {field: heads}}, reason: x}]",
     "f:2:32: 'field' compares two fields of one kind"},
};

START_TEST(every_mistake_has_its_place)
{
    char text[512];
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct error error = {.text = ""};
    snprintf(text, sizeof(text), "models: {a: {}}\n%s\n", mistakes[_i].text);
    ck_assert_msg(!yaml_load_text("f", text, strlen(text), &yaml, &error), "%s", error.text);
    ck_assert_int_eq(matrix_create(yaml, &matrix, &error), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, mistakes[_i].message);
    ck_assert_ptr_null(matrix);
}
END_TEST

// ---- shorter sequences ------------------------------------------------------------------------

static const struct {
    const char *field, *value, *shrunk; // the scale is 16
} lengths[] = {
    {"seqlen_q", "4096", "256"},
    {"seqlen_q", "4097", "257"},
    {"seqlen_kv", "1", "1"},
    {"seqlen_kv", "0", "0"},
    {"window_left", "-1", "-1"},
    {"window_left", "0", "0"},
    {"window_left", "129", "9"},
    {"window_right", "512", "32"},
    {"lengths_q", "2794,3301,0,1", "175,207,0,1"},
    {"lengths_kv", "16,17,32,15", "1,2,2,1"},
    {"padded_q", "4096,4097,4100,4112", "256,257,257,257"},
    {"pad_multiple", "8", "8"},
    {"batch", "4", "4"},
};

START_TEST(lengths_are_divided_rounding_up)
{
    struct cp_case c;
    case_init(&c);
    c.batch = 4;
    c.seqlen_q = c.seqlen_kv = 4096;
    ck_assert(!case_set(&c, lengths[_i].field, lengths[_i].value, NULL));
    shrink_case(&c, 16);
    ck_assert_str_eq(list_value(&c, lengths[_i].field), lengths[_i].shrunk);
}
END_TEST

START_TEST(padded_sequences_stay_padded_and_others_do_not)
{
    struct cp_case c;
    struct error error = {.text = ""};
    case_init(&c);
    c.format = FORMAT_THD;
    c.batch = 3;
    c.seqlen_q = c.seqlen_kv = 4096;
    ck_assert(!case_set(&c, "lengths_q", "2794,3301,3304", NULL));
    ck_assert(!case_set(&c, "padded_q", "2796,3304,3304", NULL));
    ck_assert_msg(!case_check(&c, &error), "%s", error.text);
    shrink_case(&c, 16);
    ck_assert_str_eq(list_value(&c, "lengths_q"), "175,207,207");
    ck_assert_str_eq(list_value(&c, "padded_q"), "176,208,207");
    ck_assert_msg(!case_check(&c, &error), "%s", error.text);
    shrink_case(&c, SEQLEN_MAX);
    ck_assert_str_eq(list_value(&c, "lengths_q"), "1,1,1");
    ck_assert_str_eq(list_value(&c, "padded_q"), "2,2,1");
    ck_assert_int_eq(c.seqlen_q, 1);
}
END_TEST

START_TEST(rules_decide_on_the_lengths_of_the_file)
{
    struct matrix_choice choice = {.seqlen_scale = 16};
    struct made made = make_text("axes: {seqlen: [1024, 4096]}\n"
                                 "exclude: [{when: {seqlen_q: {min: 2000}}, reason: long}]\n",
                                 &choice);
    ck_assert_int_eq(made.list->cases[1].fate, MATRIX_EXCLUDED);
    ck_assert_int_eq(made.list->cases[0].fate, MATRIX_RUNS);
    ck_assert_int_eq(load(&made.list->cases[0])->seqlen_q, 64);
    ck_assert_int_eq(load(&made.list->cases[0])->seqlen_kv, 64);
    unmake(&made);
}
END_TEST

// ---- TransformerEngine's tests ----------------------------------------------------------------

#define TE_CASES 450
#define LINE_MAX 256

// One line of the reference: the id, the text of the case, and the sessions that have it.
struct expected {
    char id[64], what[LINE_MAX];
    bool essential, deterministic, seen;
};

static struct expected expected[TE_CASES];

static void read_expected(void)
{
    char path[4096], line[LINE_MAX], essential[16], deterministic[16];
    FILE *file =
        fopen(runner_source(path, sizeof(path), "tests/submit/transformer_engine.txt"), "r");
    ck_assert_ptr_nonnull(file);
    int count = 0;
    while (fgets(line, sizeof(line), file)) {
        if (line[0] == '#')
            continue;
        ck_assert_int_lt(count, TE_CASES);
        struct expected *e = &expected[count++];
        ck_assert_int_eq(
            sscanf(line, "%63s %15s %15s %255[^\n]", e->id, essential, deterministic, e->what), 4);
        e->essential = strcmp(essential, "essential") == 0;
        e->deterministic = strcmp(deterministic, "deterministic") == 0;
        e->seen = false;
    }
    fclose(file);
    ck_assert_int_eq(count, TE_CASES);
}

static struct made make_shipped(const char *name, const struct matrix_choice *choice)
{
    char path[4096];
    struct yaml *yaml = NULL;
    struct error error = {.text = ""};
    runner_source(path, sizeof(path), name);
    ck_assert_msg(!yaml_load_file(path, &yaml, &error), "%s", error.text);
    return make(yaml, choice);
}

static struct made make_te(const struct matrix_choice *choice)
{
    return make_shipped("cases/transformer-engine.yaml", choice);
}

static struct expected *find_expected(const char *id)
{
    for (int i = 0; i < TE_CASES; i++)
        if (strcmp(expected[i].id, id) == 0)
            return &expected[i];
    ck_abort_msg("%s is not in the reference", id);
    return NULL;
}

// Writes the lengths of the two sequences as "2794+3301", "-" if the format is not thd. `length`
// gives them without or with padding.
static void te_lengths(const struct cp_case *c,
                       int64_t (*length)(const struct cp_case *, enum shard_side, int32_t),
                       char text[64])
{
    for (int32_t i = 0; i < c->batch; i++)
        ck_assert_int_eq(length(c, SIDE_Q, i), length(c, SIDE_KV, i));
    ck_assert_int_eq(c->batch, 2);
    snprintf(text, 64, "%lld+%lld", (long long)length(c, SIDE_Q, 0),
             (long long)length(c, SIDE_Q, 1));
    if (c->format != FORMAT_THD) {
        ck_assert(case_is_even(c, SIDE_Q));
        strcpy(text, "-");
    }
}

static long long bound(int64_t width)
{
    return width == SLICE_UNBOUNDED ? -1 : (long long)width;
}

// Writes a case as the reference does.
static void te_describe(const struct cp_case *c, char text[LINE_MAX])
{
    char valid[64], occupied[64];
    struct case_band band = case_band(c, 0);
    te_lengths(c, case_length, valid);
    te_lengths(c, case_occupied, occupied);
    ck_assert(c->scale == 0);
    snprintf(
        text, LINE_MAX, "w%d h%d/%d d%d/%d s%lld/%lld %s %lld,%lld %s %s %s %s %s %s",
        c->world_size, c->heads, c->kv_heads, c->head_dim_qk, c->head_dim_v, (long long)c->seqlen_q,
        (long long)c->seqlen_kv, case_choice_name(case_mask_choices, (int)c->mask),
        bound(band.left), bound(band.right), case_choice_name(case_bias_choices, (int)c->bias),
        case_choice_name(case_softmax_choices, (int)c->softmax), c->max_logit ? "max_logit" : "-",
        c->training ? "training" : "forward", valid, occupied);
}

// Checks that the id of the case agrees with its fields.
static void te_check_id(const struct matrix_case *made)
{
    char id[128];
    const struct cp_case *c = load(made);
    snprintf(id, sizeof(id), "%.63s/%s/%s/%s/", c->model,
             case_choice_name(case_dtype_choices, (int)c->dtype),
             case_choice_name(case_format_choices, (int)c->format),
             case_choice_name(case_comm_choices, (int)c->comm));
    ck_assert_msg(strncmp(id, made->id, strlen(id)) == 0, "%s is called %s", id, made->id);
    ck_assert_int_eq(c->a2a_size, 2);
}

// Compares the cases that are not excluded with the reference.
static int te_compare(const struct made *made)
{
    char what[LINE_MAX];
    int count = 0;
    for (int i = 0; i < made->list->count; i++) {
        const struct matrix_case *one = &made->list->cases[i];
        if (one->fate == MATRIX_EXCLUDED)
            continue;
        struct expected *e = find_expected(one->id);
        te_check_id(one);
        te_describe(load(one), what);
        ck_assert_msg(strcmp(e->what, what) == 0, "%s:\n  is  %s\n  not %s", e->id, what, e->what);
        ck_assert(!e->seen);
        e->seen = true;
        count++;
    }
    return count;
}

START_TEST(the_matrix_of_transformer_engine_is_the_one_derived_from_its_rules)
{
    read_expected();
    struct made made = make_te(NULL);
    ck_assert_int_eq(te_compare(&made), TE_CASES);
    unmake(&made);
}
END_TEST

START_TEST(its_essential_part_is)
{
    struct matrix_choice choice = {.subset = "essential"};
    read_expected();
    struct made made = make_te(&choice);
    ck_assert_int_eq(te_compare(&made), 58);
    for (int i = 0; i < TE_CASES; i++)
        ck_assert_msg(expected[i].seen == expected[i].essential, "%s", expected[i].id);
    unmake(&made);
}
END_TEST

START_TEST(its_deterministic_session_is)
{
    const char *const sets[] = {"deterministic=true"};
    struct matrix_choice choice = {.sets = sets, .set_count = 1};
    read_expected();
    struct made made = make_te(&choice);
    ck_assert_int_eq(te_compare(&made), 368);
    for (int i = 0; i < TE_CASES; i++)
        ck_assert_msg(expected[i].seen == expected[i].deterministic, "%s", expected[i].id);
    unmake(&made);
    choice.subset = "essential";
    made = make_te(&choice);
    ck_assert_int_eq(made.list->count - made.list->fate_count[MATRIX_EXCLUDED], 41);
    unmake(&made);
}
END_TEST

START_TEST(all_of_it_is_computed_here)
{
    struct matrix_choice choice = {.unskip = true};
    for (choice.seqlen_scale = 1; choice.seqlen_scale <= 256; choice.seqlen_scale *= 16) {
        struct made made = make_te(&choice);
        ck_assert_int_eq(made.list->count, 1728);
        ck_assert_int_eq(made.list->count - made.list->fate_count[MATRIX_EXCLUDED], 960);
        for (int i = 0; i < made.list->count; i++) {
            const struct matrix_case *one = &made.list->cases[i];
            if (one->fate == MATRIX_EXCLUDED)
                ck_assert_int_ne(one->kind, KIND_BACKEND);
            ck_assert_msg(one->fate != MATRIX_REFUSED, "%s: %s", one->id, one->reason);
        }
        unmake(&made);
    }
}
END_TEST

START_TEST(every_exclusion_of_it_has_a_kind)
{
    struct made made = make_te(NULL);
    ck_assert_int_gt(made.matrix->rules.rule_count, 0);
    for (int i = 0; i < made.matrix->rules.rule_count; i++)
        ck_assert_int_ne(made.matrix->rules.rules[i].kind, KIND_UNSAID);
    unmake(&made);
}
END_TEST

START_TEST(shipped_matrices_have_their_documented_cases)
{
    static const struct {
        const char *name;
        int64_t seqlen;
    } shipped[] = {{"cases/demonstration.yaml", 512}, {"cases/transformer-engine-p2p.yaml", 4096}};
    for (size_t i = 0; i < 2; i++) {
        struct made made = make_shipped(shipped[i].name, NULL);
        const struct matrix_list *list = made.list;
        ck_assert_int_eq(list->count, 16);
        ck_assert_int_eq(list->fate_count[MATRIX_RUNS], 16);
        ck_assert_str_eq(list->cases[0].id, "cp_1_0/bf16/w2");
        ck_assert_str_eq(list->cases[15].id, "cp_2_1/fp16/w4");
        for (int j = 0; j < list->count; j++) {
            const struct cp_case *c = load(&list->cases[j]);
            ck_assert_int_eq(c->seqlen_q, shipped[i].seqlen);
            ck_assert_int_eq(c->seqlen_kv, shipped[i].seqlen);
            ck_assert_int_eq(c->batch, 2);
            ck_assert_int_eq(c->head_dim_qk, 128);
            ck_assert_int_eq(c->head_dim_v, 128);
            bool gqa = c->model[3] == '2', causal = c->model[5] == '0';
            ck_assert_int_eq(c->heads, gqa && causal ? 32 : 12);
            ck_assert_int_eq(c->kv_heads, !gqa ? 12 : causal ? 4 : 2);
            ck_assert_int_eq(c->mask, causal ? MASK_CAUSAL : MASK_NONE);
        }
        unmake(&made);
    }
}
END_TEST

#define LOOP(tcase, test, table)                                                                   \
    tcase_add_loop_test(tcase, test, 0, (int)(sizeof(table) / sizeof((table)[0])))

int main(void)
{
    Suite *suite = suite_create("matrix rules");
    TCase *rules = tcase_create("rules"), *shorter = tcase_create("shorter"),
          *shipped = tcase_create("transformer-engine");
    tcase_add_test(rules, changes_apply_in_order_where_they_match);
    tcase_add_test(rules, the_command_line_is_seen_by_changes_and_has_the_last_word);
    tcase_add_test(rules, exclusions_see_what_changes_made);
    tcase_add_test(rules, unskip_lifts_only_rules_of_the_backend);
    LOOP(rules, products_of_fields_can_be_compared, products);
    tcase_add_test(rules, a_product_can_be_a_filter);
    LOOP(rules, every_mistake_has_its_place, mistakes);
    LOOP(shorter, lengths_are_divided_rounding_up, lengths);
    tcase_add_test(shorter, padded_sequences_stay_padded_and_others_do_not);
    tcase_add_test(shorter, rules_decide_on_the_lengths_of_the_file);
    tcase_add_test(shipped, the_matrix_of_transformer_engine_is_the_one_derived_from_its_rules);
    tcase_add_test(shipped, its_essential_part_is);
    tcase_add_test(shipped, its_deterministic_session_is);
    tcase_add_test(shipped, all_of_it_is_computed_here);
    tcase_add_test(shipped, every_exclusion_of_it_has_a_kind);
    tcase_add_test(shipped, shipped_matrices_have_their_documented_cases);
    suite_add_tcase(suite, rules);
    suite_add_tcase(suite, shorter);
    suite_add_tcase(suite, shipped);
    return runner_run(suite);
}
