// SPDX-License-Identifier: Apache-2.0
// Mistakes that concern only some rows, and sentences that nearly fit by chance. Rows are computed
// from the definition (tests/judge/dense.h).
#include "tests/support/runner.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "tests/judge/dense.h"
#include "tests/judge/says.h"

enum { TOKENS = 96, DIM = 32, HEADS = 4 };

typedef void change(struct dense *t);

static void sink_three_times(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        t->sink[head] += log(3);
}

// Rows with more than a fifth of the mean energy are three times too large.
static void large_rows_tripled(struct dense *t)
{
    int64_t rows = t->sk * t->hk;
    double mean = dense_product(t->d_v, t->d_v, (int)(rows * t->dv)) / (double)rows;
    for (int64_t row = 0; row < rows; row++) {
        double *dv = t->d_v + row * t->dv;
        double factor = dense_product(dv, dv, t->dv) > mean / 5 ? 3 : 1;
        for (int k = 0; k < t->dv; k++)
            dv[k] *= factor;
    }
}

static void row_twice(struct dense *t)
{
    for (int k = 0; k < t->dv; k++)
        dense_row(t->out, TOKENS - 6, t->h, 1, t->dv)[k] *= 2;
}

static void no_keys(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] = -INFINITY;
}

// The last query has the dq of another one. The first query has none: it sees one key.
static void row_taken(struct dense *t)
{
    memcpy(dense_row(t->d_q, TOKENS - 1, t->h, 0, t->dk),
           dense_row(t->d_q, TOKENS - 6, t->h, 0, t->dk), (size_t)t->dk * sizeof(double));
}

// The last rows of out are wrong; the LSE of more rows is imprecise.
static void last_rows_wrong(struct dense *t)
{
    for (int64_t i = t->sq / 2; i < t->sq; i++)
        for (int head = 0; head < t->h; head++) {
            t->lse[head * t->sq + i] += 1e-4 * (double)(i % 3);
            for (int k = 0; k < t->dv && i >= t->sq - 8; k++)
                dense_row(t->out, i, t->h, head, t->dv)[k] += sin((double)(i * k));
        }
}

// All queries have other values of the only key.
static void only_value_wrong(struct dense *t)
{
    for (int64_t i = 0; i < t->sq; i++)
        for (int k = 0; k < t->dv; k++)
            dense_row(t->out, i, t->h, 0, t->dv)[k] = sin(5.0 * k);
}

static void lse_in_base_2(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] *= M_LOG2E;
}

static void last_lse_in_base_2(struct dense *t)
{
    t->lse[t->sq - 1] *= M_LOG2E;
}

static void some_lse_in_base_2(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i += 7)
        t->lse[i] *= M_LOG2E;
}

static void lse_too_large(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] *= 1.3;
}

static const struct mistake {
    enum report_tensor tensor;
    enum case_mask mask;
    enum case_softmax softmax;
    int keys, heads;
    change *inputs, *after;
    const char *says; // part of the sentence; NULL: nothing
    int rows;         // number of examined rows; 0: 40, or 20 of one head
} mistakes[] = {
    {TENSOR_OUT, MASK_CAUSAL, SOFTMAX_LEARNABLE, TOKENS, HEADS, .inputs = sink_three_times,
     .says = "the sink is in the denominator 3 times"},
    {TENSOR_OUT, MASK_CAUSAL, SOFTMAX_OFF_BY_ONE, TOKENS, HEADS, .inputs = sink_three_times,
     .says = "the 1 of the off-by-one softmax is in the denominator 3 times"},
    {TENSOR_DV, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = large_rows_tripled,
     .says = "in 22 of 40 examined rows (such as sequence 0, head 0, position 80): dv is 3 times"},
    {TENSOR_OUT, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = row_twice,
     .says = "in 1 of 40 examined rows (sequence 0, head 1, position 90): out is 2 times what it"},
    {TENSOR_LSE, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = no_keys,
     .says = "lse is -infinity in all 40 examined rows: they see no key"},
    {TENSOR_DQ, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = row_taken,
     .says = "(1 such rows of 40)"},
    {TENSOR_OUT, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = last_rows_wrong,
     .says = "the other rows are right"},
    {TENSOR_OUT, MASK_NONE, SOFTMAX_VANILLA, 1, 1, .after = only_value_wrong, .says = NULL},
    {TENSOR_LSE, MASK_CAUSAL_BOTTOM_RIGHT, SOFTMAX_VANILLA, TOKENS / 2, HEADS,
     .after = lse_in_base_2, .says = "lse is 1.4427 times"},
    {TENSOR_LSE, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = last_lse_in_base_2,
     .says = "lse is 1.4427 times what it should be (log2(e): a logarithm of base 2) in 1 of 40"},
    {TENSOR_LSE, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = some_lse_in_base_2,
     .says = "(log2(e): a logarithm of base 2) in 5 of 40 examined rows, such as"},
    // Some scale fits any LSE of a single row.
    {TENSOR_LSE, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = lse_in_base_2, .rows = 1,
     .says = "lse is 1.4427 times what it should be (log2(e): a logarithm of base 2)"},
    {TENSOR_LSE, MASK_CAUSAL, SOFTMAX_VANILLA, TOKENS, HEADS, .after = lse_too_large, .rows = 1,
     .says = NULL},
};

