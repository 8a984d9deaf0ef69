// SPDX-License-Identifier: Apache-2.0
// Mistakes that are in some heads or in some sequences only, or in all. Rows are computed from the
// definition (tests/judge/dense.h).
#include "tests/support/runner.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "tests/judge/dense.h"
#include "tests/judge/says.h"

enum { TOKENS = 96, DIM = 32, HEADS = 4, BATCH = 2, WINDOW = 17, FEWER = 60 };

typedef void change(struct dense *t);

static void window_ignored(struct dense *t)
{
    t->c.window_left = WINDOW_UNBOUNDED;
}

static void scale_missing(struct dense *t)
{
    t->c.scale = 1;
}

static void scale_forgotten_in_head_1(struct dense *t)
{
    for (int64_t i = 0; i < t->sq; i++)
        for (int k = 0; k < t->dk; k++)
            dense_row(t->q, i, t->h, 1, t->dk)[k] /= case_scale(&t->c);
}

static void softcap_missing(struct dense *t)
{
    t->c.softcap = 0;
}

static void mask_off_by_one(struct dense *t)
{
    t->c.window_right = 1;
    t->c.mask = MASK_NONE;
}

static void sink_missing(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        t->sink[head] = -INFINITY;
}

static void bias_missing(struct dense *t)
{
    memset(t->bias, 0, (size_t)(t->h * t->sq * t->sk) * sizeof(double));
}

static void out_of_backward_zero(struct dense *t)
{
    memset(t->out, 0, (size_t)(t->sq * t->h * t->dv) * sizeof(double));
}

static void dv_twice(struct dense *t)
{
    for (int64_t i = 0; i < t->sk * t->hk * t->dv; i++)
        t->d_v[i] *= 2;
}

static void lse_in_base_2(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] *= M_LOG2E;
}

static void rows_shifted(struct dense *t)
{
    memmove(dense_row(t->d_q, 1, t->h, 0, t->dk), t->d_q,
            (size_t)((t->sq - 1) * t->h * t->dk) * sizeof(double));
}

static double largest_logit(const struct dense *t, int64_t i, int head)
{
    double most = -INFINITY;
    for (int64_t j = 0; j <= i; j++)
        most = fmax(most, *dense_pair(t, t->logits, i, j, head));
    return most;
}

static void lse_of_the_largest(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] = largest_logit(t, i % t->sq, (int)(i / t->sq));
}

static void lse_without_sink(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] = log(exp(t->lse[i]) - exp(t->sink[i / t->sq]));
}

static void out_times(struct dense *t, bool of_largest)
{
    for (int64_t i = 0; i < t->sq * t->h; i++) {
        int64_t position = i % t->sq;
        int head = (int)(i / t->sq);
        double largest = of_largest ? largest_logit(t, position, head) : 0;
        for (int k = 0; k < t->dv; k++)
            dense_row(t->out, position, t->h, head, t->dv)[k] *= exp(t->lse[i] - largest);
    }
}

static void out_undivided(struct dense *t)
{
    out_times(t, true);
}

static void out_of_exponentials(struct dense *t)
{
    out_times(t, false);
}

// Each row is that of the token before; the first one is the last one.
static void rows_late(double *rows, int64_t count, int64_t width)
{
    for (int64_t i = count - 1; i > 0; i--)
        for (int64_t k = 0; k < width; k++) {
            double x = rows[i * width + k];
            rows[i * width + k] = rows[(i - 1) * width + k];
            rows[(i - 1) * width + k] = x;
        }
}

static void values_early(struct dense *t)
{
    rows_late(t->v, t->sk, t->hk * t->dv);
}

static void keys_early(struct dense *t)
{
    rows_late(t->k, t->sk, t->hk * t->dk);
}

static void both_early(struct dense *t)
{
    values_early(t);
    keys_early(t);
}

static void keys_cut_off(struct dense *t)
{
    t->sk = FEWER;
}

