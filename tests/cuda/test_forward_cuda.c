// SPDX-License-Identifier: Apache-2.0
// Compares the CUDA forward with the CPU backend: random problems of every dtype, head dim, mask
// and layout. Memory that must not be read or written holds NaN.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/problem.h"

// O and LSE before the launch. PRIOR_SINK: O = 0, with an LSE.
enum prior { PRIOR_NOTHING, PRIOR_SINK, PRIOR_RESULT, PRIORS };

struct trial {
    struct problem problem;
    enum prior prior;
    bool wants_max;
    bool rising;         // logits change steadily with the index of the key
    int hiding;          // one of this many bias elements is -inf; 0: none
    double depth;        // with `rising`: is subtracted from all elements of K
    double max_admitted; // tolerance of max_logit; 0: that of the logits
};

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

static struct trial trial_draw(enum case_dtype dtype)
{
    struct trial t = {.problem = problem_draw(dtype),
                      .prior = (enum prior)harness_below(PRIORS),
                      .hiding = (int)ONE_OF(0, 10, 10, 10000),
                      .wants_max = harness_below(3) == 0};
    if (harness_below(5) == 0)
        t.problem.magnitude = 12;
    return t;
}

// A random problem without the features that only some kernels support: bias, softcap, max_logit,
// unaligned rows, negative scales. Rows of a head in K and V are multiples of 16 bytes.
static struct trial trial_draw_plain(enum case_dtype dtype)
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

static struct trial trial_of(enum case_dtype dtype, int32_t d_qk, int32_t d_v, int64_t q_len,
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

// Tolerance of LSE for the polynomials of a softcap (kernels/cuda/cap_series.h): that of a verdict
// for an LSE near 0. fp32 kernels do not use polynomials.
static double softcap_admitted(const struct problem *p)
{
    bool series = p->shape.softcap != 0 && p->shape.dtype != DTYPE_FP32;
    return series ? 0x1p-24 * (128 + 4 * p->shape.softcap) : 0;
}

// Runs the forward on the device twice. Expects the same bits both times, and the result of the CPU
// backend within tolerances: P is rounded once to the dtype before the product with V; logits are
// in fp32, and small scores with a softcap use a short polynomial; max_logit does not use it.
// Returns true if all is right.
static bool trial_check(const struct trial *trial)
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
    if (!good)
        trial_note(trial);
    results_free(&got);
    results_free(&again);
    tensors_each(&t, twin_destroy);
    return good;
}

// ---- tests --------------------------------------------------------------------------------------

static void drawn_problems(enum case_dtype dtype, int count)
{
    for (int i = harness_small() ? count * 9 / 10 : 0; i < count; i++) {
        struct trial t = trial_draw(dtype);
        if (!trial_check(&t))
            return;
    }
}

// Rows of other sequences and of padding are NaN and must not affect a result.
static void plain_problems(void)
{
    for (int i = harness_small() ? 290 : 0; i < 300; i++) {
        struct trial t = trial_draw_plain((enum case_dtype)(DTYPE_BF16 + i % 2));
        if (!trial_check(&t))
            return;
    }
}

// Sequences of random lengths, one slice each, with a row of NaN between them.
static struct trial trial_of_many(const int32_t width[2], int32_t heads, int64_t left,
                                  int64_t right)
{
    struct trial t = trial_of(DTYPE_BF16, width[0], width[1], 0, 0);
    struct problem *p = &t.problem;
    p->shape.heads = harness_small() ? 2 : heads;
    p->shape.kv_heads = p->shape.heads / 2;
    p->shape.group = 2;
    p->q_rows = p->kv_rows = 0;
    p->slice_count = harness_small() ? 2 : PROBLEM_SLICES_MAX;
    for (int s = 0; s < p->slice_count; s++) {
        int64_t q_len = harness_between(1, 700), kv_len = harness_between(1, 500);
        p->slices[s] = (struct slice){.q_row = p->q_rows,
                                      .q_len = q_len,
                                      .kv_row = p->kv_rows,
                                      .kv_len = kv_len,
                                      .offset = q_len - kv_len,
                                      .left = left,
                                      .right = right};
        p->q_rows += q_len + 1;
        p->kv_rows += kv_len + 1;
    }
    p->shape.q_rows = p->q_rows;
    return t;
}

static const int32_t many_widths[][2] = {{128, 128}, {64, 64}, {192, 128}, {256, 256}};

