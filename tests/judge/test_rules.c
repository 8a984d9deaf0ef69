// SPDX-License-Identifier: Apache-2.0
// Each rule by itself: a chunk with given sums passes, and fails if one limit is exceeded.
#include "tests/support/runner.h"

#include <math.h>

#include "judge/rules.h"

#define ELEMENTS 1000000
#define ROWS     10000
#define UNIT     1e-3 // RMS error of the twin, of a reference whose RMS is 1

// A chunk with errors of `rms` units and a slope, judged as a tensor of the case.
static struct figures judged(const struct cp_case *c, enum report_tensor tensor, double rms,
                             double slope)
{
    struct rules rules = rules_of(c, tensor);
    struct rules_sums s = {.elements = ELEMENTS,
                           .rows = ROWS,
                           .error_squares = pow(rms * UNIT, 2) * ELEMENTS,
                           .twin_squares = UNIT * UNIT * ELEMENTS,
                           .reference_squares = ELEMENTS,
                           .product = slope * ELEMENTS,
                           .twin_fourths = pow(UNIT * UNIT * ELEMENTS, 2) / ROWS};
    struct rules_worst worst = {.row = 1, .element = 0.5};
    struct figures f = {0};
    rules_finish(&rules, &s, &worst, &f);
    return f;
}

static struct cp_case of_length(enum case_dtype dtype, int64_t seqlen)
{
    struct cp_case c;
    case_init(&c);
    c.dtype = dtype;
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = seqlen;
    return c;
}

START_TEST(the_rms_is_measured_in_units)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct figures f = judged(&c, TENSOR_OUT, 1.5, 0);
    ck_assert_int_eq(f.broken, 0);
    ck_assert_double_eq_tol(f.twin_rel, UNIT, 1e-12);
    ck_assert_int_eq(f.remark, REMARK_NONE);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.7, 0).broken, RULE_RMSE);
    c.dtype = DTYPE_FP32;
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.7, 0).broken, 0);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 2.8, 0).broken, RULE_RMSE);
}
END_TEST

// A gradient that is rounded for each sequence, and again as their sum.
START_TEST(the_gradient_of_a_shared_bias_may_be_a_sum_of_rounded_parts)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    c.bias = BIAS_1HSS;
    ck_assert_int_eq(judged(&c, TENSOR_DBIAS, 1.75, 0).broken, RULE_RMSE);
    c.batch = 3;
    ck_assert_int_eq(judged(&c, TENSOR_DBIAS, 1.75, 0).broken, 0);
    ck_assert_int_eq(judged(&c, TENSOR_DBIAS, 2.3, 0).broken, RULE_RMSE);
    ck_assert_int_eq(judged(&c, TENSOR_DQ, 1.75, 0).broken, RULE_RMSE);
    c.bias = BIAS_BHSS;
    ck_assert_int_eq(judged(&c, TENSOR_DBIAS, 1.75, 0).broken, RULE_RMSE);
}
END_TEST

// Breaks the RMS rule exactly beyond `most` units, if `rows` rows contribute to the twin's error.
static void check_rms_limit(const struct rules *rules, double rows, double most)
{
    for (int beyond = 0; beyond < 2; beyond++) {
        double rms = most * (beyond ? 1.005 : 0.999) * UNIT;
        struct rules_sums s = {.elements = ELEMENTS,
                               .rows = ROWS,
                               .error_squares = rms * rms * ELEMENTS,
                               .twin_squares = UNIT * UNIT * ELEMENTS,
                               .reference_squares = ELEMENTS,
                               .twin_fourths = pow(UNIT * UNIT * ELEMENTS, 2) / rows};
        struct rules_worst worst = {0};
        struct figures f = {0};
        rules_finish(rules, &s, &worst, &f);
        ck_assert_int_eq(f.broken, beyond ? RULE_RMSE : 0);
    }
}