static void out_lost(struct dense *t)
{
    memset(t->out, 0, (size_t)(t->sq * t->h * t->dv) * sizeof(double));
    for (int64_t i = 0; i < t->sq * t->h; i++)
        t->lse[i] = -INFINITY;
}

static void out_not_finite(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h * t->dv; i++)
        t->out[i] = NAN;
}

static void noise(struct dense *t)
{
    for (int64_t i = 0; i < t->sq * t->h * t->dv; i++)
        t->out[i] *= 1 + 0.2 * sin((double)(i * i));
}

// The groups of examined rows, and those with the mistake.
enum where { EVERYWHERE, HEAD_1, HEADS_1_AND_3, SEQUENCE_1, HEAD_1_OF_SEQUENCE_1, KEY_HEAD_1 };

static bool is_wrong(enum where where, int sequence, int head)
{
    switch (where) {
    case EVERYWHERE:
        return true;
    case HEADS_1_AND_3:
        return head % 2 == 1;
    case SEQUENCE_1:
        return sequence == 1;
    case HEAD_1_OF_SEQUENCE_1:
        return sequence == 1 && head == 1;
    default:
        return head == 1;
    }
}

enum of { PLAIN, WINDOWED, CAPPED, SINK, BIASED, LENGTHS };

static const struct mistake {
    enum of of;
    enum report_tensor tensor;
    enum where where;
    change *inputs, *between, *after; // before forward, between forward and backward, after both
    bool exchanged;                   // wrong rows are those of the other sequence
    const char *says;                 // part of the sentence; NULL: nothing
} mistakes[] = {
    {WINDOWED, TENSOR_OUT, HEAD_1, .inputs = window_ignored,
     .says = "in head 1, not in heads 0, 2 and 3: the window is ignored on its left"},
    {WINDOWED, TENSOR_LSE, HEADS_1_AND_3, .inputs = window_ignored,
     .says = "in heads 1 and 3, not in heads 0 and 2: the window is ignored on its left"},
    {PLAIN, TENSOR_OUT, SEQUENCE_1, .inputs = scale_missing,
     .says = "in sequence 1, not in sequence 0: the softmax scale is 5.657 times what it should be"
             " (none)"},
    {PLAIN, TENSOR_OUT, HEAD_1_OF_SEQUENCE_1, .inputs = scale_missing,
     .says = "in 1 of 6 examined heads and sequences (head 1 of sequence 1): the softmax "
             "scale is 5.66 times"},
    {PLAIN, TENSOR_OUT, HEAD_1, .inputs = scale_forgotten_in_head_1,
     .says = "in head 1, not in heads 0, 2 and 3: the softmax scale is 5.657 times"},
    {PLAIN, TENSOR_OUT, HEAD_1, .inputs = mask_off_by_one,
     .says = "in head 1, not in heads 0, 2 and 3: the mask admits one key too many"},
    {CAPPED, TENSOR_OUT, SEQUENCE_1, .inputs = softcap_missing,
     .says = "in sequence 1, not in sequence 0: the softcap is missing"},
    {SINK, TENSOR_OUT, HEAD_1, .inputs = sink_missing,
     .says = "in head 1, not in heads 0, 2 and 3: the sink is left out of the denominator"},
    {BIASED, TENSOR_OUT, HEADS_1_AND_3, .inputs = bias_missing,
     .says = "in heads 1 and 3, not in heads 0 and 2: the bias is missing"},
    {PLAIN, TENSOR_DQ, HEAD_1, .between = out_of_backward_zero,
     .says = "in head 1, not in heads 0, 2 and 3: delta = rowsum(dO * O) is missing"},
    {PLAIN, TENSOR_DK, KEY_HEAD_1, .between = out_of_backward_zero,
     .says = "in key head 1, not in key head 0: delta = rowsum(dO * O) is missing"},
    {PLAIN, TENSOR_DV, SEQUENCE_1, .after = dv_twice,
     .says = "in sequence 1, not in sequence 0: dv is 2 times what it should be"},
    {PLAIN, TENSOR_LSE, HEAD_1, .after = lse_in_base_2,
     .says = "in head 1, not in heads 0, 2 and 3: lse is 1.4427 times"},
    {PLAIN, TENSOR_DQ, HEAD_1, .after = rows_shifted,
     .says = "in head 1, not in heads 0, 2 and 3: the rows of dq are those of the tokens before"},
    {PLAIN, TENSOR_OUT, SEQUENCE_1, .after = out_lost,
     .says = "out is zero in all 12 examined rows of sequence 1, the last one; their LSE is "
             "-infinity: they see no key"},
    {PLAIN, TENSOR_OUT, SEQUENCE_1, .after = out_not_finite,
     .says = "out is NaN or infinite in all 12 examined rows of sequence 1, the last one"},
    {PLAIN, TENSOR_OUT, HEAD_1, .after = out_lost,
     .says = "in head 1, not in heads 0, 2 and 3: out is zero in all 12 examined rows; their LSE"},
    {PLAIN, TENSOR_LSE, HEADS_1_AND_3, .after = out_lost,
     .says = "in heads 1 and 3, not in heads 0 and 2: lse is -infinity in all 18 examined rows"},
    {PLAIN, TENSOR_OUT, HEAD_1, .after = out_not_finite,
     .says = "in head 1, not in heads 0, 2 and 3: out is NaN or infinite in all 12 examined rows"},
    {PLAIN, TENSOR_OUT, HEAD_1, .after = noise, .says = "the other rows are right"},
    {PLAIN, TENSOR_DQ, EVERYWHERE, .between = lse_of_the_largest,
     .says = "the backward pass uses the largest logit of each row instead of the LSE"},
    {SINK, TENSOR_DQ, HEAD_1, .between = lse_without_sink,
     .says = "in head 1, not in heads 0, 2 and 3: the backward pass uses an LSE without the sink"},
    {PLAIN, TENSOR_OUT, EVERYWHERE, .after = out_undivided,
     .says = "out is not divided by the sum of the softmax"},
    {PLAIN, TENSOR_OUT, HEAD_1, .after = out_of_exponentials,
     .says = "out is not divided by the sum of the softmax: it is a sum of exp(logit) V"},
    {PLAIN, TENSOR_OUT, EVERYWHERE, .inputs = values_early,
     .says = "V is read one row too early in the memory of each rank"},
    {PLAIN, TENSOR_LSE, EVERYWHERE, .inputs = keys_early,
     .says = "K is read one row too early in the memory of each rank"},
    {PLAIN, TENSOR_OUT, SEQUENCE_1, .inputs = both_early,
     .says = "in sequence 1, not in sequence 0: K and V are read one row too early in the memory"},
    {PLAIN, TENSOR_OUT, EVERYWHERE, .exchanged = true,
     .says = "the rows of out of sequence 0 are those of sequence 1"},
    {PLAIN, TENSOR_DK, SEQUENCE_1, .exchanged = true,
     .says = "the rows of dk of sequence 1 are those of sequence 0"},
    {LENGTHS, TENSOR_OUT, SEQUENCE_1, .inputs = keys_cut_off,
     .says = "in sequence 1, not in sequence 0: a sequence has as many keys as the sequence before "
             "it"},
    // The mistake is none.
    {PLAIN, TENSOR_OUT, SEQUENCE_1, .says = NULL},
};

