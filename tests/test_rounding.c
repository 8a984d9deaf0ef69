// SPDX-License-Identifier: Apache-2.0
// Kernels on matrix units round P and dS to the dtype before they multiply by them. That is no
// error: with the CPU's kernels made to do so, every case passes, with room to spare.
#include <stdio.h>

#include "tests/cases.h"
#include "tests/generate.h"
#include "tests/mutations/mutations.h"
#include "tests/runner.h"
#include "tests/world.h"

#define CASES      60
#define SEQLEN_TOP 120
#define WORLD_TOP  2
// Of a limit, at most: what other kernels may be worse.
#define PART       0.67

static void figures_check(const struct cp_case *c, const struct figures *f)
{
    if (f->broken == 0 && f->worst_element <= PART && f->rmse_rel <= PART * f->rmse_limit &&
        f->worst_row_rel <= PART * f->worst_row_limit)
        return;
    char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    ck_abort_msg("%s of chunk %d: broken %d, element %g, rmse %g of %g, row %g of %g, %lld bad: %s",
                 report_tensor_name(f->tensor), f->chunk, f->broken, f->worst_element, f->rmse_rel,
                 f->rmse_limit, f->worst_row_rel, f->worst_row_limit, (long long)f->mismatches,
                 text);
}

static void case_run(const struct cp_case *c)
{
    struct rank_report reports[WORLD_TOP];
    struct error error;
    ck_assert_int_eq(world_run(c, reports, &error), STATUS_OK);
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++)
            figures_check(c, &reports[rank].figures[i]);
}

START_TEST(cases_pass)
{
    mutation_rounds = true;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct cp_case c;
        generate_case(seed, WORLD_TOP, SEQLEN_TOP, &c);
        c.inputs = INPUTS_SHARP;
        case_run(&c);
    }
    world_close_all();
}
END_TEST

START_TEST(the_usual_case_passes)
{
    struct cp_case c = cases_usual();
    mutation_rounds = true;
    c.dtype = (enum case_dtype)_i;
    case_run(&c);
    world_close_all();
}
END_TEST

// A scale that lets one key have all the weight of a query, with inputs that were not made for it.
START_TEST(saturated_cases_pass)
{
    struct cp_case c = cases_usual();
    mutation_rounds = true;
    c.inputs = INPUTS_TE;
    c.head_dim_qk = c.head_dim_v = 64;
    c.seqlen_q = c.seqlen_kv = 96;
    c.bias = BIAS_BHSS;
    for (int i = 0; i < 6; i++) {
        c.dtype = i % 2 ? DTYPE_BF16 : DTYPE_FP16;
        c.scale = i / 2 == 0 ? 1 : i / 2 == 1 ? 10 : 90;
        case_run(&c);
    }
    world_close_all();
}
END_TEST

// The switch does something, and more than nothing to what fp32 holds.
START_TEST(rounding_shows)
{
    struct cp_case c = cases_usual();
    struct rank_report plain[WORLD_TOP], rounded[WORLD_TOP];
    struct error error;
    c.seqlen_q = c.seqlen_kv = 64;
    mutation_rounds = false;
    ck_assert_int_eq(world_run(&c, plain, &error), STATUS_OK);
    world_close_all();
    mutation_rounds = true;
    ck_assert_int_eq(world_run(&c, rounded, &error), STATUS_OK);
    world_close_all();
    ck_assert(world_passed(plain, c.world_size) && world_passed(rounded, c.world_size));
    ck_assert(world_digest(plain, c.world_size) != world_digest(rounded, c.world_size));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rounding");
    TCase *t = tcase_create("rounding");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, cases_pass);
    tcase_add_loop_test(t, the_usual_case_passes, DTYPE_BF16, DTYPE_FP16 + 1);
    tcase_add_test(t, saturated_cases_pass);
    tcase_add_test(t, rounding_shows);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
