// SPDX-License-Identifier: Apache-2.0
// Each deliberate error of tests/mutations must be noticed by the verdict of a whole case, in
// exactly the expected tensors. Prints the rules that noticed it, and whether the elementwise
// tolerances and inputs of TransformerEngine's tests would have noticed it.
#include "tests/support/runner.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "tests/mutations/expected.h"
#include "tests/mutations/mutations.h"
#include "tests/support/part.h"
#include "tests/support/plans.h"
#include "tests/support/world.h"

static struct rank_report reports[WORLD_SIZE_MAX];

static void set_mutation(const struct mutation *mutation)
{
    if (mutation == mutation_current())
        return;
    world_close_all(); // ranks keep the mutation that they were forked with
    mutation_set(mutation);
}

static const char *set_name(void)
{
    return mutation_name(mutation_current());
}

static bool case_passes(const struct cp_case *c)
{
    struct error error = {0};
    ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s: %s", set_name(), error.text);
    return world_passed(reports, c->world_size);
}

// ---- plans ----

// True if the checker accepts the plans; otherwise *error has the reason.
static bool plans_checked(const struct cp_case *c, struct error *error)
{
    struct plans p;
    plans_create(&p, c);
    enum status status = plan_check(p.plans, p.size, error);
    plans_destroy(&p);
    return status == STATUS_OK;
}

// True if the current mutation changes the plan of any rank.
static bool plans_change(const struct cp_case *c)
{
    struct plans p;
    int before = mutation_plans_changed();
    plans_create(&p, c);
    plans_destroy(&p);
    if (mutation_plans_changed() == before)
        printf("#   NO PLAN CHANGED\n");
    return mutation_plans_changed() > before;
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
    static const char letters[] = "ErwNpsz"; // by bit, as the header says
    int width = 0;
    for (int tensor = TENSOR_OUT; tensor < TENSOR_COUNT; tensor++) {
        int broken = broken_rules(c, tensor);
        if (broken == 0)
            continue;
        width += printf(" %s ", report_tensor_name(tensor));
        for (int bit = 0; bit < (int)sizeof(letters) - 1; bit++)
            if (broken & 1 << bit)
                width += printf("%c", letters[bit]);
    }
    printf("%*s", width < RULES_WIDTH ? RULES_WIDTH - width : 0, "");
}

// Counts the chunks with a wrong element or one that is not finite. LSE is left out, because
// TransformerEngine does not compare it.
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
    printf("# Broken rules: E element, r RMSE, w row, N not finite, p padding, s slope, z zero.\n"
           "# On the right what the elementwise rule alone says with TransformerEngine's inputs,\n"
           "# at length 768.\n"
           "# %-22s %-5s %-10s %-48s %s\n",
           "mutation", "ranks", "case", "noticed by", "elementwise alone");
}

static void print_case(int variant, const struct cp_case *c)
{
    printf("# %-22s %-5d %-10s", set_name(), c->world_size, variant_name(variant));
}

// Returns the tensors that broke a rule; *present: all judged tensors. Bit 1 << tensor.
static uint32_t broken_tensors(const struct cp_case *c, uint32_t *present)
{
    uint32_t broken = 0;
    *present = 0;
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++) {
            uint32_t bit = UINT32_C(1) << reports[rank].figures[i].tensor;
            *present |= bit;
            broken |= reports[rank].figures[i].broken ? bit : 0;
        }
    return broken;
}

static bool are_none(uint32_t tensors, const char *what)
{
    for (int tensor = TENSOR_OUT; tensor < TENSOR_COUNT; tensor++)
        if (tensors >> tensor & 1)
            printf("#   %s in %s\n", what, report_tensor_name(tensor));
    return tensors == 0;
}

// Runs the same variant with the inputs of TransformerEngine's tests.
static bool passes_te(int variant)
{
    struct cp_case c;
    variant_case(variant, INPUTS_TE, &c);
    bool passes = case_passes(&c);
    printf("  ");
    print_elementwise(&c);
    return passes;
}

static bool is_plain(int variant)
{
    return variant <= PLAIN_FULL_4;
}

// Prints a row and returns whether the verdict with sharp inputs is right: exactly the expected
// tensors fail.
static bool judge(int variant, const struct expectation *e)
{
    struct cp_case c;
    uint32_t present;
    const struct mutation *mutation = mutation_current();
    variant_case(variant, INPUTS_SHARP, &c);
    bool right = case_passes(&c) == !mutation;
    uint32_t broken = broken_tensors(&c, &present), missing = e->shows & present & ~broken;
    print_case(variant, &c);
    print_rules(&c);
    if (!is_plain(variant))
        printf("\n");
    else if (!passes_te(variant) && !mutation)
        right = false;
    if (mutation && mutation->change)
        right = plans_change(&c) && right;
    right = are_none(broken & ~(e->shows | e->may), "NOT EXPECTED") && right;
    return are_none(missing, "NOT NOTICED") && right;
}

