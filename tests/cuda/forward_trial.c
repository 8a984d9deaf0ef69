// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/forward_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"

struct tensors {
    struct twin q, k, v, bias, o, lse, max_logit;
};

static float normal(void)
{
    double u = ((double)(harness_random() >> 11) + 1) / 9007199254740994.0;
    double angle = 2 * M_PI * (double)(harness_random() >> 11) / 9007199254740992.0;
    return (float)(sqrt(-2 * log(u)) * cos(angle));
}

// ---- trials -------------------------------------------------------------------------------------

struct trial trial_draw(enum case_dtype dtype)
{
    struct trial t = {.problem = problem_draw(dtype),
                      .prior = (enum prior)harness_below(PRIORS),
                      .hiding = (int)ONE_OF(0, 10, 10, 10000),
                      .wants_max = harness_below(3) == 0};
    if (harness_below(5) == 0)
        t.problem.magnitude = 12;
    return t;
}

struct trial trial_draw_plain(enum case_dtype dtype)
{
    struct trial t = trial_draw(dtype);
    struct problem *p = &t.problem;
    t.wants_max = false;
    p->bias_count = 0;
    p->skew = 0;
    p->shape.softcap = 0;
    p->shape.d_qk = (int32_t)ONE_OF(64, 128, 128, 128, 192, 256, 8, 40, 72, 96, 120);
    p->shape.d_v =
        harness_below(4) != 0 ? p->shape.d_qk : (int32_t)ONE_OF(8, 64, 96, 104, 128, 256);
    p->shape.scale = 1 / sqrt(p->shape.d_qk);
    return t;
}

struct trial trial_of(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
                      int64_t kv_len)
{
    struct trial t = {.problem = problem_rectangle(dtype, d_qk, d_v, q_len, kv_len)};
    t.problem.shape.q_rows = ++t.problem.q_rows;
    t.problem.kv_rows++;
    return t;
}

static void trial_note(const struct trial *trial)
{
    harness_note("prior %d max %d", (int)trial->prior, trial->wants_max);
    problem_note(&trial->problem);
}

// ---- tensors ------------------------------------------------------------------------------------

// Fills the rows that belong to a slice with random numbers; the other rows stay NaN.
static void fill_rows(const struct problem *p, const struct twin *tensor, bool queries,
                      int64_t width, double magnitude)
{
    for (int i = 0; i < p->slice_count; i++) {
        const struct slice *s = &p->slices[i];
        if (s->q_len <= 0 || s->kv_len <= 0)
            continue;
        int64_t row = queries ? s->q_row : s->kv_row, rows = queries ? s->q_len : s->kv_len;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < width; c++)
                dtype_store(p->shape.dtype, tensor->host, (row + r * p->shape.row_step) * width + c,
                            (float)magnitude * normal());
    }
}

// Fills Q and K so that logits grow from each key to the next, or fall if the magnitude is
// negative.
static void fill_rising(const struct trial *trial, const struct tensors *t)
{
    const struct problem *p = &trial->problem;
    int64_t d = p->shape.d_qk, rows = p->slices[0].kv_len;
    for (int64_t i = 0; i < p->slices[0].q_len * d; i++)
        dtype_store(p->shape.dtype, t->q.host, i, 1 + 0.1f * normal());
    for (int64_t i = 0; i < rows * d; i++) {
        int64_t row = i / d;
        dtype_store(p->shape.dtype, t->k.host, i,
                    (float)p->magnitude * (float)row / (float)rows + 0.1f * normal() -
                        (float)trial->depth);
    }
}

// Fills Q and K of the first slice for the chosen logits.
static void fill_steep(const struct trial *trial, const struct tensors *t)
{
    const struct steep *s = trial->steep;
    const struct problem *p = &trial->problem;
    int64_t d = p->shape.d_qk;
    for (int64_t i = 0; i < p->slices[0].q_len * d; i++)
        dtype_store(p->shape.dtype, t->q.host, i, s->loud < 0 || i / d == s->loud ? 1 : 0.1f);
    for (int64_t i = 0; i < p->slices[0].kv_len * d; i++) {
        double logit = i / d == s->peaks[0]   ? s->heights[0]
                       : i / d == s->peaks[1] ? s->heights[1]
                                              : s->level;
        dtype_store(p->shape.dtype, t->k.host, i,
                    (float)(logit / sqrt((double)d)) + 0.01f * normal());
    }
}

// Sets some bias elements to -inf, which hides their key, and sometimes all of a row, so that its
// queries see no key.
static void fill_bias(const struct trial *trial, const struct twin *bias)
{
    const struct problem *p = &trial->problem;
    int64_t dead = trial->hiding == 10 && harness_below(3) == 0 ? harness_below(7) : -1;
    for (int64_t i = 0; i < p->bias_count; i++) {
        bool hidden = i / p->shape.bias_row_stride == dead ||
                      (trial->hiding > 0 && harness_below(trial->hiding) == 0);
        dtype_store(p->shape.dtype, bias->host, i, hidden ? -INFINITY : normal());
    }
}

