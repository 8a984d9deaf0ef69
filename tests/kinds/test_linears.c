// SPDX-License-Identifier: Apache-2.0
// Linear layers through the real daemon and its ranks: right results, the same bits in every order
// and after other jobs, and dying ranks.
#include "tests/support/runner.h"

#include <stdio.h>
#include <string.h>

#include "plan/linear.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/kinds/job_calls.h"
#include "tests/kinds/random_jobs.h"

static struct linear usual(void)
{
    struct linear l;
    memset(&l, 0, sizeof(l));
    job_kind_linear.init(&l);
    l.world_size = 3;
    l.tokens = 50;
    l.in_features = 33;
    l.hidden = 71;
    l.out_features = 20;
    return l;
}

// Sets the layer. Clears the fields of the intermediate result unless it is an MLP.
static struct linear of_layer(struct linear l, enum linear_layer layer)
{
    l.layer = layer;
    if (layer != LINEAR_MLP) {
        l.hidden = 0;
        l.activation = ACTIVATION_NONE;
    }
    return l;
}

static struct wire_request request_of(const struct linear *l)
{
    return job_request(&job_kind_linear, l);
}

static uint64_t run(const struct linear *l)
{
    struct wire_request request = request_of(l);
    return job_digest(&d, &request);
}

// ---- results ----

static bool has_figures(const struct rank_report *report, const char *name)
{
    for (int i = 0; i < report->figures_count; i++)
        if (strcmp(report->figures[i].name, name) == 0)
            return report->figures[i].judged > 0;
    return false;
}

START_TEST(every_layer_passes_with_figures)
{
    static const char *const single[] = {"y", "dx", "dw", "db", "guards", NULL};
    static const char *const both[] = {"y", "dx", "dw1", "db1", "dw2", "db2", "guards", NULL};
    for (int layer = LINEAR_COLUMN; layer < LINEAR_LAYERS; layer++) {
        struct linear l = of_layer(usual(), (enum linear_layer)layer);
        struct wire_request request = request_of(&l);
        struct wire_reply reply = daemon_call(&d, &request);
        ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
        ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
        for (const char *const *name = layer == LINEAR_MLP ? both : single; *name; name++)
            for (int rank = 0; rank < 3; rank++)
                ck_assert_msg(has_figures(&reply.result.ranks[rank], *name), "%s of rank %d", *name,
                              rank);
        ck_assert(has_figures(&reply.result.ranks[2], "same"));
        wire_reply_fini(&reply);
    }
}
END_TEST

START_TEST(other_kinds_in_between_do_not_change_results)
{
    struct wire_request attention = daemon_request(METHOD_RUN);
    struct wire_request collective = daemon_request(METHOD_RUN);
    struct linear l = usual();
    attention.run.world_size = 3;
    collective.is_job = true;
    collective.job =
        (struct job_text){.kind = "collective", .field_count = 1, .fields = {{"world_size", "3"}}};
    uint64_t of_attention = job_digest(&d, &attention), of_collective = job_digest(&d, &collective);
    uint64_t digest = run(&l);
    pid_t pid = daemon_rank_pid(&d, 3, 1);
    for (int i = 0; i < 4; i++) {
        struct linear other = random_linear();
        run(&other);
        attention.id = daemon_request(METHOD_RUN).id;
        collective.id = daemon_request(METHOD_RUN).id;
        ck_assert_uint_eq(job_digest(&d, &attention), of_attention);
        ck_assert_uint_eq(job_digest(&d, &collective), of_collective);
        ck_assert_uint_eq(run(&l), digest);
    }
    ck_assert_int_eq(daemon_rank_pid(&d, 3, 1), pid);
}
END_TEST

START_TEST(an_unverified_job_does_not_pass)
{
    struct linear l = usual();
    l.verify = false;
    struct wire_request request = request_of(&l);
    job_unverified(&d, &request);
}
END_TEST

// ---- refusals and faults ----

static void expect_refused(const struct linear *l, enum status status, const char *text)
{
    struct wire_request request = request_of(l);
    job_refused(&d, &request, status, text);
}

START_TEST(invalid_jobs_are_refused)
{
    struct linear l = usual();
    l.tokens = 0;
    expect_refused(&l, STATUS_INVALID_ARGUMENT, "tokens is '0'; accepted is 1 to 4194304");
    l = usual();
    l.activation = ACTIVATION_SWIGLU;
    l.hidden = LINEAR_SIZE_MAX;
    expect_refused(&l, STATUS_INVALID_ARGUMENT,
                   "hidden is 4194304 with swiglu; accepted is 1 to 2097152");
    l.hidden = l.in_features = l.tokens = LINEAR_SIZE_MAX / 2;
    expect_refused(&l, STATUS_RESOURCE_EXHAUSTED, "iB");
}
END_TEST

START_TEST(fields_of_an_mlp_are_refused_in_other_layers)
{
    struct linear l = of_layer(usual(), LINEAR_COLUMN);
    l.hidden = 71;
    expect_refused(&l, STATUS_INVALID_ARGUMENT, "hidden is 71 with layer column; accepted is 0");
    l = of_layer(usual(), LINEAR_ROW);
    l.activation = ACTIVATION_GELU;
    expect_refused(&l, STATUS_INVALID_ARGUMENT,
                   "activation is gelu with layer row; accepted is auto");
}
END_TEST

START_TEST(an_mlp_has_defaults_between_its_layers)
{
    struct linear l = usual();
    l.hidden = 2048;
    l.activation = ACTIVATION_GELU;
    uint64_t given = run(&l);
    l.hidden = 0;
    l.activation = ACTIVATION_NONE;
    ck_assert_uint_eq(run(&l), given);
}
END_TEST

START_TEST(a_rank_that_is_killed_is_the_root_cause)
{
    struct linear l = usual();
    uint64_t digest = run(&l);
    l.iterations = 10000;
    l.tokens = 2000;
    struct wire_request request = request_of(&l);
    job_killed(&d, &request);
    l = usual();
    ck_assert_uint_eq(run(&l), digest);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("linears");
    TCase *tcase = tcase_create("linears");
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_layer_passes_with_figures);
    tcase_add_test(tcase, other_kinds_in_between_do_not_change_results);
    tcase_add_test(tcase, an_unverified_job_does_not_pass);
    tcase_add_test(tcase, invalid_jobs_are_refused);
    tcase_add_test(tcase, fields_of_an_mlp_are_refused_in_other_layers);
    tcase_add_test(tcase, an_mlp_has_defaults_between_its_layers);
    tcase_add_test(tcase, a_rank_that_is_killed_is_the_root_cause);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
