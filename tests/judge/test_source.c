// SPDX-License-Identifier: Apache-2.0
// Given inputs. If they equal the drawn inputs, shards and reference are the same. Otherwise the
// given elements are used.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/expected.h"
#include "judge/cpu/reference.h"
#include "judge/dtype.h"
#include "judge/rules.h"
#include "judge/source.h"
#include "rank/inputs.h"
#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define CASES 300

// ---- whole tensors with the elements of drawn inputs ----

static void tokens_draw(const struct cp_case *c, enum input_tensor tensor, char *data)
{
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    int64_t row_bytes =
        (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor) * case_element_bytes(c);
    for (int32_t sequence = 0; sequence < c->batch; sequence++)
        for (int64_t i = 0; i < case_length(c, side, sequence); i++)
            input_row(c, tensor, sequence, i,
                      data +
                          (whole_row_first(c, side, sequence) + i * whole_row_step(c)) * row_bytes);
}

static void bias_draw(const struct cp_case *c, char *data)
{
    struct bias_dims dims = input_bias_dims(c);
    int64_t row = c->seqlen_kv * case_element_bytes(c);
    for (int b = 0; b < dims.batch; b++)
        for (int h = 0; h < dims.heads; h++)
            for (int64_t i = 0; i < dims.rows; i++, data += row)
                input_bias_row(c, b, h, i, 0, c->seqlen_kv, data);
}

struct given {
    struct cp_case c; // with the source
    void *tensors[WHOLE_INPUTS];
    struct input_source source;
};

static void given_init(struct given *g, const struct cp_case *drawn)
{
    struct error error;
    g->c = *drawn;
    for (int i = 0; i < WHOLE_INPUTS; i++) {
        int64_t bytes = whole_bytes(drawn, (enum whole_tensor)i);
        struct whole_shape shape;
        bool exists = whole_shape(drawn, (enum whole_tensor)i, &shape);
        g->tensors[i] = exists ? calloc((size_t)bytes + 1, 1) : NULL;
        if (!exists)
            continue;
        if (i == WHOLE_BIAS)
            bias_draw(drawn, g->tensors[i]);
        else if (i == WHOLE_SINK)
            inputs_fill_sink(drawn, g->tensors[i]);
        else
            tokens_draw(drawn, (enum input_tensor)(i + 1), g->tensors[i]);
    }
    ck_assert_int_eq(source_init(&g->source, drawn, (const void *const *)g->tensors, &error),
                     STATUS_OK);
    g->c.source = &g->source;
}

static void given_fini(struct given *g)
{
    source_fini(&g->source);
    for (int i = 0; i < WHOLE_INPUTS; i++)
        free(g->tensors[i]);
}

// ---- shards ----

static void shard_compare(const struct cp_case *drawn, const struct cp_case *c,
                          enum input_tensor tensor, int rank)
{
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    size_t bytes = (size_t)(shard_rows(c, side, rank) * input_heads(c, tensor) *
                            input_head_dim(c, tensor) * case_element_bytes(c));
    struct span *spans = calloc((size_t)shard_spans_max(c), sizeof(*spans));
    char *expected = malloc(bytes + 1), *got = malloc(bytes + 1);
    int count = shard_spans(c, side, rank, spans);
    inputs_fill(drawn, tensor, rank, spans, count, expected);
    inputs_fill(c, tensor, rank, spans, count, got);
    ck_assert_msg(memcmp(expected, got, bytes) == 0, "tensor %d of rank %d", (int)tensor, rank);
    free(spans);
    free(expected);
    free(got);
}

START_TEST(given_inputs_are_sharded_as_drawn_ones)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct cp_case drawn;
        struct given g;
        generate_case(seed, 4, 40, &drawn);
        given_init(&g, &drawn);
        for (int rank = 0; rank < drawn.world_size; rank++)
            for (int tensor = INPUT_Q; tensor <= (drawn.training ? INPUT_DO : INPUT_V); tensor++)
                shard_compare(&drawn, &g.c, (enum input_tensor)tensor, rank);
        if (drawn.softmax == SOFTMAX_LEARNABLE)
            ck_assert_float_eq(input_sink(&g.c, drawn.heads - 1),
                               input_sink(&drawn, drawn.heads - 1));
        if (drawn.bias != BIAS_NONE && drawn.seqlen_q > 0 && drawn.seqlen_kv > 0) {
            float a, b;
            input_bias(&drawn, drawn.batch - 1, drawn.heads - 1, drawn.seqlen_q - 1,
                       drawn.seqlen_kv - 1, 1, &a);
            input_bias(&g.c, drawn.batch - 1, drawn.heads - 1, drawn.seqlen_q - 1,
                       drawn.seqlen_kv - 1, 1, &b);
            ck_assert_float_eq(a, b);
        }
        given_fini(&g);
    }
}
END_TEST

