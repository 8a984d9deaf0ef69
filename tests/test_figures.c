// SPDX-License-Identifier: Apache-2.0
// The figures of a chunk and the rules that judge them.
#include "tests/runner.h"

#include <math.h>
#include <string.h>

#include "judge/figures.h"

#define ROWS 40
#define DIM  64

// A chunk whose reference and result the tests dent.
struct sample {
    struct cp_case c;
    double expected[ROWS][DIM];
    float got[ROWS][DIM];
    double terms[ROWS];
    struct row_error rows[ROWS];
    struct tally tally;
    int64_t worst;
};

// Reference elements of either sign around `size`, met exactly.
static void sample_init(struct sample *s, double size)
{
    case_init(&s->c);
    s->c.seqlen_q = s->c.seqlen_kv = 1000;
    s->c.head_dim_qk = s->c.head_dim_v = DIM;
    memset(s->terms, 0, sizeof(s->terms));
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < DIM; i++) {
            s->got[row][i] = (float)(size * sin(1 + row * 7 + i * 3));
            s->expected[row][i] = s->got[row][i];
        }
}

static const struct figures *sample_judge(struct sample *s, enum report_tensor tensor)
{
    static const struct span spans[] = {{.chunk = 1, .len = 500},
                                        {.sequence = 1, .chunk = 1, .row = 500, .len = 500}};
    tally_init(&s->tally, figures_rule(&s->c, tensor, spans, 2, 1), tensor, 1, s->rows, ROWS);
    for (int row = 0; row < ROWS; row++)
        tally_row(&s->tally, row,
                  (struct element){.sequence = 2, .head = row % 4, .position = 500 + row / 4},
                  s->got[row], s->expected[row], DIM, s->terms[row]);
    s->worst = tally_finish(&s->tally);
    return &s->tally.figures;
}

START_TEST(what_is_equal_passes)
{
    static struct sample s;
    sample_init(&s, 1);
    const struct figures *f = sample_judge(&s, TENSOR_DQ);
    ck_assert_int_eq(f->broken, 0);
    ck_assert_int_eq(f->tensor, TENSOR_DQ);
    ck_assert_int_eq(f->chunk, 1);
    ck_assert_int_eq(f->elements, ROWS * DIM);
    ck_assert_int_eq(f->mismatches, 0);
    ck_assert_int_eq(f->first_bad.position, -1);
    ck_assert(f->rmse_rel == 0 && f->max_abs == 0 && f->worst_row_rel == 0);
}
END_TEST

START_TEST(elements_are_judged_as_transformer_engine_does)
{
    static struct sample s;
    static const struct {
        enum case_dtype dtype;
        int kv_heads;
        double tolerance;
    } rules[] = {{DTYPE_BF16, 8, 2.5e-2}, {DTYPE_BF16, 2, 3.5e-2}, {DTYPE_FP16, 8, 5e-3}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        for (int outside = 0; outside < 2; outside++) {
            sample_init(&s, 0.5);
            s.c.inputs = INPUTS_TE;
            s.c.dtype = rules[i].dtype;
            s.c.kv_heads = rules[i].kv_heads;
            double t = rules[i].tolerance, got = 0.25;
            s.got[9][5] = (float)got;
            s.expected[9][5] = got + (t + t * got) * (outside ? 1.01 : 0.99);
            const struct figures *f = sample_judge(&s, TENSOR_OUT);
            ck_assert_int_eq(f->mismatches, outside);
            ck_assert_int_eq((f->broken & RULE_ELEMENT) != 0, outside);
            ck_assert(fabs(f->worst_element - (outside ? 1.01 : 0.99)) < 1e-6);
        }
}
END_TEST

// The small elements of a large row carry the rounding errors of its large ones.
START_TEST(elements_are_measured_by_their_row)
{
    static struct sample s;
    for (int outside = 0; outside < 2; outside++) {
        sample_init(&s, 8); // an RMS of 5.7
        s.got[9][5] = 0;
        s.expected[9][5] = outside ? 0.15 : 0.13;
        ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->mismatches, outside);
    }
}
END_TEST

