// SPDX-License-Identifier: Apache-2.0
// The fast reference compared with fp64: its errors are negligible compared with the twin's. It
// uses AMX if available; test_without_amx.sh runs this program without AMX.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/amx.h"
#include "judge/cpu/expected.h"
#include "tests/judge/dense.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define CASES      60
#define SEQLEN_TOP 150
// Limits in units of the twin's error. The twin's error is smaller in fp16 than in bf16.
#define PART_BF16  4e-3
#define PART_FP16  1e-2
// Limit in units of the cancelling terms, which differ slightly: one uses the twin's delta, the
// other the reference's.
#define TERMS_PART 0.1

// The reference of one sequence and key head. The rows of its query heads follow each other.
struct expectation {
    int64_t queries, keys; // rows of all query heads, and of the key head
    double *out, *lse, *delta, *dq, *terms, *delta_twin, *dk, *dv, *key_terms, *dbias, *dbias_twin;
    float *out_twin, *dq_twin, *dk_twin, *dv_twin;
    double max_logit, dsink, dsink_twin_squares, dsink_terms, dbias_terms;
};

static void *zeros(int64_t count, size_t size)
{
    void *data = calloc((size_t)count + 1, size);
    ck_assert_ptr_nonnull(data);
    return data;
}

static struct expectation expectation_make(const struct cp_case *c, int sequence)
{
    int64_t n = case_length(c, SIDE_Q, sequence) * (c->heads / c->kv_heads);
    int64_t m = case_length(c, SIDE_KV, sequence);
    return (struct expectation){.queries = n,
                                .keys = m,
                                .out = zeros(n * c->head_dim_v, 8),
                                .lse = zeros(n, 8),
                                .delta = zeros(n, 8),
                                .dq = zeros(n * c->head_dim_qk, 8),
                                .terms = zeros(n, 8),
                                .delta_twin = zeros(n, 8),
                                .dk = zeros(m * c->head_dim_qk, 8),
                                .dv = zeros(m * c->head_dim_v, 8),
                                .key_terms = zeros(m, 8),
                                .dbias = zeros(n * m, 8),
                                .dbias_twin = zeros(n * m, 8),
                                .out_twin = zeros(n * c->head_dim_v, 4),
                                .dq_twin = zeros(n * c->head_dim_qk, 4),
                                .dk_twin = zeros(m * c->head_dim_qk, 4),
                                .dv_twin = zeros(m * c->head_dim_v, 4),
                                .max_logit = -INFINITY};
}

