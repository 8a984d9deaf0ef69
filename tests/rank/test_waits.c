// SPDX-License-Identifier: Apache-2.0
// Every wait that the builder derives is needed. Without it the checker refuses the plan, and some
// explored order gives a wrong result.
#include <stdio.h>
#include <string.h>

#include "tests/mutations/mutations.h"
#include "tests/support/plans.h"
#include "tests/support/runner.h"
#include "tests/support/symbolic.h"
#include "tests/support/world.h"

// Number of orders in which ranks, or the symbolic execution, run a plan. By chance ranks may show
// no error. The symbolic execution then decides; it does not depend on timing.
#define ORDERS_OF_RANKS   40
#define ORDERS_OF_SYMBOLS 400

static struct rank_report reports[WORLD_SIZE_MAX];

// A small case. Its plans have all kinds of waits of this comm.
static void full_case(enum case_comm comm, struct cp_case *c)
{
    plans_full_case(comm, comm == COMM_A2A_P2P ? 4 : 3, c);
    c->head_dim_qk = c->head_dim_v = 2;
}

static bool is_refused(const struct plans *p)
{
    struct error error = {.text = ""};
    return plan_check(p->plans, p->size, &error) == STATUS_INTERNAL &&
           strstr(error.text, "nothing orders them");
}

static bool ranks_notice(const struct cp_case *c)
{
    struct cp_case explored = *c;
    struct error error;
    bool noticed = false;
    while (!noticed && explored.explore_seed++ < ORDERS_OF_RANKS)
        noticed = world_run(&explored, reports, &error) != STATUS_OK ||
                  !world_passed(reports, c->world_size);
    return noticed;
}

static bool symbols_notice(const struct plans *p)
{
    bool noticed = false;
    for (uint64_t order = 0; order < ORDERS_OF_SYMBOLS && !noticed; order++) {
        char why[ERROR_TEXT_MAX] = "";
        noticed = !symbolic_run(p->plans, order, why);
    }
    return noticed;
}

// Omits the wait of one operation. True if ranks notice it, not only the symbolic execution.
static bool left_out(const struct cp_case *c, int rank, int op)
{
    struct plans p;
    world_close_all(); // ranks keep the mutation with which they were forked
    mutation_set(mutation_find("WAIT_LEFT_OUT"));
    mutation_place = (struct mutation_place){rank, op};
    plans_create(&p, c);
    ck_assert_int_eq(p.plans[rank]->ops[op].wait_count, 0);
    ck_assert_msg(is_refused(&p), "rank %d operation %d: the plan is not refused", rank, op);
    bool by_ranks = ranks_notice(c);
    ck_assert_msg(by_ranks || symbols_notice(&p), "rank %d operation %d: no order shows it", rank,
                  op);
    mutation_set(NULL);
    plans_destroy(&p);
    return by_ranks;
}

START_TEST(no_wait_can_be_left_out)
{
    struct cp_case c;
    struct plans p;
    int waits = 0, by_ranks = 0;
    full_case((enum case_comm)_i, &c);
    plans_create(&p, &c);
    for (int rank = 0; rank < p.size; rank++)
        for (int op = 0; op < p.plans[rank]->op_count; op++) {
            if (p.plans[rank]->ops[op].wait_count == 0)
                continue;
            // With two streams an operation has at most one wait.
            ck_assert_int_eq(p.plans[rank]->ops[op].wait_count, 1);
            by_ranks += left_out(&c, rank, op);
            waits++;
        }
    printf("# %s: %d waits left out one by one: all plans refused, all noticed in an explored\n"
           "# order, %d of them by the verdict of ranks\n",
           case_choice_name(case_comm_choices, _i), waits, by_ranks);
    ck_assert_int_gt(waits, 20);
    ck_assert_int_ge(by_ranks, waits * 9 / 10);
    plans_destroy(&p);
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("waits");
    TCase *t = tcase_create("waits");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, no_wait_can_be_left_out, COMM_P2P, COMM_A2A_P2P + 1);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
