// SPDX-License-Identifier: Apache-2.0
// Reduction of failing cases, with known failures and with deliberate errors. Random cases must
// find the deliberate errors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/minimize.h"
#include "plan/plan.h"
#include "tests/mutations/mutations.h"
#include "tests/rank/random_cases.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/part.h"
#include "tests/support/runner.h"
#include "tests/support/world.h"

#define SLICES 8

static char text[CASE_COMMAND_MAX];

// ---- failures that are known ----

static bool fails_always(const struct cp_case *c, void *context)
{
    ++*(int *)context;
    return c != NULL;
}

static bool fails_with_a_window(const struct cp_case *c, void *context)
{
    ++*(int *)context;
    return c->window_left >= 5 && c->world_size >= 3;
}

static bool fails_with_a_long_sequence(const struct cp_case *c, void *context)
{
    ++*(int *)context;
    for (int32_t i = 0; i < c->batch; i++)
        if (case_length(c, SIDE_Q, i) >= 7 && c->bias == BIAS_BHSS && c->heads / c->kv_heads >= 2)
            return true;
    return false;
}

static bool fails_with_padding(const struct cp_case *c, void *context)
{
    int32_t count;
    const int32_t *padded = case_list(c, LIST_PADDED_Q, &count);
    ++*(int *)context;
    for (int32_t i = 0; i < count; i++)
        if (padded[i] > case_length(c, SIDE_Q, i) + 1 && c->training)
            return true;
    return false;
}

static bool fails_in_teams(const struct cp_case *c, void *context)
{
    ++*(int *)context;
    return c->comm == COMM_A2A_P2P && c->a2a_size > 1 && c->a2a_size < c->world_size;
}

#define SMALLEST " --sharding contiguous --batch 1 --heads 1 --head-dim-qk 1 --head-dim-v 1 "

static const struct {
    minimize_fails *fails;
    const char *options; // of the smallest failing case
} known[] = {
    {fails_with_a_window, "--world-size 3" SMALLEST "--seqlen-q 0 --seqlen-kv 0 --mask none "
                          "--window-left 5 --training false"},
    {fails_with_a_long_sequence, "--world-size 1 --sharding contiguous --batch 1 --heads 2 "
                                 "--kv-heads 1 --head-dim-qk 1 --head-dim-v 1 --seqlen-q 7 "
                                 "--seqlen-kv 0 --mask none --bias bhss --training false"},
    {fails_with_padding, "--world-size 1 --sharding contiguous --format thd --batch 1 --heads 1 "
                         "--head-dim-qk 1 --head-dim-v 1 --seqlen-q 0 --seqlen-kv 0 "
                         "--padded-q 2 --mask none"},
    {fails_in_teams, "--world-size 4 --comm a2a+p2p" SMALLEST "--seqlen-q 0 --seqlen-kv 0 "
                     "--mask none --training false"},
};

START_TEST(fields_without_effect_on_the_failure_are_removed)
{
    int cases = 0;
    for (uint64_t seed = 0; cases < 20; seed++) {
        struct cp_case c;
        int asked = 0;
        generate_case(seed, 8, 72, &c);
        if (!known[_i].fails(&c, &asked))
            continue;
        cases++;
        asked = 0;
        ck_assert_int_eq(minimize_case(&c, known[_i].fails, &asked, 10000), asked);
        case_command(&c, text, sizeof text);
        ck_assert_str_eq(text + strlen("cpattn-submit case "), known[_i].options);
    }
}
END_TEST

START_TEST(the_search_has_an_end)
{
    struct cp_case c, before;
    int asked = 0;
    random_case(0, &c);
    for (int tries = 0; tries < 30; tries++) {
        before = c;
        ck_assert_int_le(minimize_case(&c, fails_always, &asked, tries), tries);
        if (tries == 0)
            ck_assert_mem_eq(&c, &before, sizeof c);
        else
            ck_assert_mem_ne(&c, &before, sizeof c);
        random_case((uint64_t)tries, &c);
    }
}
END_TEST

// ---- deliberate errors ----

// A case that takes this long hangs, even if its ranks do not sleep. Other cases take milliseconds.
#define HANGS_MS   15000
// Enough cases to meet every mutation.
#define SEEDS_MOST 60

static void set_mutation(const struct mutation *mutation)
{
    world_close_all(); // ranks keep the mutation with which they were forked
    mutation_set(mutation);
    world_patience(mutation ? HANGS_MS : 0);
}

// The first random case that does not pass.
static void find(struct cp_case *c)
{
    for (uint64_t seed = 0; seed < SEEDS_MOST; seed++) {
        random_case(seed, c);
        if (random_run(c) != RANDOM_PASSES)
            return;
    }
    ck_abort_msg("%s is not found", mutation_name(mutation_current()));
}

static bool is_small(const struct cp_case *c)
{
    return c->world_size <= 4 && c->batch <= 2 && c->heads <= 2 && c->seqlen_q <= 5 &&
           c->seqlen_kv <= 5 && c->head_dim_qk <= 2;
}

static void found_and_made_small(void)
{
    struct cp_case c, read;
    find(&c);
    int tried = random_minimize(&c, text);
    printf("# %-21s %d cases tried; %s\n", mutation_name(mutation_current()), tried, text);
    ck_assert_msg(is_small(&c), "%s: %s", mutation_name(mutation_current()), text);
    ck_assert_int_ne(random_run(&c), RANDOM_PASSES);
    cases_read_command(text, &read);
    ck_assert_mem_eq(&read, &c, sizeof c);
    set_mutation(NULL);
    ck_assert_int_eq(random_run(&c), RANDOM_PASSES);
}

// False for a missing wait, which depends on timing, for a changing order of sums, which is right
// every time, and for small errors, which need many or special elements.
static bool shows(const struct mutation *mutation)
{
    static const char *const slight[] = {"RESULTS_HALF_PERCENT", "SLOPE_NEAR_SATURATION"};
    for (size_t i = 0; i < sizeof slight / sizeof *slight; i++)
        if (mutation == mutation_find(slight[i]))
            return false;
    return mutation->noticed == BY_VERDICT || mutation->noticed == BY_COUNT;
}

START_TEST(deliberate_errors_are_found_and_made_small)
{
    for (int m = _i; m < mutations_count; m += SLICES) {
        if (!shows(&mutations[m]) || m / SLICES % test_part() != 0)
            continue;
        set_mutation(&mutations[m]);
        found_and_made_small();
    }
    world_close_all();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("minimize");
    TCase *t = tcase_create("known");
    tcase_add_loop_test(t, fields_without_effect_on_the_failure_are_removed, 0,
                        sizeof known / sizeof *known);
    tcase_add_test(t, the_search_has_an_end);
    suite_add_tcase(s, t);
    TCase *errors = tcase_create("deliberate errors");
    tcase_set_timeout(errors, 120);
    tcase_add_loop_test(errors, deliberate_errors_are_found_and_made_small, 0, SLICES);
    suite_add_tcase(s, errors);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