START_TEST(the_first_bad_element_is_named)
{
    static struct sample s;
    sample_init(&s, 0.5);
    s.got[11][5] += 1;
    s.got[30][1] += 2;
    const struct figures *f = sample_judge(&s, TENSOR_OUT);
    ck_assert_int_eq(f->mismatches, 2);
    ck_assert_int_eq(f->first_bad.sequence, 2);
    ck_assert_int_eq(f->first_bad.head, 3);
    ck_assert_int_eq(f->first_bad.position, 502);
    ck_assert_int_eq(f->first_bad.dim, 5);
    ck_assert(f->first_bad_got == s.got[11][5]);
    ck_assert(f->first_bad_expected == s.expected[11][5]);
    ck_assert(fabs(f->max_abs - 2) < 1e-6);
    ck_assert_int_eq(s.worst, 30);
}
END_TEST

START_TEST(a_row_may_begin_inside_its_line)
{
    static struct sample s;
    sample_init(&s, 0.5);
    s.got[0][5] += 1;
    tally_init(&s.tally, figures_rule_sums(&s.c, TENSOR_DBIAS, 1, DIM, DIM), TENSOR_DBIAS, 0,
               s.rows, 1);
    tally_row(&s.tally, 0, (struct element){.dim = 20}, s.got[0], s.expected[0], DIM, 1);
    ck_assert_int_eq(s.tally.figures.first_bad.dim, 25);
}
END_TEST

START_TEST(what_is_not_finite_is_counted)
{
    static struct sample s;
    sample_init(&s, 0.5);
    s.got[3][0] = NAN;
    s.got[3][1] = INFINITY;
    const struct figures *f = sample_judge(&s, TENSOR_DV);
    ck_assert_int_eq(f->nonfinite, 2);
    ck_assert_int_eq(f->mismatches, 2);
    ck_assert_int_eq(f->broken, RULE_NONFINITE | RULE_ELEMENT);
    ck_assert_int_eq(f->first_bad.dim, 0);
    // A result that is nothing but NaN has no error to speak of, and fails all the same.
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < DIM; i++)
            s.got[row][i] = NAN;
    f = sample_judge(&s, TENSOR_DV);
    ck_assert_int_eq(f->nonfinite, ROWS * DIM);
    ck_assert(f->broken & RULE_NONFINITE);
    ck_assert(isfinite(f->rmse_rel) && isfinite(f->worst_row_rel));
}
END_TEST

// Small errors everywhere: what an elementwise rule of the size of the values lets pass.
START_TEST(an_error_of_the_whole_is_noticed)
{
    static struct sample s;
    for (int over = 0; over < 2; over++) {
        sample_init(&s, 0.1);
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < DIM; i++)
                s.got[row][i] *= over ? 1.03f : 1.015f;
        const struct figures *f = sample_judge(&s, TENSOR_OUT);
        ck_assert_int_eq(f->mismatches, 0);
        ck_assert_int_eq(f->broken, over ? RULE_RMSE : 0);
        ck_assert(fabs(f->rmse_rel - (over ? 0.03 : 0.015)) < 1e-5);
    }
}
END_TEST

START_TEST(an_error_of_one_row_is_noticed)
{
    static struct sample s;
    sample_init(&s, 0.1);
    for (int i = 0; i < DIM; i++)
        s.got[17][i] *= 1.1f;
    const struct figures *f = sample_judge(&s, TENSOR_OUT);
    ck_assert_int_eq(f->broken, RULE_ROW);
    ck_assert_int_eq(s.worst, 17);
    ck_assert(fabs(f->worst_row_rel - 0.1) < 1e-5);
}
END_TEST

// A gradient that is zero because its terms cancel comes out as their rounding errors.
START_TEST(rounding_around_zero_is_no_error)
{
    static struct sample s;
    sample_init(&s, 0);
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < DIM; i++)
            s.got[row][i] = (float)(1e-6 * cos(row + i));
    ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->broken, 0);
    // Nor is it in a single row of a chunk whose other rows are not zero.
    sample_init(&s, 0.1);
    for (int i = 0; i < DIM; i++) {
        s.expected[4][i] = 1e-9;
        s.got[4][i] = 1e-4f;
    }
    ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->broken, 0);
    // What is more than that is one.
    for (int i = 0; i < DIM; i++)
        s.got[4][i] = 0.006f;
    ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->broken, RULE_ROW);
    // A single key collects what a thousand queries leave of it.
    sample_init(&s, 0);
    s.c.dtype = DTYPE_FP32;
    s.c.mask = MASK_NONE;
    s.c.seqlen_kv = 1;
    s.got[4][5] = 1e-3f;
    ck_assert_int_eq(sample_judge(&s, TENSOR_DK)->broken, 0);
}
END_TEST