// With few rows the limit of the RMS error is several times that of many rows. That of a shared
// bias's gradient is larger with many rows only.
START_TEST(the_rms_of_few_rows_has_a_larger_limit)
{
    static const struct {
        double rows, most; // most: 1.5 * min(1 + 6 / sqrt(rows), 1 + 100 / rows)
    } limits[] = {{1, 10.5}, {4, 6}, {100, 2.4}, {278, 2.0396}, {500, 1.8}, {2000, 1.575}};
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules plain = rules_of(&c, TENSOR_DQ);
    c.bias = BIAS_1HSS;
    c.batch = 3;
    struct rules shared = rules_of(&c, TENSOR_DBIAS);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        check_rms_limit(&plain, limits[i].rows, limits[i].most);
        check_rms_limit(&shared, limits[i].rows, fmax(limits[i].most, 2));
    }
}
END_TEST

// If the twin happens to have almost no rounding error, the unit is a part of a step of the
// cancelling terms.
START_TEST(few_rows_have_a_step_of_their_terms_as_unit)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_DK);
    struct rules_sums s = {.elements = 32,
                           .rows = 32,
                           .twin_squares = 32 * 1e-8,
                           .reference_squares = 32 * 1e-4,
                           .terms_squares = 32 * 4.0};
    s.twin_fourths = pow(s.twin_squares, 2) / 3; // the twin's error is that of 3 rows
    ck_assert_double_eq_tol(rules_units(&rules, &s).rms, 0.2 * 0x1p-7 * 2, 1e-9);
    s.twin_fourths = pow(s.twin_squares, 2) / 16;
    ck_assert_double_eq_tol(rules_units(&rules, &s).rms, 0.05 * 0x1p-7 * 2, 1e-9);
}
END_TEST

START_TEST(the_slope_has_a_sign_and_a_limit)
{
    static const double limits[] = {[DTYPE_BF16] = 3e-4, [DTYPE_FP16] = 1e-4, [DTYPE_FP32] = 3e-6};
    static const enum case_dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        struct cp_case c = of_length(dtypes[i], 1024);
        double noise = 3 * (1 + 6 / sqrt(ROWS)) * UNIT / sqrt(ROWS);
        double limit = limits[dtypes[i]] + noise;
        ck_assert_int_eq(judged(&c, TENSOR_DK, 1, 0.99 * limit).broken, 0);
        ck_assert_int_eq(judged(&c, TENSOR_DK, 1, -0.99 * limit).broken, 0);
        ck_assert_int_eq(judged(&c, TENSOR_DK, 1, 1.05 * limit).broken, RULE_SLOPE);
        ck_assert_int_eq(judged(&c, TENSOR_DK, 1, -1.05 * limit).broken, RULE_SLOPE);
    }
}
END_TEST

// Where logits are at the ends of a softcap, a kernel rounds most weights in one direction.
START_TEST(a_low_softcap_admits_half_a_step_of_slope)
{
    static const struct {
        double softcap, part; // of half a step; the logits deviate by 4
    } caps[] = {{0, 0},       {50, 0},  {4, 0},    {2, 1 / 7.0},
                {1, 3 / 7.0}, {0.5, 1}, {0.25, 1}, {1e-3, 1}};
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        struct cp_case c = of_length(DTYPE_BF16, 1024);
        double noise = 3 * (1 + 6 / sqrt(ROWS)) * UNIT / sqrt(ROWS), plain = 3e-4 + noise;
        c.softcap = caps[i].softcap;
        struct figures f = judged(&c, TENSOR_OUT, 0, 0);
        ck_assert_double_ge(f.slope_limit, plain + caps[i].part * 0x1p-8 - 1e-9);
        ck_assert_double_le(f.slope_limit, 3 * plain + caps[i].part * 0x1p-8);
        ck_assert_double_ge(f.rmse_limit, caps[i].part * 0x1p-8);
        ck_assert_double_eq_tol(judged(&c, TENSOR_DK, 0, 0).slope_limit, plain, 1e-5);
        c.bias = BIAS_BHSS;
        ck_assert_double_eq_tol(judged(&c, TENSOR_OUT, 0, 0).slope_limit, plain, 1e-5);
    }
}
END_TEST

