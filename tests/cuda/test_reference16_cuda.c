// SPDX-License-Identifier: Apache-2.0
// Compares the fast reference of 16-bit cases with the fp64 reference: its errors must be small
// compared with the twin's.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cuda/reference16.h"
#include "judge/cuda/reference64.h"
#include "judge/inputs.h"
#include "judge/rules.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/reference_scene.h"
#include "tests/support/generate.h"

enum { OUT, DQ, DK, DV, TENSORS };
static const char *const names[TENSORS] = {"out", "dq", "dk", "dv"};

struct sample {
    struct reference_scene in;
    struct reference_results wide[TENSORS], narrow[TENSORS]; // of fp64; of the fast reference
    struct reference_stat64 *stats64;
    struct reference_stat *stats, *unused;
    float *max, *max16, *dbias_twin;
    float *terms[3], *terms16[3]; // by enum shard_side, then OF_BIAS
    double *dbias;
    double *dbias16;
};

static void bias_make(struct sample *s)
{
    if (s->in.c.bias == BIAS_NONE)
        return;
    int64_t bytes = reference_scene_bias(&s->in) * (int64_t)sizeof(double);
    s->dbias = reference_scene_room(bytes);
    s->dbias16 = reference_scene_room(bytes);
    s->dbias_twin = reference_scene_room(bytes / 2);
    CUDA(cudaMemset(s->dbias, 0, (size_t)bytes));
    CUDA(cudaMemset(s->dbias16, 0, (size_t)bytes));
    CUDA(cudaMemset(s->dbias_twin, 0, (size_t)bytes / 2));
}

static int tensor_width(const struct sample *s, int tensor)
{
    return reference_cuda_padded(tensor == OUT || tensor == DV ? s->in.c.head_dim_v
                                                               : s->in.c.head_dim_qk);
}

static int64_t tensor_rows(const struct sample *s, int tensor)
{
    return s->in.rows[tensor == OUT || tensor == DQ ? SIDE_Q : SIDE_KV].rows;
}

// `exact`: with results of fp64.
static void sample_init(struct sample *s, const struct cp_case *c, bool ragged, bool exact)
{
    memset(s, 0, sizeof(*s));
    reference_scene_init(&s->in, c, ragged);
    int64_t q = s->in.rows[SIDE_Q].rows * c->heads, kv = s->in.rows[SIDE_KV].rows * c->kv_heads;
    for (int i = 0; i < TENSORS; i++) {
        int64_t elements =
            tensor_rows(s, i) * tensor_width(s, i) * (i < DK ? c->heads : c->kv_heads);
        s->wide[i].exact64 = exact ? reference_scene_room(elements * 8) : NULL;
        s->narrow[i].exact = reference_scene_room(elements * 4);
        s->narrow[i].twin = s->wide[i].twin = reference_scene_room(elements * 2);
    }
    s->stats64 = reference_scene_room(q * (int64_t)sizeof(*s->stats64));
    s->unused = reference_scene_room(q * (int64_t)sizeof(*s->unused));
    s->max = reference_scene_room(q * 4);
    s->max16 = reference_scene_room(q * 4);
    s->stats = reference_scene_room(q * (int64_t)sizeof(*s->stats));
    for (int i = 0; i < 3; i++) {
        s->terms[i] = reference_scene_room((i == SIDE_KV ? kv : q) * 4);
        s->terms16[i] = reference_scene_room((i == SIDE_KV ? kv : q) * 4);
    }
    bias_make(s);
    CUDA(cudaDeviceSynchronize()); // the backend's stream does not wait for the default one
}

static void sample_fini(struct sample *s)
{
    for (int i = 0; i < TENSORS; i++) {
        cudaFree(s->wide[i].exact64);
        cudaFree(s->narrow[i].exact);
        cudaFree(s->narrow[i].twin);
    }
    void *all[] = {s->stats64, s->unused, s->max,     s->max16,
                   s->stats,   s->dbias,  s->dbias16, s->dbias_twin};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        cudaFree(all[i]);
    for (int i = 0; i < 3; i++) {
        cudaFree(s->terms[i]);
        cudaFree(s->terms16[i]);
    }
    reference_scene_fini(&s->in);
}

#define OF_BIAS 2 // index of the terms of dbias