static void expectation_free(struct expectation *x)
{
    void *all[] = {x->out,        x->lse,     x->delta,     x->dq,      x->terms,
                   x->delta_twin, x->dk,      x->dv,        x->dbias,   x->dbias_twin,
                   x->out_twin,   x->dq_twin, x->key_terms, x->dk_twin, x->dv_twin};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

static struct expected_queries queries_at(const struct cp_case *c, struct expectation *x,
                                          int64_t row)
{
    struct expected_queries e = {
        .out = x->out + row * c->head_dim_v,
        .out_twin = x->out_twin + row * c->head_dim_v,
        .lse = x->lse + row,
        .delta = x->delta + row,
        .dq = x->dq + row * c->head_dim_qk,
        .dq_twin = x->dq_twin + row * c->head_dim_qk,
        .terms = x->terms + row,
        .delta_twin = x->delta_twin + row,
        .sums = {.max_logit = &x->max_logit, .dsink_twin_squares = &x->dsink_twin_squares}};
    if (c->softmax == SOFTMAX_LEARNABLE && c->training) {
        e.sums.dsink = &x->dsink;
        e.sums.dsink_terms = &x->dsink_terms;
    }
    if (c->bias != BIAS_NONE && c->training) {
        e.sums.dbias = x->dbias + row * x->keys;
        e.sums.dbias_twin = x->dbias_twin + row * x->keys;
        e.sums.dbias_terms = &x->dbias_terms;
        e.sums.dbias_stride = x->keys;
    }
    return e;
}

// Computes the query heads of key head 0, up to 90 queries at a time.
static void queries_expect(const struct cp_case *c, enum precision precision, int sequence,
                           struct room *room, struct expectation *x)
{
    int64_t length = case_length(c, SIDE_Q, sequence), end;
    struct error error;
    for (int head = 0; head < c->heads / c->kv_heads; head++)
        for (int64_t first = 0; first < length; first = end) {
            end = first + 90 < length ? first + 90 : length;
            struct expected_queries e = queries_at(c, x, head * length + first);
            ck_assert_int_eq(expected_queries(c, precision, sequence, head,
                                              (struct range){first, end}, room, &e, &error),
                             STATUS_OK);
        }
}

static void keys_expect(const struct cp_case *c, enum precision precision, int sequence,
                        struct room *room, const struct expectation *statistics,
                        struct expectation *x)
{
    const struct expected_statistics s = {statistics->lse, statistics->delta,
                                          statistics->delta_twin};
    struct error error;
    int64_t end;
    for (int64_t first = 0; first < x->keys; first = end) {
        end = first + 75 < x->keys ? first + 75 : x->keys;
        const struct expected_keys e = {.dk = x->dk + first * c->head_dim_qk,
                                        .dk_twin = x->dk_twin + first * c->head_dim_qk,
                                        .dv = x->dv + first * c->head_dim_v,
                                        .dv_twin = x->dv_twin + first * c->head_dim_v,
                                        .terms = x->key_terms + first};
        ck_assert_int_eq(expected_keys(c, precision, sequence, 0, (struct range){first, end}, &s,
                                       room, &e, &error),
                         STATUS_OK);
    }
}

// The RMS error of the fast reference must be at most `part` units. The unit is the RMS error of
// the twin, or a quarter of a step of bf16 if that is larger. 2^-14 of the cancelling terms is
// added in squares.
static void tensor_check(const struct cp_case *c, const char *name, int64_t count,
                         const double *fast, const double *exact, const float *twin,
                         const double *terms, int d)
{
    double part = c->dtype == DTYPE_BF16 ? PART_BF16 : PART_FP16;
    double error = 0, twin_error = 0, size = 0, noise = 0;
    for (int64_t i = 0; i < count * d; i++) {
        double difference = fast[i] - exact[i], of_twin = twin[i] - exact[i];
        error += difference * difference;
        twin_error += of_twin * of_twin;
        size += exact[i] * exact[i];
        noise += terms ? terms[i / d] * terms[i / d] : 0;
    }
    double unit = fmax(twin_error, 0x1p-18 * size) + 0x1p-28 * noise;
    char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    ck_assert_msg(isfinite(twin_error), "%s: the twin's error is not finite: %s", name, text);
    ck_assert_msg(error <= part * part * unit, "%s: %g of %g units: %s", name, sqrt(error / unit),
                  part, text);
}

static void number_check(double got, double expected, double tolerance)
{
    ck_assert(got == expected || fabs(got - expected) <= tolerance * (1 + fabs(expected)));
}

static void expectation_check(const struct cp_case *c, const struct expectation *fast,
                              const struct expectation *exact)
{
    int d_qk = c->head_dim_qk, d_v = c->head_dim_v;
    tensor_check(c, "out", exact->queries, fast->out, exact->out, exact->out_twin, NULL, d_v);
    for (int64_t i = 0; i < exact->queries; i++)
        number_check(fast->lse[i], exact->lse[i], 1e-5);
    number_check(fast->max_logit, exact->max_logit, 1e-5);
    if (!c->training)
        return;
    tensor_check(c, "dq", exact->queries, fast->dq, exact->dq, exact->dq_twin, exact->terms, d_qk);
    tensor_check(c, "dk", exact->keys, fast->dk, exact->dk, exact->dk_twin, exact->key_terms, d_qk);
    tensor_check(c, "dv", exact->keys, fast->dv, exact->dv, exact->dv_twin, NULL, d_v);
    for (int64_t i = 0; i < exact->queries * exact->keys; i++)
        number_check(fast->dbias[i], exact->dbias[i], 1e-4);
    for (int64_t i = 0; i < exact->queries; i++)
        ck_assert_double_eq_tol(fast->terms[i], exact->terms[i],
                                TERMS_PART * (TERMS_PART + exact->terms[i]));
    for (int64_t i = 0; i < exact->keys; i++)
        ck_assert_double_eq_tol(fast->key_terms[i], exact->key_terms[i],
                                TERMS_PART * (TERMS_PART + exact->key_terms[i]));
    number_check(fast->dsink, exact->dsink, 1e-3);
    number_check(fast->dbias_terms, exact->dbias_terms, 1e-2);
}

static void case_check_fast(const struct cp_case *c)
{
    struct room room = {0};
    for (int sequence = 0; sequence < c->batch && sequence < 2; sequence++) {
        struct expectation fast = expectation_make(c, sequence);
        struct expectation exact = expectation_make(c, sequence);
        queries_expect(c, PRECISION_FAST, sequence, &room, &fast);
        queries_expect(c, PRECISION_FP64, sequence, &room, &exact);
        if (c->training) {
            keys_expect(c, PRECISION_FAST, sequence, &room, &fast, &fast);
            keys_expect(c, PRECISION_FP64, sequence, &room, &fast, &exact);
        }
        expectation_check(c, &fast, &exact);
        expectation_free(&fast);
        expectation_free(&exact);
    }
    room_fini(&room);
}

START_TEST(random_cases)
{
    int compared = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct cp_case c;
        generate_case(seed, 2, SEQLEN_TOP, &c);
        c.dtype = seed % 3 == 0 ? DTYPE_FP16 : DTYPE_BF16;
        c.inputs = seed % 4 == 0 ? INPUTS_TE : INPUTS_SHARP;
        if (expected_precision(&c) == PRECISION_FAST) {
            case_check_fast(&c);
            compared++;
        }
    }
    ck_assert_int_gt(compared, CASES / 2);
}
END_TEST

