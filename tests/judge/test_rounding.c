// SPDX-License-Identifier: Apache-2.0
// Kernels on matrix units round P and dS to the dtype before they multiply by them. Some kernels
// round P against an older row maximum, partial results before the merge, or O before delta. None
// of this is an error: CPU kernels that round in these ways pass every case. CPATTN_ROUNDING_CASES
// sets the number of cases for each kind of kernel.
#include <stdio.h>
#include <stdlib.h>

#include "tests/mutations/mutations.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/part.h"
#include "tests/support/runner.h"
#include "tests/support/world.h"

#define CASES      120 // 1/test_part() of them is tried
#define SEQLEN_TOP 200
#define WORLD_TOP  2
// Errors may use this fraction of a limit. The rest is a margin for other kernels.
#define PART       0.75

static double part = PART;
static int figures_counted, figures_bad;

static void figures_check(const struct cp_case *c, const struct figures *f)
{
    figures_counted++;
    if (f->broken == 0 && f->worst_element <= part && f->rmse_rel <= part * f->rmse_limit &&
        f->worst_row_rel <= part * f->worst_row_limit)
        return;
    char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    figures_bad++;
    printf("# %s of chunk %d: broken %d, element %g, rmse %g of %g, slope %g of %g, row %g of %g, "
           "%lld bad: %s\n",
           report_tensor_name(f->tensor), f->chunk, f->broken, f->worst_element, f->rmse_rel,
           f->rmse_limit, f->slope, f->slope_limit, f->worst_row_rel, f->worst_row_limit,
           (long long)f->mismatches, text);
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

static void figures_expect(void)
{
    printf("# rounding %d: %d of %d figures are refused\n", mutation_rounds, figures_bad,
           figures_counted);
    fflush(stdout);
    ck_assert_int_gt(figures_counted, 0);
    ck_assert_int_eq(figures_bad, 0);
}

// Kinds of kernels, and the fraction of a limit that they may use.
static const struct {
    int rounds;
    double part;
} kinds[] = {{ROUNDS_WEIGHTS, PART},
             {ROUNDS_WEIGHTS | ROUNDS_OUT, 1},
             {ROUNDS_WEIGHTS | ROUNDS_STALE, 1},
             {ROUNDS_WEIGHTS | ROUNDS_STALE | ROUNDS_PARTIAL | ROUNDS_OUT, 1}};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

static uint64_t cases_wanted(void)
{
    const char *text = getenv("CPATTN_ROUNDING_CASES");
    return text ? strtoull(text, NULL, 10) : CASES / (uint64_t)test_part();
}

START_TEST(cases_pass)
{
    mutation_rounds = kinds[_i].rounds;
    part = kinds[_i].part;
    for (uint64_t seed = 1; seed <= cases_wanted(); seed++) {
        struct cp_case c;
        generate_case(seed, WORLD_TOP, SEQLEN_TOP, &c);
        c.inputs = INPUTS_SHARP;
        case_run(&c);
    }
    world_close_all();
    figures_expect();
}
END_TEST

START_TEST(the_usual_case_passes)
{
    struct cp_case c = cases_usual();
    mutation_rounds = ROUNDS_WEIGHTS;
    c.dtype = (enum case_dtype)_i;
    case_run(&c);
    world_close_all();
    figures_expect();
}
END_TEST

// The error of these gradients comes from the delta of a rounded O. The products of that delta
// nearly cancel.
START_TEST(cases_refused_once_pass)
{
    static const uint64_t seeds[] = {UINT64_C(8818623815268095991), UINT64_C(18183615686589464628)};
    mutation_rounds = kinds[KINDS - 1].rounds;
    part = kinds[KINDS - 1].part;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        struct cp_case c;
        generate_case(seeds[i], 1, 4, &c);
        case_run(&c);
    }
    world_close_all();
    figures_expect();
}
END_TEST

// Large scales, with inputs that do not depend on the scale: one key gets nearly all the weight of
// a query.
START_TEST(saturated_cases_pass)
{
    struct cp_case c = cases_usual();
    mutation_rounds = ROUNDS_WEIGHTS;
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
    figures_expect();
}
END_TEST

// Logits far above the softcap: the gradients nearly vanish, and the error of tanh remains.
START_TEST(saturated_softcaps_pass)
{
    static const int64_t lengths[] = {2, 3, 5, 8, 16, 40, 96};
    mutation_rounds = ROUNDS_WEIGHTS | ROUNDS_CAP;
    for (size_t i = 0; i < 4 * sizeof(lengths) / sizeof(*lengths); i++) {
        struct cp_case c = cases_usual();
        c.dtype = (enum case_dtype)_i;
        c.softcap = i % 2 ? 0.01 : 0.003;
        c.seed = i;
        c.seqlen_q = c.seqlen_kv = lengths[i / 4];
        case_run(&c);
    }
    world_close_all();
    figures_expect();
}
END_TEST

// ROUNDS_WEIGHTS changes the results.
START_TEST(rounding_shows)
{
    struct cp_case c = cases_usual();
    struct rank_report plain[WORLD_TOP], rounded[WORLD_TOP];
    struct error error;
    c.seqlen_q = c.seqlen_kv = 64;
    mutation_rounds = 0;
    ck_assert_int_eq(world_run(&c, plain, &error), STATUS_OK);
    world_close_all();
    mutation_rounds = ROUNDS_WEIGHTS;
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
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, cases_pass, 0, KINDS);
    tcase_add_loop_test(t, the_usual_case_passes, DTYPE_BF16, DTYPE_FP16 + 1);
    tcase_add_test(t, cases_refused_once_pass);
    tcase_add_test(t, saturated_cases_pass);
    tcase_add_loop_test(t, saturated_softcaps_pass, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_test(t, rounding_shows);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
