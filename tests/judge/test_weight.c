// SPDX-License-Identifier: Apache-2.0
// Each feature of a case has an effect on results: a computation without the feature fails. A
// remark names features with too little effect.
#include "plan/weight.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/verify.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "tests/judge/dense.h"
#include "tests/support/cases.h"
#include "tests/support/runner.h"

// ---- estimates ----------------------------------------------------------------------------------

static double logit(const struct cp_case *c, const float *q, int64_t key)
{
    float k[HEAD_DIM_MAX];
    double sum = 0;
    input_token_head(c, INPUT_K, 0, key, 0, k);
    for (int e = 0; e < c->head_dim_qk; e++)
        sum += (double)q[e] * k[e];
    sum *= case_scale(c);
    return c->softcap > 0 ? c->softcap * tanh(sum / c->softcap) : sum;
}

// For ROWS queries that see all keys: the logarithm of the sum of the keys' exponentials, from the
// drawn inputs.
#define ROWS 24
static void logsums(const struct cp_case *c, double sums[ROWS])
{
    for (int i = 0; i < ROWS; i++) {
        float q[HEAD_DIM_MAX];
        double sum = 0;
        input_token_head(c, INPUT_Q, 0, i, 0, q);
        for (int64_t j = 0; j < c->seqlen_kv; j++)
            sum += exp(logit(c, q, j));
        ck_assert_double_gt(sum, 0);
        sums[i] = log(sum);
    }
}

static double mean(const double values[ROWS])
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        sum += values[i];
    return sum / ROWS;
}

static struct cp_case row_case(int64_t keys, int dims, double softcap, enum case_softmax softmax)
{
    struct cp_case c;
    case_init(&c);
    c.dtype = DTYPE_FP32;
    c.mask = MASK_NONE;
    c.heads = c.kv_heads = 1;
    c.seqlen_q = c.seqlen_kv = keys;
    c.head_dim_qk = dims;
    c.softcap = softcap;
    c.softmax = softmax;
    return c;
}

static const int64_t key_counts[] = {64, 512, 4096};
static const int dim_counts[] = {2, 8, 64, 256};
static const double softcaps[] = {0, 4, 30};

START_TEST(sums_are_as_estimated)
{
    double sums[ROWS];
    for (int d = 0; d < 4; d++)
        for (int s = 0; s < 3; s++) {
            struct cp_case c =
                row_case(key_counts[_i], dim_counts[d], softcaps[s], SOFTMAX_VANILLA);
            logsums(&c, sums);
            ck_assert_msg(fabs(mean(sums) - weight_logsum(&c)) < 4,
                          "%lld keys, %d dims, softcap %g: %g, estimated %g",
                          (long long)c.seqlen_kv, c.head_dim_qk, c.softcap, mean(sums),
                          weight_logsum(&c));
            c.inputs = INPUTS_TE;
            logsums(&c, sums);
            ck_assert_msg(fabs(mean(sums) - weight_logsum(&c)) < 1,
                          "TE, %lld keys, %d dims: %g, %g", (long long)c.seqlen_kv, c.head_dim_qk,
                          mean(sums), weight_logsum(&c));
        }
}
END_TEST

// For the mean of rows, a sink has 7 % to 98 % of the sum of exponentials. With off_by_one and a
// small softcap it may have less.
START_TEST(sinks_weigh_as_much_as_all_keys)
{
    double sums[ROWS];
    for (int d = 0; d < 4; d++)
        for (int s = 0; s < 3; s++) {
            struct cp_case c =
                row_case(key_counts[_i], dim_counts[d], softcaps[s], SOFTMAX_LEARNABLE);
            logsums(&c, sums);
            ck_assert_double_eq_tol(mean(sums), weight_sink(&c), 2.5);
            c.softmax = SOFTMAX_OFF_BY_ONE;
            logsums(&c, sums);
            // A small softcap limits how much the logits can be lowered.
            double most = softcaps[s] > 0 && softcaps[s] < 8 ? 7.5 : 2.5;
            ck_assert_msg(mean(sums) > -4 && mean(sums) < most,
                          "%lld keys, %d dims, softcap %g, lowered by %d: %g",
                          (long long)c.seqlen_kv, c.head_dim_qk, c.softcap, weight_shift(&c),
                          mean(sums));
        }
}
END_TEST