// Errors of similar rows have one sign and add up, also in the twin. Then the limit of the slope is
// larger.
START_TEST(equal_rows_add_their_slopes)
{
    struct cp_case c = of_length(DTYPE_FP16, 64);
    struct rules rules = rules_of(&c, TENSOR_OUT);
    double alone = 1e-4 + 3 * (1 + 6 / sqrt(64)) * UNIT / sqrt(64);
    double alike = 1e-4 + 1.5 * (1 + 6 / sqrt(64)) * UNIT;
    for (int same = 0; same < 2; same++)
        for (int beyond = 0; beyond < 2; beyond++) {
            double limit = same ? alike : alone, slope = limit * (beyond ? -1.01 : 0.99);
            struct rules_sums s = {.elements = 64,
                                   .rows = 64,
                                   .error_squares = UNIT * UNIT * 64,
                                   .twin_squares = UNIT * UNIT * 64,
                                   .reference_squares = 64,
                                   .product = slope * 64,
                                   .twin_product = same ? -UNIT * 64 : UNIT * 8,
                                   .twin_product_squares = UNIT * UNIT * 64,
                                   .twin_fourths = pow(UNIT, 4) * 64};
            struct rules_worst worst = {0};
            struct figures f = {0};
            rules_finish(&rules, &s, &worst, &f);
            ck_assert_double_eq_tol(f.slope_limit, limit, 2e-7);
            ck_assert_int_eq(f.broken, beyond ? RULE_SLOPE : 0);
        }
}
END_TEST

// The variance of dP without one of its products. A dP of one product cannot cancel.
START_TEST(products_of_dp_may_cancel)
{
    struct cp_case c = of_length(DTYPE_FP32, 64);
    c.head_dim_v = 129;
    ck_assert_double_eq_tol(rules_product_squares(&c), 128, 1e-9);
    c.inputs = INPUTS_TE;
    ck_assert_double_eq_tol(rules_product_squares(&c), 128 * pow(0.72, 4), 1e-5);
    c.inputs = INPUTS_SHARP;
    c.dtype = DTYPE_BF16;
    ck_assert_double_eq_tol(rules_product_squares(&c), 128, 1e-9);
    c.head_dim_v = 1;
    ck_assert_double_eq(rules_product_squares(&c), 0);
}
END_TEST

START_TEST(rows_elements_and_exact_rules_break_by_themselves)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_OUT);
    struct rules_sums s = {.elements = ELEMENTS,
                           .rows = ROWS,
                           .twin_squares = UNIT * UNIT * ELEMENTS,
                           .reference_squares = ELEMENTS};
    struct rules_worst worst = {.row = 30};
    struct figures f;
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_ROW);
    worst = (struct rules_worst){.element = 1.01, .mismatches = 1};
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_ELEMENT);
    worst = (struct rules_worst){0};
    s.nonfinite = 1;
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_NONFINITE);
    s.nonfinite = 0;
    s.zeros = 1;
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_ZERO);
}
END_TEST

// Empty rows must be zero. They do not count in the unit.
START_TEST(empty_rows_do_not_reduce_the_unit)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_DQ);
    struct rules_sums s = {.elements = ELEMENTS,
                           .rows = ROWS,
                           .error_squares = (ELEMENTS / 100.0) * 4,
                           .twin_squares = (ELEMENTS / 100.0) * 4,
                           .reference_squares = (ELEMENTS / 100.0) * 9};
    double diluted = rules_units(&rules, &s).rms;
    s.empty = ELEMENTS / 100 * 99;
    ck_assert_double_eq_tol(rules_units(&rules, &s).rms, 2, 1e-9);
    ck_assert_double_lt(diluted, 0.3);
    struct rules_worst worst = {0};
    struct figures f = {0};
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_double_eq_tol(f.rmse_rel, 2 / 3.0, 1e-9);
    ck_assert_double_eq_tol(f.twin_rel, 2 / 3.0, 1e-9);
    s.empty = ELEMENTS; // all rows are empty
    ck_assert_double_gt(rules_units(&rules, &s).rms, 0);
}
END_TEST

