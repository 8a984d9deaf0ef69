// SPDX-License-Identifier: Apache-2.0
// The reference on the device compared with that on the CPU, in random cases over all fields: equal
// up to the order of fp64 sums.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/reference.h"
#include "judge/cuda/reference64.h"
#include "judge/inputs.h"
#include "judge/totals.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"
#include "tests/support/generate.h"

// Both compute in fp64; only the order of sums differs.
#define TOLERANCE 1e-11

static double *device_doubles(int64_t count)
{
    void *data;
    CUDA(cudaMalloc(&data, (size_t)count * sizeof(double) + 256));
    CUDA(cudaMemset(data, 0xff, (size_t)count * sizeof(double) + 256));
    return data;
}

static void *device_copy(const void *host, size_t bytes)
{
    void *data;
    CUDA(cudaMalloc(&data, bytes + 256));
    CUDA(cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice));
    return data;
}

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (!memory)
        abort();
    return memory;
}

// ---- a case, all of it on one rank --------------------------------------------------------------

struct sample {
    struct cp_case c;
    struct reference_cuda r;
    struct reference_sequence *sequences;
    struct reference_rows rows[2];
    int64_t bias_rows; // of the gradient: of all queries, of a sequence's, or of sequences
    double *out, *dq, *dk, *dv, *heads, *dbias;
    float *max, *terms[2], *bias_terms;
    struct reference_stat64 *stats;
    struct reference_stat *twin; // input of the fast reference
    void *out_twin;
};

static int64_t tile_row(const struct sample *s, int sequence, int64_t position)
{
    if (!bias_has_queries(&s->c))
        return bias_has_batch(&s->c) ? sequence : 0;
    return bias_has_batch(&s->c) ? s->sequences[sequence].first[SIDE_Q] + position : position;
}

static void rows_make(struct sample *s, enum shard_side side)
{
    const struct cp_case *c = &s->c;
    struct reference_tile *tiles = zeros(s->r.tokens[side], sizeof(*tiles));
    int64_t count = 0, row = 0;
    for (int sequence = 0; sequence < c->batch; sequence++)
        for (int64_t at = 0; at < s->sequences[sequence].length[side];) {
            int64_t rest = s->sequences[sequence].length[side] - at;
            int64_t rows = harness_between(1, REFERENCE_TILE_ROWS);
            rows = rows < rest ? rows : rest;
            tiles[count] =
                (struct reference_tile){.position = at,
                                        .row = row,
                                        .bias_row = side == SIDE_Q ? tile_row(s, sequence, at) : 0,
                                        .sequence = sequence,
                                        .count = (int32_t)rows};
            count++;
            at += rows;
            row += rows;
        }
    s->rows[side] = (struct reference_rows){
        .tiles = device_copy(tiles, (size_t)count * sizeof(*tiles)),
        .tile_count = count,
        .rows = row,
    };
    free(tiles);
}

static void sequences_make(struct sample *s)
{
    const struct cp_case *c = &s->c;
    s->sequences = zeros(c->batch, sizeof(*s->sequences));
    for (int i = 0; i < c->batch; i++)
        for (int side = 0; side < 2; side++) {
            int64_t length = case_length(c, (enum shard_side)side, i);
            s->sequences[i].first[side] = s->r.tokens[side];
            s->sequences[i].length[side] = length;
            s->r.tokens[side] += length;
            if (length > s->r.length_max[side])
                s->r.length_max[side] = length;
        }
    s->r.sequences = device_copy(s->sequences, (size_t)c->batch * sizeof(*s->sequences));
}

static int64_t bias_elements(const struct sample *s)
{
    return s->bias_rows * s->c.seqlen_kv * (bias_has_heads(&s->c) ? s->c.heads : 1);
}

