// SPDX-License-Identifier: Apache-2.0
// Compares the fp64 reference on the device with the CPU's, in random cases over all fields: they
// are equal up to the order of fp64 sums.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/reference.h"
#include "judge/cuda/reference64.h"
#include "judge/totals.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/reference_scene.h"
#include "tests/support/generate.h"

// Both compute in fp64; only the order of sums differs.
#define TOLERANCE 1e-11

struct sample {
    struct reference_scene in;
    double *out, *dq, *dk, *dv, *heads, *dbias;
    float *max, *terms[2], *bias_terms;
    struct reference_stat64 *stats;
    struct reference_stat *twin; // deltas by reference_cuda_delta()
    void *out_twin;
};

static void bias_make(struct sample *s)
{
    if (s->in.c.bias == BIAS_NONE)
        return;
    s->dbias = reference_scene_room(reference_scene_bias(&s->in) * 8);
    CUDA(cudaMemset(s->dbias, 0, (size_t)reference_scene_bias(&s->in) * sizeof(double)));
}

static void sample_init(struct sample *s, const struct cp_case *c)
{
    memset(s, 0, sizeof(*s));
    reference_scene_init(&s->in, c, true);
    int64_t q = s->in.r.tokens[SIDE_Q] * c->heads, kv = s->in.r.tokens[SIDE_KV] * c->kv_heads;
    int qk = reference_cuda_padded(c->head_dim_qk), v = reference_cuda_padded(c->head_dim_v);
    s->out = reference_scene_room(q * v * 8);
    s->dq = reference_scene_room(q * qk * 8);
    s->dk = reference_scene_room(kv * qk * 8);
    s->dv = reference_scene_room(kv * v * 8);
    s->stats = reference_scene_room(2 * q * 8);
    s->twin = reference_scene_room(2 * q * 8);
    s->out_twin = reference_scene_room((q * v / 2 + 1) * 8);
    s->max = reference_scene_room((q / 2 + 1) * 8);
    s->heads = reference_scene_room(TOTALS_NUMBERS * c->heads * 8);
    s->terms[SIDE_Q] = reference_scene_room((q / 2 + 1) * 8);
    s->terms[SIDE_KV] = reference_scene_room((kv / 2 + 1) * 8);
    s->bias_terms = reference_scene_room((q / 2 + 1) * 8);
    bias_make(s);
    CUDA(cudaDeviceSynchronize()); // the backend's stream does not wait for the default one
}

static void sample_fini(struct sample *s)
{
    void *all[] = {s->out,   s->max,      s->dq,       s->dk,   s->dv,       s->heads,     s->dbias,
                   s->stats, s->terms[0], s->terms[1], s->twin, s->out_twin, s->bias_terms};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        cudaFree(all[i]);
    reference_scene_fini(&s->in);
}

// Runs the pass over queries or over keys, for the key heads whose inputs are drawn.
static void heads_run(struct sample *s, bool keys)
{
    const struct cp_case *c = &s->in.c;
    const struct reference_dbias dbias = {
        .data = s->dbias,
        .terms = s->dbias ? s->bias_terms : NULL,
        .head_stride = bias_has_heads(c) ? s->in.bias_rows * c->seqlen_kv : 0,
        .row_step = bias_has_queries(c) ? 1 : 0,
    };
    const struct reference_results out = {.exact64 = s->out, .twin = s->out_twin};
    if (!keys)
        reference64_out(&s->in.r, &s->in.rows[SIDE_Q], s->out, s->stats, s->max);
    if (!c->training)
        return;
    if (keys) {
        reference64_dkv(&s->in.r, &s->in.rows[SIDE_KV], s->stats, s->dk, s->dv, s->terms[SIDE_KV]);
        return;
    }
    reference_cuda_delta(&s->in.r, &s->in.rows[SIDE_Q], &out, s->twin, s->stats);
    reference64_dq(&s->in.r, &s->in.rows[SIDE_Q], s->stats, &dbias, s->dq, s->terms[SIDE_Q]);
}