// ---- the reference ----

static double out_of(const struct cp_case *c, double *lse)
{
    double out[HEAD_DIM_MAX];
    float twin[HEAD_DIM_MAX];
    struct room room = {0};
    struct error error;
    const struct expected_queries e = {.out = out, .lse = lse, .out_twin = twin};
    struct cp_case forward = *c;
    forward.training = false;
    ck_assert_int_eq(expected_queries(&forward, expected_precision(c), 0, 1, (struct range){40, 41},
                                      &room, &e, &error),
                     STATUS_OK);
    room_fini(&room);
    return out[3];
}

START_TEST(the_reference_computes_with_given_inputs)
{
    struct cp_case drawn = cases_usual();
    struct given g;
    double lse, lse_given;
    cases_set(&drawn, "seqlen", "64");
    given_init(&g, &drawn);
    double out = out_of(&drawn, &lse);
    ck_assert_double_eq(out_of(&g.c, &lse_given), out);
    ck_assert_double_eq(lse_given, lse);
    // Changes v at a position that query 40 sees, and at one that it does not see.
    uint16_t *v = g.tensors[WHOLE_V];
    v[(41 * 8 + 1) * 128 + 3] = 0x4700;
    ck_assert_double_eq(out_of(&g.c, &lse_given), out);
    v[(40 * 8 + 1) * 128 + 3] = 0x4700;
    ck_assert(out_of(&g.c, &lse_given) != out);
    ck_assert_double_eq(lse_given, lse);
    given_fini(&g);
}
END_TEST

enum { BEHIND_ROWS = 32, BEHIND_DIM = 64, BEHIND = BEHIND_ROWS * BEHIND_DIM };

// Runs the fast reference with this sink. Returns the LSE of the last query; `out` and `twin` are
// of all queries. `flat`: all logits are 0.
static double lse_behind(enum case_dtype dtype, float sink, bool flat, double out[BEHIND],
                         float twin[BEHIND])
{
    struct cp_case drawn;
    struct given g;
    struct error error;
    struct room room = {0};
    double lse[BEHIND_ROWS];
    const struct expected_queries e = {.out = out, .lse = lse, .out_twin = twin};
    case_init(&drawn);
    drawn.dtype = dtype;
    drawn.batch = drawn.heads = drawn.kv_heads = 1;
    drawn.head_dim_qk = drawn.head_dim_v = BEHIND_DIM;
    drawn.seqlen_q = drawn.seqlen_kv = BEHIND_ROWS;
    drawn.softmax = SOFTMAX_LEARNABLE;
    drawn.training = false;
    given_init(&g, &drawn);
    if (flat)
        memset(g.tensors[WHOLE_Q], 0, (size_t)whole_bytes(&drawn, WHOLE_Q));
    *(float *)g.tensors[WHOLE_SINK] = sink;
    ck_assert_int_eq(expected_queries(&g.c, PRECISION_FAST, 0, 0, (struct range){0, BEHIND_ROWS},
                                      &room, &e, &error),
                     STATUS_OK);
    room_fini(&room);
    given_fini(&g);
    return lse[BEHIND_ROWS - 1];
}

// The slope of the twin's error in out, relative to the reference. In fp16, with logits of 0 and
// this sink.
static double slope_behind(float sink)
{
    double out[BEHIND], product = 0, squares = 0;
    float twin[BEHIND];
    double lse = lse_behind(DTYPE_FP16, sink, true, out, twin);
    ck_assert_double_eq_tol(lse, log(exp(sink) + BEHIND_ROWS), 1e-6);
    for (int i = 0; i < BEHIND; i++) {
        product += (twin[i] - out[i]) * out[i];
        squares += out[i] * out[i];
    }
    return product / squares;
}

// A weight of exp(-11) is 280.2 steps of 2^-24, the smallest of fp16; a kernel may keep 280. For
// smaller weights the twin keeps at least 128 steps, so it loses at most 1/256 of a weight.
START_TEST(the_twin_rounds_fp16_against_a_sink_far_above)
{
    ck_assert_double_eq_tol(slope_behind(9), 0, 1e-4);
    ck_assert_double_eq_tol(slope_behind(11), 280 / (exp(-11) * 0x1p24) - 1, 1e-4);
    ck_assert_double_gt(fabs(slope_behind(11)), 5e-4);
    ck_assert_double_le(fabs(slope_behind(14)), 0x1p-8 + 1e-4);
}
END_TEST