static void case_of(const struct mistake *m, struct cp_case *c)
{
    struct error error;
    case_init(c);
    c->world_size = c->batch = 1;
    c->sharding = SHARDING_CONTIGUOUS;
    c->heads = c->kv_heads = m->heads;
    c->head_dim_qk = c->head_dim_v = DIM;
    c->seqlen_q = TOKENS;
    c->seqlen_kv = m->keys;
    c->mask = m->mask;
    c->softmax = m->softmax;
    ck_assert_msg(case_check(c, &error) == STATUS_OK, "%s", error.text);
}

static void row_take(const struct dense *t, enum report_tensor tensor, int64_t position, int head,
                     float *got)
{
    double *const of[] = {[TENSOR_OUT] = t->out, [TENSOR_DQ] = t->d_q, [TENSOR_DV] = t->d_v};
    got[0] = (float)t->lse[head * t->sq + position];
    if (tensor == TENSOR_LSE)
        return;
    for (int k = 0; k < DIM; k++)
        got[k] = (float)dense_row(of[tensor], position, t->h, head, DIM)[k];
    dtype_round(t->c.dtype, got, DIM);
}

// Takes 20 rows from each of up to two heads. Returns the number of rows.
static int rows_take(const struct dense *t, enum report_tensor tensor, float values[][DIM],
                     struct diagnosis_row *rows)
{
    int count = 0;
    for (int head = 0; head < 2 && head < t->h; head++)
        for (int i = 0; i < 20; i++) {
            int64_t position = TOKENS - 1 - i * (TOKENS - 1) / 19;
            row_take(t, tensor, position, head, values[count]);
            rows[count] = (struct diagnosis_row){.head = head,
                                                 .position = position,
                                                 .got = values[count],
                                                 .lse = t->lse[head * t->sq + position]};
            count++;
        }
    return count;
}

START_TEST(sentences_fit)
{
    static float values[DIAGNOSIS_ROWS_MAX][DIM];
    const struct mistake *m = &mistakes[_i];
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    struct cp_case c;
    struct dense t;
    struct finding f;
    case_of(m, &c);
    dense_init(&t, &c, 0);
    if (m->inputs)
        m->inputs(&t);
    dense_forward(&t);
    dense_backward(&t);
    if (m->after)
        m->after(&t);
    int count = rows_take(&t, m->tensor, values, rows);
    struct diagnosis_input in = {.c = &c,
                                 .tensor = m->tensor,
                                 .rows = rows,
                                 .count = m->rows > 0 ? m->rows : count,
                                 .noise = m->tensor == TENSOR_LSE ? 0 : 1.7e-3};
    diagnosis_find(&in, &f);
    assert_says(&f, m->says);
    dense_fini(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("some rows");
    TCase *tcase = tcase_create("sentences");
    tcase_add_loop_test(tcase, sentences_fit, 0, sizeof(mistakes) / sizeof(*mistakes));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