START_TEST(rows_whose_terms_cancel_have_their_own_unit)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_DQ);
    struct rules_units units = {.rms = 1e-3};
    double unit = rules_row_unit(&rules, 1e-5, 100);
    ck_assert_double_eq_tol(unit, 0.03 * 0x1p-7 * 100, 1e-9);
    ck_assert_double_eq_tol(rules_row(&units, 10 * unit, unit), 10, 1e-9);
    ck_assert_double_eq_tol(rules_row(&units, 5e-3, rules_row_unit(&rules, 2e-3, 0)), 2.5, 1e-9);
    ck_assert_double_eq_tol(rules_row(&units, 5e-3, rules_row_unit(&rules, 0, 0)), 5, 1e-9);
}
END_TEST

// In a chunk of small elements, a large element and one whose terms cancel have larger limits.
START_TEST(elements_have_limits_of_their_size_and_of_their_row)
{
    static const struct {
        enum case_dtype dtype;
        double steps, element, step;
    } limits[] = {
        {DTYPE_BF16, 4, 4, 0x1p-7}, {DTYPE_FP16, 4, 4, 0x1p-10}, {DTYPE_FP32, 64, 5, 0x1p-23}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct cp_case c = of_length(limits[i].dtype, 1024);
        c.head_dim_qk = 64;
        struct rules rules = rules_of(&c, TENSOR_DQ);
        struct rules_sums s = {.elements = ELEMENTS,
                               .rows = ROWS,
                               .twin_squares = 1e-20 * ELEMENTS,
                               .twin_fourths = pow(1e-20 * ELEMENTS, 2)}; // one row makes it
        struct rules_units units = rules_units(&rules, &s);
        double size = limits[i].steps * limits[i].step * 100;
        ck_assert_double_eq_tol(rules_element(&rules, &units, size, -100, 0), 1, 1e-6);
        double unit = rules_row_unit(&rules, 0, 100), row = limits[i].element * 7 * unit;
        ck_assert_double_eq_tol(rules_element(&rules, &units, row, 0, unit), 1, 1e-6);
        ck_assert_double_gt(rules_element(&rules, &units, row, 0, 0), 1000);
        c.head_dim_qk = 256; // twice the error of logits
        rules = rules_of(&c, TENSOR_DQ);
        double more = limits[i].dtype == DTYPE_FP32 ? 2 : 1;
        ck_assert_double_eq_tol(rules_element(&rules, &units, more * size, -100, 0), 1, 1e-6);
    }
}
END_TEST

// The unit is as large as the reference: a result of zero has an error of 1 and a slope of -1.
START_TEST(results_that_zeros_would_pass_have_a_remark)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_DQ);
    struct rules_sums s = {.elements = ELEMENTS,
                           .rows = ROWS,
                           .error_squares = ELEMENTS,
                           .product = -ELEMENTS,
                           .twin_squares = ELEMENTS,
                           .reference_squares = ELEMENTS};
    struct rules_worst worst = {0};
    struct figures f = {0};
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, 0);
    ck_assert_int_eq(f.remark, REMARK_ZEROS_PASS);
    worst.element = 2;
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_ELEMENT);
    ck_assert_int_eq(f.remark, REMARK_NONE);
    worst.element = 0;
    s.twin_squares /= 4; // the limit is about 0.9
    rules_finish(&rules, &s, &worst, &f);
    ck_assert_int_eq(f.broken, RULE_RMSE | RULE_SLOPE);
    ck_assert_int_eq(f.remark, REMARK_NONE);
    s = (struct rules_sums){.elements = ELEMENTS, .rows = ROWS, .empty = ELEMENTS};
    rules_finish(&rules, &s, &worst, &f); // all rows are empty: zeros are right
    ck_assert_int_eq(f.broken, 0);
    ck_assert_int_eq(f.remark, REMARK_NONE);
}
END_TEST