// More queries and more keys than one part of a row (PART of judge/cpu/matrix.c).
START_TEST(long_case)
{
    struct cp_case c = cases_usual();
    c.dtype = DTYPE_BF16;
    c.world_size = c.batch = c.kv_heads = 1;
    c.heads = 2;
    c.seqlen_q = c.seqlen_kv = 1100;
    c.head_dim_qk = 72;
    c.head_dim_v = 40;
    case_check_fast(&c);
}
END_TEST

// With huge logits a query sees one key. The largest logit must not differ from itself by a
// rounding: its weight would be infinite, or zero, and the twin far from the reference.
START_TEST(huge_logits)
{
    struct cp_case c = cases_usual();
    struct room room = {0};
    double error = 0, size = 0;
    c.dtype = (enum case_dtype)_i;
    c.inputs = INPUTS_TE;
    c.scale = 1e12;
    c.batch = c.kv_heads = 1;
    c.heads = 2;
    c.seqlen_q = c.seqlen_kv = 100;
    struct expectation x = expectation_make(&c, 0);
    queries_expect(&c, PRECISION_FP64, 0, &room, &x);
    for (int64_t i = 0; i < x.queries * c.head_dim_v; i++) {
        error += (x.out_twin[i] - x.out[i]) * (x.out_twin[i] - x.out[i]);
        size += x.out[i] * x.out[i];
    }
    ck_assert_double_gt(size, 0);
    ck_assert_double_le(error / size, 0x1p-14);
    expectation_free(&x);
    room_fini(&room);
}
END_TEST

static double bias_terms(const struct cp_case *c, enum precision precision)
{
    struct room room = {0};
    struct expectation x = expectation_make(c, 0);
    queries_expect(c, precision, 0, &room, &x);
    double terms = x.dbias_terms;
    expectation_free(&x);
    room_fini(&room);
    return terms;
}

// The bias is added after the softcap, so a saturated softcap does not reduce the terms of dbias.
START_TEST(terms_of_a_bias_have_no_slope)
{
    struct cp_case c = cases_usual();
    c.dtype = (enum case_dtype)_i;
    c.batch = c.kv_heads = 1;
    c.heads = 2;
    c.seqlen_q = c.seqlen_kv = 40;
    c.softcap = 0.5;
    c.bias = BIAS_BHSS;
    struct dense t;
    dense_init(&t, &c, 0);
    dense_forward(&t);
    dense_backward(&t);
    double squares = 0;
    for (int64_t i = 0; i < t.sq * t.h; i++)
        squares += t.terms_bias[i];
    dense_fini(&t);
    ck_assert_double_eq_tol(bias_terms(&c, expected_precision(&c)) / squares, 1, 1e-2);
    ck_assert_double_eq_tol(bias_terms(&c, PRECISION_FP64) / squares, 1, 1e-2);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("expected");
    TCase *t = tcase_create("expected");
    tcase_set_timeout(t, 240);
    tcase_add_test(t, random_cases);
    tcase_add_test(t, long_case);
    tcase_add_loop_test(t, huge_logits, DTYPE_BF16, DTYPE_FP16 + 1);
    tcase_add_loop_test(t, terms_of_a_bias_have_no_slope, DTYPE_BF16, DTYPE_FP32 + 1);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    printf("# AMX: %s\n", amx_usable() ? "used" : "not used");
    return runner_run(suite());
}
