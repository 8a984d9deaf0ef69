// SPDX-License-Identifier: Apache-2.0
// Whether verdicts can be believed: each deliberate error of common/mutation.h, built into plan,
// kernels and rank, must be noticed by a whole case. Prints what noticed it, and what the
// elementwise tolerances and inputs of TransformerEngine's tests would have noticed alone.
#include "tests/runner.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "tests/mutations.h"
#include "tests/world.h"

static struct rank_report reports[WORLD_SIZE_MAX];

// What is run: the plain cases, which the errors of the ring are tried on, and the others with what
// only they have.
struct variant {
    const char *name;
    int world_size;
    enum case_comm comm;
    enum case_mask mask;
    bool others; // not one of the plain ones
    enum case_format format;
    int32_t lengths[2]; // 0: none
    int64_t seqlen;     // 0: the usual
    int64_t window;     // 0: none
    int64_t keys_more;
    enum case_softmax softmax;
    enum case_bias bias;
    double softcap;
    bool max_logit;
};

enum {
    PLAIN_CAUSAL,
    PLAIN_FULL,
    PLAIN_CAUSAL_4,
    PLAIN_FULL_4,
    GATHER,
    ULYSSES,
    HIERARCHICAL,
    WINDOW,
    BOTTOM_RIGHT,
    BOTTOM_RIGHT_WINDOW,
    UNEVEN,
    PACKED,
    PADDED,
    SINKS,
    BIAS_OWN,
    BIAS_SHARED,
    PACKED_WINDOW,
    EMPTY_ROWS,
    SINKS_8,
    VARIANTS
};

static const struct variant variants[VARIANTS] = {
    [PLAIN_CAUSAL] = {"causal", 2, COMM_P2P, MASK_CAUSAL, .others = false},
    [PLAIN_FULL] = {"full", 2, COMM_P2P, MASK_NONE, .others = false},
    [PLAIN_CAUSAL_4] = {"causal", 4, COMM_P2P, MASK_CAUSAL, .others = false},
    [PLAIN_FULL_4] = {"full", 4, COMM_P2P, MASK_NONE, .others = false},
    [GATHER] = {"all_gather", 4, COMM_ALL_GATHER, MASK_CAUSAL, .others = true},
    [ULYSSES] = {"a2a", 4, COMM_A2A, MASK_CAUSAL, .others = true},
    [HIERARCHICAL] = {"a2a+p2p", 4, COMM_A2A_P2P, MASK_CAUSAL, .others = true},
    [WINDOW] = {"window", 2, COMM_P2P, MASK_CAUSAL, .others = true, .window = 40},
    [BOTTOM_RIGHT] = {"bottom", 2, COMM_P2P, MASK_CAUSAL_BOTTOM_RIGHT, .others = true,
                      .keys_more = 30},
    [BOTTOM_RIGHT_WINDOW] = {"bottom win", 2, COMM_P2P, MASK_NONE_BOTTOM_RIGHT, .others = true,
                             .window = 40, .keys_more = 30},
    [UNEVEN] = {"uneven", 2, COMM_P2P, MASK_NONE, .others = true, .seqlen = 191},
    [PACKED] = {"packed", 2, COMM_P2P, MASK_CAUSAL, .others = true, .format = FORMAT_THD,
                .lengths = {101, 150}},
    [PADDED] = {"padded", 2, COMM_P2P, MASK_NONE, .others = true, .lengths = {101, 150}},
    [SINKS] = {"sinks", 2, COMM_P2P, MASK_CAUSAL, .others = true, .softmax = SOFTMAX_LEARNABLE,
               .softcap = 8, .max_logit = true},
    [BIAS_OWN] = {"bias bhss", 2, COMM_P2P, MASK_NONE, .others = true, .bias = BIAS_BHSS},
    [BIAS_SHARED] = {"bias 1h1s", 2, COMM_A2A, MASK_CAUSAL, .others = true, .bias = BIAS_1H1S},
    [PACKED_WINDOW] = {"packed win", 2, COMM_P2P, MASK_CAUSAL, .others = true, .format = FORMAT_THD,
                       .lengths = {101, 150}, .window = 40},
    [EMPTY_ROWS] = {"empty rows", 2, COMM_P2P, MASK_CAUSAL_BOTTOM_RIGHT, .others = true,
                    .keys_more = -30},
    [SINKS_8] = {"sinks", 8, COMM_P2P, MASK_CAUSAL, .others = true, .softmax = SOFTMAX_LEARNABLE},
};

