// SPDX-License-Identifier: Apache-2.0
// The arrays and tokens of a check as a caller passes them: which are refused, and how many are
// read.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "check/cpattn_check.h"
#include "tests/support/runner.h"

static struct cpattn_error error;
static struct cpattn_check *check;

static void check_open_of(const char *seqlen, const char *training)
{
    struct cpattn_case *c = cpattn_case_create();
    ck_assert_int_eq(cpattn_case_set(c, "seqlen", seqlen, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "head_dim", "16", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "training", training, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_check_create(c, 0, &check, &error), CPATTN_OK);
    cpattn_case_destroy(c);
}

static void check_open(const char *training)
{
    check_open_of("32", training);
}

// A dense array of zeros. The caller frees `data`.
static struct cpattn_array array_make(struct cpattn_shape s)
{
    return (struct cpattn_array){.data = calloc((size_t)(s.rows * s.heads * s.dim) + 1, 4),
                                 .row_stride = (int64_t)s.heads * s.dim,
                                 .head_stride = s.dim};
}

static void assert_refused(enum cpattn_status status, const char *part)
{
    ck_assert_int_eq(status, CPATTN_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, part) != NULL, "\"%s\" lacks \"%s\"", error.text, part);
}

START_TEST(only_tensors_of_the_case_have_a_shape)
{
    struct cpattn_array none = {.data = &none};
    int there = 0;
    check_open("false");
    for (int t = 0; t < CPATTN_TENSORS; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        struct cpattn_shape s = cpattn_check_shape(check, tensor);
        there += s.rows > 0;
        ck_assert_int_eq(s.rows > 0, s.heads > 0 && s.dim > 0);
        if (s.rows == 0 && tensor >= CPATTN_TENSOR_OUT && tensor <= CPATTN_TENSOR_DV)
            assert_refused(cpattn_check_expected(check, tensor, &none, &error), "training false");
    }
    ck_assert_int_eq(there, 6); // q, k, v, dO, out and LSE
    cpattn_check_destroy(check);
}
END_TEST

START_TEST(wrong_arrays_are_refused)
{
    check_open("true");
    struct cpattn_array q = array_make(cpattn_check_shape(check, CPATTN_TENSOR_Q)), wrong = q;
    struct cpattn_array results[CPATTN_TENSORS] = {0}, inputs[CPATTN_TENSORS] = {0};
    struct cpattn_check_verdict *verdict;
    wrong.data = (char *)q.data + 1;
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_Q, &wrong, &error),
                   "the memory of q is not aligned; accepted is memory aligned to 2 bytes");
    results[CPATTN_TENSOR_OUT] = wrong;
    assert_refused(cpattn_check_verify(check, results, CPATTN_TENSORS, &verdict, &error),
                   "the memory of out is not aligned");
    inputs[CPATTN_TENSOR_Q] = wrong;
    assert_refused(cpattn_check_give(check, inputs, CPATTN_TENSORS, &error),
                   "the memory of q is not aligned");
    wrong = q;
    wrong.inner_rows = -1;
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_Q, &wrong, &error),
                   "inner_rows of q is -1; accepted is 0 or more");
    wrong = q;
    wrong.row_stride = 1;
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_Q, &wrong, &error), "would overlap");
    wrong.data = NULL;
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_Q, &wrong, &error), "q has no memory");
    ck_assert_int_eq(cpattn_check_fill(check, CPATTN_TENSOR_Q, &q, &error), CPATTN_OK);
    free(q.data);
    cpattn_check_destroy(check);
}
END_TEST

START_TEST(a_tensor_without_rows_needs_no_memory)
{
    struct cpattn_array none = {.data = NULL}, some = {.data = &none};
    check_open_of("0", "true");
    ck_assert_int_eq(cpattn_check_fill(check, CPATTN_TENSOR_Q, &none, &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_check_fill(check, CPATTN_TENSOR_Q, &some, &error), CPATTN_OK);
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_OUT, &none, &error), "is no input");
    assert_refused(cpattn_check_fill(check, CPATTN_TENSOR_BIAS, &none, &error), "bias");
    cpattn_check_destroy(check);
}
END_TEST

START_TEST(arrays_behind_the_count_are_not_read)
{
    struct cpattn_array inputs[CPATTN_TENSORS];
    check_open("false");
    for (int t = 0; t < CPATTN_TENSORS; t++)
        inputs[t] = (struct cpattn_array){.data = (void *)8}; // no memory of the process
    for (int t = CPATTN_TENSOR_Q; t <= CPATTN_TENSOR_V; t++)
        inputs[t] = array_make(cpattn_check_whole(check, (enum cpattn_tensor)t));
    enum cpattn_status status = cpattn_check_give(check, inputs, 3, &error);
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    for (int t = CPATTN_TENSOR_Q; t <= CPATTN_TENSOR_V; t++)
        free(inputs[t].data);
    cpattn_check_destroy(check);
}
END_TEST

START_TEST(a_token_that_is_placed_twice_is_refused)
{
    static const int64_t token[] = {3, 7, 3}, padding[] = {1, 25, 24, 25}, right[] = {25, 3, 24};
    struct cpattn_case *c = cpattn_case_create();
    ck_assert_int_eq(cpattn_case_set(c, "batch", "1", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "seqlen", "32", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_case_set(c, "lengths_q", "20", &error), CPATTN_OK);
    ck_assert_int_eq(cpattn_check_create(c, 0, &check, &error), CPATTN_OK);
    assert_refused(cpattn_check_place(check, CPATTN_QUERIES, NULL, token, 3, &error),
                   "rows 0 and 2 are the same token: position 3 of sequence 0");
    assert_refused(cpattn_check_place(check, CPATTN_QUERIES, NULL, padding, 4, &error),
                   "rows 1 and 3 are the same token: position 25 of sequence 0");
    ck_assert_int_gt(cpattn_check_shape(check, CPATTN_TENSOR_Q).rows, 4); // as before
    ck_assert_int_eq(cpattn_check_place(check, CPATTN_QUERIES, NULL, right, 3, &error), CPATTN_OK);
    cpattn_case_destroy(c);
    cpattn_check_destroy(check);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arrays");
    TCase *arrays = tcase_create("arrays");
    tcase_add_test(arrays, only_tensors_of_the_case_have_a_shape);
    tcase_add_test(arrays, wrong_arrays_are_refused);
    tcase_add_test(arrays, a_tensor_without_rows_needs_no_memory);
    tcase_add_test(arrays, arrays_behind_the_count_are_not_read);
    tcase_add_test(arrays, a_token_that_is_placed_twice_is_refused);
    suite_add_tcase(suite, arrays);
    return runner_run(suite);
}