// Runs a random number of key heads at a time, to test ranges of heads.
static void sample_run(struct sample *s)
{
    const struct cp_case *c = &s->in.c;
    int kv_step = (int)harness_between(1, c->kv_heads);
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        s->in.r.inputs[i] =
            reference_scene_room((reference_cuda_elements(&s->in.r, i, kv_step) / 2 + 1) * 8);
    CUDA(cudaDeviceSynchronize());
    for (int keys = 0; keys < 2; keys++)
        for (int first = 0; first < c->kv_heads; first += kv_step) {
            s->in.r.kv_first = first;
            s->in.r.kv_count = first + kv_step < c->kv_heads ? kv_step : c->kv_heads - first;
            reference_cuda_draw(&s->in.r);
            heads_run(s, keys);
        }
    const struct reference_head_rows rows = {.max = s->max,
                                             .rows = s->in.r.tokens[SIDE_Q],
                                             .stats = c->training ? s->twin : NULL,
                                             .stats64 = s->stats,
                                             .stats_rows = s->in.r.tokens[SIDE_Q]};
    reference_cuda_heads(&s->in.r, &rows, s->heads);
    harness_finish();
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        CUDA(cudaFree(s->in.r.inputs[i]));
}

// ---- comparison ---------------------------------------------------------------------------------

// The largest difference, and the largest expected magnitude, of a tensor. Infinities must be
// equal; otherwise the difference is infinite.
struct worst {
    double error, magnitude;
};

static void worst_add(struct worst *w, double got, double expected)
{
    if (!isfinite(expected) || !isfinite(got)) {
        if (!(got == expected))
            w->error = INFINITY;
        return;
    }
    w->error = fmax(w->error, fabs(got - expected));
    w->magnitude = fmax(w->magnitude, fabs(expected));
}

enum { OUT, LSE, DELTA, MAX, DQ, DK, DV, DSINK, DBIAS, TERMS_Q, TERMS_K, TENSORS };
static const char *const names[TENSORS] = {
    "out", "lse", "delta", "max", "dq", "dk", "dv", "dsink", "dbias", "terms of dq", "terms of dk"};