static struct reference_dbias dbias_of(const struct sample *s, double *data, float *twin)
{
    return (struct reference_dbias){
        .data = data,
        .twin = twin,
        .terms = !data  ? NULL
                 : twin ? s->terms16[OF_BIAS]
                        : s->terms[OF_BIAS],
        .head_stride = bias_has_heads(&s->in.c) ? s->in.bias_rows * s->in.c.seqlen_kv : 0,
        .row_step = bias_has_queries(&s->in.c) ? 1 : 0,
    };
}

// The fast reference comes first, because the delta of fp64 reads the twin's O. `exact`: also runs
// fp64.
static void queries_run(struct sample *s, bool exact)
{
    const struct reference_rows *q = &s->in.rows[SIDE_Q];
    struct reference_dbias dbias = dbias_of(s, s->dbias, NULL);
    struct reference_dbias dbias16 = dbias_of(s, s->dbias16, s->dbias_twin);
    reference16_out(&s->in.r, q, &s->narrow[OUT], s->stats, s->max16);
    reference_cuda_delta(&s->in.r, q, &s->narrow[OUT], s->stats, NULL);
    reference16_dq(&s->in.r, q, s->stats, &dbias16, &s->narrow[DQ], s->terms16[SIDE_Q]);
    if (!exact)
        return;
    reference64_out(&s->in.r, q, s->wide[OUT].exact64, s->stats64, s->max);
    reference_cuda_delta(&s->in.r, q, &s->wide[OUT], s->unused, s->stats64);
    reference64_dq(&s->in.r, q, s->stats64, &dbias, s->wide[DQ].exact64, s->terms[SIDE_Q]);
}

static void keys_run(struct sample *s)
{
    const struct reference_rows *kv = &s->in.rows[SIDE_KV];
    reference16_dkv(&s->in.r, kv, s->stats, &s->narrow[DK], &s->narrow[DV], s->terms16[SIDE_KV]);
    reference64_dkv(&s->in.r, kv, s->stats64, s->wide[DK].exact64, s->wide[DV].exact64,
                    s->terms[SIDE_KV]);
}

static void inputs_make(struct sample *s, int kv_step, bool exact)
{
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        int64_t elements = reference_cuda_elements(&s->in.r, i, kv_step);
        s->in.r.inputs[i] = exact ? reference_scene_room(elements * 4) : NULL;
        s->in.r.narrow[i] = reference_scene_room(elements * 2);
    }
    CUDA(cudaDeviceSynchronize());
}

static void inputs_free(struct sample *s)
{
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        CUDA(cudaFree(s->in.r.inputs[i]));
        CUDA(cudaFree(s->in.r.narrow[i]));
    }
}

// Runs `kv_step` key heads at a time, to test ranges of heads.
static void sample_run(struct sample *s, int kv_step)
{
    const struct cp_case *c = &s->in.c;
    inputs_make(s, kv_step, true);
    for (int keys = 0; keys < 2; keys++)
        for (int first = 0; first < c->kv_heads; first += kv_step) {
            s->in.r.kv_first = first;
            s->in.r.kv_count = first + kv_step < c->kv_heads ? kv_step : c->kv_heads - first;
            reference_cuda_draw(&s->in.r);
            if (keys)
                keys_run(s);
            else
                queries_run(s, true);
        }
    harness_finish();
    inputs_free(s);
}

// ---- comparison ---------------------------------------------------------------------------------

static void *fetch(const void *device, int64_t bytes)
{
    void *host = reference_scene_zeros(bytes, 1);
    CUDA(cudaMemcpy(host, device, (size_t)bytes, cudaMemcpyDeviceToHost));
    return host;
}

static double value16(enum case_dtype dtype, uint16_t bits)
{
    if (dtype == DTYPE_BF16) {
        uint32_t word = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &word, 4);
        return x;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 0    ? ldexp(fraction, -24)
               : exponent == 31 ? (fraction ? NAN : INFINITY)
                                : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -x : x;
}

// Sums over a tensor: squares, and for `slope` products of error and reference.
struct squares {
    double reference, error, twin, slope;
};