static void bias_make(struct sample *s)
{
    const struct cp_case *c = &s->c;
    s->bias_rows = !bias_has_queries(c) ? (bias_has_batch(c) ? c->batch : 1)
                   : bias_has_batch(c)  ? s->r.tokens[SIDE_Q]
                                        : c->seqlen_q;
    if (c->bias == BIAS_NONE)
        return;
    s->dbias = device_doubles(bias_elements(s));
    CUDA(cudaMemset(s->dbias, 0, (size_t)bias_elements(s) * sizeof(double)));
}

static void sample_init(struct sample *s, const struct cp_case *c)
{
    float *sinks = zeros(c->heads, sizeof(float));
    memset(s, 0, sizeof(*s));
    s->c = *c;
    s->r = (struct reference_cuda){.queue = attention_cuda_queue(harness_cuda), .c = &s->c};
    for (int head = 0; head < c->heads; head++)
        sinks[head] = input_sink(c, head);
    s->r.sinks = device_copy(sinks, (size_t)c->heads * sizeof(float));
    free(sinks);
    sequences_make(s);
    rows_make(s, SIDE_Q);
    rows_make(s, SIDE_KV);
    int64_t q = s->r.tokens[SIDE_Q] * c->heads, kv = s->r.tokens[SIDE_KV] * c->kv_heads;
    int qk = reference_cuda_padded(c->head_dim_qk), v = reference_cuda_padded(c->head_dim_v);
    s->out = device_doubles(q * v);
    s->dq = device_doubles(q * qk);
    s->dk = device_doubles(kv * qk);
    s->dv = device_doubles(kv * v);
    s->stats = (struct reference_stat64 *)(void *)device_doubles(2 * q);
    s->twin = (struct reference_stat *)(void *)device_doubles(2 * q);
    s->out_twin = device_doubles(q * v / 2 + 1);
    s->max = (float *)(void *)device_doubles(q / 2 + 1);
    s->heads = device_doubles(TOTALS_NUMBERS * c->heads);
    s->terms[SIDE_Q] = (float *)(void *)device_doubles(q / 2 + 1);
    s->terms[SIDE_KV] = (float *)(void *)device_doubles(kv / 2 + 1);
    s->bias_terms = (float *)(void *)device_doubles(q / 2 + 1);
    bias_make(s);
    CUDA(cudaDeviceSynchronize()); // the backend's stream does not wait for this one
}

static void sample_fini(struct sample *s)
{
    void *all[] = {s->out,   s->max,      s->dq,       s->dk,   s->dv,       s->heads,     s->dbias,
                   s->stats, s->terms[0], s->terms[1], s->twin, s->out_twin, s->bias_terms};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        cudaFree(all[i]);
    for (int i = 0; i < 2; i++)
        cudaFree((void *)s->rows[i].tiles);
    cudaFree((void *)s->r.sinks);
    cudaFree((void *)s->r.sequences);
    free(s->sequences);
}

// The pass over queries or over keys, for the present key heads.
static void heads_run(struct sample *s, bool keys)
{
    const struct cp_case *c = &s->c;
    const struct reference_dbias dbias = {
        .data = s->dbias,
        .terms = s->dbias ? s->bias_terms : NULL,
        .head_stride = bias_has_heads(c) ? s->bias_rows * c->seqlen_kv : 0,
        .row_step = bias_has_queries(c) ? 1 : 0,
    };
    const struct reference_results out = {.exact64 = s->out, .twin = s->out_twin};
    if (!keys)
        reference64_out(&s->r, &s->rows[SIDE_Q], s->out, s->stats, s->max);
    if (!c->training)
        return;
    if (keys) {
        reference64_dkv(&s->r, &s->rows[SIDE_KV], s->stats, s->dk, s->dv, s->terms[SIDE_KV]);
        return;
    }
    reference_cuda_delta(&s->r, &s->rows[SIDE_Q], &out, s->twin, s->stats);
    reference64_dq(&s->r, &s->rows[SIDE_Q], s->stats, &dbias, s->dq, s->terms[SIDE_Q]);
}