// What is left of large terms may err by their rounding errors, and by no more.
START_TEST(terms_that_cancel_leave_their_rounding_errors)
{
    static struct sample s;
    const double eps = 0x1p-9, terms = 5;
    for (int outside = 0; outside < 2; outside++) {
        sample_init(&s, 1);
        s.terms[7] = terms;
        for (int i = 0; i < DIM; i++) {
            s.expected[7][i] = 0;
            s.got[7][i] = (float)((outside ? 4.7 : 4.3) * eps * terms * (i % 2 ? 1 : -1));
        }
        const struct figures *f = sample_judge(&s, TENSOR_DQ);
        ck_assert_int_eq(f->broken, outside ? RULE_ROW : 0);
        // Only gradients that come of such terms have them.
        ck_assert_int_ne(sample_judge(&s, TENSOR_DV)->broken, 0);
        sample_init(&s, 1);
        s.terms[7] = 10 * terms;
        s.got[7][3] += (float)((outside ? 10.6 : 9.5) * eps * 10 * terms);
        ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->mismatches, outside);
    }
}
END_TEST

// fp32 tells a logit of 8 from others by 2^-21, and P, of which dS is made, no better.
START_TEST(terms_carry_the_errors_of_logits)
{
    static struct sample s;
    for (int outside = 0; outside < 2; outside++) {
        sample_init(&s, 1);
        s.c.dtype = DTYPE_FP32;
        s.terms[7] = 1000;
        s.got[7][3] += (outside ? 12 : 7) * 0x1p-21F * 1000;
        ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->broken & RULE_ELEMENT,
                         outside ? RULE_ELEMENT : 0);
    }
}
END_TEST

START_TEST(lse_is_judged_absolutely)
{
    static struct sample s;
    sample_init(&s, 0);
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < DIM; i++)
            s.got[row][i] = 2e-5f;
    s.expected[1][1] = -INFINITY;
    s.got[1][1] = -INFINITY;
    ck_assert_int_eq(sample_judge(&s, TENSOR_LSE)->broken, 0);
    s.got[1][1] = -88;
    const struct figures *f = sample_judge(&s, TENSOR_LSE);
    ck_assert_int_eq(f->broken, RULE_ELEMENT);
    ck_assert_int_eq(f->first_bad.head, 1);
    s.got[1][1] = INFINITY;
    ck_assert(sample_judge(&s, TENSOR_LSE)->broken & RULE_ELEMENT);
    s.got[1][1] = NAN;
    ck_assert(sample_judge(&s, TENSOR_LSE)->broken & RULE_ELEMENT);
    s.got[1][1] = -INFINITY;
    s.got[2][2] = -INFINITY;
    ck_assert(sample_judge(&s, TENSOR_LSE)->broken & RULE_NONFINITE);
    s.got[2][2] = 1e-3f;
    ck_assert(sample_judge(&s, TENSOR_LSE)->broken & RULE_ELEMENT);
}
END_TEST

