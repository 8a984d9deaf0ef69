// SPDX-License-Identifier: Apache-2.0
// Whether verdicts can be believed: each deliberate error of common/mutation.h, built into plan,
// kernels and rank, must be noticed by a whole case. Prints what noticed it, and what the
// elementwise tolerances and inputs of TransformerEngine's tests would have noticed alone.
#include "tests/runner.h"

#include <stdio.h>
#include <string.h>

#include "common/mutation.h"
#include "plan/plan.h"
#include "tests/world.h"

enum mutation mutation_active;

static const char *const mutation_names[] = {[MUTATION_NONE] = "NONE",
#define MUTATION_NAME(name, sentence) [MUTATION_##name] = #name,
                                             MUTATION_LIST(MUTATION_NAME)
#undef MUTATION_NAME
};

static struct rank_report reports[WORLD_SIZE_MAX];

struct variant {
    int world_size;
    enum case_mask mask;
};

static const struct variant variants[] = {
    {2, MASK_CAUSAL}, {2, MASK_NONE}, {4, MASK_CAUSAL}, {4, MASK_NONE}};
#define VARIANTS ((int)(sizeof(variants) / sizeof(*variants)))

// Without a mask it makes no difference where a key stands.
static bool matters(enum mutation mutation, const struct variant *v)
{
    bool of_mask = mutation == MUTATION_MASK_OFF_BY_ONE || mutation == MUTATION_SWAP_CHUNKS;
    return !of_mask || v->mask == MASK_CAUSAL;
}

// What a mutation needs to make a difference.
static void needs(enum mutation mutation, struct cp_case *c)
{
    switch (mutation) {
    case MUTATION_GATHER_DROP_PART:
        c->comm = COMM_ALL_GATHER;
        break;
    case MUTATION_A2A_WRONG_HEADS:
    case MUTATION_A2A_DROP_MEMBER:
        c->comm = COMM_A2A;
        break;
    case MUTATION_SINK_DROPPED:
    case MUTATION_SINK_GRAD_SIGN:
    case MUTATION_SUM_DROPS_RANK:
        c->softmax = SOFTMAX_LEARNABLE;
        break;
    case MUTATION_BIAS_LOCAL_COLUMN:
    case MUTATION_BIAS_SCALED:
        c->bias = BIAS_11SS;
        break;
    case MUTATION_DBIAS_DROPS_RANK:
        c->bias = BIAS_1H1S;
        break;
    case MUTATION_SOFTCAP_SLOPE:
        c->softcap = 5;
        break;
    case MUTATION_MAX_BASE_2:
        c->max_logit = true;
        break;
    default:
        break;
    }
}

static void variant_case(struct cp_case *c, const struct variant *v, enum case_inputs inputs)
{
    case_init(c);
    c->world_size = v->world_size;
    c->mask = v->mask;
    c->inputs = inputs;
    c->batch = 1;
    c->heads = 4;
    c->kv_heads = 2;
    c->head_dim_qk = c->head_dim_v = 64;
    c->seqlen_q = c->seqlen_kv = inputs == INPUTS_TE ? 768 : 192;
    needs(mutation_active, c);
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
                  mutation_names[mutation_active], error.text);
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
        "# %-18s %-5s %-6s  %-48s  %s\n",
        "mutation", "ranks", "mask", "noticed by", "elementwise alone");
}

// Prints a row and returns whether the verdict with sharp inputs is right.
static bool judge(const struct variant *v)
{
    struct cp_case c;
    variant_case(&c, v, INPUTS_SHARP);
    bool passes = case_passes(&c);
    printf("# %-18s %-5d %-6s ", mutation_names[mutation_active], v->world_size,
           v->mask == MASK_CAUSAL ? "causal" : "none");
    print_rules(&c);
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
        if (m == MUTATION_MISSING_WAIT)
            continue;
        mutation_set((enum mutation)m);
        for (int i = 0; i < VARIANTS; i++)
            if (matters(mutation_active, &variants[i]) && !judge(&variants[i])) {
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
    for (int i = 0; i < VARIANTS; i++) {
        struct cp_case c;
        struct error error = {0};
        variant_case(&c, &variants[i], INPUTS_SHARP);
        mutation_set(MUTATION_NONE);
        ck_assert(plans_checked(&c, &error));
        ck_assert_int_eq(orders_failing(&c), 0);
        mutation_set(MUTATION_MISSING_WAIT);
        ck_assert(!plans_checked(&c, &error));
        int failing = orders_failing(&c);
        printf("# MISSING_WAIT       %-5d %-6s  plan refused; %d of %d explored orders fail\n",
               c.world_size, c.mask == MASK_CAUSAL ? "causal" : "none", failing, ORDERS);
        ck_assert_int_gt(failing, 0);
    }
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mutations");
    TCase *verdicts = tcase_create("verdicts");
    tcase_set_timeout(verdicts, 120);
    tcase_add_test(verdicts, every_mutation_is_noticed);
    tcase_add_test(verdicts, a_missing_wait_is_noticed);
    suite_add_tcase(s, verdicts);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