// Sinks so large that their exponential, relative to the logits, exceeds fp64.
START_TEST(the_lse_is_a_sink_that_is_above_everything)
{
    const float sinks[] = {700, 1000, 1e6F, 1e30F};
    double out[BEHIND];
    float twin[BEHIND];
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_FP16; dtype++)
        for (size_t i = 0; i < sizeof(sinks) / sizeof(*sinks); i++) {
            double lse = lse_behind((enum case_dtype)dtype, sinks[i], false, out, twin);
            ck_assert_double_eq(lse, sinks[i]);
            for (int at = 0; at < BEHIND; at++)
                ck_assert_double_eq_tol(out[at], 0, 1e-290);
        }
}
END_TEST

// A bias of -infinity hides all keys of a row, as a mask does; only the sink is left.
START_TEST(a_bias_may_hide_all_keys_of_a_row)
{
    enum { HIDDEN = 3, N = BEHIND_ROWS, D = BEHIND_DIM };
    static const uint16_t narrow[] = {[DTYPE_BF16] = 0xff80, [DTYPE_FP16] = 0xfc00};
    struct cp_case drawn;
    struct given g;
    struct error error;
    struct room room = {0};
    double out[BEHIND], dq[BEHIND], lse[N], delta[N], delta_twin[N], terms[N];
    float out_twin[BEHIND], dq_twin[BEHIND];
    const struct expected_queries e = {.out = out,
                                       .lse = lse,
                                       .delta = delta,
                                       .dq = dq,
                                       .out_twin = out_twin,
                                       .delta_twin = delta_twin,
                                       .dq_twin = dq_twin,
                                       .terms = terms};
    case_init(&drawn);
    drawn.dtype = (enum case_dtype)_i;
    drawn.batch = drawn.heads = drawn.kv_heads = 1;
    drawn.head_dim_qk = drawn.head_dim_v = D;
    drawn.seqlen_q = drawn.seqlen_kv = N;
    drawn.softmax = SOFTMAX_OFF_BY_ONE;
    drawn.bias = BIAS_11SS;
    given_init(&g, &drawn);
    for (int key = 0; key < N; key++)
        if (_i == DTYPE_FP32)
            ((float *)g.tensors[WHOLE_BIAS])[HIDDEN * N + key] = -INFINITY;
        else
            ((uint16_t *)g.tensors[WHOLE_BIAS])[HIDDEN * N + key] = narrow[_i];
    ck_assert_int_eq(expected_queries(&g.c, expected_precision(&g.c), 0, 0, (struct range){0, N},
                                      &room, &e, &error),
                     STATUS_OK);
    ck_assert_double_eq(lse[HIDDEN], 0);
    ck_assert_double_eq(terms[HIDDEN], 0);
    for (int at = HIDDEN * D; at < (HIDDEN + 1) * D; at++) {
        ck_assert_double_eq(out[at], 0);
        ck_assert_double_eq(out_twin[at], 0);
        ck_assert_double_eq(dq[at], 0);
        ck_assert_double_eq(dq_twin[at], 0);
    }
    double dk[BEHIND], dv[BEHIND], key_terms[N];
    float dk_twin[BEHIND], dv_twin[BEHIND];
    const struct expected_statistics statistics = {lse, delta, delta_twin};
    const struct expected_keys k = {dk, dv, key_terms, dk_twin, dv_twin};
    ck_assert_int_eq(expected_keys(&g.c, expected_precision(&g.c), 0, 0, (struct range){0, N},
                                   &statistics, &room, &k, &error),
                     STATUS_OK);
    for (int at = 0; at < BEHIND; at++)
        ck_assert(isfinite(dk[at] + dv[at] + dk_twin[at] + dv_twin[at]));
    room_fini(&room);
    given_fini(&g);
}
END_TEST

START_TEST(elements_outside_are_zero)
{
    struct cp_case drawn = cases_usual();
    struct given g;
    float values[128];
    char row[2 * 8 * 128];
    cases_set(&drawn, "seqlen", "8");
    given_init(&g, &drawn);
    for (int i = 0; i < 3; i++) {
        static const struct {
            int32_t sequence;
            int64_t position;
            int head;
        } at[] = {{2, 0, 0}, {0, 8, 0}, {0, 0, 8}};
        memset(values, 0xff, sizeof(values));
        input_token_head(&g.c, INPUT_Q, at[i].sequence, at[i].position, at[i].head, values);
        for (int k = 0; k < 128; k++)
            ck_assert_float_eq(values[k], 0);
    }
    memset(row, 0xff, sizeof(row));
    input_row(&g.c, INPUT_K, 0, -1, row);
    ck_assert_int_eq(row[5], 0);
    given_fini(&g);
}
END_TEST

