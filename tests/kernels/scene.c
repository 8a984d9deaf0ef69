// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/scene.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/amx.h"
#include "judge/cpu/reference.h"
#include "judge/inputs.h"
#include "kernels/dtype.h"

// ---- a sequence in memory -----------------------------------------------------------------------

#define GUARD_ROWS 3

// Cuts the positions into spans of uneven length; in a short sequence some are empty. In memory,
// later spans come first, and GUARD_ROWS unused rows lie around each span.
static void side_init(struct scene_side *s, int64_t length, int spans, int step)
{
    *s = (struct scene_side){.spans = spans, .step = step};
    for (int i = 0; i <= spans; i++)
        s->cut[i] = length * i * i / (spans * spans);
    int64_t row = GUARD_ROWS;
    for (int i = spans - 1; i >= 0; i--) {
        s->first[i] = row;
        row += (s->cut[i + 1] - s->cut[i]) * step + GUARD_ROWS;
    }
    s->rows = row;
}

int64_t scene_row(const struct scene_side *s, int64_t position)
{
    int i = 0;
    while (position >= s->cut[i + 1])
        i++;
    return s->first[i] + (position - s->cut[i]) * s->step;
}

static int64_t side_length(const struct scene_side *s)
{
    return s->cut[s->spans];
}

// Creates an input tensor in the case's dtype; rows without a token are NaN.
static void *input_tensor(const struct cp_case *c, const struct scene_side *side,
                          enum input_tensor tensor)
{
    int64_t width = (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor);
    char *data = malloc((size_t)(side->rows * width * dtype_bytes(c->dtype)));
    for (int64_t i = 0; i < side->rows * width; i++)
        dtype_store(c->dtype, data, i, NAN);
    for (int64_t position = 0; position < side_length(side); position++)
        input_row(c, tensor, 0, position,
                  data + scene_row(side, position) * width * dtype_bytes(c->dtype));
    return data;
}

#define SENTINEL -12345.678f

// Creates an fp32 accumulator [rows][width]: the sentinel in rows without a token, `start` in the
// others.
static float *accumulator(const struct scene_side *side, int64_t width, float start)
{
    float *data = malloc((size_t)(side->rows * width) * sizeof(float));
    for (int64_t i = 0; i < side->rows * width; i++)
        data[i] = SENTINEL;
    for (int64_t position = 0; position < side_length(side); position++)
        for (int64_t i = 0; i < width; i++)
            data[scene_row(side, position) * width + i] = start;
    return data;
}

// The same for LSE or D, which are [head][row].
static float *row_scalars(const struct scene *s, float start)
{
    float *data = malloc((size_t)(s->q.rows * s->c.heads) * sizeof(float));
    for (int64_t i = 0; i < s->q.rows * s->c.heads; i++)
        data[i] = SENTINEL;
    for (int head = 0; head < s->c.heads; head++)
        for (int64_t position = 0; position < s->c.seqlen_q; position++)
            data[head * s->q.rows + scene_row(&s->q, position)] = start;
    return data;
}

static void scene_slices(struct scene *s)
{
    const struct cp_case *c = &s->c;
    int64_t shift = case_is_bottom_right(c) ? c->seqlen_q - c->seqlen_kv : 0;
    int64_t right = case_is_causal(c) ? 0 : c->window_right;
    s->slice_count = 0;
    for (int j = 0; j < s->k.spans; j++)
        for (int i = 0; i < s->q.spans; i++)
            s->slices[s->slice_count++] =
                (struct slice){.q_row = s->q.first[i],
                               .q_len = s->q.cut[i + 1] - s->q.cut[i],
                               .kv_row = s->k.first[j],
                               .kv_len = s->k.cut[j + 1] - s->k.cut[j],
                               .offset = s->k.cut[j] - s->q.cut[i] + shift,
                               .left = c->window_left < 0 ? SLICE_UNBOUNDED : c->window_left,
                               .right = right < 0 ? SLICE_UNBOUNDED : right};
}

static struct cp_case sample_case(const struct scene_sample *s)
{
    struct cp_case c;
    case_init(&c);
    c.batch = 1;
    c.seqlen_q = s->sq;
    c.seqlen_kv = s->sk;
    c.mask = s->mask;
    c.window_left = s->left;
    c.window_right = s->right;
    c.heads = s->h;
    c.kv_heads = s->hk;
    c.head_dim_qk = s->dk;
    c.head_dim_v = s->dv;
    c.dtype = s->dtype;
    return c;
}

