// SPDX-License-Identifier: Apache-2.0
// One set of random collectives and layers, on 1 to 8 ranks of one daemon. Each job passes with its
// operations in the order of the plan and in legal orders drawn from seeds. Then all jobs run again
// in another order, with cases of attention in between, and have the same bits.
//
//     test_random_jobs             $CPATTN_RANDOM_JOBS jobs (80) from $CPATTN_TEST_SEED (1)
//     test_random_jobs --print     their cpattn-submit commands; nothing is run
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/kinds/job_calls.h"
#include "tests/kinds/random_jobs.h"

// ---- the set ------------------------------------------------------------------------------------

struct random_job {
    struct job_spec spec;
    uint64_t digest;
};

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);
    return text && atoi(text) > 0 ? atoi(text) : usual;
}

static void job_draw(struct random_job *job)
{
    job->digest = 0;
    if (random_below(2)) {
        struct collective c = random_collective();
        job_spec_init(&job->spec, &job_kind_collective);
        memcpy(job->spec.bytes, &c, sizeof(c));
    } else {
        struct linear l = random_linear();
        job_spec_init(&job->spec, &job_kind_linear);
        memcpy(job->spec.bytes, &l, sizeof(l));
    }
}

static struct random_job *jobs_draw(int count)
{
    struct random_job *jobs = calloc((size_t)count, sizeof(*jobs));
    random_jobs_seed((uint64_t)number_of("CPATTN_TEST_SEED", 1));
    for (int i = 0; i < count; i++)
        job_draw(&jobs[i]);
    return jobs;
}

static void jobs_shuffle(struct random_job *jobs, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int other = random_below(i + 1);
        struct random_job kept = jobs[i];
        jobs[i] = jobs[other];
        jobs[other] = kept;
    }
}

// ---- runs ---------------------------------------------------------------------------------------

static uint64_t job_run(const struct random_job *job, const char *order)
{
    char text[CASE_COMMAND_MAX];
    struct job_spec spec = job->spec;
    struct error error;
    ck_assert_int_eq(job_spec_set(&spec, "explore_seed", order, &error), STATUS_OK);
    struct wire_request request = job_request(spec.kind, spec.bytes);
    struct wire_reply reply = daemon_call(&d, &request);
    bool pass = reply.status == STATUS_OK && reply.result.verdict == VERDICT_PASS;
    job_spec_command(&spec, text, sizeof(text));
    ck_assert_msg(pass && (job->digest == 0 || job->digest == reply.result.digest), "%s: %s", text,
                  !pass && reply.status != STATUS_OK ? reply.message
                  : !pass                            ? "it does not pass"
                                                     : "it has other bits than before");
    uint64_t digest = reply.result.digest;
    wire_reply_fini(&reply);
    return digest;
}

// Changes the place of a collective's tensors in memory, or runs a layer twice. The results must
// stay the same.
static void job_vary(struct random_job *job)
{
    if (job->spec.kind == &job_kind_collective) {
        struct collective *c = (struct collective *)(void *)job->spec.bytes;
        c->offset = 3 - c->offset;
    } else {
        ((struct linear *)(void *)job->spec.bytes)->iterations = 2;
    }
}

static void attention_run(uint64_t *digest)
{
    struct wire_request attention = daemon_request(METHOD_RUN);
    attention.run.world_size = 3;
    attention.run.seed = 9;
    uint64_t found = job_digest(&d, &attention);
    ck_assert_msg(*digest == 0 || found == *digest, "attention has other bits than before");
    *digest = found;
}

START_TEST(all_pass_with_the_same_bits_in_every_order)
{
    int count = number_of("CPATTN_RANDOM_JOBS", 80), layers = 0;
    struct random_job *jobs = jobs_draw(count);
    uint64_t of_attention = 0;
    for (int i = 0; i < count; i++) {
        char order[16];
        snprintf(order, sizeof(order), "%d", i + 1);
        if (i % 16 == 0)
            attention_run(&of_attention);
        jobs[i].digest = job_run(&jobs[i], "0");
        job_run(&jobs[i], order);
        layers += jobs[i].spec.kind == &job_kind_linear;
    }
    jobs_shuffle(jobs, count);
    for (int i = 0; i < count; i++) {
        char order[16];
        snprintf(order, sizeof(order), "%d", i + 1000001);
        if (i % 16 == 0)
            attention_run(&of_attention);
        job_vary(&jobs[i]);
        job_run(&jobs[i], i % 2 ? "0" : order);
    }
    printf("# %d collectives and %d layers, three runs each\n", count - layers, layers);
    ck_assert(layers > 0 && layers < count);
    free(jobs);
}
END_TEST

static int print(void)
{
    int count = number_of("CPATTN_RANDOM_JOBS", 80);
    struct random_job *jobs = jobs_draw(count);
    char text[CASE_COMMAND_MAX];
    for (int i = 0; i < count; i++) {
        job_spec_command(&jobs[i].spec, text, sizeof(text));
        printf("%s\n", text);
    }
    free(jobs);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0)
        return print();
    Suite *suite = suite_create("random_jobs");
    TCase *tcase = tcase_create("random_jobs");
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 1200);
    tcase_add_test(tcase, all_pass_with_the_same_bits_in_every_order);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
