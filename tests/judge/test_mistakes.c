// SPDX-License-Identifier: Apache-2.0
// The diagnosis names the mistake of rows computed from the definition (tests/judge/dense.h).
#include "tests/support/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/inputs.h"
#include "tests/judge/dense.h"
#include "tests/judge/says.h"

enum { TOKENS = 96, DIM = 32, HEADS = 4 };

// ---- mistakes -----------------------------------------------------------------------------------

static double rounded(enum case_dtype dtype, double x)
{
    float value = (float)x;
    dtype_round(dtype, &value, 1);
    return value;
}

// The weight of key j for query i, before it is divided by the sum of weights. most: of the logits.
typedef double weigh(const struct dense *t, int64_t i, int64_t j, double logit, double most);

static double weigh_right(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    (void)t, (void)i, (void)j;
    return exp(logit - most);
}

static double weigh_rounded_logit(const struct dense *t, int64_t i, int64_t j, double logit,
                                  double most)
{
    (void)t, (void)i, (void)j;
    return exp(rounded(DTYPE_BF16, logit) - most);
}

static double weigh_rounded_product(const struct dense *t, int64_t i, int64_t j, double logit,
                                    double most)
{
    double scale = case_scale(&t->c);
    (void)i, (void)j;
    return exp(rounded(DTYPE_BF16, logit / scale) * scale - most);
}

static double weigh_rounded_exponent(const struct dense *t, int64_t i, int64_t j, double logit,
                                     double most)
{
    (void)t, (void)i, (void)j;
    return exp(rounded(DTYPE_BF16, logit - most));
}

// The weight in TF32.
static double weigh_tf32(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    (void)t, (void)i, (void)j;
    float weight = (float)exp(logit - most);
    uint32_t bits;
    memcpy(&bits, &weight, sizeof(bits));
    bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
    memcpy(&weight, &bits, sizeof(bits));
    return weight;
}

static double weigh_base_2(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    (void)t, (void)i, (void)j;
    return exp2(logit - most);
}

static double weigh_no_key_17(const struct dense *t, int64_t i, int64_t j, double logit,
                              double most)
{
    (void)t, (void)i;
    return j == 17 ? 0 : exp(logit - most);
}

// The sums over the first 64 keys are scaled wrongly when the maximum changes.
static double weigh_first_tile(const struct dense *t, int64_t i, int64_t j, double logit,
                               double most)
{
    (void)t;
    return exp(logit - most) * (j < 64 ? 1 + 0.1 * (double)(i % 7) : 1);
}

static double weigh_remote_scale(const struct dense *t, int64_t i, int64_t j, double logit,
                                 double most)
{
    bool remote = (i < t->sq / 2) != (j < t->sk / 2);
    return exp(logit * (remote ? 1.05 : 1) - most);
}

static double weigh_ranks(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    return exp(logit - most) * (j < t->sk / 2 ? 1 + 0.06 * sin((double)i) : 1);
}

// 2^x as a polynomial of degree 3 between two powers of 2, with a relative error of 9e-5.
static double weigh_cubic(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    (void)t, (void)i, (void)j;
    double x = (logit - most) * M_LOG2E, whole = floor(x), part = x - whole;
    return ldexp(1 + part * (0.695146143 + part * (0.227564394 + part * 0.07711909)), (int)whole);
}

// As if keys were missing that weigh up to 6e-5 together.
static double weigh_less(const struct dense *t, int64_t i, int64_t j, double logit, double most)
{
    (void)t, (void)j;
    return exp(logit - most) * (1 - 1e-5 * (double)(i % 7));
}