// However a case is asked for: nobody's limits are so wide that what is wrong passes.
START_TEST(limits_of_what_is_admitted_mean_something)
{
    static const double scales[] = {1e-6, 1e-4, 1e-2, 0, 1, 10, 67, 180, 1e3, 1e6};
    static const enum report_tensor tensors[] = {TENSOR_OUT, TENSOR_DQ, TENSOR_DK, TENSOR_DV};
    static const struct span span = {.len = 1000};
    struct cp_case c;
    case_init(&c);
    int admitted = 0;
    for (int i = 0; i < 10 * 3 * 2; i++) {
        c.scale = scales[i / 6];
        c.dtype = (enum case_dtype)(DTYPE_BF16 + i / 2 % 3);
        c.inputs = i % 2 ? INPUTS_TE : INPUTS_SHARP;
        if (case_check(&c, NULL) != STATUS_OK)
            continue;
        admitted++;
        for (int k = 0; k < 4; k++) {
            struct figures_rule rule = figures_rule(&c, tensors[k], &span, 1, 0);
            ck_assert_double_lt(rule.rmse_limit, 0.025);
            ck_assert_double_lt(rule.row_limit, 0.1);
        }
        ck_assert_double_lt(figures_rule(&c, TENSOR_LSE, &span, 1, 0).row_limit, 0.0101);
    }
    ck_assert_int_gt(admitted, 40);
}
END_TEST

// What is too small for the dtype, rounded as well as it can be.
START_TEST(what_the_dtype_cannot_hold_is_no_error)
{
    static struct sample s;
    sample_init(&s, 1e-6);
    s.c.dtype = DTYPE_FP16;
    s.c.inputs = INPUTS_TE;
    s.c.scale = 1e-6;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < DIM; i++)
            s.got[row][i] = rintf(s.got[row][i] * 0x1p24f) * 0x1p-24f;
    ck_assert_int_eq(sample_judge(&s, TENSOR_DQ)->broken, 0);
    memset(s.got[3], 0, sizeof(s.got[3]));
    ck_assert_int_ne(sample_judge(&s, TENSOR_DQ)->broken, 0);
}
END_TEST

// The gradient of a sink that hardly weighs anything.
static int tiny_number_broken(double size, float got)
{
    struct cp_case c;
    struct tally t;
    struct row_error row;
    case_init(&c);
    tally_init(&t, figures_rule_sums(&c, TENSOR_DSINK, size, 1, 1), TENSOR_DSINK, 0, &row, 1);
    tally_row(&t, 0, (struct element){0}, &got, &size, 1, 0);
    tally_finish(&t);
    return t.figures.broken;
}

START_TEST(numbers_that_no_float_can_be_are_no_error)
{
    ck_assert_int_eq(tiny_number_broken(1e-60, 0), 0);
    ck_assert_int_ne(tiny_number_broken(1e-60, 1e-20f), 0);
    ck_assert_int_ne(tiny_number_broken(1e-20, 0), 0);
    ck_assert_int_eq(tiny_number_broken(0, 0), 0);
    ck_assert_int_ne(tiny_number_broken(0, 1e-4f), 0); // without a term it is exactly zero
}
END_TEST

START_TEST(no_row_is_no_error)
{
    struct tally t;
    struct row_error none;
    struct cp_case c;
    case_init(&c);
    struct span span = {.len = 1};
    tally_init(&t, figures_rule(&c, TENSOR_OUT, &span, 1, 0), TENSOR_OUT, 0, &none, 0);
    ck_assert_int_eq(tally_finish(&t), -1);
    ck_assert_int_eq(t.figures.broken, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("figures");
    TCase *t = tcase_create("figures");
    tcase_add_test(t, what_is_equal_passes);
    tcase_add_test(t, elements_are_judged_as_transformer_engine_does);
    tcase_add_test(t, elements_are_measured_by_their_row);
    tcase_add_test(t, the_first_bad_element_is_named);
    tcase_add_test(t, a_row_may_begin_inside_its_line);
    tcase_add_test(t, what_is_not_finite_is_counted);
    tcase_add_test(t, an_error_of_the_whole_is_noticed);
    tcase_add_test(t, an_error_of_one_row_is_noticed);
    tcase_add_test(t, rounding_around_zero_is_no_error);
    tcase_add_test(t, terms_that_cancel_leave_their_rounding_errors);
    tcase_add_test(t, terms_carry_the_errors_of_logits);
    tcase_add_test(t, lse_is_judged_absolutely);
    tcase_add_test(t, limits_of_what_is_admitted_mean_something);
    tcase_add_test(t, what_the_dtype_cannot_hold_is_no_error);
    tcase_add_test(t, numbers_that_no_float_can_be_are_no_error);
    tcase_add_test(t, no_row_is_no_error);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
