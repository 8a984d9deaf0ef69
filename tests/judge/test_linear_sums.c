// SPDX-License-Identifier: Apache-2.0
// Linear layers. A row layer is right if its parts are added as a collective of the dtype adds
// them. A row layer or an MLP with a wrong factor fails, even if the factor shows in no single
// element.
#include "tests/support/runner.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/linear.h"

enum { RANKS_MOST = 8, TOKENS = 64, IN = 256, HIDDEN = 96, OUT = 32 };

static const struct {
    enum case_dtype dtype;
    int ranks;
    bool each; // the sum is rounded after each addition, and before the bias
    float factor;
    int broken;
} tries[] = {
    {DTYPE_BF16, 8, true, 1, 0},
    {DTYPE_BF16, 8, false, 1, 0},
    {DTYPE_FP16, 3, true, 1, 0},
    {DTYPE_BF16, 1, true, 1, 0},
    {DTYPE_BF16, 3, true, 1.002F, RULE_SLOPE},
    {DTYPE_FP16, 8, false, 1.0008F, RULE_SLOPE},
};

static void read(const struct linear *l, int rank, enum linear_tensor tensor, float *values)
{
    static unsigned char memory[HIDDEN * IN * 4];
    struct linear_shape shape = linear_shape(l, rank, tensor);
    linear_fill(l, rank, tensor, memory);
    dtype_read(l->dtype, memory, 0, shape.rows * shape.columns, values);
}

// Computes the part of a rank, rounded to the dtype.
static void part_make(const struct linear *l, int rank, float *part)
{
    static float x[TOKENS * IN], w[OUT * IN];
    int64_t own = linear_shape(l, rank, LINEAR_X).columns;
    read(l, rank, LINEAR_X, x);
    read(l, rank, LINEAR_W2, w);
    for (int64_t i = 0; i < TOKENS * OUT; i++) {
        double sum = 0;
        for (int64_t k = 0; k < own; k++)
            sum += (double)x[i / OUT * own + k] * (double)w[i % OUT * own + k];
        part[i] = (float)sum;
    }
    dtype_round(l->dtype, part, TOKENS * OUT);
}

static struct linear layer_of(enum linear_layer layer, enum case_dtype dtype)
{
    return (struct linear){.world_size = 1,
                           .layer = layer,
                           .tokens = TOKENS,
                           .in_features = IN,
                           .out_features = OUT,
                           .dtype = dtype,
                           .bias = true,
                           .chunks = 1,
                           .iterations = 1,
                           .seed = 3};
}

START_TEST(sums_are_judged)
{
    static float y[TOKENS * OUT], part[TOKENS * OUT], bias[OUT];
    static unsigned char memory[TOKENS * OUT * 4];
    struct linear l = layer_of(LINEAR_ROW, tries[_i].dtype);
    l.world_size = tries[_i].ranks;
    const void *tensors[LINEAR_TENSORS] = {[LINEAR_Y] = memory};
    struct figures figures[LINEAR_TENSORS];
    struct error error;
    memset(y, 0, sizeof(y));
    memset(figures, 0, sizeof(figures));
    for (int rank = 0; rank < l.world_size; rank++) {
        part_make(&l, rank, part);
        for (int i = 0; i < TOKENS * OUT; i++)
            y[i] += part[i];
        if (tries[_i].each)
            dtype_round(l.dtype, y, TOKENS * OUT);
    }
    read(&l, 0, LINEAR_B2, bias);
    for (int i = 0; i < TOKENS * OUT; i++)
        y[i] = (y[i] + bias[i % OUT]) * tries[_i].factor;
    dtype_write(l.dtype, y, TOKENS * OUT, memory);
    ck_assert_int_eq(linear_judge(&l, 0, tensors, figures, &error), STATUS_OK);
    const struct figures *f = &figures[LINEAR_Y];
    ck_assert_int_eq(f->judged, TOKENS * OUT);
    ck_assert_msg((f->broken & tries[_i].broken) == tries[_i].broken &&
                      (tries[_i].broken || !f->broken),
                  "broken %#x, rmse %g of %g, slope %g of %g, element %g", f->broken, f->rmse_rel,
                  f->rmse_limit, f->slope, f->slope_limit, f->worst_element);
}
END_TEST

// ---- mlp ----------------------------------------------------------------------------------------

static const struct {
    enum case_dtype dtype;
    float factor;
    bool cut; // y is truncated to bf16 instead of rounded
    const char *says;
} factors[] = {
    {DTYPE_BF16, 1, false, ""},
    {DTYPE_FP16, 1, false, ""},
    {DTYPE_BF16, 1.002F, false, "y is 1.002 times what it should be"},
    {DTYPE_FP16, 0.9995F, false, "y is 0.999"},
    {DTYPE_BF16, 1, true, "times what it should be, as if bits were cut off instead of rounded"},
};