// Some key heads at a time, to test ranges of heads.
static void sample_run(struct sample *s)
{
    const struct cp_case *c = &s->c;
    int kv_step = (int)harness_between(1, c->kv_heads);
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        s->r.inputs[i] =
            (float *)(void *)device_doubles(reference_cuda_elements(&s->r, i, kv_step) / 2 + 1);
    CUDA(cudaDeviceSynchronize());
    for (int keys = 0; keys < 2; keys++)
        for (int first = 0; first < c->kv_heads; first += kv_step) {
            s->r.kv_first = first;
            s->r.kv_count = first + kv_step < c->kv_heads ? kv_step : c->kv_heads - first;
            reference_cuda_draw(&s->r);
            heads_run(s, keys);
        }
    const struct reference_head_rows rows = {.max = s->max,
                                             .rows = s->r.tokens[SIDE_Q],
                                             .stats = c->training ? s->twin : NULL,
                                             .stats64 = s->stats,
                                             .stats_rows = s->r.tokens[SIDE_Q]};
    reference_cuda_heads(&s->r, &rows, s->heads);
    harness_finish();
    for (int i = 0; i < REFERENCE_INPUTS; i++)
        CUDA(cudaFree(s->r.inputs[i]));
}

// ---- comparison ---------------------------------------------------------------------------------

// The largest difference divided by the largest expected magnitude, or by 1 if all terms cancel.
// Infinities must be equal.
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