START_TEST(only_off_by_one_logits_are_lowered)
{
    struct cp_case c = cases_usual();
    ck_assert_int_eq(weight_shift(&c), 0);
    ck_assert_uint_eq(input_draw_of(&c, INPUT_K).period, 0);
    c.softmax = SOFTMAX_LEARNABLE;
    ck_assert_uint_eq(input_draw_of(&c, INPUT_Q).period, 0);
    c.softmax = SOFTMAX_OFF_BY_ONE;
    ck_assert_int_gt(weight_shift(&c), 8);
    ck_assert_uint_eq(input_draw_of(&c, INPUT_K).period, 128);
    ck_assert_uint_eq(input_draw_of(&c, INPUT_V).period, 0);
    c.inputs = INPUTS_TE;
    ck_assert_int_eq(weight_shift(&c), 0);
    ck_assert_uint_eq(input_draw_of(&c, INPUT_Q).period, 0);
    c.inputs = INPUTS_SHARP;
    c.head_dim_qk = 1;
    ck_assert_int_eq(weight_shift(&c), 0);
    c.head_dim_qk = 2;
    c.window_left = 0; // one visible key
    ck_assert_int_eq(weight_shift(&c), 0);
}
END_TEST

// No estimate is close to an integer. So it rounds to the same integer with another mathematics
// library.
START_TEST(estimates_are_far_from_edges)
{
    struct cp_case c = cases_usual();
    c.mask = MASK_NONE;
    for (c.head_dim_qk = 1; c.head_dim_qk <= HEAD_DIM_MAX; c.head_dim_qk++)
        for (c.seqlen_kv = 1; c.seqlen_kv <= SEQLEN_MAX; c.seqlen_kv *= 2) {
            double sum = weight_logsum(&c);
            if (sum > 1)
                ck_assert_double_gt(fabs(sum - rint(sum)), 1e-9);
        }
}
END_TEST

// ---- features left out --------------------------------------------------------------------------

// One rank and one sequence. The results have the layout of struct dense.
struct trial {
    struct cp_case c;
    struct dense dense;
    struct rank_report report;
};

static void *rounded(const struct cp_case *c, const double *values, int64_t count)
{
    float *wide = malloc((size_t)count * sizeof *wide + 1);
    void *data = malloc((size_t)count * sizeof *wide + 1);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (float)values[i];
    if (c)
        dtype_write(c->dtype, wide, count, data);
    else
        memcpy(data, wide, (size_t)count * sizeof *wide);
    free(wide);
    return data;
}