// More tiles than there are multiprocessors.
static void many_tiles(void)
{
    for (int i = 0; i < (harness_small() ? 1 : 8); i++) {
        struct trial t = trial_of_many(many_widths[i % 4], 16, i < 4 ? SLICE_UNBOUNDED : 200,
                                       i % 2 ? SLICE_UNBOUNDED : 0);
        if (!trial_check(&t))
            return;
    }
}

// many_tiles() with a bias, a softcap, or both. Rows of the bias are aligned to 16 bytes or not;
// with a window, a tile's part of the bias begins at any column. None, some or all blocks of the
// bias contain -inf. The cap is far above, above or among the scores.
static void many_tiles_with_features(void)
{
    static const int hiding[] = {0, 30000, 10};
    static const double caps[] = {30, 7, 1.5};
    for (int i = 0; i < (harness_small() ? 6 : 36); i++) {
        struct trial t = trial_of_many(many_widths[i / 3 % 4], 8, i < 12 ? SLICE_UNBOUNDED : 300,
                                       i % 2 ? SLICE_UNBOUNDED : 0);
        struct problem *p = &t.problem;
        t.wants_max = true;
        t.hiding = hiding[i / 12];
        if (i % 3 != 0)
            p->shape.softcap = caps[i / 6 % 3];
        if (i % 3 != 1) {
            p->shape.bias_row_step = 1;
            p->shape.bias_row_stride = i % 3 == 0 || i == 5 ? 504 : 503;
            p->shape.bias_head_stride = 701 * p->shape.bias_row_stride;
            p->bias_count = p->shape.heads * p->shape.bias_head_stride;
        }
        if (!trial_check(&t))
            return;
    }
}

// The short polynomial of a softcap may change P and LSE a little, but not the largest logit.
static void largest_logits_of_a_cap(void)
{
    static const double caps[] = {30, 11.5};
    for (int i = 0; i < (harness_small() ? 2 : 8); i++) {
        struct trial t = trial_of_many(many_widths[i / 2 % 4], 8, SLICE_UNBOUNDED, SLICE_UNBOUNDED);
        t.problem.shape.softcap = caps[i % 2];
        t.wants_max = true;
        t.max_admitted = 3e-6;
        if (!trial_check(&t))
            return;
    }
}

// Tiles of one length, a few more than there are multiprocessors. The work list cuts the last ones
// smaller.
static void nearly_empty_rounds(void)
{
    for (int i = 0; i < 6; i++) {
        const int32_t *width = many_widths[i % 3];
        struct trial t = trial_of(DTYPE_BF16, width[0], width[1], 700, 300);
        struct problem *p = &t.problem;
        p->shape.heads = p->shape.kv_heads = harness_small() ? 2 : 36;
        if (i >= 3) {
            p->shape.bias_row_step = 1;
            p->shape.bias_row_stride = 304;
            p->shape.bias_head_stride = 701 * p->shape.bias_row_stride;
            p->bias_count = p->shape.heads * p->shape.bias_head_stride;
        }
        if (!trial_check(&t))
            return;
    }
}

static void drawn_bf16(void)
{
    drawn_problems(DTYPE_BF16, 150);
}

static void drawn_fp16(void)
{
    drawn_problems(DTYPE_FP16, 100);
}

static void drawn_fp32(void)
{
    drawn_problems(DTYPE_FP32, 80);
}

// Every d_qk, aligned or not, with d_v = HEAD_DIM_MAX + 1 - d_qk and with d_v = d_qk.
static void every_width(void)
{
    for (int32_t d = 1; d <= HEAD_DIM_MAX; d += harness_small() ? 37 : 1) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + d % 3);
        struct trial t = trial_of(dtype, d, HEAD_DIM_MAX + 1 - d, 5, 70);
        struct trial square = trial_of(dtype, d, d, 70, 5);
        if (!trial_check(&t) || !trial_check(&square))
            return;
    }
}

// Lengths at and next to the edges of tiles, causal or not, for the tiles of every head dim.
static void edges(void)
{
    static const int32_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
    static const int64_t lengths[] = {1,   31,  32,  33,  63,  64,  65,  79,  80,  81,
                                      127, 128, 129, 159, 160, 161, 191, 192, 193, 385};
    int count = (int)(sizeof(lengths) / sizeof(*lengths));
    for (int i = 0; i < count * count; i += harness_small() ? 17 : 1) {
        const int32_t *width = widths[i % 4];
        struct trial t =
            trial_of(DTYPE_BF16, width[0], width[1], lengths[i / count], lengths[i % count]);
        if (i / 4 % 2 == 0)
            t.problem.slices[0].right = 0;
        if (i / 8 % 3 == 0)
            t.problem.slices[0].left = ONE_OF(0, 1, 63, 79, 80, 100);
        if (!trial_check(&t))
            return;
    }
}