// Rows from `at` on of a device's tensor, whose rows are `width` wide.
static void rows_compare(struct worst *w, const double *device, int64_t at, int64_t rows, int dim,
                         int width, const double *expected)
{
    double *got = zeros(rows * width, sizeof(double));
    CUDA(cudaMemcpy(got, device + at * width, (size_t)(rows * width) * sizeof(double),
                    cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < width; k++)
            worst_add(w, got[i * width + k], k < dim ? expected[i * dim + k] : 0);
    free(got);
}

// The same of fp32.
static void floats_compare(struct worst *w, const float *device, int64_t at, int64_t rows,
                           const double *expected)
{
    float *got = zeros(rows, sizeof(float));
    CUDA(cudaMemcpy(got, device + at, (size_t)rows * sizeof(float), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++)
        worst_add(w, got[i], expected[i]);
    free(got);
}

static void stats_compare(struct worst w[], const struct sample *s, int64_t at, int64_t rows,
                          const double *lse, const double *delta)
{
    struct reference_stat64 *got = zeros(rows, sizeof(*got));
    CUDA(cudaMemcpy(got, s->stats + at, (size_t)rows * sizeof(*got), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++) {
        worst_add(&w[0], got[i].lse, lse[i]);
        if (delta)
            worst_add(&w[1], got[i].delta, delta[i]);
    }
    free(got);
}

// Results of the CPU's reference for all queries: LSE and delta [heads][tokens], sums over heads
// [3][heads], and sums of the bias.
struct expected {
    double *lse, *delta, *sums, *dbias;
};

static void expected_init(struct expected *e, const struct sample *s)
{
    *e = (struct expected){
        .lse = zeros(s->r.tokens[SIDE_Q] * s->c.heads, sizeof(double)),
        .delta = zeros(s->r.tokens[SIDE_Q] * s->c.heads, sizeof(double)),
        .sums = zeros(3 * s->c.heads, sizeof(double)),
        .dbias = zeros(bias_elements(s), sizeof(double)),
    };
    for (int head = 0; head < s->c.heads; head++)
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
    const struct cp_case *c = &s->c;
    struct reference_sums sums = {.max_logit = &e->sums[head]};
    if (c->training && c->softmax == SOFTMAX_LEARNABLE) {
        sums.dsink = &e->sums[c->heads + head];
        sums.dsink_squares = &e->sums[2 * c->heads + head];
    }
    if (c->training && s->dbias) {
        int64_t line = (bias_has_heads(c) ? head : 0) * s->bias_rows + tile_row(s, sequence, 0);
        sums.dbias = e->dbias + line * c->seqlen_kv;
        sums.dbias_stride = bias_has_queries(c) ? c->seqlen_kv : 0;
    }
    return sums;
}

// The terms of the gradient of the bias are those of dQ without the scale and without the slopes of
// a softcap, which are 1 at most.
static void bias_terms_check(const struct sample *s, int64_t at, int64_t rows, const double *terms)
{
    float *got = zeros(rows, sizeof(float));
    CUDA(cudaMemcpy(got, s->bias_terms + at, (size_t)rows * sizeof(float), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < rows; i++) {
        double cap = s->c.softcap != 0 ? 2 * (RULES_CAP_ERROR + rules_cap_error(&s->c)) : 0;
        double scaled = got[i] * case_scale(&s->c), room = (1e-6 + cap) * terms[i];
        EXPECT(s->c.softcap != 0 ? scaled >= terms[i] - room : fabs(scaled - terms[i]) <= room,
               "terms of dbias %g, of dq %g, softcap %g", scaled, terms[i], s->c.softcap);
    }
    free(got);
}

static void queries_compare(struct sample *s, struct expected *e, int sequence, int head,
                            struct worst w[TENSORS])
{
    const struct cp_case *c = &s->c;
    int qk = c->head_dim_qk, v = c->head_dim_v;
    int64_t n = s->sequences[sequence].length[SIDE_Q];
    int64_t at = head * s->r.tokens[SIDE_Q] + s->sequences[sequence].first[SIDE_Q];
    double *out = zeros(n * v, sizeof(double)), *dq = zeros(n * qk, sizeof(double)),
           *terms = zeros(n, sizeof(double));
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

// One tensor's rows of a sequence, from [heads][tokens].
static double *group_rows(const struct sample *s, const double *from, int sequence, int kv)
{
    int group = s->c.heads / s->c.kv_heads;
    int64_t n = s->sequences[sequence].length[SIDE_Q];
    double *rows = zeros(n * group, sizeof(double));
    for (int h = 0; h < group; h++)
        memcpy(rows + h * n,
               from + (kv * group + h) * s->r.tokens[SIDE_Q] + s->sequences[sequence].first[SIDE_Q],
               (size_t)n * sizeof(double));
    return rows;
}

static void keys_compare(struct sample *s, struct expected *e, int sequence, int kv,
                         struct worst w[TENSORS])
{
    const struct cp_case *c = &s->c;
    int qk = c->head_dim_qk, v = c->head_dim_v;
    int64_t n = s->sequences[sequence].length[SIDE_KV];
    int64_t tokens = s->r.tokens[SIDE_KV];
    int64_t at = kv * tokens + s->sequences[sequence].first[SIDE_KV];
    double *lse = group_rows(s, e->lse, sequence, kv);
    double *delta = group_rows(s, e->delta, sequence, kv);
    double *dk = zeros(n * qk, sizeof(double)), *dv = zeros(n * v, sizeof(double)),
           *terms = zeros(n, sizeof(double));
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
    const struct cp_case *c = &s->c;
    rows_compare(&w[MAX], s->heads, 0, c->heads, 1, 1, e->sums);
    if (c->training && c->softmax == SOFTMAX_LEARNABLE) {
        rows_compare(&w[DSINK], s->heads, TOTALS_DSINK * c->heads, c->heads, 1, 1,
                     e->sums + c->heads);
        for (int i = 0; i < c->heads; i++) // terms cancel
            w[DSINK].magnitude = fmax(w[DSINK].magnitude, sqrt(e->sums[2 * c->heads + i]));
    }
    if (c->training && s->dbias)
        rows_compare(&w[DBIAS], s->dbias, 0, bias_elements(s), 1, 1, e->dbias);
}

static void sample_compare(struct sample *s, struct worst w[TENSORS])
{
    const struct cp_case *c = &s->c;
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

// The terms on the device have the twin's slope of the softcap.
static double cap_room(const struct cp_case *c)
{
    return c->softcap != 0 ? 2 * (RULES_CAP_ERROR + rules_cap_error(c)) : 0;
}

// Some are kept in fp32.
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

// Longer than one tile on both sides, with the largest number of blocks and the widest heads.
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