static struct squares tensor_squares(const struct sample *s, int tensor)
{
    const struct cp_case *c = &s->in.c;
    int heads = tensor == DK || tensor == DV ? c->kv_heads : c->heads;
    int64_t part = tensor_rows(s, tensor) * tensor_width(s, tensor);
    double *exact = fetch(s->wide[tensor].exact64, part * heads * 8);
    float *fast = fetch(s->narrow[tensor].exact, part * heads * 4);
    uint16_t *twin = fetch(s->narrow[tensor].twin, part * heads * 2);
    struct squares q = {0};
    for (int head = 0; head < heads; head++)
        for (int64_t i = 0; i < part; i++) {
            double sum = exact[head * part + i];
            double error = fast[head * part + i] - sum;
            double twin_error = value16(c->dtype, twin[head * part + i]) - sum;
            q.reference += sum * sum;
            q.error += error * error;
            q.slope += error * sum;
            q.twin += twin_error * twin_error;
        }
    free(exact);
    free(fast);
    free(twin);
    return q;
}

// Lower bound of the scale of errors of terms. Squares of smaller numbers may underflow in fp32,
// which is negligible beside results near 1.
static const double TERMS_TINY = 0x1p-60;

// Returns the RMS of the terms of dq or dk, by side, or of dbias (OF_BIAS). Raises *worst to the
// largest relative error of the fast terms.
static double terms_rms(const struct sample *s, int which, double *worst)
{
    const struct cp_case *c = &s->in.c;
    int64_t count = which == SIDE_KV ? s->in.rows[SIDE_KV].rows * c->kv_heads
                                     : s->in.rows[SIDE_Q].rows * c->heads;
    float *terms = fetch(s->terms[which], count * 4), *fast = fetch(s->terms16[which], count * 4);
    double all = 0;
    for (int64_t i = 0; i < count; i++) {
        all += (double)terms[i] * terms[i];
        *worst = fmax(*worst, fabs(fast[i] - terms[i]) / fmax(terms[i], TERMS_TINY));
    }
    free(terms);
    free(fast);
    return sqrt(all / (double)(count > 0 ? count : 1));
}

// Returns the largest error of LSE, and raises *worst_max to that of the largest logits, both
// relative to a verdict's limits. Raises *magnitude to the largest |LSE|.
static double lse_worst(const struct sample *s, double *worst_max, double *magnitude)
{
    int64_t rows = s->in.rows[SIDE_Q].rows * s->in.c.heads;
    struct reference_stat64 *exact = fetch(s->stats64, rows * (int64_t)sizeof(*exact));
    float *max = fetch(s->max, rows * 4);
    double worst = 0;
    struct rules rules = rules_of(&s->in.c, TENSOR_LSE),
                 max_rules = rules_of(&s->in.c, TENSOR_MAX_LOGIT);
    struct reference_stat *stats = fetch(s->stats, rows * (int64_t)sizeof(*stats));
    float *max16 = fetch(s->max16, rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        double got = ((double)stats[i].lse_high + stats[i].lse_low) * M_LN2;
        if (isinf(exact[i].lse) || isinf(got)) {
            worst = got == exact[i].lse ? worst : INFINITY;
            continue;
        }
        worst = fmax(worst, fabs(got - exact[i].lse) / rules_logarithm(&rules, exact[i].lse));
        *magnitude = fmax(*magnitude, fabs(exact[i].lse));
        if (isfinite(max[i]))
            *worst_max =
                fmax(*worst_max, fabs(max16[i] - max[i]) / rules_logarithm(&max_rules, max[i]));
    }
    free(exact);
    free(max);
    free(max16);
    free(stats);
    return worst;
}

static struct squares dbias_squares(const struct sample *s)
{
    struct squares q = {0};
    int64_t n = reference_scene_bias(&s->in);
    double *exact = fetch(s->dbias, n * 8), *fast = fetch(s->dbias16, n * 8);
    float *twin = fetch(s->dbias_twin, n * 4);
    for (int64_t i = 0; i < n; i++) {
        q.reference += exact[i] * exact[i];
        q.error += pow(fast[i] - exact[i], 2);
        q.twin += pow(twin[i] - exact[i], 2);
    }
    free(exact);
    free(fast);
    free(twin);
    return q;
}