static void case_of(const struct mistake *m, struct cp_case *c)
{
    struct error error;
    case_init(c);
    c->world_size = 1;
    c->sharding = SHARDING_CONTIGUOUS;
    c->batch = BATCH;
    c->heads = HEADS;
    c->kv_heads = m->where == KEY_HEAD_1 ? HEADS / 2 : HEADS;
    c->head_dim_qk = c->head_dim_v = DIM;
    c->seqlen_q = c->seqlen_kv = TOKENS;
    c->mask = m->of == LENGTHS ? MASK_NONE : MASK_CAUSAL;
    if (m->of == LENGTHS)
        case_list_set(c, LIST_LENGTHS_KV, (int32_t[]){FEWER, TOKENS}, BATCH);
    c->window_left = m->of == WINDOWED ? WINDOW : WINDOW_UNBOUNDED;
    c->softcap = m->of == CAPPED ? 4 : 0;
    c->softmax = m->of == SINK ? SOFTMAX_LEARNABLE : SOFTMAX_VANILLA;
    c->bias = m->of == BIASED ? BIAS_1HSS : BIAS_NONE;
    ck_assert_msg(case_check(c, &error) == STATUS_OK, "%s", error.text);
}

// Computes a sequence, with the mistake or without it.
static void make(const struct mistake *m, const struct cp_case *c, int sequence, bool wrong,
                 struct dense *t)
{
    dense_init(t, c, sequence);
    if (wrong && m->inputs)
        m->inputs(t);
    dense_forward(t);
    if (wrong && m->between)
        m->between(t);
    dense_backward(t);
    if (wrong && m->after)
        m->after(t);
}

