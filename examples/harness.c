// SPDX-License-Identifier: Apache-2.0
// A test harness on libcpattn, to copy and change. It submits many cases at once, prints each
// answer as it arrives and failures in full, and handles Ctrl-C and a restart of the daemon.
//
//     cc harness.c $(pkg-config --cflags --libs cpattn) -o harness
//     ./harness [SEQLEN]     # the daemon is that of $CPATTN_SOCKET, else the one of this machine
//
// Exit status: 0 every case passed, 1 a case failed, 2 a case could not be run.
#include <cpattn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define IN_FLIGHT_MAX 16
#define TRIES_MAX     2                      // submissions of a case whose daemon went away
#define ABSENT_MAX    200                    // ticks without a daemon until cases are given up
#define TICK_NS       (100 * 1000000ull)     // time between checks for Ctrl-C
#define RUN_NS        (60 * 1000000000ull)   // time limit of a case on its ranks
#define WHOLE_NS      (3600 * 1000000000ull) // time limit including the wait in the queue

// ---- what to run --------------------------------------------------------------------------------

struct test {
    struct cpattn_case *c;
    char name[160];
    struct cpattn_request *request; // NULL: not in flight
    int tries;
    enum { WAITS, PASSED, FAILED, NOT_RUN } state;
};

struct sweep {
    struct cpattn_client *client;
    struct test *tests;
    int count, in_flight;
    int absent; // ticks without a daemon
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    interrupted = number;
}

static void die(const char *what, const struct cpattn_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, cpattn_status_text(error->status), error->text);
    exit(2);
}

static void set(struct cpattn_case *c, const char *field, const char *value)
{
    struct cpattn_error error;
    if (cpattn_case_set(c, field, value, &error) != CPATTN_OK)
        die(field, &error);
}

// The product of a few axes; `cpattn-submit describe` lists the fields and their values. Invalid
// combinations are skipped with the reason.
static void sweep_fill(struct sweep *sweep, const char *seqlen)
{
    static const char *const comms[] = {"p2p", "all_gather", "a2a"};
    static const char *const masks[] = {"none", "causal"};
    static const char *const worlds[] = {"2", "4"};
    for (int i = 0; i < 3 * 2 * 2; i++) {
        struct test *test = &sweep->tests[sweep->count];
        struct cpattn_error error;
        test->c = cpattn_case_create();
        if (!test->c)
            abort();
        set(test->c, "world_size", worlds[i % 2]);
        set(test->c, "mask", masks[i / 2 % 2]);
        set(test->c, "comm", comms[i / 4]);
        set(test->c, "heads", "8");
        set(test->c, "kv_heads", "4");
        set(test->c, "head_dim_qk", "64");
        set(test->c, "head_dim_v", "64");
        set(test->c, "seqlen_q", seqlen);
        set(test->c, "seqlen_kv", seqlen);
        cpattn_case_describe(test->c, test->name, sizeof test->name);
        if (cpattn_case_check(test->c, &error) == CPATTN_OK) {
            sweep->count++;
            continue;
        }
        printf("skip  %s: %s\n", test->name, error.text);
        cpattn_case_destroy(test->c);
    }
}

// ---- one answer ---------------------------------------------------------------------------------

// The figures with the element nearest to its limit.
static void print_worst(const struct cpattn_result *result)
{
    const struct cpattn_figures *f, *worst = NULL;
    int worst_rank = 0;
    for (int rank = 0; rank < result->world_size; rank++)
        for (int i = 0; (f = cpattn_result_figures(result, rank, i)); i++)
            if (!worst || f->worst_element > worst->worst_element) {
                worst = f;
                worst_rank = rank;
            }
    if (worst)
        printf("      %s of rank %d: largest error %.2e, %.0f %% of what is allowed\n",
               worst->tensor, worst_rank, worst->max_abs, 100 * worst->worst_element);
}

static void print_broken(const struct cpattn_result *result)
{
    const struct cpattn_figures *f;
    for (int rank = 0; rank < result->world_size; rank++)
        for (int i = 0; (f = cpattn_result_figures(result, rank, i)); i++)
            if (f->broken)
                printf(
                    "      %s of rank %d, chunk %d: %lld of %lld elements, the first at sequence "
                    "%d, head %d, position %lld, dim %d: got %g, expected %g\n",
                    f->tensor, rank, f->chunk, (long long)f->mismatches, (long long)f->elements,
                    f->first_bad.sequence, f->first_bad.head, (long long)f->first_bad.position,
                    f->first_bad.dim, f->first_bad_got, f->first_bad_expected);
}

