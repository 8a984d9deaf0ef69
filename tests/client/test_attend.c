// SPDX-License-Identifier: Apache-2.0
// Attention of a client's tensors through the real daemon: all requested results arrive.
#include "tests/support/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/request.h"
#include "judge/dtype.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"

// Number of random cases, and their maximum world size.
#define CASES      40
#define CASE_RANKS 3

static struct cpattn_client *client;

static void teardown(void)
{
    cpattn_client_destroy(client);
    client = NULL;
    daemon_fini(&d);
}

static void client_open(void)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_error error;
    options.socket = d.socket;
    ck_assert_int_eq(cpattn_client_create(&options, &client, &error), CPATTN_OK);
}

// ---- results ------------------------------------------------------------------------------------

static void *memory(const struct cp_case *c, enum whole_tensor tensor)
{
    struct whole_shape shape;
    return whole_shape(c, tensor, &shape) ? calloc((size_t)whole_bytes(c, tensor) + 1, 1) : NULL;
}

static void tensors_free(struct attend_tensors *t)
{
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        free(t->wanted[i]);
        free(t->expected[i]);
    }
}

static uint64_t run(const struct cp_case *plain, const struct attend_tensors *t)
{
    struct cpattn_case c = {.plain = *plain, .kv_heads_given = true};
    struct cpattn_request *request;
    struct cpattn_result *result;
    struct cpattn_error told;
    struct error error;
    enum status status = request_attend(client, &c, t, 0, &request, &error);
    ck_assert_msg(status == STATUS_OK, "%s", error.text);
    ck_assert(cpattn_wait(request, UINT64_MAX));
    ck_assert_msg(cpattn_collect(request, &result, &told) == CPATTN_OK, "%s", told.text);
    ck_assert_int_eq(result->verdict, CPATTN_VERDICT_PASS);
    uint64_t digest = result->digest;
    cpattn_request_destroy(request);
    cpattn_result_destroy(result);
    return digest;
}

static void expect_near(const struct cp_case *c, enum whole_tensor tensor, const void *got,
                        const void *expected)
{
    struct whole_shape shape;
    double squares = 0, errors = 0;
    ck_assert(whole_shape(c, tensor, &shape));
    int64_t count = whole_bytes(c, tensor) / whole_element_bytes(shape.dtype);
    for (int64_t i = 0; i < count; i++) {
        float a, b;
        dtype_read(shape.dtype, got, i, 1, &a);
        dtype_read(shape.dtype, expected, i, 1, &b);
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        ck_assert_msg(isfinite(a) && isfinite(b), "%s: %g and %g", whole_name(tensor), (double)a,
                      (double)b);
        squares += (double)b * (double)b;
        errors += ((double)a - (double)b) * ((double)a - (double)b);
    }
    ck_assert_msg(errors <= 1e-2 * squares, "%s: error %g of %g", whole_name(tensor), errors,
                  squares);
}

static void case_small(uint64_t seed, struct cp_case *c)
{
    do
        generate_case(seed++ * 1000003, CASE_RANKS, 40, c);
    while (case_bytes(c) > sizeof(*c) || c->seqlen_kv == 0);
    c->verify = VERIFY_FULL;
    c->deterministic = true;
}

static const char *describe(const struct cp_case *c)
{
    static char text[512];
    case_describe(c, text, sizeof(text));
    return text;
}

// The first run returns its drawn inputs. The second run gets them as given tensors, and has the
// same results, bit for bit.
START_TEST(given_tensors_have_the_results_of_drawn_ones)
{
    client_open();
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct cp_case c;
        struct attend_tensors first = {.given = {NULL}}, second = {.given = {NULL}};
        case_small(seed, &c);
        for (int i = 0; i < WHOLE_TENSORS; i++) {
            first.wanted[i] = memory(&c, (enum whole_tensor)i);
            second.wanted[i] = memory(&c, (enum whole_tensor)i);
            if (i >= WHOLE_INPUTS && i != WHOLE_DBIAS)
                first.expected[i] = memory(&c, (enum whole_tensor)i);
        }
        uint64_t digest = run(&c, &first);
        for (int i = 0; i < WHOLE_INPUTS; i++)
            second.given[i] = first.wanted[i];
        // With this seed, drawn inputs would differ.
        c.seed++;
        ck_assert_uint_eq(run(&c, &second), digest);
        for (int i = 0; i < WHOLE_TENSORS; i++)
            if (first.wanted[i])
                ck_assert_msg(memcmp(first.wanted[i], second.wanted[i],
                                     (size_t)whole_bytes(&c, (enum whole_tensor)i)) == 0,
                              "%s of %s", whole_name((enum whole_tensor)i), describe(&c));
        for (int i = 0; i < WHOLE_TENSORS; i++)
            if (first.expected[i])
                expect_near(&c, (enum whole_tensor)i, first.wanted[i], first.expected[i]);
        tensors_free(&first);
        tensors_free(&second);
    }
}
END_TEST