// Unavoidable RMS error of an element: the rounding errors in fp32 of the terms that cancel in it.
static double noise_of(const struct sample *s, int tensor, const double terms[3])
{
    const struct cp_case *c = &s->in.c;
    if (tensor == DQ)
        return 0x1p-22 * terms[SIDE_Q];
    if (tensor == TENSORS) // dbias: a sum over rows and heads
        return 0x1p-22 * terms[OF_BIAS] *
               sqrt((double)(s->in.rows[SIDE_Q].rows * c->heads) /
                    (double)reference_scene_bias(&s->in));
    return tensor == DK ? 0x1p-22 * terms[SIDE_KV] * input_draw_of(c, INPUT_Q).factor : 0;
}

static double unit_of(const struct cp_case *c, const struct squares *q, double elements)
{
    double rounding = (c->dtype == DTYPE_BF16 ? 0x1p-9 : 0x1p-12) / sqrt(3) / 2;
    return fmax(sqrt(q->twin / elements), rounding * sqrt(q->reference / elements));
}

static void tensor_judge(const struct sample *s, int tensor, const double terms[3], bool note,
                         const char *text)
{
    const char *name = tensor == TENSORS ? "dbias" : names[tensor];
    struct squares q = tensor == TENSORS ? dbias_squares(s) : tensor_squares(s, tensor);
    double elements = tensor == TENSORS
                          ? (double)reference_scene_bias(&s->in)
                          : (double)(tensor_rows(s, tensor) * tensor_width(s, tensor)) *
                                (tensor < DK ? s->in.c.heads : s->in.c.kv_heads);
    double error = sqrt(q.error / elements), unit = unit_of(&s->in.c, &q, elements);
    double noise = noise_of(s, tensor, terms);
    if (note)
        harness_note("    %-5s reference %.2e of a unit, twin %.2e, slope %.1e", name,
                     error / fmax(unit, noise), sqrt(q.twin / q.reference), q.slope / q.reference);
    EXPECT(q.error == 0 || error < 0.02 * unit + 0.6 * noise, "%s off by %g, unit %g, noise %g: %s",
           name, error, unit, noise, text);
}

static void case_judge(const struct cp_case *c, bool ragged, bool note)
{
    static struct sample s;
    char text[512];
    case_describe(c, text, sizeof(text));
    sample_init(&s, c, ragged, true);
    int kv_step = (int)harness_between(1, c->kv_heads);
    sample_run(&s, kv_step);
    double terms_off = 0, max_off = 0, magnitude = 0, lse_off = lse_worst(&s, &max_off, &magnitude);
    double terms[3] = {terms_rms(&s, SIDE_Q, &terms_off), terms_rms(&s, SIDE_KV, &terms_off),
                       s.dbias ? terms_rms(&s, OF_BIAS, &terms_off) : 0};
    if (note)
        harness_note("%s: lse %.2g of its limit (%.0f), max %.2g, terms %.1g", text, lse_off,
                     magnitude, max_off, terms_off);
    EXPECT(lse_off < 0.75, "lse off by %g of its limit: %s", lse_off, text);
    EXPECT(max_off < 0.75, "max off by %g of its limit: %s", max_off, text);
    EXPECT(terms_off < 1e-3, "terms off by %g: %s", terms_off, text);
    for (int i = 0; i < TENSORS + (s.dbias != NULL); i++)
        tensor_judge(&s, i, terms, note, text);
    sample_fini(&s);
}

// ---- tests --------------------------------------------------------------------------------------

static void agrees_with_fp64(void)
{
    for (int i = 0; i < (harness_small() ? 8 : 200); i++) {
        struct cp_case c;
        do
            generate_case(harness_random(), 4, harness_small() ? 40 : 400, &c);
        while (c.dtype == DTYPE_FP32);
        c.training = true;
        case_judge(&c, true, false);
    }
}

static struct cp_case shape(int dims_qk, int dims_v, int heads, int kv_heads, int64_t tokens)
{
    struct cp_case c;
    case_init(&c);
    c.batch = 1;
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.head_dim_qk = dims_qk;
    c.head_dim_v = dims_v;
    c.seqlen_q = c.seqlen_kv = tokens;
    return c;
}

static void agrees_in_large_cases(void)
{
    static const int dims[][2] = {{128, 128}, {64, 64}, {192, 128},
                                  {256, 256}, {1, 256}, {130, 97}};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int dtype = DTYPE_BF16; dtype <= DTYPE_FP16; dtype++) {
            struct cp_case c = shape(dims[i][0], dims[i][1], 4, 2, harness_small() ? 70 : 3000);
            c.dtype = (enum case_dtype)dtype;
            c.window_left = i % 2 == 0 ? WINDOW_UNBOUNDED : 700;
            c.softcap = i == 2 ? 20 : 0;
            c.bias = i == 0 && dtype == DTYPE_FP16 ? BIAS_1HSS : BIAS_NONE;
            case_judge(&c, i % 2 == 0, true);
        }
}