// The state of each rank when a case was aborted.
static void print_failure(const struct cpattn_result *result)
{
    const struct cpattn_failure *f;
    for (int rank = 0; (f = cpattn_result_failure(result, rank)); rank++)
        printf("      rank %d%s: %s in %s, step %d %s%s\n", rank, f->culprit ? " (the cause)" : "",
               f->fate, f->phase, f->step, f->text, f->stderr_tail);
}

static void print_command(const struct test *test)
{
    char command[4096];
    cpattn_case_command(test->c, command, sizeof command);
    printf("      again: %s\n", command);
}

// Takes the answer. If the daemon has gone, the case is lost. The library sends nothing twice, so
// this program decides whether to try again.
static void answer(struct sweep *sweep, struct test *test)
{
    struct cpattn_result *result = NULL;
    struct cpattn_error error;
    enum cpattn_status status = cpattn_collect(test->request, &result, &error);
    cpattn_request_destroy(test->request);
    test->request = NULL;
    sweep->in_flight--;
    if (status == CPATTN_UNAVAILABLE && test->tries < TRIES_MAX && !interrupted) {
        printf("again %s: %s\n", test->name, error.text);
    } else if (status != CPATTN_OK) {
        test->state = NOT_RUN;
        printf("error %s: %s\n", test->name, error.text);
        if (result)
            print_failure(result);
        print_command(test);
    } else if (result->verdict == CPATTN_VERDICT_PASS) {
        test->state = PASSED;
        printf("pass  %s, %.3g ms\n", test->name, (double)result->run_ns / 1e6);
        print_worst(result);
    } else {
        test->state = FAILED;
        printf("FAIL  %s\n", test->name);
        print_broken(result);
        print_command(test);
    }
    cpattn_result_destroy(result);
    fflush(stdout);
}

// ---- all of them --------------------------------------------------------------------------------

// Returns 0 if there is no daemon: the case was not sent and may be submitted again.
static int submit(struct sweep *sweep, struct test *test)
{
    struct cpattn_error error;
    enum cpattn_status status =
        cpattn_submit_limited(sweep->client, test->c, WHOLE_NS, RUN_NS, &test->request, &error);
    if (status == CPATTN_UNAVAILABLE && sweep->absent++ < ABSENT_MAX)
        return 0;
    if (status != CPATTN_OK) {
        test->state = NOT_RUN;
        printf("error %s: %s\n", test->name, error.text);
        return 1;
    }
    test->tries++;
    cpattn_request_set_tag(test->request, test);
    sweep->absent = 0;
    sweep->in_flight++;
    return 1;
}

static void fill(struct sweep *sweep)
{
    static const struct timespec tick = {.tv_nsec = TICK_NS};
    for (int i = 0; i < sweep->count && sweep->in_flight < IN_FLIGHT_MAX && !interrupted; i++) {
        struct test *test = &sweep->tests[i];
        if (test->state == WAITS && !test->request && !submit(sweep, test)) {
            nanosleep(&tick, NULL); // systemd restarts the daemon after a second
            return;
        }
    }
}

static void cancel_all(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        if (sweep->tests[i].request)
            cpattn_cancel(sweep->tests[i].request, NULL);
}

static int waiting(const struct sweep *sweep)
{
    int count = 0;
    for (int i = 0; i < sweep->count; i++)
        count += sweep->tests[i].state == WAITS;
    return count;
}

static void run(struct sweep *sweep)
{
    int cancelled = 0;
    while (sweep->in_flight > 0 || (waiting(sweep) > 0 && !interrupted)) {
        fill(sweep);
        struct cpattn_request *request = cpattn_wait_any(sweep->client, TICK_NS);
        if (request)
            answer(sweep, cpattn_request_tag(request));
        if (interrupted && !cancelled++)
            cancel_all(sweep); // each is still answered, with CANCELLED or its result
    }
}

static int sum_up(const struct sweep *sweep)
{
    int counts[NOT_RUN + 1] = {0};
    for (int i = 0; i < sweep->count; i++)
        counts[sweep->tests[i].state]++;
    printf("%d cases: %d passed, %d failed, %d not run\n", sweep->count, counts[PASSED],
           counts[FAILED], counts[NOT_RUN] + counts[WAITS]);
    return counts[FAILED] ? 1 : counts[PASSED] < sweep->count ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct test tests[16] = {{.state = WAITS}};
    struct sweep sweep = {.tests = tests};
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_error error;
    options.requests_max = IN_FLIGHT_MAX;
    signal(SIGINT, interrupt);
    if (cpattn_client_create(&options, &sweep.client, &error) != CPATTN_OK)
        die("no daemon", &error);
    sweep_fill(&sweep, argc > 1 ? argv[1] : "301"); // any length works
    run(&sweep);
    int exit_status = sum_up(&sweep);
    for (int i = 0; i < sweep.count; i++)
        cpattn_case_destroy(tests[i].c);
    cpattn_client_destroy(sweep.client);
    return exit_status;
}