// Computes out and LSE again from the logits.
static void forward_again(struct dense *t, weigh *weight_of)
{
    bool causal = t->c.mask == MASK_CAUSAL;
    for (int head = 0; head < t->h; head++)
        for (int64_t i = 0; i < t->sq; i++) {
            double *logits = dense_pair(t, t->logits, i, 0, head), most = t->sink[head];
            double *out = dense_row(t->out, i, t->h, head, t->dv);
            int64_t keys = causal ? i + 1 : t->sk;
            for (int64_t j = 0; j < keys; j++)
                most = fmax(most, logits[j]);
            double sum = exp(t->sink[head] - most);
            memset(out, 0, (size_t)t->dv * sizeof(double));
            for (int64_t j = 0; j < keys; j++) {
                double weight = weight_of(t, i, j, logits[j], most);
                const double *v = dense_row(t->v, j, t->hk, head / (t->h / t->hk), t->dv);
                sum += weight;
                for (int k = 0; k < t->dv; k++)
                    out[k] += weight * v[k];
            }
            for (int k = 0; k < t->dv; k++)
                out[k] /= sum;
            t->lse[head * t->sq + i] = most + log(sum);
        }
}

// ---- changes of inputs, of forward results, of gradients ----------------------------------------

typedef void change(struct dense *t);

static void scaled_query_rounded(struct dense *t)
{
    double scale = case_scale(&t->c) * M_LOG2E;
    for (int64_t i = 0; i < t->sq * t->h * t->dk; i++)
        t->q[i] = rounded(DTYPE_BF16, t->q[i] * scale) / scale;
}

// 0.03 % too large: only the LSE shows it.
static void scale_imprecise(struct dense *t)
{
    t->c.scale = case_scale(&t->c) * 1.0003;
}

static void inputs_in_tf32(struct dense *t)
{
    double *const of[] = {t->q, t->k, t->v};
    const int64_t counts[] = {t->sq * t->h * t->dk, t->sk * t->hk * t->dk, t->sk * t->hk * t->dv};
    for (int tensor = 0; tensor < 3; tensor++)
        for (int64_t i = 0; i < counts[tensor]; i++) {
            int exponent;
            double fraction = frexp(of[tensor][i], &exponent); // 11 bits are kept
            of[tensor][i] = ldexp(round(ldexp(fraction, 11)), exponent - 11);
        }
}

static void last_dims_lost(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h * t->dk; i++)
        t->q[i] = i % t->dk >= 16 ? 0 : t->q[i];
}

static void values_of_own_rank(struct dense *t)
{
    int64_t half = t->sk / 2 * t->hk * t->dv;
    memcpy(t->v + half, t->v, (size_t)half * sizeof(double));
}

static void values_of_rank_before(struct dense *t)
{
    int64_t row = t->hk * t->dv, part = t->sk / 4 * row;
    double *last = malloc((size_t)part * sizeof(double));
    ck_assert_ptr_nonnull(last);
    memcpy(last, t->v + 3 * part, (size_t)part * sizeof(double));
    memmove(t->v + part, t->v, (size_t)(3 * part) * sizeof(double));
    memcpy(t->v, last, (size_t)part * sizeof(double));
    free(last);
}

static void sink_scaled(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        t->sink[head] *= case_scale(&t->c);
}

static void sink_in_base_2(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        t->sink[head] *= M_LOG2E;
}

static void sink_of_next_head(struct dense *t)
{
    double first = t->sink[0];
    memmove(t->sink, t->sink + 1, (size_t)(t->h - 1) * sizeof(double));
    t->sink[t->h - 1] = first;
}

static void bias_of_head_before(struct dense *t)
{
    int64_t of_head = t->sq * t->sk;
    for (int64_t i = 0; i < of_head; i++) {
        double last = t->bias[(t->h - 1) * of_head + i];
        for (int head = t->h - 1; head > 0; head--)
            t->bias[head * of_head + i] = t->bias[(head - 1) * of_head + i];
        t->bias[i] = last;
    }
}

static void softcap_first(struct dense *t)
{
    t->c.softcap *= case_scale(&t->c);
}

static void softcap_in_base_2(struct dense *t)
{
    t->c.softcap *= M_LOG2E;
}

static void lse_rounded(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] = rounded(DTYPE_BF16, t->lse[i]);
}

static void out_nine_tenths(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h * t->dv; i++)
        t->out[i] *= 0.9;
}

static void dims_exchanged(struct dense *t)
{
    for (int64_t i = 0; i + 1 < t->sk * t->hk * t->dv; i += 2) {
        double first = t->d_v[i];
        t->d_v[i] = t->d_v[i + 1];
        t->d_v[i + 1] = first;
    }
}