// Logits of 1e30 have errors of 1e14 in fp64. Each query gives one key the weight 1, and both
// passes must choose the same key. Then each row of dO is added to one row of dv.
START_TEST(the_passes_agree_about_logits_of_any_size)
{
    enum { N = 70, D = 64, HEADS = 1 };
    struct cp_case drawn;
    struct given g;
    struct error error;
    double out[N * D], lse[N], delta[N], dk[N * D], dv[N * D];
    case_init(&drawn);
    drawn.dtype = DTYPE_FP32;
    drawn.batch = drawn.heads = drawn.kv_heads = HEADS;
    drawn.head_dim_qk = drawn.head_dim_v = D;
    drawn.seqlen_q = drawn.seqlen_kv = N;
    given_init(&g, &drawn);
    float *q = g.tensors[WHOLE_Q], *k = g.tensors[WHOLE_K], *d_out = g.tensors[WHOLE_DO];
    for (int i = 0; i < N * D; i++) {
        q[i] *= 1e15F;
        k[i] *= 1e15F;
    }
    source_fini(&g.source);
    ck_assert_int_eq(source_init(&g.source, &drawn, (const void *const *)g.tensors, &error),
                     STATUS_OK);
    ck_assert_int_eq(reference_queries(&g.c, 0, 0, 0, N, out, lse, delta, NULL, NULL, NULL, &error),
                     STATUS_OK);
    ck_assert_double_gt(lse[0], 1e28);
    for (int64_t first = 0; first < N; first += 13) { // other blocks than those of queries
        int64_t end = first + 13 < N ? first + 13 : N;
        ck_assert_int_eq(reference_keys(&g.c, 0, 0, first, end, lse, delta, dk + first * D,
                                        dv + first * D, NULL, &error),
                         STATUS_OK);
    }
    for (int i = 0; i < D; i++) {
        double sum = 0, right = 0;
        for (int row = 0; row < N; row++) {
            sum += dv[row * D + i];
            right += d_out[row * D + i];
        }
        ck_assert_double_eq_tol(sum, right, 1e-9);
    }
    given_fini(&g);
}
END_TEST

// The limits of a verdict depend on the logits, no matter which of Q and K are given or drawn.
START_TEST(limits_do_not_depend_on_which_inputs_are_given)
{
    struct cp_case drawn;
    struct given g;
    struct error error;
    case_init(&drawn);
    drawn.seqlen_q = drawn.seqlen_kv = 100;
    drawn.softcap = _i == 0 ? 0 : 0.01;
    given_init(&g, &drawn);
    struct rules all = rules_of(&g.c, TENSOR_OUT);
    for (unsigned mask = 0; mask < 4; mask++) {
        const void *tensors[WHOLE_INPUTS] = {NULL};
        tensors[WHOLE_Q] = mask & 1 ? g.tensors[WHOLE_Q] : NULL;
        tensors[WHOLE_K] = mask & 2 ? g.tensors[WHOLE_K] : NULL;
        source_fini(&g.source);
        ck_assert_int_eq(source_init(&g.source, &drawn, tensors, &error), STATUS_OK);
        struct rules some = rules_of(&g.c, TENSOR_OUT);
        ck_assert_double_eq(some.rms, all.rms);
        ck_assert_double_eq(some.slope, all.slope);
        ck_assert_double_eq_tol(some.excess, all.excess, 0.1);
    }
    given_fini(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("source");
    TCase *tcase = tcase_create("source");
    tcase_add_test(tcase, given_inputs_are_sharded_as_drawn_ones);
    tcase_add_test(tcase, the_reference_computes_with_given_inputs);
    tcase_add_test(tcase, the_passes_agree_about_logits_of_any_size);
    tcase_add_loop_test(tcase, limits_do_not_depend_on_which_inputs_are_given, 0, 2);
    tcase_add_test(tcase, the_twin_rounds_fp16_against_a_sink_far_above);
    tcase_add_test(tcase, the_lse_is_a_sink_that_is_above_everything);
    tcase_add_loop_test(tcase, a_bias_may_hide_all_keys_of_a_row, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_test(tcase, elements_outside_are_zero);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