#define B 2
#define S 21
#define H 4
#define D 16

// Causal attention of query i of sequence b and head h, from the definition.
static void definition_out(const float *q, const float *k, const float *v, int b, int i, int h,
                           double out[D])
{
    double sum = 0, weights[S];
    for (int j = 0; j <= i; j++) {
        double logit = 0;
        for (int x = 0; x < D; x++)
            logit +=
                (double)q[((b * S + i) * H + h) * D + x] * (double)k[((b * S + j) * H + h) * D + x];
        weights[j] = exp(logit / sqrt(D));
        sum += weights[j];
    }
    for (int x = 0; x < D; x++) {
        out[x] = 0;
        for (int j = 0; j <= i; j++)
            out[x] += weights[j] / sum * (double)v[((b * S + j) * H + h) * D + x];
    }
}

static struct cpattn_case *own_case(void)
{
    static const char *const fields[][2] = {
        {"world_size", "2"}, {"dtype", "fp32"},  {"batch", "2"},      {"seqlen", "21"},
        {"heads", "4"},      {"head_dim", "16"}, {"training", "true"}};
    struct cpattn_case *c = cpattn_case_create();
    struct cpattn_error error;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        ck_assert_int_eq(cpattn_case_set(c, fields[i][0], fields[i][1], &error), CPATTN_OK);
    return c;
}

static void numbers_fill(float *numbers, uint64_t seed)
{
    for (int i = 0; i < B * S * H * D; i++)
        numbers[i] = (float)(generate_next(&seed) >> 40) / (float)(1 << 23) - 1;
}

START_TEST(given_inputs_have_their_attention)
{
    static float q[B * S * H * D], k[B * S * H * D], v[B * S * H * D], d_out[B * S * H * D],
        out[B * S * H * D], lse[B * S * H], dq[B * S * H * D];
    struct cpattn_tensors t = CPATTN_TENSORS_INIT;
    struct cpattn_case *c = own_case();
    struct cpattn_result *result;
    struct cpattn_error error;
    int64_t shape[4];
    const char *dtype;
    int dims;
    client_open();
    numbers_fill(q, 1);
    numbers_fill(k, 2);
    numbers_fill(v, 3);
    numbers_fill(d_out, 4);
    ck_assert_int_eq(cpattn_case_tensor(c, "lse", shape, &dims, &dtype), sizeof(lse));
    ck_assert_int_eq(dims, 3);
    ck_assert_int_eq(shape[2], S);
    ck_assert_str_eq(dtype, "fp32");
    ck_assert_int_eq(cpattn_case_tensor(c, "sink", shape, &dims, &dtype), -1);
    t.q = q;
    t.k = k;
    t.v = v;
    t.d_out = d_out;
    t.out = out;
    t.lse = lse;
    t.dq = dq;
    ck_assert_msg(cpattn_attend(client, c, &t, 0, &result, &error) == CPATTN_OK, "%s", error.text);
    ck_assert_int_eq(result->verdict, CPATTN_VERDICT_PASS);
    cpattn_result_destroy(result);
    for (int row = 0; row < B * S * H; row++) {
        double expected[D];
        definition_out(q, k, v, row / (S * H), row / H % S, row % H, expected);
        for (int x = 0; x < D; x++)
            ck_assert_double_eq_tol((double)out[row * D + x], expected[x], 1e-6);
    }
    ck_assert(dq[D] != 0);
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(tensors_that_do_not_fit_the_case_are_refused)
{
    static float numbers[B * S * H * D];
    struct cpattn_tensors t = CPATTN_TENSORS_INIT;
    struct cpattn_case *c = own_case();
    struct cpattn_result *result;
    struct cpattn_error error;
    client_open();
    t.q = t.k = t.v = numbers;
    ck_assert_int_eq(cpattn_attend(client, c, &t, 0, &result, &error), CPATTN_INVALID_ARGUMENT);
    expect_text(error.text, "do is missing");
    t.d_out = numbers;
    t.sink = numbers;
    ck_assert_int_eq(cpattn_attend(client, c, &t, 0, &result, &error), CPATTN_INVALID_ARGUMENT);
    expect_text(error.text, "given sink: the case has no such tensor");
    t.size = 1;
    ck_assert_int_eq(cpattn_attend(client, c, &t, 0, &result, &error), CPATTN_INVALID_ARGUMENT);
    expect_text(error.text, "CPATTN_TENSORS_INIT");
    cpattn_case_destroy(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attend");
    TCase *tcase = tcase_create("daemon");
    tcase_add_checked_fixture(tcase, daemon_setup_started, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, given_tensors_have_the_results_of_drawn_ones);
    tcase_add_test(tcase, given_inputs_have_their_attention);
    tcase_add_test(tcase, tensors_that_do_not_fit_the_case_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