// cuDNN's sum over a million keys is 0.11 % too small.
START_TEST(long_sums_may_be_too_small_with_a_remark)
{
    struct cp_case c = of_length(DTYPE_BF16, 1 << 20);
    struct figures f = judged(&c, TENSOR_OUT, 1.5, -1.1e-3);
    ck_assert_int_eq(f.broken, 0);
    ck_assert_int_eq(f.remark, REMARK_LONG_SUM);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.5, 0).remark, REMARK_NONE);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 2.3, 0).remark, REMARK_LONG_SUM);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.5, -2.5e-3).broken, RULE_SLOPE);
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.5, -2.5e-3).remark, REMARK_NONE);
    ck_assert_int_eq(judged(&c, TENSOR_DBIAS, 1.5, -1.1e-3).broken, RULE_SLOPE);
    c.dtype = DTYPE_FP32;
    ck_assert_int_eq(judged(&c, TENSOR_OUT, 1.5, -1.1e-3).broken, RULE_SLOPE);
}
END_TEST

START_TEST(the_longest_sum_is_what_a_window_lets_see)
{
    struct cp_case c = of_length(DTYPE_BF16, 5000);
    c.seqlen_kv = 7000;
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_OUT), 7000);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_DQ), 7000);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_DK), 5000);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_DV), 5000);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_LSE), 0);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_DBIAS), 0);
    c.window_left = 99; // the mask is causal
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_OUT), 100);
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_DV), 100);
    c.mask = MASK_NONE;
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_OUT), 7000);
    c.window_right = 10;
    ck_assert_int_eq(rules_longest_sum(&c, TENSOR_OUT), 110);
}
END_TEST

START_TEST(logarithms_have_only_the_element_rule)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    ck_assert_int_eq(judged(&c, TENSOR_LSE, 1000, 1).broken, 0);
    struct rules rules = rules_of(&c, TENSOR_LSE);
    ck_assert_double_eq_tol(rules_logarithm(&rules, -8), 192 * 0x1p-24 * sqrt(2), 1e-9);
    ck_assert_double_eq_tol(rules_logarithm_keys(1 << 20), 0x1p-10, 1e-9);
    c.softcap = 30; // 1 - 2 / (e^2x + 1) as tanh is off by up to 2^-23 however small x is
    rules = rules_of(&c, TENSOR_LSE);
    ck_assert_double_gt(rules_logarithm(&rules, 0), 30 * 0x1p-23);
    ck_assert_double_lt(rules_logarithm(&rules, 0), 30 * 0x1p-20);
    c.softcap = 1e9;
    rules = rules_of(&c, TENSOR_LSE);
    ck_assert_double_lt(rules_logarithm(&rules, 0), 256 * 0x1p-21);
}
END_TEST

// Only LSE depends on exponentials; its limit must not be lost beside the tolerance.
START_TEST(a_tolerance_is_added_to_the_limit_of_lse)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules lse = rules_of(&c, TENSOR_LSE), largest = rules_of(&c, TENSOR_MAX_LOGIT);
    double before = rules_logarithm(&lse, 3), before_largest = rules_logarithm(&largest, 3);
    c.lse_tolerance = 1e-3;
    lse = rules_of(&c, TENSOR_LSE);
    largest = rules_of(&c, TENSOR_MAX_LOGIT);
    ck_assert_double_eq_tol(rules_logarithm(&lse, 3), before + 1e-3, 1e-12);
    ck_assert_double_eq(rules_logarithm(&largest, 3), before_largest);
}
END_TEST