// Compares rows [at, at + rows) of a device tensor with `expected`. Device rows have `width`
// elements, of which those from `dim` on must be 0.
static void rows_compare(struct worst *w, const double *device, int64_t at, int64_t rows, int dim,
                         int width, const double *expected)
{
    double *got = reference_scene_zeros(rows * width, sizeof(double));
    CUDA(cudaMemcpy(got, device + at * width, (size_t)(rows * width) * sizeof(double),
                    cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < width; k++)
            worst_add(w, got[i * width + k], k < dim ? expected[i * dim + k] : 0);
    free(got);
}

// The same for fp32, with one element per row.
static void floats_compare(struct worst *w, const float *device, int64_t at, int64_t rows,
                           const double *expected)
{
    float *got = reference_scene_zeros(rows, sizeof(float));
    CUDA(cudaMemcpy(got, device + at, (size_t)rows * sizeof(float), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++)
        worst_add(w, got[i], expected[i]);
    free(got);
}

static void stats_compare(struct worst w[], const struct sample *s, int64_t at, int64_t rows,
                          const double *lse, const double *delta)
{
    struct reference_stat64 *got = reference_scene_zeros(rows, sizeof(*got));
    CUDA(cudaMemcpy(got, s->stats + at, (size_t)rows * sizeof(*got), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++) {
        worst_add(&w[0], got[i].lse, lse[i]);
        if (delta)
            worst_add(&w[1], got[i].delta, delta[i]);
    }
    free(got);
}

// Results of the CPU's reference for all queries: LSE and delta [heads][tokens], and dbias. `sums`
// [3][heads]: largest logit, dsink, squares of the terms of dsink.
struct expected {
    double *lse, *delta, *sums, *dbias;
};

static void expected_init(struct expected *e, const struct sample *s)
{
    *e = (struct expected){
        .lse = reference_scene_zeros(s->in.r.tokens[SIDE_Q] * s->in.c.heads, sizeof(double)),
        .delta = reference_scene_zeros(s->in.r.tokens[SIDE_Q] * s->in.c.heads, sizeof(double)),
        .sums = reference_scene_zeros(3 * s->in.c.heads, sizeof(double)),
        .dbias = reference_scene_zeros(reference_scene_bias(&s->in), sizeof(double)),
    };
    for (int head = 0; head < s->in.c.heads; head++)
        e->sums[head] = -INFINITY;
}

static void expected_fini(struct expected *e)
{
    free(e->lse);
    free(e->delta);
    free(e->sums);
    free(e->dbias);
}

static struct reference_sums sums_of(const struct sample *s, const struct expected *e, int sequence,
                                     int head)
{
    const struct cp_case *c = &s->in.c;
    struct reference_sums sums = {.max_logit = &e->sums[head]};
    if (c->training && c->softmax == SOFTMAX_LEARNABLE) {
        sums.dsink = &e->sums[c->heads + head];
        sums.dsink_squares = &e->sums[2 * c->heads + head];
    }
    if (c->training && s->dbias) {
        int64_t line = (bias_has_heads(c) ? head : 0) * s->in.bias_rows +
                       reference_scene_bias_row(&s->in, sequence, 0);
        sums.dbias = e->dbias + line * c->seqlen_kv;
        sums.dbias_stride = bias_has_queries(c) ? c->seqlen_kv : 0;
    }
    return sums;
}

// The terms of dbias are those of dQ without the scale and without the slopes of a softcap. Slopes
// are 1 at most, so with a softcap the scaled terms of dbias are at least those of dQ.
static void bias_terms_check(const struct sample *s, int64_t at, int64_t rows, const double *terms)
{
    float *got = reference_scene_zeros(rows, sizeof(float));
    CUDA(cudaMemcpy(got, s->bias_terms + at, (size_t)rows * sizeof(float), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++) {
        double cap = s->in.c.softcap != 0 ? 2 * (RULES_CAP_ERROR + rules_cap_error(&s->in.c)) : 0;
        double scaled = got[i] * case_scale(&s->in.c), room = (1e-6 + cap) * terms[i];
        EXPECT(s->in.c.softcap != 0 ? scaled >= terms[i] - room : fabs(scaled - terms[i]) <= room,
               "terms of dbias %g, of dq %g, softcap %g", scaled, terms[i], s->in.c.softcap);
    }
    free(got);
}

static void queries_compare(struct sample *s, struct expected *e, int sequence, int head,
                            struct worst w[TENSORS])
{
    const struct cp_case *c = &s->in.c;
    int qk = c->head_dim_qk, v = c->head_dim_v;
    int64_t n = s->in.sequences[sequence].length[SIDE_Q];
    int64_t at = head * s->in.r.tokens[SIDE_Q] + s->in.sequences[sequence].first[SIDE_Q];
    double *out = reference_scene_zeros(n * v, sizeof(double)),
           *dq = reference_scene_zeros(n * qk, sizeof(double)),
           *terms = reference_scene_zeros(n, sizeof(double));
    struct reference_sums sums = sums_of(s, e, sequence, head);
    struct error error;
    enum status status = reference_queries(c, sequence, head, 0, n, out, e->lse + at,
                                           c->training ? e->delta + at : NULL,
                                           c->training ? dq : NULL, terms, &sums, &error);
    EXPECT(status == STATUS_OK, "%s", error.text);
    rows_compare(&w[OUT], s->out, at, n, v, reference_cuda_padded(v), out);
    stats_compare(&w[LSE], s, at, n, e->lse + at, c->training ? e->delta + at : NULL);
    if (c->training) {
        floats_compare(&w[TERMS_Q], s->terms[SIDE_Q], at, n, terms);
        if (s->dbias)
            bias_terms_check(s, at, n, terms);
        rows_compare(&w[DQ], s->dq, at, n, qk, reference_cuda_padded(qk), dq);
    }
    free(out);
    free(dq);
    free(terms);
}

// Copies the values of a sequence for the query heads of key head `kv`: from [heads][tokens] to
// [query heads of the key head][tokens of the sequence].
static double *group_rows(const struct sample *s, const double *from, int sequence, int kv)
{
    int group = s->in.c.heads / s->in.c.kv_heads;
    int64_t n = s->in.sequences[sequence].length[SIDE_Q];
    double *rows = reference_scene_zeros(n * group, sizeof(double));
    for (int h = 0; h < group; h++)
        memcpy(rows + h * n,
               from + (kv * group + h) * s->in.r.tokens[SIDE_Q] +
                   s->in.sequences[sequence].first[SIDE_Q],
               (size_t)n * sizeof(double));
    return rows;
}

static void keys_compare(struct sample *s, struct expected *e, int sequence, int kv,
                         struct worst w[TENSORS])
{
    const struct cp_case *c = &s->in.c;
    int qk = c->head_dim_qk, v = c->head_dim_v;
    int64_t n = s->in.sequences[sequence].length[SIDE_KV];
    int64_t tokens = s->in.r.tokens[SIDE_KV];
    int64_t at = kv * tokens + s->in.sequences[sequence].first[SIDE_KV];
    double *lse = group_rows(s, e->lse, sequence, kv);
    double *delta = group_rows(s, e->delta, sequence, kv);
    double *dk = reference_scene_zeros(n * qk, sizeof(double)),
           *dv = reference_scene_zeros(n * v, sizeof(double)),
           *terms = reference_scene_zeros(n, sizeof(double));
    struct error error;
    enum status status = reference_keys(c, sequence, kv, 0, n, lse, delta, dk, dv, terms, &error);
    EXPECT(status == STATUS_OK, "%s", error.text);
    floats_compare(&w[TERMS_K], s->terms[SIDE_KV], at, n, terms);
    rows_compare(&w[DK], s->dk, at, n, qk, reference_cuda_padded(qk), dk);
    rows_compare(&w[DV], s->dv, at, n, v, reference_cuda_padded(v), dv);
    free(lse);
    free(delta);
    free(dk);
    free(dv);
    free(terms);
}

static void sums_compare(struct sample *s, struct expected *e, struct worst w[TENSORS])
{
    const struct cp_case *c = &s->in.c;
    rows_compare(&w[MAX], s->heads, 0, c->heads, 1, 1, e->sums);
    if (c->training && c->softmax == SOFTMAX_LEARNABLE) {
        rows_compare(&w[DSINK], s->heads, TOTALS_DSINK * c->heads, c->heads, 1, 1,
                     e->sums + c->heads);
        for (int i = 0; i < c->heads; i++) // the sum may cancel, its error does not
            w[DSINK].magnitude = fmax(w[DSINK].magnitude, sqrt(e->sums[2 * c->heads + i]));
    }
    if (c->training && s->dbias)
        rows_compare(&w[DBIAS], s->dbias, 0, reference_scene_bias(&s->in), 1, 1, e->dbias);
}

static void sample_compare(struct sample *s, struct worst w[TENSORS])
{
    const struct cp_case *c = &s->in.c;
    struct expected e;
    expected_init(&e, s);
    for (int sequence = 0; sequence < c->batch; sequence++)
        for (int head = 0; head < c->heads; head++)
            queries_compare(s, &e, sequence, head, w);
    sums_compare(s, &e, w);
    for (int sequence = 0; sequence < c->batch && c->training; sequence++)
        for (int kv = 0; kv < c->kv_heads; kv++)
            keys_compare(s, &e, sequence, kv, w);
    expected_fini(&e);
}

// Relative tolerance of terms: on the device they have the twin's slope of the softcap.
static double cap_room(const struct cp_case *c)
{
    return c->softcap != 0 ? 2 * (RULES_CAP_ERROR + rules_cap_error(c)) : 0;
}

// Terms and largest logits are stored in fp32.
static double tolerance(const struct cp_case *c, int tensor)
{
    if (tensor == TERMS_Q || tensor == TERMS_K)
        return 1e-6 + cap_room(c);
    return tensor == MAX ? 1e-6 : TOLERANCE;
}

static void case_judge(const struct cp_case *c)
{
    struct sample s;
    struct worst w[TENSORS] = {{0}};
    char text[512];
    sample_init(&s, c);
    sample_run(&s);
    sample_compare(&s, w);
    sample_fini(&s);
    case_describe(c, text, sizeof(text));
    for (int i = 0; i < TENSORS; i++)
        EXPECT(w[i].error <= tolerance(c, i) * fmax(w[i].magnitude, 1), "%s off by %g of %g: %s",
               names[i], w[i].error, w[i].magnitude, text);
}

// ---- tests --------------------------------------------------------------------------------------

static void agrees_with_the_cpu(void)
{
    for (int i = 0; i < (harness_small() ? 8 : 200); i++) {
        struct cp_case c;
        generate_case(harness_random(), 4, harness_small() ? 40 : 150, &c);
        case_judge(&c);
    }
}

// Longer than a tile on both sides, up to the largest head dim.
static void agrees_in_large_cases(void)
{
    static const int dims[][2] = {{128, 128}, {64, 64}, {192, 128},
                                  {256, 256}, {1, 256}, {130, 97}};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        struct cp_case c;
        case_init(&c);
        c.batch = 1;
        c.heads = 2;
        c.kv_heads = 1;
        c.head_dim_qk = dims[i][0];
        c.head_dim_v = dims[i][1];
        c.seqlen_q = c.seqlen_kv = harness_small() ? 70 : 700;
        c.window_left = i % 2 == 0 ? WINDOW_UNBOUNDED : 200;
        case_judge(&c);
    }
}

static const struct harness_test tests[] = {
    {"agrees_with_the_cpu", agrees_with_the_cpu},
    {"agrees_in_large_cases", agrees_in_large_cases},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