static void row_take(const struct dense *t, enum report_tensor tensor, int head, int64_t position,
                     float *got)
{
    double *const of[] = {
        [TENSOR_OUT] = t->out, [TENSOR_DQ] = t->d_q, [TENSOR_DK] = t->d_k, [TENSOR_DV] = t->d_v};
    bool keys = tensor == TENSOR_DK || tensor == TENSOR_DV;
    got[0] = (float)t->lse[head * t->sq + position];
    for (int k = 0; k < DIM && tensor != TENSOR_LSE; k++)
        got[k] = (float)dense_row(of[tensor], position, keys ? t->hk : t->h, head, DIM)[k];
    if (tensor != TENSOR_LSE)
        dtype_round(t->c.dtype, got, DIM);
}

START_TEST(heads_and_sequences_are_named)
{
    static float values[DIAGNOSIS_ROWS_MAX][DIM];
    const struct mistake *m = &mistakes[_i];
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    struct cp_case c;
    struct finding found;
    int count = 0;
    case_of(m, &c);
    int heads = m->where == KEY_HEAD_1 ? c.kv_heads : c.heads;
    int of_each = DIAGNOSIS_ROWS_MAX / (BATCH * heads);
    for (int sequence = 0; sequence < BATCH; sequence++) {
        struct dense both[2];
        for (int wrong = 0; wrong < 2; wrong++)
            make(m, &c, wrong && m->exchanged ? 1 - sequence : sequence, wrong, &both[wrong]);
        for (int i = 0; i < heads * of_each; i++) {
            int head = i / of_each;
            int64_t position = TOKENS - 1 - i % of_each * (TOKENS - 1) / (of_each - 1);
            position += sequence * 7 * (position > 0 && position < TOKENS - 7);
            const struct dense *t = &both[is_wrong(m->where, sequence, head)];
            row_take(t, m->tensor, head, position, values[count]);
            rows[count] = (struct diagnosis_row){.sequence = sequence,
                                                 .head = head,
                                                 .position = position,
                                                 .got = values[count],
                                                 .lse = t->lse[head * t->sq + position]};
            count++;
        }
        dense_fini(&both[0]);
        dense_fini(&both[1]);
    }
    struct diagnosis_input in = {.c = &c,
                                 .tensor = m->tensor,
                                 .rows = rows,
                                 .count = count,
                                 .noise = m->tensor == TENSOR_LSE ? 0 : 1.7e-3};
    diagnosis_find(&in, &found);
    assert_says(&found, m->says);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("some heads");
    TCase *tcase = tcase_create("mistakes");
    tcase_add_loop_test(tcase, heads_and_sequences_are_named, 0,
                        sizeof(mistakes) / sizeof(*mistakes));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