static void dv_for_dk(struct dense *t)
{
    memcpy(t->d_k, t->d_v, (size_t)(t->sk * t->hk * t->dk) * sizeof(double));
}

static void block_lost(struct dense *t)
{
    for (int64_t i = 40; i < 48; i++)
        memset(dense_row(t->d_q, i, t->h, 0, t->dk), 0, 8 * sizeof(double));
}

static void last_dims_zero(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h * t->dv; i++)
        t->out[i] = i % t->dv >= 24 ? 0 : t->out[i];
}

// Computes a row of out as a ring of four ranks merges it: first the keys of the own rank, then
// those of the other ranks in direction `way` (-1: the ranks before). kept: each merge scales the
// earlier out. added: each merge divides the new part by the whole sum.
static void merge_row(struct dense *t, int64_t i, int head, int way, bool kept, bool added)
{
    int64_t keys = t->sk / 4;
    int own = (int)(i / keys);
    double *out = dense_row(t->out, i, t->h, head, t->dv), before = 0;
    const double *logits = dense_pair(t, t->logits, i, 0, head);
    memset(out, 0, (size_t)t->dv * sizeof(double));
    for (int step = 0; step < 4; step++) {
        int64_t first = (own + way * step + 4) % 4 * keys;
        double part[DIM] = {0}, sum = 0;
        for (int64_t j = first; j < first + keys; j++) {
            double weight = exp(logits[j]);
            const double *v = dense_row(t->v, j, t->hk, head / (t->h / t->hk), t->dv);
            sum += weight;
            for (int k = 0; k < t->dv; k++)
                part[k] += weight * v[k];
        }
        for (int k = 0; k < t->dv; k++)
            out[k] = out[k] * (kept ? before / (before + sum) : 1) +
                     part[k] / (added ? before + sum : sum);
        before += sum;
    }
}

static void merge_rows(struct dense *t, int way, bool kept, bool added)
{
    for (int head = 0; head < t->h; head++)
        for (int64_t i = 0; i < t->sq; i++)
            merge_row(t, i, head, way, kept, added);
}

static void merged_rightly(struct dense *t)
{
    merge_rows(t, -1, true, true);
}

static void merged_unscaled(struct dense *t)
{
    merge_rows(t, -1, false, true);
}

static void merged_unscaled_other_way(struct dense *t)
{
    merge_rows(t, 1, false, true);
}

static void merged_unweighted(struct dense *t)
{
    merge_rows(t, -1, true, false);
}

static double largest_logit(const struct dense *t, int64_t i, int head)
{
    const double *logits = dense_pair(t, t->logits, i, 0, head);
    double most = -INFINITY;
    for (int64_t j = 0; j < (t->c.mask == MASK_CAUSAL ? i + 1 : t->sk); j++)
        most = fmax(most, logits[j]);
    return most;
}

static void lse_of_the_largest(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        for (int64_t i = 0; i < t->sq; i++)
            t->lse[head * t->sq + i] = largest_logit(t, i, head);
}

static void lse_of_the_sum(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        for (int64_t i = 0; i < t->sq; i++)
            t->lse[head * t->sq + i] -= largest_logit(t, i, head);
}

// ---- the table ----------------------------------------------------------------------------------

enum of { PLAIN, HALF, SINGLE, FULL, TWO_RANKS, FOUR_RANKS, SINK, CAP, BIASED };