static void speed(const struct cp_case *c, int kv_step)
{
    static struct sample s;
    static const char *const passes[] = {"draw", "out", "delta", "dq", "dkv"};
    cudaEvent_t events[6];
    sample_init(&s, c, false, false);
    inputs_make(&s, kv_step, false);
    s.in.r.kv_count = kv_step;
    cudaStream_t stream = attention_cuda_stream(harness_cuda);
    for (int i = 0; i < 6; i++)
        CUDA(cudaEventCreate(&events[i]));
    struct reference_dbias dbias = dbias_of(&s, s.dbias16, s.dbias_twin);
    CUDA(cudaDeviceSynchronize());
    for (int repeat = 0; repeat < 2; repeat++) {
        CUDA(cudaEventRecord(events[0], stream));
        reference_cuda_draw(&s.in.r);
        CUDA(cudaEventRecord(events[1], stream));
        reference16_out(&s.in.r, &s.in.rows[0], &s.narrow[OUT], s.stats, s.max16);
        CUDA(cudaEventRecord(events[2], stream));
        reference_cuda_delta(&s.in.r, &s.in.rows[0], &s.narrow[OUT], s.stats, NULL);
        CUDA(cudaEventRecord(events[3], stream));
        reference16_dq(&s.in.r, &s.in.rows[0], s.stats, &dbias, &s.narrow[DQ], s.terms16[0]);
        CUDA(cudaEventRecord(events[4], stream));
        reference16_dkv(&s.in.r, &s.in.rows[1], s.stats, &s.narrow[DK], &s.narrow[DV],
                        s.terms16[1]);
        CUDA(cudaEventRecord(events[5], stream));
    }
    harness_finish();
    double pairs =
        (double)c->batch * c->seqlen_q * (c->seqlen_q + 1) / (c->mask == MASK_NONE ? 1 : 2);
    double qk = 2.0 * c->head_dim_qk, v = 2.0 * c->head_dim_v,
           work[] = {0, qk + v, 0, 2 * qk + v, 2 * qk + 2 * v};
    int heads = kv_step * c->heads / c->kv_heads;
    double total_ms = 0, total = 0;
    char text[512], line[512];
    int at = 0;
    case_describe(c, text, sizeof(text));
    for (int i = 0; i < 5; i++) {
        float ms;
        CUDA(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
        total_ms += ms;
        total += work[i] * pairs * heads;
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%s %.2f ms", passes[i], ms);
        if (work[i] > 0)
            at += snprintf(line + at, sizeof(line) - (size_t)at, " %.0f",
                           work[i] * pairs * heads / ms / 1e9);
        at += snprintf(line + at, sizeof(line) - (size_t)at, ", ");
    }
    harness_note("%s (%d kv heads): %s all %.2f ms %.0f TFLOP/s", text, kv_step, line, total_ms,
                 total / total_ms / 1e9);
    inputs_free(&s);
    sample_fini(&s);
}

static void speeds(void)
{
    if (harness_small())
        return;
    struct cp_case c = shape(128, 128, 32, 8, 16384);
    speed(&c, 8);
    c.dtype = DTYPE_FP16;
    speed(&c, 8);
    c = shape(128, 128, 12, 12, 4096);
    c.batch = 2;
    speed(&c, 12);
    c.window_left = 512;
    speed(&c, 12);
    c.window_left = WINDOW_UNBOUNDED;
    c.bias = BIAS_1HSS;
    speed(&c, 12);
    c = shape(64, 64, 64, 8, 4096);
    c.batch = 2;
    speed(&c, 8);
    c = shape(192, 128, 128, 128, 4096);
    c.batch = 2;
    speed(&c, 128);
    c = shape(256, 256, 16, 16, 4096);
    speed(&c, 16);
}

static const struct harness_test tests[] = {
    {"agrees_with_fp64", agrees_with_fp64},
    {"agrees_in_large_cases", agrees_in_large_cases},
    {"speeds", speeds},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