void scene_init(struct scene *s, const struct scene_sample *sample)
{
    s->c = sample_case(sample);
    side_init(&s->q, s->c.seqlen_q, sample->q_spans, sample->step);
    side_init(&s->k, s->c.seqlen_kv, sample->k_spans, sample->step);
    s->q_data = input_tensor(&s->c, &s->q, INPUT_Q);
    s->k_data = input_tensor(&s->c, &s->k, INPUT_K);
    s->v_data = input_tensor(&s->c, &s->k, INPUT_V);
    s->d_out_data = input_tensor(&s->c, &s->q, INPUT_DO);
    s->o = accumulator(&s->q, s->c.heads * s->c.head_dim_v, 0);
    s->dq = accumulator(&s->q, s->c.heads * s->c.head_dim_qk, 0);
    s->dk = accumulator(&s->k, s->c.kv_heads * s->c.head_dim_qk, 0);
    s->dv = accumulator(&s->k, s->c.kv_heads * s->c.head_dim_v, 0);
    s->lse = row_scalars(s, -INFINITY);
    s->d = row_scalars(s, 0);
    scene_slices(s);
}

void scene_fini(struct scene *s)
{
    void *all[] = {s->q_data, s->k_data, s->v_data, s->d_out_data, s->o,
                   s->lse,    s->d,      s->dq,     s->dk,         s->dv};
    for (int i = 0; i < 10; i++)
        free(all[i]);
}

// ---- execution ----------------------------------------------------------------------------------

struct attention_shape scene_shape(const struct scene *s)
{
    return (struct attention_shape){.dtype = s->c.dtype,
                                    .heads = s->c.heads,
                                    .kv_heads = s->c.kv_heads,
                                    .group = s->c.heads / s->c.kv_heads,
                                    .d_qk = s->c.head_dim_qk,
                                    .d_v = s->c.head_dim_v,
                                    .q_rows = s->q.rows,
                                    .row_step = s->q.step,
                                    .scale = case_scale(&s->c)};
}

struct attention_backend *scene_backend(void)
{
    struct attention_backend *backend;
    struct error error;
    ck_assert_int_eq(backend_cpu.create(&backend, &error), STATUS_OK);
    return backend;
}

void scene_forward(struct scene *s, struct attention_backend *backend, bool one_call)
{
    struct error error;
    int step = one_call ? s->slice_count : 1;
    for (int i = 0; i < s->slice_count; i += step) {
        struct attention_forward args = {.shape = scene_shape(s),
                                         .q = s->q_data,
                                         .k = s->k_data,
                                         .v = s->v_data,
                                         .o = s->o,
                                         .lse = s->lse,
                                         .slices = s->slices + i,
                                         .slice_count = step};
        ck_assert_int_eq(backend_cpu.attention->forward(backend, &args, &error), STATUS_OK);
    }
}

void scene_backward(struct scene *s, struct attention_backend *backend, bool one_call)
{
    struct error error;
    int step = one_call ? s->slice_count : 1;
    for (int i = 0; i < s->slice_count; i += step) {
        struct attention_backward args = {.shape = scene_shape(s),
                                          .q = s->q_data,
                                          .k = s->k_data,
                                          .v = s->v_data,
                                          .d_out = s->d_out_data,
                                          .lse = s->lse,
                                          .d = s->d,
                                          .dq = s->dq,
                                          .dk = s->dk,
                                          .dv = s->dv,
                                          .slices = s->slices + i,
                                          .slice_count = step};
        ck_assert_int_eq(backend_cpu.attention->backward(backend, &args, &error), STATUS_OK);
    }
}

void scene_run(struct scene *s, struct attention_backend *backend, bool one_call)
{
    struct attention_shape shape = scene_shape(s);
    scene_forward(s, backend, one_call);
    backend_cpu.row_dot(backend, &shape, s->d_out_data, s->o, s->d);
    scene_backward(s, backend, one_call);
}

// ---- comparison ---------------------------------------------------------------------------------