static const struct mistake {
    enum of of;
    enum report_tensor tensor;
    change *inputs, *between, *after; // before forward, between forward and backward, after both
    weigh *weigh;
    const char *says; // part of the sentence; NULL: nothing
} mistakes[] = {
    {PLAIN, TENSOR_OUT, .says = NULL},
    {PLAIN, TENSOR_DQ, .says = NULL},
    {PLAIN, TENSOR_DK, .says = NULL},
    {PLAIN, TENSOR_OUT, .weigh = weigh_rounded_logit, .says = "the logits are rounded to bf16"},
    {PLAIN, TENSOR_OUT, .weigh = weigh_rounded_product,
     .says = "the products of Q and K are rounded to bf16"},
    {HALF, TENSOR_OUT, .weigh = weigh_rounded_exponent,
     .says = "logit - maximum is rounded to bf16 before the exponential"},
    {SINGLE, TENSOR_OUT, .says = NULL},
    {SINGLE, TENSOR_OUT, .inputs = inputs_in_tf32, .weigh = weigh_tf32,
     .says = "fp32 is multiplied in TF32"},
    {SINGLE, TENSOR_LSE, .inputs = inputs_in_tf32, .says = "fp32 is multiplied in TF32"},
    {PLAIN, TENSOR_OUT, .weigh = weigh_base_2, .says = "base 2 instead of e"},
    {PLAIN, TENSOR_OUT, .weigh = weigh_no_key_17,
     .says = "one key is missing from the softmax: position 17"},
    {FULL, TENSOR_OUT, .weigh = weigh_first_tile,
     .says = "keys 0 to 63 and of later keys have wrong"},
    {TWO_RANKS, TENSOR_OUT, .weigh = weigh_remote_scale,
     .says = "the softmax scale of keys of other ranks is 1.0"},
    {TWO_RANKS, TENSOR_OUT, .weigh = weigh_ranks,
     .says = "the partial results of the ranks have wrong weights"},
    {FOUR_RANKS, TENSOR_OUT, .after = merged_rightly, .says = NULL},
    {FOUR_RANKS, TENSOR_OUT, .after = merged_unscaled, .says = "without scaling the earlier out"},
    {FOUR_RANKS, TENSOR_OUT, .after = merged_unscaled_other_way,
     .says = "without scaling the earlier out"},
    {FOUR_RANKS, TENSOR_OUT, .after = merged_unweighted, .says = "without scaling that by"},
    {PLAIN, TENSOR_OUT, .inputs = scaled_query_rounded,
     .says = "Q is rounded to bf16 after it is multiplied by the scale and log2(e)"},
    {PLAIN, TENSOR_LSE, .inputs = scale_imprecise, .says = "the softmax scale is 1.0003 times"},
    {PLAIN, TENSOR_LSE, .says = NULL},
    {PLAIN, TENSOR_OUT, .inputs = last_dims_lost, .says = "the dims from 16 on are left out"},
    {TWO_RANKS, TENSOR_OUT, .inputs = values_of_own_rank, .says = "values (not the keys)"},
    {FOUR_RANKS, TENSOR_OUT, .inputs = values_of_rank_before,
     .says = "K is that of one rank r and V that of rank r - 1"},
    {SINK, TENSOR_OUT, .inputs = sink_scaled, .says = "the sink is multiplied by the scale"},
    {SINK, TENSOR_OUT, .inputs = sink_in_base_2, .says = "the sink is log2(e) times"},
    {SINK, TENSOR_OUT, .inputs = sink_of_next_head, .says = "the sink is that of the next head"},
    {BIASED, TENSOR_OUT, .inputs = bias_of_head_before,
     .says = "the bias is that of the head before"},
    {CAP, TENSOR_OUT, .inputs = softcap_in_base_2, .says = "the softcap is log2(e) times"},
    {CAP, TENSOR_OUT, .inputs = softcap_first, .says = "softcap"},
    {PLAIN, TENSOR_DQ, .between = lse_rounded, .says = "an LSE that is rounded to bf16"},
    {PLAIN, TENSOR_DK, .between = lse_rounded, .says = "an LSE that is rounded to bf16"},
    {PLAIN, TENSOR_DQ, .between = out_nine_tenths, .says = "delta = rowsum(dO * O) is 0.9 times"},
    {PLAIN, TENSOR_DK, .between = out_nine_tenths, .says = "delta = rowsum(dO * O) is 0.9 times"},
    {PLAIN, TENSOR_DV, .after = dims_exchanged, .says = "32 dims of dv are in another order"},
    {PLAIN, TENSOR_DK, .after = dv_for_dk, .says = "dk has the values of dv"},
    {PLAIN, TENSOR_DQ, .after = block_lost,
     .says = "in 2 of 40 examined rows (such as sequence 0, head 0, position 45): dq is zero in 8 "
             "dims, 0 to 7"},
    {PLAIN, TENSOR_OUT, .after = last_dims_zero,
     .says = "out is zero in 8 dims of every examined row"},
    {PLAIN, TENSOR_LSE, .after = lse_of_the_largest, .says = "log(sum) is missing"},
    {FULL, TENSOR_LSE, .after = lse_of_the_largest, .says = "log(sum) is missing"},
    {SINK, TENSOR_LSE, .after = lse_of_the_largest, .says = "log(sum) is missing"},
    {PLAIN, TENSOR_LSE, .after = lse_of_the_sum,
     .says = "the largest logit of each row is missing"},
    {PLAIN, TENSOR_LSE, .after = lse_rounded, .says = "lse has only numbers of bf16"},
    {PLAIN, TENSOR_LSE, .weigh = weigh_cubic,
     .says = "exponentials or logarithms are approximate; lse_tolerance 0.0001 accepts"},
    {SINGLE, TENSOR_LSE, .weigh = weigh_cubic, .says = NULL},
    {PLAIN, TENSOR_LSE, .weigh = weigh_less, .says = "or keys of little weight are missing"},
};

