// SPDX-License-Identifier: Apache-2.0
// Host overhead of a repeated case: the time to launch its plan on the streams, and the duration of
// the case less the work of the device. Then the times of the device. Each value is the median over
// the repeats of the slowest rank. Ranks are processes with sessions, without a daemon.
//
// Arguments: ranks [2], repeats [40], then NAME=VALUE for every case. With
// CPATTN_TEST_RANKS_PER_GPU=N each device serves N ranks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "plan/case.h"
#include "rank/cuda/engine.h"
#include "tests/support/world.h"

#define RANKS_DEFAULT   2
#define REPEATS_DEFAULT 40
#define REPEATS_MAX     10000
#define WARM            3

static const char *const cases[][8] = {
    {"seqlen=2k", "batch=1", "heads=16", "kv_heads=16"},
    {"seqlen=8k", "batch=2", "heads=16", "kv_heads=16"},
    {"seqlen=64k", "batch=1", "heads=32", "kv_heads=8"},
    {"seqlen=64k", "batch=1", "heads=32", "kv_heads=8", "deterministic=false"},
    {"seqlen=64k", "batch=1", "heads=32", "kv_heads=8", "window_left=1024", "softmax=learnable"},
    {"seqlen=512", "batch=128", "heads=16", "kv_heads=4", "format=thd"},
    {"seqlen=16k", "batch=2", "heads=16", "kv_heads=16", "comm=all_gather"},
    {"seqlen=16k", "batch=2", "heads=16", "kv_heads=16", "comm=a2a"},
};

struct measured {
    double launch_us[REPEATS_MAX], wall_us[REPEATS_MAX], device_us[REPEATS_MAX];
    double forward_us[REPEATS_MAX], backward_us[REPEATS_MAX], exposed_us[REPEATS_MAX];
    int operations;
};

static void set(struct cp_case *c, const char *pair)
{
    char name[64];
    struct error error;
    const char *value = strchr(pair, '=');
    snprintf(name, sizeof(name), "%.*s", value ? (int)(value - pair) : 0, pair);
    if (!value || case_set(c, name, value + 1, &error) != STATUS_OK) {
        fprintf(stderr, "bench_launch_cuda: %s: %s\n", pair, value ? error.text : "NAME=VALUE");
        exit(EXIT_FAILURE);
    }
}

static void run(struct world *w, const struct cp_case *c, struct rank_report *reports)
{
    struct error error;
    if (world_run_on(w, c, reports, &error) == STATUS_OK && reports[0].refusal.status == STATUS_OK)
        return;
    fprintf(stderr, "bench_launch_cuda: %s%s\n", error.text, reports[0].refusal.text);
    exit(EXIT_FAILURE);
}

static void raise(double *most, uint64_t ns)
{
    *most = (double)ns * 1e-3 > *most ? (double)ns * 1e-3 : *most;
}

static void take(struct measured *m, int i, const struct rank_report *reports, int ranks)
{
    m->launch_us[i] = m->device_us[i] = 0;
    m->forward_us[i] = m->backward_us[i] = m->exposed_us[i] = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const struct timings *t = &reports[rank].timings;
        raise(&m->launch_us[i], t->launch_ns);
        raise(&m->device_us[i], t->inputs_ns + t->forward_ns + t->backward_ns);
        raise(&m->forward_us[i], t->forward_ns);
        raise(&m->backward_us[i], t->backward_ns);
        raise(&m->exposed_us[i], t->exposed_ns);
        if (reports[rank].operations > m->operations)
            m->operations = reports[rank].operations;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

// Runs the case once with verification, then repeats it without.
static void measure(struct world *w, struct cp_case *c, int repeats)
{
    static struct measured m;
    struct rank_report reports[WORLD_SIZE_MAX];
    memset(&m, 0, sizeof(m));
    run(w, c, reports);
    bool passed = world_passed(reports, c->world_size);
    c->verify = VERIFY_OFF;
    for (int i = -WARM; i < repeats; i++) {
        uint64_t start_ns = clock_now_ns();
        run(w, c, reports);
        if (i < 0)
            continue;
        m.wall_us[i] = (double)(clock_now_ns() - start_ns) * 1e-3;
        take(&m, i, reports, c->world_size);
    }
    double launch_us = median(m.launch_us, repeats), device_us = median(m.device_us, repeats);
    double wall_us = median(m.wall_us, repeats);
    printf("%s, %d operations: launch %.0f us, %.2f us each; least %.0f us; case %.0f us, %.0f us "
           "beside the device\n",
           passed ? "pass" : "FAIL", m.operations, launch_us, launch_us / m.operations,
           m.launch_us[0], wall_us, wall_us - device_us);
    printf("  forward %.0f us, backward %.0f us, of these exposed exchange %.0f us\n",
           median(m.forward_us, repeats), median(m.backward_us, repeats),
           median(m.exposed_us, repeats));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : RANKS_DEFAULT;
    int repeats = argc > 2 ? atoi(argv[2]) : REPEATS_DEFAULT;
    if (ranks < 1 || ranks > WORLD_SIZE_MAX || repeats < 1 || repeats > REPEATS_MAX)
        return EXIT_FAILURE;
    const char *shared = getenv("CPATTN_TEST_RANKS_PER_GPU");
    if (shared && atoi(shared) > 0)
        world_devices((ranks + atoi(shared) - 1) / atoi(shared));
    world_engine(&engine_cuda);
    struct world *w = world_create(ranks);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cp_case c;
        char text[CASE_COMMAND_MAX];
        case_init(&c);
        c.world_size = ranks;
        for (int k = 0; k < 8 && cases[i][k]; k++)
            set(&c, cases[i][k]);
        for (int k = 3; k < argc; k++)
            set(&c, argv[k]);
        case_command(&c, text, sizeof(text));
        printf("%s\n  ", text);
        measure(w, &c, repeats);
    }
    world_destroy(w);
    return EXIT_SUCCESS;
}