// The others that an error must be noticed in; none: all plain ones.
static const struct {
    enum mutation mutation;
    int variants[3]; // 0 ends the list
} places[] = {
    {MUTATION_WINDOW_OFF_BY_ONE, {WINDOW}},
    {MUTATION_BOTTOM_RIGHT_TOP_LEFT, {BOTTOM_RIGHT, BOTTOM_RIGHT_WINDOW}},
    {MUTATION_SEQUENCE_BOUNDARY, {PACKED}},
    {MUTATION_CHUNK_ROUNDED_DOWN, {UNEVEN, PACKED, PADDED}},
    {MUTATION_PADDING_KEY_SEEN, {PADDED}},
    {MUTATION_PADDING_NOT_ZERO, {PADDED}},
    {MUTATION_SINK_DROPPED, {SINKS}},
    {MUTATION_SINK_TWICE, {SINKS}},
    {MUTATION_SINK_GRAD_SIGN, {SINKS}},
    {MUTATION_SUM_DROPS_RANK, {SINKS, SINKS_8}},
    {MUTATION_SINK_GRAD_ONE_RANK, {SINKS, SINKS_8}},
    {MUTATION_RAGGED_TILE, {UNEVEN, PACKED}},
    {MUTATION_WINDOW_PACKED, {PACKED_WINDOW}},
    {MUTATION_EMPTY_ROW_FINITE, {EMPTY_ROWS}},
    {MUTATION_DBIAS_OVERWRITTEN, {BIAS_SHARED}},
    {MUTATION_MAX_OWN_SHARD, {SINKS}},
    {MUTATION_SOFTCAP_SLOPE, {SINKS}},
    {MUTATION_BIAS_COLUMN_SHIFTED, {BIAS_OWN}},
    {MUTATION_DBIAS_STEP_LOST, {BIAS_OWN}},
    {MUTATION_DBIAS_DROPS_RANK, {BIAS_SHARED}},
    {MUTATION_A2A_WRONG_HEADS, {ULYSSES, HIERARCHICAL}},
    {MUTATION_REPLICATED_KV_LOST, {ULYSSES}},
    {MUTATION_A2A_DROP_MEMBER, {ULYSSES, HIERARCHICAL}},
    {MUTATION_GATHER_WRONG_OWNER, {GATHER}},
    {MUTATION_GATHER_DROP_PART, {GATHER}},
    {MUTATION_BIAS_LOCAL_COLUMN, {BIAS_OWN}},
    {MUTATION_BIAS_SCALED, {BIAS_OWN, BIAS_SHARED}},
    {MUTATION_MAX_BASE_2, {SINKS}},
};
#define PLACES ((int)(sizeof(places) / sizeof(*places)))

// Errors of the algorithms that share the attention with the ring are tried there, too.
static bool everywhere(enum mutation mutation)
{
    return mutation == MUTATION_NONE || mutation == MUTATION_MERGE_WITHOUT_LSE ||
           mutation == MUTATION_SCALE_5_PERCENT || mutation == MUTATION_ROWDOT_ZERO ||
           mutation == MUTATION_CONVERT_TRUNCATES;
}

static bool in_plan_or_kernels(enum mutation mutation)
{
    return mutation < MUTATION_VERIFY_SKIPS_CHUNK && mutation != MUTATION_MISSING_WAIT &&
           mutation != MUTATION_WAIT_LEFT_OUT && mutation != MUTATION_ADDS_CHANGE_PLACES;
}

// Where nothing is merged, or without a mask, it makes no difference.
static bool matters(enum mutation mutation, int variant)
{
    bool of_mask = mutation == MUTATION_MASK_OFF_BY_ONE || mutation == MUTATION_SWAP_CHUNKS ||
                   mutation == MUTATION_DIAGONAL_OF_LAST_CHUNK;
    bool of_merge = mutation == MUTATION_MERGE_WITHOUT_LSE;
    const struct variant *v = &variants[variant];
    for (int i = 0; i < PLACES; i++)
        if (places[i].mutation == mutation)
            return variant > 0 &&
                   (places[i].variants[0] == variant || places[i].variants[1] == variant ||
                    places[i].variants[2] == variant);
    if (v->others)
        return everywhere(mutation) && !(of_merge && v->comm == COMM_A2A);
    return !of_mask || v->mask == MASK_CAUSAL;
}

static void variant_case(struct cp_case *c, const struct variant *v, enum case_inputs inputs)
{
    case_init(c);
    c->world_size = v->world_size;
    c->comm = v->comm;
    c->mask = v->mask;
    c->inputs = inputs;
    c->batch = 1;
    c->heads = 4;
    c->kv_heads = 2;
    c->head_dim_qk = c->head_dim_v = 64;
    c->seqlen_q = inputs == INPUTS_TE ? 768 : v->seqlen ? v->seqlen : 192;
    c->seqlen_kv = c->seqlen_q + v->keys_more;
    if (v->lengths[0]) {
        c->batch = 2;
        case_list_set(c, LIST_LENGTHS_Q, v->lengths, 2);
    }
    if (v->format)
        c->format = v->format;
    if (v->window)
        c->window_left = v->window;
    if (v->softmax)
        c->softmax = v->softmax;
    if (v->bias)
        c->bias = v->bias;
    c->softcap = v->softcap;
    c->max_logit = v->max_logit;
}