static void case_of(enum of of, struct cp_case *c)
{
    struct error error;
    case_init(c);
    c->world_size = of == TWO_RANKS ? 2 : of == FOUR_RANKS ? 4 : 1;
    c->sharding = SHARDING_CONTIGUOUS;
    c->batch = 1;
    c->heads = c->kv_heads = HEADS;
    c->head_dim_qk = c->head_dim_v = DIM;
    c->seqlen_q = c->seqlen_kv = TOKENS;
    c->dtype = of == HALF ? DTYPE_FP16 : of == SINGLE ? DTYPE_FP32 : DTYPE_BF16;
    c->mask = of == PLAIN || of == HALF || of == SINGLE || of == SINK || of == CAP ? MASK_CAUSAL
                                                                                   : MASK_NONE;
    c->softmax = of == SINK ? SOFTMAX_LEARNABLE : SOFTMAX_VANILLA;
    c->softcap = of == CAP ? 4 : 0;
    c->bias = of == BIASED ? BIAS_1HSS : BIAS_NONE;
    ck_assert_msg(case_check(c, &error) == STATUS_OK, "%s", error.text);
}

// Takes rows of the first rank: 20 from each of two heads. Returns the number of rows.
static int rows_take(struct dense *t, enum report_tensor tensor, float *values,
                     struct diagnosis_row *rows)
{
    double *const of[] = {[TENSOR_OUT] = t->out,
                          [TENSOR_LSE] = t->lse,
                          [TENSOR_DQ] = t->d_q,
                          [TENSOR_DK] = t->d_k,
                          [TENSOR_DV] = t->d_v};
    int count = 0, dim = tensor == TENSOR_LSE ? 1 : DIM;
    int64_t tokens = t->sq / t->c.world_size;
    for (int head = 0; head < 2; head++)
        for (int i = 0; i < 20; i++) {
            int64_t position = tokens - 1 - i * (tokens - 1) / 19;
            float *got = values + count * DIM;
            for (int k = 0; k < dim; k++)
                got[k] = (float)(dim == 1 ? t->lse[head * t->sq + position]
                                          : dense_row(of[tensor], position, t->h, head, dim)[k]);
            if (dim > 1)
                dtype_round(t->c.dtype, got, dim);
            rows[count++] = (struct diagnosis_row){.head = head,
                                                   .position = position,
                                                   .got = got,
                                                   .lse = t->lse[head * t->sq + position]};
        }
    return count;
}

static void make(const struct mistake *m, const struct cp_case *c, struct dense *t)
{
    dense_init(t, c, 0);
    if (m->inputs)
        m->inputs(t);
    dense_forward(t);
    forward_again(t, m->weigh ? m->weigh : weigh_right);
    if (m->between)
        m->between(t);
    dense_backward(t);
    if (m->after)
        m->after(t);
}

