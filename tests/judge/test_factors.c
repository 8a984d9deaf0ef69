// SPDX-License-Identifier: Apache-2.0
// What a trial makes of numbers: factors in sentences have no more digits than the fit of rounded
// results gives, and of two hypotheses with the same values the first is kept.
#include "tests/support/runner.h"

#include "judge/diagnosis/trial.h"

static const struct {
    enum case_dtype dtype;
    enum report_tensor tensor;
    double factor;
    const char *text;
} factors[] = {
    {DTYPE_BF16, TENSOR_OUT, 1.0499, "1.05"},     {DTYPE_BF16, TENSOR_DQ, 7.9988, "8"},
    {DTYPE_BF16, TENSOR_DQ, 99.99, "100"},        {DTYPE_BF16, TENSOR_DQ, -1.0002, "-1"},
    {DTYPE_FP16, TENSOR_DQ, 0.12502, "0.125"},    {DTYPE_FP16, TENSOR_DQ, 1.0004, "1.0004"},
    {DTYPE_FP16, TENSOR_DQ, 0.9991, "0.9991"},    {DTYPE_FP16, TENSOR_DQ, 1.442695, "1.443"},
    {DTYPE_FP16, TENSOR_LSE, 1.442695, "1.4427"}, {DTYPE_FP32, TENSOR_OUT, 1.0499, "1.0499"},
    {DTYPE_FP32, TENSOR_OUT, 8.00001, "8"},       {DTYPE_FP32, TENSOR_OUT, 1234567, "1.23457e+06"},
};

START_TEST(a_factor_has_its_certain_digits)
{
    static struct cp_case c;
    static struct diagnosis_input in;
    static struct trial t = {.in = &in, .c = &c};
    case_init(&c);
    c.dtype = factors[_i].dtype;
    in.tensor = factors[_i].tensor;
    char text[TRIAL_FACTOR_MAX];
    trial_factor_text(&t, factors[_i].factor, text);
    ck_assert_str_eq(text, factors[_i].text);
}
END_TEST

// The second hypothesis has the same values, but for the rounding of a sum.
START_TEST(the_first_of_equal_hypotheses_is_kept)
{
    static struct cp_case c;
    static struct diagnosis_input in = {.c = &c, .tensor = TENSOR_DQ};
    struct trial t;
    double first[4] = {1, 2, 3, 4.01}, second[4] = {1, 2, 3, 4.01 - 1e-12};
    case_init(&c);
    ck_assert(trial_init_values(&t, &in, 1, 4));
    for (int i = 0; i < 4; i++) {
        t.got[i] = i + 1;
        t.right[i] = -1;
    }
    trial_weigh(&t, 1e-4);
    trial_offer(&t, DIAGNOSIS_DELTA, first, "the first");
    trial_offer(&t, DIAGNOSIS_DELTA, second, "the second");
    ck_assert_str_eq(t.best[DIAGNOSIS_DELTA].text, "the first");
    second[3] = 4.001;
    trial_offer(&t, DIAGNOSIS_DELTA, second, "a better one");
    ck_assert_str_eq(t.best[DIAGNOSIS_DELTA].text, "a better one");
    trial_fini(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("factors");
    TCase *digits = tcase_create("digits");
    tcase_add_loop_test(digits, a_factor_has_its_certain_digits, 0,
                        (int)(sizeof(factors) / sizeof(factors[0])));
    suite_add_tcase(suite, digits);
    TCase *offers = tcase_create("offers");
    tcase_add_test(offers, the_first_of_equal_hypotheses_is_kept);
    suite_add_tcase(suite, offers);
    return runner_run(suite);
}