static void mutation_set(enum mutation mutation)
{
    if (mutation == mutation_active)
        return;
    world_close_all(); // ranks keep the mutation that they were forked with
    mutation_active = mutation;
}

static bool case_passes(const struct cp_case *c)
{
    struct error error = {0};
    ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s: %s",
                  mutation_name(mutation_active), error.text);
    return world_passed(reports, c->world_size);
}

// ---- the table ----

// Rules that a tensor broke on any rank, in any chunk.
static int broken_rules(const struct cp_case *c, int tensor)
{
    int broken = 0;
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++)
            if (reports[rank].figures[i].tensor == tensor)
                broken |= reports[rank].figures[i].broken;
    return broken;
}

#define RULES_WIDTH 49

static void print_rules(const struct cp_case *c)
{
    static const char letters[] = "ErwNp"; // by bit: element, RMSE, row, nonfinite, padding
    int width = 0;
    for (int tensor = TENSOR_OUT; tensor < TENSOR_COUNT; tensor++) {
        int broken = broken_rules(c, tensor);
        if (broken == 0)
            continue;
        width += printf(" %s ", report_tensor_name(tensor));
        for (int bit = 0; bit < 5; bit++)
            if (broken & 1 << bit)
                width += printf("%c", letters[bit]);
    }
    printf("%*s", width < RULES_WIDTH ? RULES_WIDTH - width : 0, "");
}

// Chunks that fail by the elementwise rule alone; TransformerEngine does not compare LSE.
static void print_elementwise(const struct cp_case *c)
{
    int chunks = 0, noticing = 0;
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++) {
            const struct figures *f = &reports[rank].figures[i];
            if (f->tensor == TENSOR_LSE)
                continue;
            chunks++;
            noticing += (f->broken & (RULE_ELEMENT | RULE_NONFINITE)) != 0;
        }
    if (noticing)
        printf("noticed by %d of %d chunks\n", noticing, chunks);
    else
        printf("passes\n");
}

static void print_header(void)
{
    printf(
        "# Broken rules: E element, r RMSE, w row, N not finite, p padding. On the right what the\n"
        "# elementwise rule alone says with TransformerEngine's inputs, at length 768.\n"
        "# %-21s %-5s %-10s %-48s %s\n",
        "mutation", "ranks", "case", "noticed by", "elementwise alone");
}

// Prints a row and returns whether the verdict with sharp inputs is right.
static bool judge(const struct variant *v)
{
    struct cp_case c;
    variant_case(&c, v, INPUTS_SHARP);
    bool passes = case_passes(&c);
    printf("# %-21s %-5d %-10s", mutation_name(mutation_active), v->world_size, v->name);
    print_rules(&c);
    if (v->others) {
        printf("\n");
        return passes == (mutation_active == MUTATION_NONE);
    }
    variant_case(&c, v, INPUTS_TE);
    bool passes_te = case_passes(&c);
    printf("  ");
    print_elementwise(&c);
    if (mutation_active == MUTATION_NONE)
        return passes && passes_te;
    return !passes;
}

// ---- tests ----

START_TEST(every_mutation_is_noticed)
{
    int missed = 0;
    print_header();
    for (int m = MUTATION_NONE; m < MUTATION_COUNT; m++) {
        if (!in_plan_or_kernels((enum mutation)m))
            continue;
        mutation_set((enum mutation)m);
        for (int i = 0; i < VARIANTS; i++)
            if (matters(mutation_active, i) && !judge(&variants[i])) {
                printf("#   WRONG VERDICT\n");
                missed++;
            }
    }
    world_close_all();
    ck_assert_int_eq(missed, 0);
}
END_TEST

// The checker sees from the plans alone that a wait is missing. When the plans are run all the
// same, it depends on the order whether it does harm: some explored orders must show it.
static bool plans_checked(const struct cp_case *c, struct error *error)
{
    struct plan *plans[WORLD_SIZE_MAX] = {NULL};
    for (int rank = 0; rank < c->world_size; rank++)
        ck_assert_int_eq(plan_create(c, rank, &plans[rank], error), STATUS_OK);
    enum status status = plan_check(plans, c->world_size, error);
    for (int rank = 0; rank < c->world_size; rank++)
        plan_destroy(plans[rank]);
    return status == STATUS_OK;
}

#define ORDERS 20