// The maximum of every row grows with every key, by more or less than the threshold above which
// kernels rescale the accumulator.
static void rising_logits(void)
{
    for (int i = 0; i < 6; i++) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + i % 3);
        struct trial t = trial_of(dtype, 128, 128, 70, 700);
        t.rising = true;
        t.problem.magnitude = i < 3 ? 1 : 8;
        trial_check(&t);
    }
}

// All logits of a row are below 0, and rise or fall with the key. Some are so low that weights
// relative to 0 would vanish; some rise so steeply that weights relative to the smallest logit of a
// block would overflow.
static void logits_below_zero(void)
{
    static const int32_t widths[] = {64, 96, 128, 256};
    static const float slopes[] = {1, 40, -40, -120};
    for (int i = 0; i < 24; i++) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + i % 2);
        int32_t d = widths[i / 2 % 4];
        struct trial t = trial_of(dtype, d, d, 200, 700);
        t.rising = true;
        t.problem.magnitude = slopes[i / 6];
        t.depth = fmax(slopes[i / 6], 0) + 1 + i % 3 * 5;
        t.wants_max = i / 2 % 2 == 1;
        t.problem.shape.softcap = i % 5 == 4 ? 300 : 0;
        if (!trial_check(&t))
            return;
    }
}

// The weight of each key is small compared with their sum, and must not be lost.
static void many_keys(void)
{
    struct trial t = trial_of(DTYPE_BF16, 128, 128, 3, harness_small() ? 2000 : 1 << 17);
    trial_check(&t);
    t = trial_of(DTYPE_FP16, 64, 64, 3, harness_small() ? 2000 : 1 << 17);
    trial_check(&t);
}

// A softcap far above all logits must not change them.
static void large_caps(void)
{
    static const double caps[] = {100, 300, 1e3, 1e5, 1e6};
    for (int i = 0; i < 15; i++) {
        struct trial t = trial_of((enum case_dtype)(DTYPE_BF16 + i % 3), 64, 64, 70, 300);
        t.problem.shape.softcap = caps[i / 3];
        t.problem.magnitude = i % 2 ? 1 : 8;
        t.wants_max = true;
        if (!trial_check(&t))
            return;
    }
}

static void nothing_to_do(void)
{
    struct trial t = trial_of(DTYPE_BF16, 64, 64, 0, 10);
    trial_check(&t);
    t = trial_of(DTYPE_BF16, 64, 64, 10, 0);
    trial_check(&t);
    t.problem.slice_count = 0;
    trial_check(&t);
}

static void refusals(void)
{
    struct error error;
    struct trial t = trial_of(DTYPE_BF16, HEAD_DIM_MAX + 1, 64, 1, 1);
    struct attention_forward args = {.shape = t.problem.shape};
    EXPECT(backend_cuda.attention->forward(harness_cuda, &args, &error) == STATUS_INVALID_ARGUMENT,
           "d_qk");
    t = trial_of(DTYPE_BF16, 64, 64, 1, 1);
    args.shape = t.problem.shape;
    args.shape.kv_heads = 2;
    EXPECT(backend_cuda.attention->forward(harness_cuda, &args, &error) == STATUS_INVALID_ARGUMENT,
           "kv_heads");
}

int main(int argc, char **argv)
{
    static const struct harness_test tests[] = {
        {"drawn problems in bf16", drawn_bf16},
        {"drawn problems in fp16", drawn_fp16},
        {"drawn problems in fp32", drawn_fp32},
        {"plain problems", plain_problems},
        {"many tiles", many_tiles},
        {"many tiles with features", many_tiles_with_features},
        {"largest logits of a cap", largest_logits_of_a_cap},
        {"nearly empty rounds", nearly_empty_rounds},
        {"every width", every_width},
        {"edges of tiles", edges},
        {"rising logits", rising_logits},
        {"logits below zero", logits_below_zero},
        {"many keys", many_keys},
        {"large caps", large_caps},
        {"nothing to do", nothing_to_do},
        {"refusals", refusals}};
    return harness_run(tests, (int)(sizeof(tests) / sizeof(*tests)), argc, argv);
}