static void fill_prior(const struct trial *trial, const struct tensors *t)
{
    const struct attention_shape *s = &trial->problem.shape;
    float *all = (float *)(void *)t->o.host, *lse = (float *)(void *)t->lse.host;
    for (int64_t head = 0; head < s->heads; head++)
        for (int64_t row = 0; row < s->q_rows; row++) {
            if (trial->prior == PRIOR_NOTHING || harness_below(10) == 0) {
                lse[head * s->q_rows + row] = -INFINITY; // O stays NaN and must not be read
                continue;
            }
            lse[head * s->q_rows + row] = 2 * normal();
            float *o = all + (row * s->heads + head) * s->d_v;
            for (int i = 0; i < s->d_v; i++)
                o[i] = trial->prior == PRIOR_SINK ? 0 : normal();
        }
    for (int head = 0; head < s->heads; head++)
        ((float *)(void *)t->max_logit.host)[head] = head % 2 == 0 ? -INFINITY : -1 + normal();
}

static struct tensors tensors_create(const struct trial *trial)
{
    const struct problem *p = &trial->problem;
    const struct attention_shape *s = &p->shape;
    size_t element = (size_t)dtype_bytes(s->dtype), d_qk = (size_t)s->d_qk, d_v = (size_t)s->d_v;
    size_t q = (size_t)(s->q_rows * s->heads), kv = (size_t)(p->kv_rows * s->kv_heads);
    struct tensors t = {.q = twin_create(q * d_qk * element, p->skew),
                        .k = twin_create(kv * d_qk * element, p->skew),
                        .v = twin_create(kv * d_v * element, p->skew),
                        .bias = twin_create((size_t)p->bias_count * element, 0),
                        .o = twin_create(q * d_v * sizeof(float), 0),
                        .lse = twin_create(q * sizeof(float), 0),
                        .max_logit = twin_create((size_t)s->heads * sizeof(float), 0)};
    fill_rows(p, &t.q, true, (int64_t)s->heads * s->d_qk, p->magnitude);
    fill_rows(p, &t.k, false, (int64_t)s->kv_heads * s->d_qk, 1);
    fill_rows(p, &t.v, false, (int64_t)s->kv_heads * s->d_v, 1);
    if (trial->rising)
        fill_rising(trial, &t);
    if (trial->steep)
        fill_steep(trial, &t);
    fill_bias(trial, &t.bias);
    fill_prior(trial, &t);
    return t;
}

static void tensors_each(struct tensors *t, void (*call)(struct twin *))
{
    struct twin *all[] = {&t->q, &t->k, &t->v, &t->bias, &t->o, &t->lse, &t->max_logit};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        call(all[i]);
}

static void push(struct twin *t)
{
    twin_push(t);
}

// ---- comparison ---------------------------------------------------------------------------------

static struct attention_forward trial_args(const struct trial *trial, const struct tensors *t,
                                           bool device)
{
    const struct problem *p = &trial->problem;
#define SIDE(twin) ((void *)(device ? (twin).device : (twin).host))
    return (struct attention_forward){.shape = p->shape,
                                      .q = SIDE(t->q),
                                      .k = SIDE(t->k),
                                      .v = SIDE(t->v),
                                      .o = SIDE(t->o),
                                      .lse = SIDE(t->lse),
                                      .bias = p->bias_count > 0 ? SIDE(t->bias) : NULL,
                                      .max_logit = trial->wants_max ? SIDE(t->max_logit) : NULL,
                                      .slices = p->slices,
                                      .slice_count = p->slice_count};
#undef SIDE
}

struct results {
    float *o, *lse, *max_logit;
};

// Prepares the operation once and launches it twice, each time on the initial tensors. They hold
// the second result afterwards.
static void launch_twice(struct tensors *t, const struct attention_forward *args)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    struct attention_work *work;
    struct op_needs needs = {0};
    struct error error;
    uintptr_t all =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    const struct attention_op op = {.shape = args->shape,
                                    .bias = args->bias,
                                    .max_logit = args->max_logit,
                                    .aligned = all % 16 == 0,
                                    .slices = args->slices,
                                    .slice_count = args->slice_count};
    EXPECT(kernels->prepare(harness_cuda, &op, &work, &needs, &error) == STATUS_OK, "%s",
           error.text);
    struct twin table = twin_create(needs.table_bytes, 0), zeros = twin_create(needs.zero_bytes, 0);
    memset(zeros.host, 0, zeros.bytes);
    if (needs.table_bytes > 0) {
        kernels->place(harness_cuda, work, table.host, table.device, zeros.device);
        twin_push(&table);
    }
    for (int i = 0; i < 2; i++) {
        tensors_each(t, push);
        twin_push(&zeros);
        EXPECT(kernels->launch_forward(harness_cuda, work, args, NULL, &error) == STATUS_OK, "%s",
               error.text);
    }
    kernels->discard(harness_cuda, work);
    harness_finish();
    twin_destroy(&table);
    twin_destroy(&zeros);
}