static int orders_failing(struct cp_case *c)
{
    int failing = 0;
    for (uint64_t order = 1; order <= ORDERS; order++) {
        c->explore_seed = order;
        failing += !case_passes(c);
    }
    return failing;
}

START_TEST(a_missing_wait_is_noticed)
{
    for (int i = PLAIN_CAUSAL; i <= HIERARCHICAL; i++) {
        struct cp_case c;
        struct error error = {0};
        variant_case(&c, &variants[i], INPUTS_SHARP);
        mutation_set(MUTATION_NONE);
        ck_assert(plans_checked(&c, &error));
        ck_assert_int_eq(orders_failing(&c), 0);
        mutation_set(MUTATION_MISSING_WAIT);
        ck_assert(!plans_checked(&c, &error));
        int failing = orders_failing(&c);
        printf("# %-21s %-5d %-10s plan refused; %d of %d explored orders fail\n", "MISSING_WAIT",
               c.world_size, variants[i].name, failing, ORDERS);
        ck_assert_int_gt(failing, 0);
    }
    world_close_all();
}
END_TEST

// No verdict on one run can see it; the digests of two runs do.
START_TEST(an_order_that_changes_is_noticed)
{
    struct cp_case c;
    variant_case(&c, &variants[GATHER], INPUTS_SHARP);
    c.dtype = DTYPE_FP32;
    for (int changes = 0; changes < 2; changes++) {
        mutation_set(changes ? MUTATION_ADDS_CHANGE_PLACES : MUTATION_NONE);
        ck_assert(case_passes(&c));
        uint64_t digest = world_digest(reports, c.world_size);
        ck_assert(case_passes(&c));
        ck_assert_int_eq(world_digest(reports, c.world_size) != digest, changes);
    }
    printf("# %-21s noticed by the digests of two runs\n", mutation_name(mutation_active));
    world_close_all();
}
END_TEST

// ---- a verification that looks away ----

static int64_t judged(int world_size, int tensor, bool padding)
{
    int64_t elements = 0;
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++) {
            const struct figures *f = &reports[rank].figures[i];
            if (f->tensor == tensor && (f->chunk == CHUNK_PADDING) == padding)
                elements += f->elements;
        }
    return elements;
}

// Whether every element of every tensor was judged, padding included.
static bool all_judged(const struct cp_case *c)
{
    int64_t tokens = 0, padding = 0;
    for (int i = 0; i < c->batch; i++) {
        tokens += case_length(c, SIDE_Q, i);
        padding += case_occupied(c, SIDE_Q, i) - case_length(c, SIDE_Q, i);
    }
    const struct {
        int tensor;
        int64_t width;
    } tensors[] = {{TENSOR_OUT, (int64_t)c->heads * c->head_dim_v},
                   {TENSOR_DQ, (int64_t)c->heads * c->head_dim_qk},
                   {TENSOR_DK, (int64_t)c->kv_heads * c->head_dim_qk},
                   {TENSOR_DV, (int64_t)c->kv_heads * c->head_dim_v}};
    bool all = judged(c->world_size, TENSOR_LSE, false) == tokens * c->heads;
    for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++) {
        all = all && judged(c->world_size, tensors[i].tensor, false) == tokens * tensors[i].width;
        all = all && judged(c->world_size, tensors[i].tensor, true) == padding * tensors[i].width;
    }
    return all;
}

START_TEST(no_element_is_overlooked)
{
    static const int cases[] = {PLAIN_CAUSAL, UNEVEN, PACKED, PADDED, ULYSSES, SINKS, BIAS_SHARED};
    struct cp_case c;
    for (int m = MUTATION_VERIFY_SKIPS_CHUNK; m < MUTATION_COUNT; m++) {
        struct error error = {.text = ""};
        mutation_set((enum mutation)m);
        variant_case(&c, &variants[PADDED], INPUTS_SHARP);
        enum status status = world_run(&c, reports, &error);
        printf("# %-21s %s\n", mutation_name((enum mutation)m),
               status == STATUS_OK ? "NOT NOTICED" : error.text);
        ck_assert_int_eq(status, STATUS_INTERNAL);
        ck_assert_ptr_nonnull(strstr(error.text, "has looked at"));
    }
    mutation_set(MUTATION_NONE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        variant_case(&c, &variants[cases[i]], INPUTS_SHARP);
        ck_assert(case_passes(&c));
        ck_assert(all_judged(&c));
    }
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mutations");
    TCase *verdicts = tcase_create("verdicts");
    tcase_set_timeout(verdicts, 400);
    tcase_add_test(verdicts, every_mutation_is_noticed);
    tcase_add_test(verdicts, a_missing_wait_is_noticed);
    tcase_add_test(verdicts, an_order_that_changes_is_noticed);
    tcase_add_test(verdicts, no_element_is_overlooked);
    suite_add_tcase(s, verdicts);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
