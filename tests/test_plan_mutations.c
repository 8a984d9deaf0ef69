// SPDX-License-Identifier: Apache-2.0
// The deliberate errors that live in plan/: each is noticed by the checker or by the symbols.
#include <string.h>

#include "plan/plan.h"
#include "tests/mutations.h"
#include "tests/plans.h"
#include "tests/runner.h"
#include "tests/symbolic.h"

static const enum mutation in_schedule[] = {
    MUTATION_DROP_STEP,      MUTATION_MASK_OFF_BY_ONE, MUTATION_SWAP_CHUNKS,
    MUTATION_DK_WRONG_OWNER, MUTATION_DROP_DQ_STEP,    MUTATION_DROP_DKV_ADD,
    MUTATION_LSE_PARTIAL,    MUTATION_STALE_SLOT,      MUTATION_HOP_DROPS_CHUNK,
};

// Those of one way of communication or one input.
static const struct elsewhere {
    enum mutation mutation;
    enum case_comm comm;
    enum case_bias bias;
    enum case_softmax softmax;
} elsewhere[] = {
    {MUTATION_GATHER_DROP_PART, COMM_ALL_GATHER, BIAS_NONE, SOFTMAX_VANILLA},
    {MUTATION_A2A_WRONG_HEADS, COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {MUTATION_A2A_DROP_MEMBER, COMM_A2A, BIAS_NONE, SOFTMAX_VANILLA},
    {MUTATION_SINK_DROPPED, COMM_P2P, BIAS_NONE, SOFTMAX_LEARNABLE},
    {MUTATION_SINK_DROPPED, COMM_A2A, BIAS_NONE, SOFTMAX_OFF_BY_ONE},
    {MUTATION_SUM_DROPS_RANK, COMM_P2P, BIAS_NONE, SOFTMAX_LEARNABLE},
    {MUTATION_BIAS_LOCAL_COLUMN, COMM_ALL_GATHER, BIAS_11SS, SOFTMAX_VANILLA},
    {MUTATION_DBIAS_DROPS_RANK, COMM_P2P, BIAS_1H1S, SOFTMAX_VANILLA},
    {MUTATION_DBIAS_DROPS_RANK, COMM_A2A, BIAS_B1SS, SOFTMAX_VANILLA},
};

static const enum case_sharding shardings[] = {SHARDING_ZIGZAG, SHARDING_CONTIGUOUS};

static void even_case(int world_size, struct cp_case *c)
{
    plans_even_case(world_size, c);
    c->head_dim_qk = 2;
    c->head_dim_v = 1;
}

// Ordered, matched and complete, and still wrong: only what is computed tells.
START_TEST(wrong_schedule_shows_in_the_outputs)
{
    mutation_active = in_schedule[_i];
    for (int world_size = 2; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(!symbolic_run(p.plans, 1, why), "not noticed on %d ranks", world_size);
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(wrong_extras_show_in_the_outputs)
{
    const struct elsewhere *e = &elsewhere[_i];
    mutation_active = e->mutation;
    for (int world_size = 2; world_size <= 4; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        c.comm = e->comm;
        c.bias = e->bias;
        c.softmax = e->softmax;
        c.heads = c.kv_heads = world_size; // one for each
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(!symbolic_run(p.plans, 1, why), "not noticed on %d ranks", world_size);
        mutation_active = MUTATION_NONE;
        plans_destroy(&p);
        plans_create(&p, &c);
        ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
        mutation_active = e->mutation;
        plans_destroy(&p);
    }
}
END_TEST

START_TEST(missing_wait_is_a_race)
{
    mutation_active = MUTATION_MISSING_WAIT;
    for (int world_size = 2; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        struct error error = {.text = ""};
        even_case(world_size, &c);
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, &error), STATUS_INTERNAL);
        ck_assert_pstr_eq(strstr(error.text, "nothing orders them"), "nothing orders them");
        plans_destroy(&p);
    }
}
END_TEST

// Some order shows the race in the outputs, too; that is what exploring orders is for.
START_TEST(missing_wait_shows_in_some_order)
{
    struct cp_case c;
    struct plans p;
    char why[ERROR_TEXT_MAX];
    int wrong = 0;
    mutation_active = MUTATION_MISSING_WAIT;
    even_case(3, &c);
    plans_create(&p, &c);
    for (uint64_t seed = 0; seed < 50; seed++)
        wrong += !symbolic_run(p.plans, seed, why);
    ck_assert_int_gt(wrong, 0);
    plans_destroy(&p);
}
END_TEST

START_TEST(without_a_mutation_all_is_well)
{
    mutation_active = MUTATION_NONE;
    for (int world_size = 1; world_size <= 6; world_size++) {
        struct cp_case c;
        struct plans p;
        char why[ERROR_TEXT_MAX];
        even_case(world_size, &c);
        c.sharding = shardings[world_size % 2];
        plans_create(&p, &c);
        ck_assert_int_eq(plan_check(p.plans, p.size, NULL), STATUS_OK);
        ck_assert_msg(symbolic_run(p.plans, 1, why), "%s", why);
        plans_destroy(&p);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("plan_mutations");
    TCase *t = tcase_create("mutations");
    tcase_add_loop_test(t, wrong_schedule_shows_in_the_outputs, 0,
                        sizeof in_schedule / sizeof in_schedule[0]);
    tcase_add_loop_test(t, wrong_extras_show_in_the_outputs, 0,
                        sizeof elsewhere / sizeof elsewhere[0]);
    tcase_add_test(t, missing_wait_is_a_race);
    tcase_add_test(t, missing_wait_shows_in_some_order);
    tcase_add_test(t, without_a_mutation_all_is_well);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