static struct results run_on_device(const struct trial *trial, struct tensors *t)
{
    struct error error;
    struct attention_forward args = trial_args(trial, t, true);
    if (harness_below(2)) {
        launch_twice(t, &args);
    } else {
        tensors_each(t, push);
        enum status status = backend_cuda.attention->forward(harness_cuda, &args, &error);
        EXPECT(status == STATUS_OK, "%s", error.text);
    }
    return (struct results){twin_fetch(&t->o), twin_fetch(&t->lse), twin_fetch(&t->max_logit)};
}

static void results_free(struct results *r)
{
    free(r->o);
    free(r->lse);
    free(r->max_logit);
}

// Returns the largest difference of `found` from the twin's host memory; infinity if an element is
// NaN or infinite on one side and not the same on the other.
static double difference(const struct twin *wanted, const float *found)
{
    const float *x = (const float *)(const void *)wanted->host;
    double most = 0;
    for (size_t i = 0; i < wanted->bytes / sizeof(float); i++) {
        if (x[i] == found[i] || (isnan(x[i]) && isnan(found[i])))
            continue;
        double d = fabs((double)x[i] - found[i]);
        most = d <= most ? most : isfinite(d) ? d : INFINITY;
    }
    return most;
}

// Prints the LSE of the row that is farthest from the wanted one.
static void worst_row_note(const struct twin *wanted, const float *found, int64_t q_rows)
{
    const float *x = (const float *)(const void *)wanted->host;
    int64_t worst = 0;
    double most = 0;
    for (int64_t i = 0; i < (int64_t)(wanted->bytes / sizeof(float)); i++) {
        double d = fabs((double)x[i] - found[i]);
        if (d > most) {
            most = d;
            worst = i;
        }
    }
    harness_note("lse of row %lld, head %lld: %.9g, wanted %.9g", (long long)(worst % q_rows),
                 (long long)(worst / q_rows), (double)found[worst], (double)x[worst]);
}

// Tolerance of LSE for the polynomials of a softcap (kernels/cuda/cap_series.h): that of a verdict
// for an LSE near 0. fp32 kernels do not use polynomials.
static double softcap_admitted(const struct problem *p)
{
    bool series = p->shape.softcap != 0 && p->shape.dtype != DTYPE_FP32;
    return series ? 0x1p-24 * (128 + 4 * p->shape.softcap) : 0;
}

bool trial_check(const struct trial *trial)
{
    const struct problem *p = &trial->problem;
    static const double admitted[] = {
        [DTYPE_BF16] = 1.6e-2, [DTYPE_FP16] = 2e-3, [DTYPE_FP32] = 3e-5};
    struct error error;
    struct tensors t = tensors_create(trial);
    struct results got = run_on_device(trial, &t), again = run_on_device(trial, &t);
    struct attention_forward args = trial_args(trial, &t, false);
    enum status status = backend_cpu.attention->forward(harness_cpu, &args, &error);
    double o = difference(&t.o, got.o), lse = difference(&t.lse, got.lse);
    double max_logit = difference(&t.max_logit, got.max_logit);
    double depth = trial->depth * sqrt(p->shape.d_qk) / 8;
    double logits = 2e-5 * fmax(1, fmax(fabs(p->magnitude), depth));
    double largest = trial->max_admitted > 0 ? trial->max_admitted : logits;
    bool same = memcmp(got.o, again.o, t.o.bytes) == 0 &&
                memcmp(got.lse, again.lse, t.lse.bytes) == 0 &&
                memcmp(got.max_logit, again.max_logit, t.max_logit.bytes) == 0;
    bool good = status == STATUS_OK && same && o <= admitted[p->shape.dtype] + logits &&
                lse <= logits + softcap_admitted(p) && max_logit <= largest;
    EXPECT(good, "o %.3g, lse %.3g, max_logit %.3g off%s", o, lse, max_logit,
           same ? "" : ", not the same twice");
    if (!good) {
        trial_note(trial);
        worst_row_note(&t.lse, got.lse, p->shape.q_rows);
    }
    results_free(&got);
    results_free(&again);
    tensors_each(&t, twin_destroy);
    return good;
}