START_TEST(sinks_are_judged_head_by_head)
{
    struct cp_case c = of_length(DTYPE_BF16, 1024);
    struct rules rules = rules_of(&c, TENSOR_DSINK);
    struct rules_sink head = {
        .reference = 2, .twin_squares = 1e-6, .term_squares = 1, .queries = 1024};
    double unit = rules_sink_unit(&rules, &head);
    struct rules_sinks sums = {0};
    struct figures f = {0};
    ck_assert_double_gt(unit, 1e-3);
    struct rules_sink lonely = {.reference = 2, .term_squares = 1, .queries = 1};
    ck_assert_double_gt(rules_sink_unit(&rules, &lonely), 0.99 * 0x1p-7);
    lonely.queries = 4000;
    ck_assert_double_lt(rules_sink_unit(&rules, &lonely), 2e-5);
    ck_assert_int_eq(rules_sinks_add(&rules, &sums, &head, 2 + 4.9 * unit), RULES_WORST);
    ck_assert_int_eq(rules_sinks_add(&rules, &sums, &head, 2), 0);
    rules_sinks_finish(&rules, &sums, &f);
    ck_assert_int_eq(f.broken, 0);
    ck_assert_int_eq(rules_sinks_add(&rules, &sums, &head, 2 - 5.1 * unit),
                     RULES_WORST | RULES_FIRST_BAD);
    rules_sinks_finish(&rules, &sums, &f);
    ck_assert_int_eq(f.broken, RULE_ELEMENT);
    ck_assert_int_eq(f.mismatches, 1);
    ck_assert_int_eq(f.remark, REMARK_NONE);
    // Zeros pass only if they pass in every head.
    struct rules_sink faint = {
        .reference = 1e-3, .twin_squares = 1, .term_squares = 1, .queries = 9};
    sums = (struct rules_sinks){0};
    ck_assert_int_eq(rules_sinks_add(&rules, &sums, &faint, 1e-3), RULES_WORST);
    rules_sinks_finish(&rules, &sums, &f);
    ck_assert_int_eq(f.remark, REMARK_ZEROS_PASS);
    ck_assert_int_eq(rules_sinks_add(&rules, &sums, &head, 2), 0);
    rules_sinks_finish(&rules, &sums, &f);
    ck_assert_int_eq(f.remark, REMARK_NONE);
}
END_TEST

static Suite *rules_suite(void)
{
    Suite *suite = suite_create("rules");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, the_rms_is_measured_in_units);
    tcase_add_test(tcase, the_gradient_of_a_shared_bias_may_be_a_sum_of_rounded_parts);
    tcase_add_test(tcase, the_rms_of_few_rows_has_a_larger_limit);
    tcase_add_test(tcase, few_rows_have_a_step_of_their_terms_as_unit);
    tcase_add_test(tcase, the_slope_has_a_sign_and_a_limit);
    tcase_add_test(tcase, a_low_softcap_admits_half_a_step_of_slope);
    tcase_add_test(tcase, equal_rows_add_their_slopes);
    tcase_add_test(tcase, products_of_dp_may_cancel);
    tcase_add_test(tcase, rows_elements_and_exact_rules_break_by_themselves);
    tcase_add_test(tcase, empty_rows_do_not_reduce_the_unit);
    tcase_add_test(tcase, rows_whose_terms_cancel_have_their_own_unit);
    tcase_add_test(tcase, elements_have_limits_of_their_size_and_of_their_row);
    tcase_add_test(tcase, results_that_zeros_would_pass_have_a_remark);
    tcase_add_test(tcase, long_sums_may_be_too_small_with_a_remark);
    tcase_add_test(tcase, the_longest_sum_is_what_a_window_lets_see);
    tcase_add_test(tcase, logarithms_have_only_the_element_rule);
    tcase_add_test(tcase, a_tolerance_is_added_to_the_limit_of_lse);
    tcase_add_test(tcase, sinks_are_judged_head_by_head);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(rules_suite());
}