// Prints a row and returns whether the checker refuses the plans for the expected reason. No rank
// runs them.
static bool is_refused(int variant, const struct expectation *e)
{
    struct cp_case c;
    struct error error = {.text = ""};
    variant_case(variant, INPUTS_SHARP, &c);
    bool refused = !plans_checked(&c, &error) && strstr(error.text, e->refused);
    print_case(variant, &c);
    printf(" %s%s\n", refused ? "plan refused: " : "NOT REFUSED: ", error.text);
    return refused;
}

// ---- tests ----

static char first_wrong[80]; // mutation and variant of the first wrong verdict

// Tries every `part`-th variant of the expectation. Returns the number of wrong verdicts.
static int judge_part(const struct expectation *e, int part)
{
    int missed = 0, tried = 0;
    for (int i = 0; i < VARIANTS; i++) {
        if (!(e->variants >> i & 1) || tried++ % part != 0)
            continue;
        if (!(e->refused ? is_refused(i, e) : judge(i, e))) {
            printf("#   WRONG VERDICT\n");
            if (!first_wrong[0])
                snprintf(first_wrong, sizeof(first_wrong), "%s, %s", set_name(), variant_name(i));
            missed++;
        }
    }
    return missed;
}

START_TEST(every_mutation_is_noticed)
{
    static const struct expectation none = {.variants = UINT32_MAX};
    set_mutation(NULL);
    print_header();
    int missed = judge_part(&none, 1);
    for (int i = 0; i < expectations_count; i++) {
        set_mutation(mutation_find(expectations[i].mutation));
        missed += judge_part(&expectations[i], test_part());
    }
    world_close_all();
    ck_assert_msg(missed == 0, "%d wrong verdicts, first that of %s", missed, first_wrong);
}
END_TEST

// Other mutations have tests of their own below.
static bool is_judged(const struct mutation *mutation)
{
    return mutation->noticed == BY_VERDICT || mutation->noticed == BY_CHECKER;
}

START_TEST(every_mutation_is_expected_somewhere)
{
    for (int m = 0; m < mutations_count; m++) {
        int rows = 0;
        for (int i = 0; i < expectations_count; i++)
            rows += mutation_find(expectations[i].mutation) == &mutations[m];
        ck_assert_msg((rows > 0) == is_judged(&mutations[m]), "%s", mutations[m].name);
    }
}
END_TEST

// A missing wait changes results only in some orders. Some explored orders must show it.
#define ORDERS 20

// The first explored order with a failing verdict; 0: none.
static uint64_t order_failing(struct cp_case *c)
{
    for (uint64_t order = 1; order <= ORDERS; order++) {
        c->explore_seed = order;
        if (!case_passes(c))
            return order;
    }
    return 0;
}

START_TEST(a_missing_wait_is_noticed)
{
    for (int i = PLAIN_CAUSAL; i <= HIERARCHICAL; i++) {
        struct cp_case c;
        struct error error = {0};
        variant_case(i, INPUTS_SHARP, &c);
        set_mutation(NULL);
        ck_assert(plans_checked(&c, &error));
        ck_assert_uint_eq(order_failing(&c), 0);
        set_mutation(mutation_find("MISSING_WAIT"));
        ck_assert(!plans_checked(&c, &error));
        uint64_t order = order_failing(&c);
        printf("# %-22s %-5d %-10s plan refused; explored order %d of %d fails\n", "MISSING_WAIT",
               c.world_size, variant_name(i), (int)order, ORDERS);
        ck_assert_uint_gt(order, 0);
    }
    world_close_all();
}
END_TEST

// The digests of two runs detect a changed order of additions; a verdict cannot.
START_TEST(an_order_that_changes_is_noticed)
{
    struct cp_case c;
    variant_case(GATHER, INPUTS_SHARP, &c);
    c.dtype = DTYPE_FP32;
    for (int changes = 0; changes < 2; changes++) {
        set_mutation(changes ? mutation_find("ADDS_CHANGE_PLACES") : NULL);
        ck_assert(case_passes(&c));
        uint64_t digest = world_digest(reports, c.world_size);
        ck_assert(case_passes(&c));
        ck_assert_int_eq(world_digest(reports, c.world_size) != digest, changes);
    }
    printf("# %-22s noticed by the digests of two runs\n", set_name());
    world_close_all();
}
END_TEST

// ---- a verification that skips elements ----

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

// True if every element of every tensor was judged, padding included.
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
    int overlooked = 0;
    for (int m = 0; m < mutations_count; m++) {
        struct error error = {.text = ""};
        if (mutations[m].noticed != BY_COUNT)
            continue;
        set_mutation(&mutations[m]);
        variant_case(PADDED, INPUTS_SHARP, &c);
        enum status status = world_run(&c, reports, &error);
        printf("# %-22s %s\n", set_name(), status == STATUS_OK ? "NOT NOTICED" : error.text);
        ck_assert_int_eq(status, STATUS_INTERNAL);
        ck_assert_ptr_nonnull(strstr(error.text, "to be judged"));
        overlooked++;
    }
    ck_assert_int_gt(overlooked, 0);
    set_mutation(NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        variant_case(cases[i], INPUTS_SHARP, &c);
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
    tcase_set_timeout(verdicts, 800);
    tcase_add_test(verdicts, every_mutation_is_noticed);
    tcase_add_test(verdicts, every_mutation_is_expected_somewhere);
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
