// SPDX-License-Identifier: Apache-2.0
// Captured plans on GPUs: captures, replays and single launches of several cases in random order
// give the same bits; verified runs pass; the ranks continue to serve.
//
// Prints TAP; exits with status 77 without two devices. Runs 4 ranks on 4 devices and more, else 2.
// Arguments: rounds [20], the first seed [drawn], the longest sequence [300], repeats in a row [4].
// With CPATTN_TRANSPORT=nccl exchanges of NCCL are captured. With CPATTN_TEST_RANKS_PER_GPU=2 half
// as many devices suffice.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plan/case.h"
#include "rank/cuda/engine.h"
#include "rank/cuda/probe.h"
#include "tests/support/generate.h"
#include "tests/support/world.h"

#define RANKS_USED_MAX 4
#define CASES          3
#define EXIT_SKIPPED   77

static long rounds = 20, seqlen_max = 300, repeats = 4;
static uint64_t seed;
static struct world *world;
static int ranks = 2;

struct kept {
    struct cp_case c;
    uint64_t digest;
};

static int devices_count(void)
{
    char text[4096] = "";
    FILE *output = tmpfile();
    int count = 0, status;
    pid_t pid = output ? fork() : -1;
    if (pid == 0) {
        dup2(fileno(output), STDOUT_FILENO);
        status = probe_run();
        fflush(stdout);
        _exit(status);
    }
    if (pid < 0)
        return 0;
    waitpid(pid, &status, 0);
    rewind(output);
    text[fread(text, 1, sizeof(text) - 1, output)] = '\0';
    for (const char *at = text; (at = strstr(at, "device ")); at++)
        count++;
    fclose(output);
    return count;
}

static void say(const struct cp_case *c, const char *what)
{
    static char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    printf("# %s: %s\n", what, text);
}

// Runs a case; false, with a message, if the result is unexpected.
static bool run(struct kept *k, bool graph)
{
    struct rank_report reports[RANKS_USED_MAX];
    struct error error;
    k->c.graph = graph;
    if (world_run_on(world, &k->c, reports, &error) != STATUS_OK) {
        say(&k->c, error.text);
        return false;
    }
    if (reports[0].refusal.status != STATUS_OK) {
        say(&k->c, reports[0].refusal.text);
        return false;
    }
    uint64_t digest = world_digest(reports, ranks);
    bool first = k->digest == 0, same = first || digest == k->digest;
    bool passed = k->c.verify == VERIFY_OFF || world_passed(reports, ranks);
    k->digest = digest;
    if (!same || !passed)
        say(&k->c, passed ? "other bits" : "a fail");
    // A rank without queries may have zero times.
    bool timed = false;
    for (int rank = 0; rank < ranks; rank++)
        timed =
            timed || reports[rank].timings.forward_ns > 0 || shard_rows(&k->c, SIDE_Q, rank) == 0;
    if (!timed)
        say(&k->c, "no rank has timed the forward");
    return same && passed && timed;
}

static void draw(uint64_t *random, struct kept *k)
{
    do
        generate_case(generate_next(random), ranks, seqlen_max, &k->c);
    while (k->c.world_size != ranks);
    k->c.deterministic = true;
    k->digest = 0;
}

// Runs one of the cases a few times in a row. With a graph, the first run captures, later ones
// replay.
static bool row(uint64_t *random, struct kept kept[CASES])
{
    struct kept *k = &kept[generate_below(random, CASES)];
    bool graph = generate_below(random, 3) > 0, good = true;
    if (generate_below(random, 3) == 0)
        k->c.verify = k->c.verify == VERIFY_OFF ? VERIFY_AUTO : VERIFY_OFF;
    for (long i = 1 + (long)generate_below(random, repeats); i > 0 && good; i--)
        good = run(k, graph);
    return good;
}

int main(int argc, char **argv)
{
    int failures = 0;
    long runs = 0;
    seed = (uint64_t)time(NULL);
    const char *shared = getenv("CPATTN_TEST_RANKS_PER_GPU");
    int devices = devices_count();
    world_devices(devices);
    int places = devices * (shared ? (int)strtol(shared, NULL, 10) : 1);
    if (places < ranks) {
        printf("1..0 # SKIP there are not %d devices\n", ranks);
        return EXIT_SKIPPED;
    }
    ranks = places < RANKS_USED_MAX ? ranks : RANKS_USED_MAX;
    rounds = argc > 1 ? strtol(argv[1], NULL, 10) : rounds;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    seqlen_max = argc > 3 ? strtol(argv[3], NULL, 10) : seqlen_max;
    repeats = argc > 4 ? strtol(argv[4], NULL, 10) : repeats;
    printf("# seed %llu, %d ranks\n", (unsigned long long)seed, ranks);
    world_engine(&engine_cuda);
    world = world_create(ranks);
    for (long round = 0; round < rounds && failures == 0; round++) {
        struct kept kept[CASES];
        uint64_t random = seed + (uint64_t)round + 1;
        for (int i = 0; i < CASES; i++)
            draw(&random, &kept[i]);
        for (int i = 0; i < 4 * CASES && failures == 0; i++, runs++)
            failures += !row(&random, kept);
    }
    printf("# %ld rows of runs\n", runs);
    printf("%sok 1 - graphs and single launches give the same bits\n1..1\n",
           failures ? "not " : "");
    world_destroy(world);
    return failures > 0;
}