// c [TOKENS][columns] = a [TOKENS][depth] times the transpose of b [columns][depth], plus the bias
// [columns].
static void product(const float *a, const float *b, const float *bias, int columns, int depth,
                    float *c)
{
    for (int i = 0; i < TOKENS * columns; i++) {
        double sum = (double)bias[i % columns];
        for (int k = 0; k < depth; k++)
            sum += (double)a[i / columns * depth + k] * (double)b[i % columns * depth + k];
        c[i] = (float)sum;
    }
}

START_TEST(factors_of_an_mlp_are_noticed)
{
    static float x[TOKENS * IN], w1[HIDDEN * IN], w2[OUT * HIDDEN], h[TOKENS * HIDDEN],
        y[TOKENS * OUT], bias[HIDDEN];
    static unsigned char memory[TOKENS * OUT * 4];
    struct linear l = layer_of(LINEAR_MLP, factors[_i].dtype);
    l.activation = ACTIVATION_GELU;
    l.hidden = HIDDEN;
    const void *tensors[LINEAR_TENSORS] = {[LINEAR_Y] = memory};
    struct figures figures[LINEAR_TENSORS];
    struct error error;
    char text[DIAGNOSIS_TEXT_MAX] = "";
    double explained;
    enum linear_tensor tensor;
    memset(figures, 0, sizeof(figures));
    read(&l, 0, LINEAR_X, x);
    read(&l, 0, LINEAR_W1, w1);
    read(&l, 0, LINEAR_B1, bias);
    read(&l, 0, LINEAR_W2, w2);
    product(x, w1, bias, HIDDEN, IN, h);
    dtype_round(l.dtype, h, TOKENS * HIDDEN);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        h[i] *= 0.5F * erfcf(-h[i] * (float)M_SQRT1_2);
    dtype_round(l.dtype, h, TOKENS * HIDDEN);
    read(&l, 0, LINEAR_B2, bias);
    product(h, w2, bias, OUT, HIDDEN, y);
    for (int i = 0; i < TOKENS * OUT; i++) {
        int exponent;
        double mantissa = 256 * frexp((double)(y[i] * factors[_i].factor), &exponent);
        y[i] = factors[_i].cut ? (float)ldexp(trunc(mantissa), exponent - 8)
                               : y[i] * factors[_i].factor;
    }
    dtype_write(l.dtype, y, TOKENS * OUT, memory);
    ck_assert_int_eq(linear_judge(&l, 0, tensors, figures, &error), STATUS_OK);
    const struct figures *f = &figures[LINEAR_Y];
    ck_assert_int_eq(f->mismatches, 0);
    ck_assert_msg(!f->broken == !factors[_i].says[0], "slope %g of %g, rmse %g of %g", f->slope,
                  f->slope_limit, f->rmse_rel, f->rmse_limit);
    ck_assert_int_eq(linear_diagnose(&l, 0, tensors, figures, text, &explained, &tensor, &error),
                     STATUS_OK);
    ck_assert_msg(strstr(text, factors[_i].says), "%s", text);
    ck_assert_int_eq(text[0] == '\0', factors[_i].says[0] == '\0');
}
END_TEST

// ---- long sums ----------------------------------------------------------------------------------

// The gradient of few weights from many tokens, added one by one in fp32.
START_TEST(sums_over_tokens_are_long)
{
    enum { MANY = 4000, FEW = 8 };
    static float x[MANY * FEW], dy[MANY * FEW], dw[FEW * FEW];
    struct linear l = layer_of(LINEAR_COLUMN, DTYPE_FP32);
    l.tokens = MANY;
    l.in_features = l.out_features = FEW;
    l.bias = false;
    l.training = true;
    const void *tensors[LINEAR_TENSORS] = {[LINEAR_DW1] = dw};
    struct figures figures[LINEAR_TENSORS];
    struct error error;
    memset(figures, 0, sizeof(figures));
    linear_fill(&l, 0, LINEAR_X, x);
    linear_fill(&l, 0, LINEAR_DY, dy);
    for (int i = 0; i < MANY * FEW * FEW; i++)
        dw[i % (FEW * FEW)] +=
            dy[i / (FEW * FEW) * FEW + i % (FEW * FEW) / FEW] * x[i / (FEW * FEW) * FEW + i % FEW];
    ck_assert_int_eq(linear_judge(&l, 0, tensors, figures, &error), STATUS_OK);
    const struct figures *f = &figures[LINEAR_DW1];
    ck_assert_int_eq(f->judged, FEW * FEW);
    ck_assert_msg(!f->broken, "broken %#x, rmse %g of %g", f->broken, f->rmse_rel, f->rmse_limit);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("linear_sums");
    TCase *tcase = tcase_create("sums");
    tcase_add_loop_test(tcase, sums_are_judged, 0, sizeof(tries) / sizeof(*tries));
    tcase_add_loop_test(tcase, factors_of_an_mlp_are_noticed, 0,
                        sizeof(factors) / sizeof(*factors));
    tcase_add_test(tcase, sums_over_tokens_are_long);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