struct worst {
    double error, magnitude; // largest absolute error and largest absolute expected value
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

// The error relative to the magnitude of the tensor. If the magnitude is at most other / 1000,
// the error relative to `other`: all terms cancel, as in dQ with a single key, where dS is zero.
static double worst_relative(const struct worst *w, double other)
{
    double magnitude = w->magnitude > 1e-3 * other ? w->magnitude : other;
    return w->error > 0 ? w->error / magnitude : 0;
}

struct verdict {
    struct worst o, lse, dq, dk, dv;
};

static void compare_vector(struct worst *w, const float *got, const double *expected, int d)
{
    for (int e = 0; e < d; e++)
        worst_add(w, got[e], expected[e]);
}

static void compare_queries(const struct scene *s, int head, double *lse, double *delta,
                            struct verdict *v)
{
    int d_qk = s->c.head_dim_qk, d_v = s->c.head_dim_v;
    size_t n = (size_t)s->c.seqlen_q + 1;
    double *out = malloc(n * (size_t)d_v * sizeof(double));
    double *dq = malloc(n * (size_t)d_qk * sizeof(double));
    struct error error;
    ck_assert_int_eq(reference_queries(&s->c, 0, head, 0, s->c.seqlen_q, out, lse, delta, dq, NULL,
                                       NULL, &error),
                     STATUS_OK);
    for (int64_t i = 0; i < s->c.seqlen_q; i++) {
        int64_t row = scene_row(&s->q, i), vector = row * s->c.heads + head;
        worst_add(&v->lse, s->lse[head * s->q.rows + row], lse[i]);
        compare_vector(&v->o, s->o + vector * d_v, out + i * d_v, d_v);
        compare_vector(&v->dq, s->dq + vector * d_qk, dq + i * d_qk, d_qk);
    }
    free(out);
    free(dq);
}

static void compare_keys(const struct scene *s, int kv_head, const double *lse, const double *delta,
                         struct verdict *v)
{
    int d_qk = s->c.head_dim_qk, d_v = s->c.head_dim_v;
    size_t n = (size_t)s->c.seqlen_kv + 1;
    double *dk = malloc(n * (size_t)d_qk * sizeof(double));
    double *dv = malloc(n * (size_t)d_v * sizeof(double));
    struct error error;
    ck_assert_int_eq(
        reference_keys(&s->c, 0, kv_head, 0, s->c.seqlen_kv, lse, delta, dk, dv, NULL, &error),
        STATUS_OK);
    for (int64_t j = 0; j < s->c.seqlen_kv; j++) {
        int64_t vector = scene_row(&s->k, j) * s->c.kv_heads + kv_head;
        compare_vector(&v->dk, s->dk + vector * d_qk, dk + j * d_qk, d_qk);
        compare_vector(&v->dv, s->dv + vector * d_v, dv + j * d_v, d_v);
    }
    free(dk);
    free(dv);
}

double scene_tolerance(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 && amx_usable() ? SCENE_TOLERANCE_AMX : SCENE_TOLERANCE;
}

struct scene_errors scene_compare(const struct scene *s)
{
    struct verdict v = {0};
    int group = s->c.heads / s->c.kv_heads;
    int64_t n = s->c.seqlen_q;
    double *lse = malloc((size_t)(group * n + 1) * sizeof(double));
    double *delta = malloc((size_t)(group * n + 1) * sizeof(double));
    for (int kv_head = 0; kv_head < s->c.kv_heads; kv_head++) {
        for (int i = 0; i < group; i++)
            compare_queries(s, kv_head * group + i, lse + i * n, delta + i * n, &v);
        compare_keys(s, kv_head, lse, delta, &v);
    }
    free(lse);
    free(delta);
    double gradient = fmax(fmax(v.dq.magnitude, v.dk.magnitude), v.dv.magnitude);
    return (struct scene_errors){.o = worst_relative(&v.o, 0),
                                 .lse = worst_relative(&v.lse, 1),
                                 .dq = worst_relative(&v.dq, gradient),
                                 .dk = worst_relative(&v.dk, gradient),
                                 .dv = worst_relative(&v.dv, gradient)};
}

// Number of overwritten sentinels in data [rows][width].
static int64_t touched(const struct scene_side *side, const float *data, int64_t width)
{
    bool *token = calloc((size_t)side->rows, sizeof(bool));
    int64_t count = 0;
    for (int64_t position = 0; position < side_length(side); position++)
        token[scene_row(side, position)] = true;
    for (int64_t row = 0; row < side->rows; row++)
        for (int64_t i = 0; i < width && !token[row]; i++)
            count += data[row * width + i] != SENTINEL;
    free(token);
    return count;
}

int64_t scene_touched(const struct scene *s)
{
    const struct cp_case *c = &s->c;
    int64_t count = touched(&s->q, s->o, (int64_t)c->heads * c->head_dim_v) +
                    touched(&s->q, s->dq, (int64_t)c->heads * c->head_dim_qk) +
                    touched(&s->k, s->dk, (int64_t)c->kv_heads * c->head_dim_qk) +
                    touched(&s->k, s->dv, (int64_t)c->kv_heads * c->head_dim_v);
    for (int head = 0; head < c->heads; head++)
        count += touched(&s->q, s->lse + head * s->q.rows, 1);
    return count;
}

double scene_difference(const float *a, const float *b, int64_t count)
{
    struct worst w = {0};
    for (int64_t i = 0; i < count; i++)
        worst_add(&w, a[i], b[i]);
    return worst_relative(&w, 0);
}