START_TEST(mistakes_are_named)
{
    const struct mistake *m = &mistakes[_i];
    static float values[DIAGNOSIS_ROWS_MAX * DIM];
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    struct cp_case c;
    struct dense t;
    struct finding f;
    case_of(m->of, &c);
    make(m, &c, &t);
    int count = rows_take(&t, m->tensor, values, rows);
    struct diagnosis_input in = {.c = &c,
                                 .tensor = m->tensor,
                                 .rows = rows,
                                 .count = count,
                                 .noise = m->tensor == TENSOR_LSE ? 0
                                          : m->of == SINGLE       ? 2e-7
                                          : m->of == HALF         ? 2.2e-4
                                                                  : 1.7e-3};
    diagnosis_find(&in, &f);
    assert_says(&f, m->says);
    dense_fini(&t);
}
END_TEST

// ---- packed sequences ---------------------------------------------------------------------------

// The keys of sequences 0 and 2 that the queries of sequence 1 see by mistake: all, the last one of
// sequence 0, the first one of sequence 2.
enum leaking { LEAKS_ALL, LEAKS_LAST, LEAKS_FIRST };

static bool leaks(enum leaking what, int sequence, int64_t position, int64_t length)
{
    if (what == LEAKS_LAST)
        return sequence == 0 && position == length - 1;
    return what == LEAKS_ALL || (sequence == 2 && position == 0);
}

// Adds these keys of another sequence to out and lse.
static void leak(struct dense *own, struct dense *other, enum leaking what, int sequence)
{
    for (int head = 0; head < own->h; head++)
        for (int64_t i = 0; i < own->sq; i++) {
            double *out = dense_row(own->out, i, own->h, head, own->dv);
            double *lse = &own->lse[head * own->sq + i];
            for (int64_t j = 0; j < other->sk; j++) {
                if (!leaks(what, sequence, j, other->sk))
                    continue;
                double logit =
                    case_scale(&own->c) *
                    dense_product(dense_row(own->q, i, own->h, head, own->dk),
                                  dense_row(other->k, j, own->hk, head, own->dk), own->dk);
                double sum = log(exp(*lse) + exp(logit));
                const double *v = dense_row(other->v, j, own->hk, head, own->dv);
                for (int k = 0; k < own->dv; k++)
                    out[k] = out[k] * exp(*lse - sum) + v[k] * exp(logit - sum);
                *lse = sum;
            }
        }
}

START_TEST(visible_sequences_are_named)
{
    static const int32_t lengths[] = {30, TOKENS, 17};
    static const char *const says[] = {"keys of other packed sequences are visible",
                                       "the last key of the packed sequence before",
                                       "the first key of the packed sequence after"};
    static float values[DIAGNOSIS_ROWS_MAX * DIM];
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    struct cp_case c;
    struct dense t, before, after;
    struct finding f;
    case_of(FULL, &c);
    c.format = FORMAT_THD;
    c.batch = 3;
    case_list_set(&c, LIST_LENGTHS_Q, lengths, 3);
    dense_init(&t, &c, 1);
    dense_init(&before, &c, 0);
    dense_init(&after, &c, 2);
    dense_forward(&t);
    leak(&t, &before, (enum leaking)_i, 0);
    leak(&t, &after, (enum leaking)_i, 2);
    int count = rows_take(&t, TENSOR_OUT, values, rows);
    for (int i = 0; i < count; i++)
        rows[i].sequence = 1;
    struct diagnosis_input in = {
        .c = &c, .tensor = TENSOR_OUT, .rows = rows, .count = count, .noise = 1.7e-3};
    diagnosis_find(&in, &f);
    assert_says(&f, says[_i]);
    dense_fini(&t);
    dense_fini(&before);
    dense_fini(&after);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mistakes");
    TCase *tc = tcase_create("mistakes");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, mistakes_are_named, 0, sizeof(mistakes) / sizeof(*mistakes));
    tcase_add_loop_test(tc, visible_sequences_are_named, 0, 3);
    suite_add_tcase(s, tc);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
