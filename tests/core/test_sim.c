// SPDX-License-Identifier: Apache-2.0
// The simulator of the pool core, as a program or under Check; see tests/core/sim/sim.h and
// usage_text.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/sim/sim.h"
#include "tests/support/runner.h"

#define SLICES        5
// After this number of lives every kind of event must have happened.
#define LIVES_TELLING 2000

static const char usage_text[] =
    "Usage: test_sim [--seed N | --seeds FIRST-LAST | --help]\n"
    "Lives of the pool core, each drawn from a seed: clients, ranks and the clock are simulated, "
    "and\n"
    "every promise of daemon/core/core.h is checked after every event.\n"
    "\n"
    "  (no option)         the seeds that broke something once (tests/core/sim/seeds), then "
    "0-9999, "
    "or\n"
    "                      the range in the environment variable CPATTN_SIM_SEEDS\n"
    "  --seed N            replays one life and prints its events and actions\n"
    "  --seeds FIRST-LAST  plays these lives\n"
    "\n"
    "A life that fails prints its seed and how to replay it. Put the seed into "
    "tests/core/sim/seeds "
    "with the\n"
    "repair, so that every `make check` replays it.\n";

#define SEEDS_DEFAULT "0-9999"

struct seeds {
    uint64_t first, last;
};

static bool number_read(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

// "FIRST-LAST"
static bool seeds_read(const char *text, struct seeds *seeds)
{
    return number_read(&text, &seeds->first) && *text++ == '-' &&
           number_read(&text, &seeds->last) && *text == '\0' && seeds->first <= seeds->last;
}

static struct seeds seeds_wanted(void)
{
    struct seeds seeds;
    const char *text = getenv("CPATTN_SIM_SEEDS");
    ck_assert_msg(seeds_read(text ? text : SEEDS_DEFAULT, &seeds),
                  "CPATTN_SIM_SEEDS: \"%s\" is not FIRST-LAST", text);
    return seeds;
}

// Every kind of event must have happened. Otherwise the simulator proves nothing about it.
static void totals_check(const struct sim_totals *t)
{
    static const enum status refusals[] = {
        STATUS_INVALID_ARGUMENT,    STATUS_ALREADY_EXISTS, STATUS_RESOURCE_EXHAUSTED,
        STATUS_FAILED_PRECONDITION, STATUS_UNAVAILABLE,    STATUS_DEADLINE_EXCEEDED,
    };
    if (t->lives < LIVES_TELLING)
        return;
    for (int cause = 0; cause < SIM_CAUSE_MAX; cause++)
        ck_assert_msg(t->causes[cause] > t->lives / 1000, "cause %d came %" PRIu64 " times", cause,
                      t->causes[cause]);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        ck_assert_msg(t->refused[refusals[i]] > t->lives / 10, "%s came %" PRIu64 " times",
                      status_name(refusals[i]), t->refused[refusals[i]]);
    ck_assert_uint_eq(t->exits, t->lives);
    ck_assert_uint_gt(t->side_by_side, t->lives);
    ck_assert_uint_gt(t->stale, t->lives / 10);
    ck_assert_uint_gt(t->starts, t->lives);
    ck_assert_uint_gt(t->attached, t->lives / 10);
    ck_assert_uint_gt(t->repeated, t->lives / 10);
    ck_assert_uint_gt(t->forgotten, t->lives / 10);
    ck_assert_uint_gt(t->limited, t->lives / 10);
    ck_assert_uint_gt(t->late, t->lives / 1000);
    ck_assert_uint_gt(t->crowded, t->lives / 10);
    ck_assert_uint_gt(t->unpinned, t->lives / 100);
    ck_assert_uint_gt(t->taken_out, t->lives / 10);
    ck_assert_uint_gt(t->lifted, t->lives / 250);
    ck_assert_uint_gt(t->held, t->lives / 10);
    ck_assert_uint_gt(t->spent, t->lives / 25);
    ck_assert_uint_gt(t->spares, t->lives / 2);
    ck_assert_uint_gt(t->takeovers, t->lives / 10);
    ck_assert_uint_gt(t->stuck, t->lives / 10);
    ck_assert_uint_gt(t->left_stuck, t->lives / 10);
    ck_assert_uint_gt(t->at_once, t->lives / 100);
    ck_assert_uint_gt(t->early_ends, t->lives / 10);
}

START_TEST(every_history_keeps_the_promises)
{
    struct seeds seeds = seeds_wanted();
    struct sim_totals totals = {0};
    for (uint64_t seed = seeds.first + (uint64_t)_i; seed <= seeds.last; seed += SLICES)
        sim_play(seed, false, &totals);
    totals_check(&totals);
}
END_TEST

START_TEST(seeds_of_past_failures)
{
    struct sim_totals totals = {0};
    char path[4096], line[256];
    FILE *file = fopen(runner_source(path, sizeof(path), "tests/core/sim/seeds"), "re");
    ck_assert_msg(file, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof(line), file)) {
        uint64_t seed;
        const char *text = line;
        if (number_read(&text, &seed))
            sim_play(seed, false, &totals);
        else
            ck_assert_msg(line[0] == '#', "%s: neither a seed nor a comment: %s", path, line);
    }
    fclose(file);
    ck_assert_uint_gt(totals.lives, 0);
}
END_TEST

START_TEST(a_seed_determines_the_history)
{
    struct sim_totals first = {0}, second = {0};
    sim_play(4711, false, &first);
    sim_play(4712, false, &(struct sim_totals){0});
    sim_play(4711, false, &second);
    ck_assert_mem_eq(&first, &second, sizeof(first));
}
END_TEST

static int run_checks(void)
{
    Suite *suite = suite_create("simulator");
    TCase *c = tcase_create("lives");
    tcase_set_timeout(c, 0);
    tcase_add_test(c, a_seed_determines_the_history);
    tcase_add_test(c, seeds_of_past_failures);
    tcase_add_loop_test(c, every_history_keeps_the_promises, 0, SLICES);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}

static int run_seeds(const char *option, const char *text)
{
    bool one = strcmp(option, "--seed") == 0;
    struct seeds seeds;
    struct sim_totals totals = {0};
    const char *rest = text;
    bool valid = one ? number_read(&rest, &seeds.first) && *rest == '\0' : seeds_read(text, &seeds);
    if (!valid) {
        fprintf(stderr, "%s: \"%s\" is not %s\n", option, text, one ? "a number" : "FIRST-LAST");
        return 2;
    }
    if (one)
        seeds.last = seeds.first;
    for (uint64_t seed = seeds.first; seed <= seeds.last; seed++)
        sim_play(seed, one, &totals);
    printf("%" PRIu64 " lives, %" PRIu64 " events, %" PRIu64 " actions, %" PRIu64 " starts\n",
           totals.lives, totals.events, totals.actions, totals.starts);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return run_checks();
    if (argc == 3 && (strcmp(argv[1], "--seed") == 0 || strcmp(argv[1], "--seeds") == 0))
        return run_seeds(argv[1], argv[2]);
    bool help = strcmp(argv[1], "--help") == 0;
    fputs(usage_text, help ? stdout : stderr);
    return help ? 0 : 2;
}
