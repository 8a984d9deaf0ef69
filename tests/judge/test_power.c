// SPDX-License-Identifier: Apache-2.0
// Errors that the verdict must notice in each tensor, for each dtype and each kind of inputs: one
// missing key of 512, one missing pair of a thousand, a tile of queries that does not see a tile of
// keys, and an RMS error of 0.6 % (bf16), 0.08 % (fp16) or 0.0006 % (fp32). Exact results pass.
#include "tests/support/runner.h"

#include <math.h>
#include <stdlib.h>

#include "judge/dtype.h"
#include "tests/judge/power.h"

static struct power power;
static bool *left_out;
static float *results;

static const struct {
    enum case_dtype dtype;
    enum case_inputs inputs;
} cases[] = {{DTYPE_BF16, INPUTS_SHARP}, {DTYPE_BF16, INPUTS_TE},    {DTYPE_FP16, INPUTS_SHARP},
             {DTYPE_FP16, INPUTS_TE},    {DTYPE_FP32, INPUTS_SHARP}, {DTYPE_FP32, INPUTS_TE}};
#define CASES ((int)(sizeof(cases) / sizeof(cases[0])))

static void begin(int i)
{
    left_out = calloc(POWER_PAIRS, sizeof(*left_out));
    results = malloc((size_t)POWER_TENSORS * POWER_COUNT * sizeof(*results));
    ck_assert(left_out && results);
    ck_assert(power_init(&power, cases[i].dtype, cases[i].inputs));
}

static void end(void)
{
    power_fini(&power);
    free(left_out);
    free(results);
}

static struct figures judged(int tensor)
{
    return power_judge(&power, tensor, results + (ptrdiff_t)tensor * POWER_COUNT);
}

static void expect_refused(const char *what)
{
    for (int tensor = 0; tensor < POWER_TENSORS; tensor++) {
        struct figures f = judged(tensor);
        ck_assert_msg(f.broken != 0, "%s: %s passes: rms %g of %g, row %g of %g", what,
                      report_tensor_name(f.tensor), f.rmse_rel, f.rmse_limit, f.worst_row_rel,
                      f.worst_row_limit);
    }
}

START_TEST(exact_results_pass)
{
    begin(_i);
    ck_assert(power_leave_out(&power, left_out, results));
    for (int tensor = 0; tensor < POWER_TENSORS; tensor++)
        ck_assert_int_eq(judged(tensor).broken, 0);
    end();
}
END_TEST

// Makes the rows of the key itself right. The error must be noticed in the other rows.
static void mend_key(int key)
{
    for (int tensor = 2; tensor < POWER_TENSORS; tensor++)
        for (int head = 0; head < POWER_HEADS; head++) {
            ptrdiff_t at = (ptrdiff_t)(head * POWER_LENGTH + key) * POWER_DIM;
            float *row = results + (ptrdiff_t)tensor * POWER_COUNT + at;
            for (int i = 0; i < POWER_DIM; i++)
                row[i] = (float)power.tensors[tensor].reference[at + i];
            dtype_round(power.c.dtype, row, POWER_DIM);
        }
}

START_TEST(a_key_left_out_is_noticed_in_every_tensor)
{
    static const int keys[] = {0, 200, POWER_LENGTH - 1};
    begin(_i);
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        for (int i = 0; i < POWER_PAIRS; i++)
            left_out[i] = i % POWER_LENGTH == keys[k];
        ck_assert(power_leave_out(&power, left_out, results));
        expect_refused("key");
        mend_key(keys[k]);
        expect_refused("others");
    }
    end();
}
END_TEST

START_TEST(a_thousandth_of_the_pairs_is_noticed_in_every_tensor)
{
    begin(_i);
    uint64_t state = 1;
    for (int left = POWER_PAIRS / 1000; left > 0;) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bool *pair = &left_out[(state >> 33) % POWER_PAIRS];
        left -= !*pair;
        *pair = true;
    }
    ck_assert(power_leave_out(&power, left_out, results));
    expect_refused("pairs");
    end();
}
END_TEST

// 16 queries miss 16 keys in each head: about a thousandth of the pairs.
START_TEST(a_tile_left_out_is_noticed_in_every_tensor)
{
    begin(_i);
    for (int i = 0; i < POWER_PAIRS; i++)
        left_out[i] = i / POWER_LENGTH % POWER_LENGTH / 16 == 9 && i % POWER_LENGTH / 16 == 20;
    ck_assert(power_leave_out(&power, left_out, results));
    expect_refused("tile");
    end();
}
END_TEST

// Each element has an error of the same size and of a pseudo-random sign.
START_TEST(an_rms_error_is_noticed_in_every_tensor)
{
    static const double least[] = {[DTYPE_BF16] = 6e-3, [DTYPE_FP16] = 8e-4, [DTYPE_FP32] = 6e-6};
    begin(_i);
    for (int tensor = 0; tensor < POWER_TENSORS; tensor++) {
        const double *reference = power.tensors[tensor].reference;
        double squares = 0;
        for (int i = 0; i < POWER_COUNT; i++)
            squares += reference[i] * reference[i];
        double size = least[power.c.dtype] * sqrt(squares / POWER_COUNT);
        float *got = results + (ptrdiff_t)tensor * POWER_COUNT;
        for (int i = 0; i < POWER_COUNT; i++)
            got[i] = (float)(reference[i] + (i * 2654435761U >> 16 & 1 ? size : -size));
        dtype_round(power.c.dtype, got, POWER_COUNT);
    }
    expect_refused("rms");
    end();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("power");
    TCase *t = tcase_create("power");
    tcase_set_timeout(t, 0);
    tcase_add_loop_test(t, exact_results_pass, 0, CASES);
    tcase_add_loop_test(t, a_key_left_out_is_noticed_in_every_tensor, 0, CASES);
    tcase_add_loop_test(t, a_thousandth_of_the_pairs_is_noticed_in_every_tensor, 0, CASES);
    tcase_add_loop_test(t, a_tile_left_out_is_noticed_in_every_tensor, 0, CASES);
    tcase_add_loop_test(t, an_rms_error_is_noticed_in_every_tensor, 0, CASES);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