static void judge(struct trial *t)
{
    const struct dense *d = &t->dense;
    int64_t q = d->sq * d->h, k = d->sk * d->hk;
    const struct cp_case *c = &t->c;
    struct arena arena;
    struct progress progress = {0};
    struct span spans[2][4];
    struct error error;
    size_t total = 0;
    void *owned[] = {rounded(c, d->out, q * d->dv),   rounded(c, d->d_q, q * d->dk),
                     rounded(c, d->d_k, k * d->dk),   rounded(c, d->d_v, k * d->dv),
                     rounded(NULL, d->lse, q),        rounded(NULL, d->d_sink, d->h),
                     rounded(c, d->d_bias, q * d->sk)};
    struct verification v = {.c = c,
                             .spans = {spans[0], spans[1]},
                             .results = {.out = owned[0],
                                         .dq = owned[1],
                                         .dk = owned[2],
                                         .dv = owned[3],
                                         .lse = owned[4],
                                         .dsink = c->softmax == SOFTMAX_LEARNABLE ? owned[5] : NULL,
                                         .dbias = c->bias != BIAS_NONE ? owned[6] : NULL},
                             .arena = &arena,
                             .progress = &progress};
    arena_init(&arena);
    for (int side = 0; side < 2; side++)
        v.span_count[side] = shard_spans(c, (enum shard_side)side, 0, spans[side]);
    ck_assert_int_eq(verify_reserve(c, 0, &total, &error), STATUS_OK);
    ck_assert_int_eq(arena_reserve(&arena, total, &error), STATUS_OK);
    memset(&t->report, 0, sizeof t->report);
    ck_assert_int_eq(verify_run(&v, &t->report, &error), STATUS_OK);
    arena_fini(&arena);
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void set(struct cp_case *c, const char *fields)
{
    char copy[256], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", fields);
    while ((name = strsep(&rest, " ")) && *name) {
        char *value = strchr(name, '=');
        *value++ = '\0';
        cases_set(c, name, value);
    }
}

// Draws the inputs of the case `fields`, computes with the fields `other` changed, and judges the
// results as results of the case.
static void trial_run(struct trial *t, const char *fields, const char *other)
{
    t->c = cases_usual();
    t->c.world_size = t->c.batch = 1;
    t->c.sharding = SHARDING_CONTIGUOUS;
    t->c.heads = t->c.kv_heads = 1;
    t->c.head_dim_qk = t->c.head_dim_v = 32;
    t->c.seqlen_q = t->c.seqlen_kv = 300;
    set(&t->c, fields);
    dense_init(&t->dense, &t->c, 0);
    set(&t->dense.c, other);
    if (t->dense.c.softmax != t->c.softmax)
        for (int head = 0; head < t->c.heads; head++)
            t->dense.sink[head] = t->dense.c.softmax == SOFTMAX_VANILLA ? -INFINITY : 0;
    if (t->dense.c.bias != t->c.bias)
        memset(t->dense.bias, 0,
               (size_t)(t->dense.sq * t->dense.sk * t->dense.h) * sizeof *t->dense.bias);
    dense_forward(&t->dense);
    dense_backward(&t->dense);
    judge(t);
    dense_fini(&t->dense);
}

static bool is_broken(const struct trial *t, enum report_tensor tensor)
{
    for (int i = 0; i < t->report.figures_count; i++)
        if (t->report.figures[i].tensor == (int)tensor && t->report.figures[i].broken)
            return true;
    return false;
}

static const struct {
    const char *fields, *without;
} features[] = {
    {"softmax=off_by_one", "softmax=vanilla"},
    {"softmax=off_by_one mask=none", "softmax=vanilla"},
    {"softmax=off_by_one softcap=15 mask=none", "softmax=vanilla"},
    {"softmax=learnable", "softmax=vanilla"},
    {"softmax=learnable softcap=10 mask=none", "softmax=vanilla"},
    {"softmax=learnable mask=none", "softmax=off_by_one"},
    {"softcap=30", "softcap=0"},
    {"softcap=50", "softcap=0"},
    {"bias=bhss", "bias=none"},
    {"window_left=40", "window_left=-1"},
    {"window_left=40", "window_left=41"},
    {"mask=none window_left=40 window_right=30", "window_right=31"},
    {"mask=none_bottom_right window_left=40 window_right=30 seqlen_kv=350", "mask=none"},
    {"mask=causal_bottom_right seqlen_kv=301", "mask=causal"},
    {"mask=causal", "mask=none"},
    {"mask=causal", "mask=none window_right=1"},
    {"scale=0.2", "scale=0.202"},
};
static const char *const dtypes[] = {"bf16", "fp16", "fp32"};
#define FEATURES ((int)(sizeof features / sizeof features[0]))

START_TEST(missing_features_are_noticed)
{
    char fields[256];
    struct trial t;
    snprintf(fields, sizeof fields, "dtype=%s %s", dtypes[_i % 3], features[_i / 3].fields);
    trial_run(&t, fields, "");
    ck_assert_msg(t.report.pass, "%s does not pass", fields);
    trial_run(&t, fields, features[_i / 3].without);
    ck_assert_msg(!t.report.pass && is_broken(&t, TENSOR_OUT) && is_broken(&t, TENSOR_DQ) &&
                      is_broken(&t, TENSOR_DK),
                  "%s, computed with %s: out %d, dq %d, dk %d", fields, features[_i / 3].without,
                  is_broken(&t, TENSOR_OUT), is_broken(&t, TENSOR_DQ), is_broken(&t, TENSOR_DK));
}
END_TEST

// ---- remarks about features with little effect --------------------------------------------------

static const struct {
    const char *fields, *said;
} sayings[] = {
    {"", ""},
    {"softmax=off_by_one", ""},
    {"softmax=learnable softcap=30 bias=1hss window_left=100 seqlen_q=4096 seqlen_kv=4096", ""},
    {"softmax=off_by_one inputs=te seqlen_q=8192 seqlen_kv=8192",
     "the sink weighs about 2e-04 of what a query's keys weigh with these inputs; only LSE is sure "
     "to "
     "show if it were left out"},
    {"softmax=learnable inputs=te seqlen_q=8192 seqlen_kv=8192",
     "the sink weighs about 2e-04 of what a query's keys weigh with these inputs; only LSE and "
     "dsink "
     "are sure to show if it were left out"},
    {"softmax=off_by_one inputs=te seqlen_q=8192 seqlen_kv=8192 verify=off", ""},
    {"softmax=off_by_one inputs=te seqlen_q=8192 seqlen_kv=8192 dtype=fp32", ""},
    {"softmax=off_by_one seqlen_q=8192 seqlen_kv=8192", ""},
    {"softcap=1000",
     "the softcap makes the large logits of these inputs less by about 6e-05 of them; "
     "only LSE is sure to show if it were left out"},
    {"softcap=100000", "the softcap makes the large logits of these inputs less by about 6e-09 of "
                       "them; nothing is sure to show if it were left out"},
    {"softcap=50", ""},
    {"window_left=511", "the window hides no key"},
    {"window_left=510", ""},
    {"mask=causal_bottom_right seqlen_q=1", "the mask hides no key"},
    {"mask=causal_bottom_right seqlen_q=1 window_left=600",
     "the window hides no key; the mask hides no key"},
    {"window_left=0", "no query sees more than one key: what makes logits shows in LSE at most"},
    {"seqlen_kv=0", "no query sees a key"},
};

START_TEST(features_with_little_weight_are_named)
{
    struct cp_case c = cases_usual();
    char text[CASE_BLIND_MAX], part[10];
    set(&c, sayings[_i].fields);
    int length = case_blind(&c, text, sizeof text);
    ck_assert_str_eq(text, sayings[_i].said);
    ck_assert_int_eq(length, strlen(text));
    ck_assert_int_eq(case_blind(&c, part, sizeof part), length);
    ck_assert_int_eq(strncmp(part, text, sizeof part - 1), 0);
    ck_assert_int_eq(case_blind(&c, NULL, 0), length);
}
END_TEST

// The remark is true: out and gradients do not show the difference; LSE does if the remark says so.
START_TEST(named_features_do_not_show)
{
    static const struct {
        const char *fields, *without;
        bool lse;
    } blind[] = {{"softmax=off_by_one inputs=te mask=none seqlen_q=20 seqlen_kv=9000",
                  "softmax=vanilla", true},
                 {"softcap=1000", "softcap=0", true},
                 {"softcap=100000", "softcap=0", false},
                 {"softcap=50 inputs=te", "softcap=0", true},
                 {"window_left=300", "window_left=-1", false}};
    char text[CASE_BLIND_MAX];
    struct trial t;
    trial_run(&t, blind[_i].fields, blind[_i].without);
    ck_assert_int_gt(case_blind(&t.c, text, sizeof text), 0);
    ck_assert_int_eq(strstr(text, "LSE") != NULL, blind[_i].lse);
    for (int i = 0; i < t.report.figures_count; i++) {
        const struct figures *f = &t.report.figures[i];
        bool shows = f->tensor == TENSOR_LSE && blind[_i].lse;
        ck_assert_msg(shows || !f->broken, "%s: tensor %d", blind[_i].fields, f->tensor);
    }
    ck_assert_int_eq(is_broken(&t, TENSOR_LSE), blind[_i].lse);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("weight");
    TCase *estimates = tcase_create("estimates"), *out = tcase_create("left out"),
          *said = tcase_create("said");
    tcase_set_timeout(said, 60);
    tcase_set_timeout(estimates, 60);
    tcase_set_timeout(out, 60);
    tcase_add_loop_test(estimates, sums_are_as_estimated, 0, 3);
    tcase_add_loop_test(estimates, sinks_weigh_as_much_as_all_keys, 0, 3);
    tcase_add_test(estimates, only_off_by_one_logits_are_lowered);
    tcase_add_test(estimates, estimates_are_far_from_edges);
    tcase_add_loop_test(out, missing_features_are_noticed, 0, 3 * FEATURES);
    tcase_add_loop_test(said, features_with_little_weight_are_named, 0,
                        (int)(sizeof sayings / sizeof sayings[0]));
    tcase_add_loop_test(said, named_features_do_not_show, 0, 5);
    suite_add_tcase(s, said);
    suite_add_tcase(s, estimates);
    suite_add_tcase(s, out);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
