// SPDX-License-Identifier: Apache-2.0
// Whole cases over a new transport. The results have the same bits as over sockets. A lost rank is
// noticed.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdlib.h>

#include "tests/rank/toy_transport.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"

static struct rank_report reports[WORLD_SIZE_MAX];

static uint64_t digest_over(const struct world_transport *transport, const struct cp_case *c)
{
    static char text[CASE_COMMAND_MAX];
    struct error error = {0};
    case_command(c, text, sizeof(text));
    world_close_all();
    world_transport(transport);
    ck_assert_msg(world_run(c, reports, &error) == STATUS_OK, "%s: %s", text, error.text);
    ck_assert_msg(world_passed(reports, c->world_size), "%s fails", text);
    return world_digest(reports, c->world_size);
}

START_TEST(results_are_those_over_sockets)
{
    struct cp_case c = cases_usual();
    static const enum case_comm comms[] = {COMM_P2P, COMM_ALL_GATHER, COMM_A2A, COMM_A2A_P2P};
    c.comm = comms[_i];
    c.world_size = 4;
    c.a2a_size = CASE_A2A_SIZE_DEFAULT;
    c.heads = c.kv_heads = 4;
    c.seqlen_q = c.seqlen_kv = 200;
    ck_assert_uint_eq(digest_over(&toy_transport, &c), digest_over(NULL, &c));
}
END_TEST

START_TEST(random_cases_pass)
{
    struct cp_case c;
    generate_case(1000 + (uint64_t)_i, 4, 96, &c);
    if (c.deterministic)
        ck_assert_uint_eq(digest_over(&toy_transport, &c), digest_over(NULL, &c));
    else
        digest_over(&toy_transport, &c);
}
END_TEST

START_TEST(a_rank_that_is_gone_is_noticed)
{
    struct error error = {0};
    struct cp_case c = cases_usual();
    c.world_size = 3;
    world_transport(&toy_transport);
    struct world *w = world_create(3);
    ck_assert_int_eq(world_run_on(w, &c, reports, &error), STATUS_OK);
    kill(world_pid(w, 1), SIGKILL);
    ck_assert_int_ne(world_run_on(w, &c, reports, &error), STATUS_OK);
    world_destroy(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("toy_transport");
    TCase *tcase = tcase_create("toy_transport");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, results_are_those_over_sockets, 0, 4);
    tcase_add_loop_test(tcase, random_cases_pass, 0, 12);
    tcase_add_test(tcase, a_rank_that_is_gone_is_noticed);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
