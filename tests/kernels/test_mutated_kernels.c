// SPDX-License-Identifier: Apache-2.0
// Tests three mutations (deliberate errors, common/mutation.h) of the kernels. Each one changes the
// results that it affects by far more than the tolerance of test_attention.c. Without a mutation,
// results are within the tolerance.
#include <string.h>

#include "tests/kernels/scene.h"
#include "tests/mutations/mutations.h"
#include "tests/support/runner.h"

#define TOLERANCE SCENE_TOLERANCE_AMX
#define NOTICED   1e-2

static struct scene_errors errors_of(enum compiled_mutation mutation)
{
    static const struct scene_sample sample = {
        150, 150, MASK_CAUSAL, WINDOW_UNBOUNDED, WINDOW_UNBOUNDED, 4, 2, 64, 32, DTYPE_BF16, 1,
        2,   2};
    struct scene s;
    scene_init(&s, &sample);
    struct attention_backend *backend = scene_backend();
    mutation_active = mutation;
    scene_run(&s, backend, false);
    mutation_active = MUTATION_NONE;
    struct scene_errors errors = scene_compare(&s);
    backend_cpu.destroy(backend);
    scene_fini(&s);
    return errors;
}

START_TEST(without_a_mutation_results_are_unchanged)
{
    struct scene_errors errors = errors_of(MUTATION_NONE);
    ck_assert_double_le(errors.o, TOLERANCE);
    ck_assert_double_le(errors.dq, TOLERANCE);
    ck_assert_double_le(errors.dk, TOLERANCE);
    ck_assert_double_le(errors.dv, TOLERANCE);
}
END_TEST

START_TEST(averaging_changes_the_output)
{
    struct scene_errors errors = errors_of(MUTATION_MERGE_WITHOUT_LSE);
    ck_assert_double_ge(errors.o, NOTICED);
    ck_assert_double_le(errors.lse, TOLERANCE);
}
END_TEST

START_TEST(a_wrong_scale_changes_all_results)
{
    struct scene_errors errors = errors_of(MUTATION_SCALE_5_PERCENT);
    ck_assert_double_ge(errors.o, NOTICED);
    ck_assert_double_ge(errors.lse, NOTICED);
    ck_assert_double_ge(errors.dq, NOTICED);
    ck_assert_double_ge(errors.dk, NOTICED);
    ck_assert_double_ge(errors.dv, NOTICED);
}
END_TEST

START_TEST(a_neighbouring_head_changes_all_results)
{
    struct scene_errors errors = errors_of(MUTATION_GQA_WRONG_HEAD);
    ck_assert_double_ge(errors.o, NOTICED);
    ck_assert_double_ge(errors.dq, NOTICED);
    ck_assert_double_ge(errors.dk, NOTICED);
    ck_assert_double_ge(errors.dv, NOTICED);
}
END_TEST

static Suite *mutated_kernels_suite(void)
{
    Suite *suite = suite_create("mutated_kernels");
    TCase *tcase = tcase_create("mutations");
    tcase_add_test(tcase, without_a_mutation_results_are_unchanged);
    tcase_add_test(tcase, averaging_changes_the_output);
    tcase_add_test(tcase, a_wrong_scale_changes_all_results);
    tcase_add_test(tcase, a_neighbouring_head_changes_all_results);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(mutated_kernels_suite());
}
