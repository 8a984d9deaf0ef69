// SPDX-License-Identifier: Apache-2.0
// Backward on the device against the CPU backend: drawn problems of every type, width, mask, bias
// and layout, with NaN wherever neither may read.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"

#define SLICES_MAX 12
#define PAD_ROWS   2 // behind the last row of each side

struct problem {
    struct attention_shape shape;
    struct slice slices[SLICES_MAX];
    int32_t slice_count;
    int64_t q_rows, kv_rows, bias_count;
    int64_t skew; // bytes by which Q, K, V and dO miss alignment
    float magnitude;
    bool sinks;
};

struct tensors {
    struct twin q, k, v, d_out, bias, lse, d, dq, dk, dv, dbias;
};

// ---- problems ----

static int64_t one_of(const int64_t *list, int count)
{
    return list[harness_below(count)];
}
#define ONE_OF(...)                                                                                \
    one_of((const int64_t[]){__VA_ARGS__},                                                         \
           (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static void draw_shape(struct problem *p)
{
    struct attention_shape *s = &p->shape;
    s->dtype = (enum case_dtype)ONE_OF(DTYPE_BF16, DTYPE_BF16, DTYPE_FP16, DTYPE_FP16, DTYPE_FP32);
    s->group = (int32_t)ONE_OF(1, 1, 1, 2, 3, 4, 8);
    s->head_phase = (int32_t)(harness_below(3) == 0 ? harness_below(s->group) : 0);
    s->heads = (int32_t)harness_between(1, 6);
    s->kv_heads = (s->heads + s->head_phase - 1) / s->group + 1;
    s->d_qk = (int32_t)ONE_OF(8, 16, 40, 64, 64, 64, 72, 96, 128, 128, 128, 192, 192, 256, 0);
    s->d_v = (int32_t)(harness_below(3) != 0 ? s->d_qk : ONE_OF(8, 32, 64, 128, 128, 200, 256, 0));
    if (s->d_qk == 0)
        s->d_qk = (int32_t)harness_between(1, 256);
    if (s->d_v == 0)
        s->d_v = (int32_t)harness_between(1, 256);
    s->row_step = ONE_OF(1, 1, 1, 2, 3);
    s->scale = (harness_below(12) == 0 ? -1 : 1) / sqrt(s->d_qk);
    s->softcap = harness_below(4) == 0 ? (double)ONE_OF(1, 5, 50) : 0;
    s->deterministic = harness_below(2) == 0;
    p->skew = harness_below(8) == 0 ? dtype_bytes(s->dtype) : 0;
    p->magnitude = (float)ONE_OF(1, 1, 1, 3);
    p->sinks = harness_below(3) == 0;
}

static int64_t draw_length(void)
{
    int64_t most = harness_small() ? 150 : 500;
    int64_t length = ONE_OF(0, 1, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 256, 257);
    return harness_below(3) == 0 || length > most ? harness_between(0, most) : length;
}

static void draw_mask(struct slice *slice)
{
    slice->offset = harness_below(3) == 0 ? 0 : harness_between(-300, 300);
    slice->left = harness_below(2) == 0 ? SLICE_UNBOUNDED : ONE_OF(0, 1, 7, 64, 100, 200);
    slice->right = harness_below(2) == 0 ? SLICE_UNBOUNDED : ONE_OF(0, 0, 0, 1, 33, 128);
}

// Slices of one sequence, whose rows are `residue` modulo the step. They may overlap.
static void draw_slices(struct problem *p, int64_t residue)
{
    int64_t q_len = draw_length(), kv_len = draw_length(), step = p->shape.row_step;
    int count = (int)ONE_OF(1, 1, 2, 4);
    for (int i = 0; i < count && p->slice_count < SLICES_MAX; i++) {
        struct slice *slice = &p->slices[p->slice_count++];
        bool whole = harness_below(2) == 0;
        int64_t q_begin = whole ? 0 : harness_between(0, q_len);
        int64_t kv_begin = whole ? 0 : harness_between(0, kv_len);
        slice->q_row = residue + q_begin * step;
        slice->kv_row = residue + kv_begin * step;
        slice->q_len = whole ? q_len : harness_between(0, q_len - q_begin);
        slice->kv_len = whole ? kv_len : harness_between(0, kv_len - kv_begin);
        draw_mask(slice);
        int64_t q_end = slice->q_row + slice->q_len * step;
        int64_t kv_end = slice->kv_row + slice->kv_len * step;
        p->q_rows = q_end > p->q_rows ? q_end : p->q_rows;
        p->kv_rows = kv_end > p->kv_rows ? kv_end : p->kv_rows;
    }
}

static void draw_bias(struct problem *p)
{
    struct attention_shape *s = &p->shape;
    if (harness_below(3) != 0)
        return;
    int64_t rows = 0, columns = 0;
    s->bias_row_step = harness_below(2);
    for (int i = 0; i < p->slice_count; i++) {
        struct slice *slice = &p->slices[i];
        slice->bias_row = harness_below(5);
        slice->bias_column = harness_below(9);
        int64_t last = slice->bias_row + slice->q_len * s->bias_row_step + 1;
        rows = last > rows ? last : rows;
        last = slice->bias_column + slice->kv_len;
        columns = last > columns ? last : columns;
    }
    s->bias_row_stride = columns + harness_below(3);
    s->bias_head_stride = harness_below(2) * rows * s->bias_row_stride;
    p->bias_count = rows * s->bias_row_stride + (s->heads - 1) * s->bias_head_stride;
}

static void problem_draw(struct problem *p)
{
    *p = (struct problem){0};
    draw_shape(p);
    for (int64_t residue = 0; residue < p->shape.row_step; residue++)
        draw_slices(p, residue);
    p->q_rows += PAD_ROWS;
    p->kv_rows += PAD_ROWS;
    draw_bias(p);
    p->shape.q_rows = p->q_rows + harness_below(3);
}

static void problem_note(const struct problem *p)
{
    const struct attention_shape *s = &p->shape;
    harness_note("dtype %d heads %d/%d group %d phase %d d %d/%d step %lld scale %g cap %g bias "
                 "%lld (%lld %lld %lld) ordered %d skew %lld sinks %d magnitude %g",
                 (int)s->dtype, s->heads, s->kv_heads, s->group, s->head_phase, s->d_qk, s->d_v,
                 (long long)s->row_step, s->scale, s->softcap, (long long)p->bias_count,
                 (long long)s->bias_head_stride, (long long)s->bias_row_stride,
                 (long long)s->bias_row_step, s->deterministic, (long long)p->skew, p->sinks,
                 p->magnitude);
    for (int i = 0; i < p->slice_count; i++) {
        const struct slice *x = &p->slices[i];
        harness_note("  q %lld+%lld kv %lld+%lld offset %lld left %lld right %lld",
                     (long long)x->q_row, (long long)x->q_len, (long long)x->kv_row,
                     (long long)x->kv_len, (long long)x->offset,
                     x->left >= SLICE_UNBOUNDED ? -1 : (long long)x->left,
                     x->right >= SLICE_UNBOUNDED ? -1 : (long long)x->right);
    }
}

// ---- tensors ----

// The rows of some slice get numbers, the others keep NaN.
static void fill_rows(const struct problem *p, const struct twin *t, bool keys, int32_t heads,
                      int32_t d, float magnitude)
{
    int64_t width = (int64_t)heads * d;
    for (int i = 0; i < p->slice_count; i++) {
        const struct slice *x = &p->slices[i];
        int64_t row = keys ? x->kv_row : x->q_row, length = keys ? x->kv_len : x->q_len;
        for (int64_t r = 0; r < length; r++)
            for (int64_t c = 0; c < width; c++)
                dtype_store(p->shape.dtype, t->host, (row + r * p->shape.row_step) * width + c,
                            harness_uniform() * 1.7f * magnitude);
    }
    twin_push(t);
}

static void tensors_create(const struct problem *p, struct tensors *t)
{
    const struct attention_shape *s = &p->shape;
    size_t element = (size_t)dtype_bytes(s->dtype), skew = (size_t)p->skew;
    size_t q = (size_t)(p->q_rows * s->heads), kv = (size_t)(p->kv_rows * s->kv_heads);
    size_t d_qk = (size_t)s->d_qk, d_v = (size_t)s->d_v;
    size_t scalars = (size_t)(s->heads * s->q_rows);
    t->q = twin_create(q * d_qk * element, skew);
    t->d_out = twin_create(q * d_v * element, skew);
    t->k = twin_create(kv * d_qk * element, skew);
    t->v = twin_create(kv * d_v * element, skew);
    t->bias = twin_create((size_t)p->bias_count * element, skew);
    t->lse = twin_create(scalars * sizeof(float), 4);
    t->d = twin_create(scalars * sizeof(float), 4);
    t->dq = twin_create(q * d_qk * sizeof(float), 0);
    t->dk = twin_create(kv * d_qk * sizeof(float), 0);
    t->dv = twin_create(kv * d_v * sizeof(float), 0);
    t->dbias = twin_create((size_t)p->bias_count * sizeof(float), 4);
    fill_rows(p, &t->q, false, s->heads, s->d_qk, p->magnitude);
    fill_rows(p, &t->d_out, false, s->heads, s->d_v, 1);
    fill_rows(p, &t->k, true, s->kv_heads, s->d_qk, 1);
    fill_rows(p, &t->v, true, s->kv_heads, s->d_v, 1);
    twin_fill_dtype(&t->bias, s->dtype, 2);
    twin_push(&t->bias);
}

// The numbers that are added to.
static void tensors_begin(struct tensors *t)
{
    twin_fill_floats(&t->dq, 1);
    twin_fill_floats(&t->dk, 1);
    twin_fill_floats(&t->dv, 1);
    twin_fill_floats(&t->dbias, 1);
    twin_push(&t->dq);
    twin_push(&t->dk);
    twin_push(&t->dv);
    twin_push(&t->dbias);
}

static void tensors_destroy(struct tensors *t)
{
    struct twin *all[] = {&t->q, &t->k,  &t->v,  &t->d_out, &t->bias, &t->lse,
                          &t->d, &t->dq, &t->dk, &t->dv,    &t->dbias};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        twin_destroy(all[i]);
}

// LSE and D of the forward on the CPU; those of queries that are in no slice stay NaN. Some of the
// rows are then declared to see nothing.
static void tensors_forward(const struct problem *p, struct tensors *t)
{
    const struct attention_shape *s = &p->shape;
    struct error error;
    float *lse = (float *)t->lse.host, *d = (float *)t->d.host;
    float *o = calloc((size_t)(s->q_rows * s->heads * s->d_v), sizeof(float));
    for (int i = 0; i < p->slice_count; i++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t r = 0; r < p->slices[i].q_len; r++)
                lse[h * s->q_rows + p->slices[i].q_row + r * s->row_step] =
                    p->sinks ? (float)h : -INFINITY;
    struct attention_forward args = {.shape = *s,
                                     .q = t->q.host,
                                     .k = t->k.host,
                                     .v = t->v.host,
                                     .o = o,
                                     .lse = lse,
                                     .bias = p->bias_count > 0 ? t->bias.host : NULL,
                                     .slices = p->slices,
                                     .slice_count = p->slice_count};
    EXPECT(attention_cpu.forward(harness_cpu, &args, &error) == STATUS_OK, "%s", error.text);
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t r = 0; r < s->q_rows; r++) {
            int64_t scalar = h * s->q_rows + r;
            double sum = 0;
            for (int64_t c = 0; r < p->q_rows && c < s->d_v; c++)
                sum += o[(r * s->heads + h) * s->d_v + c] *
                       dtype_load(s->dtype, t->d_out.host, (r * s->heads + h) * s->d_v + c);
            if (lse[scalar] > -INFINITY)
                d[scalar] = (float)sum;
            if (harness_below(50) == 0)
                lse[scalar] = -INFINITY;
            if (lse[scalar] == -INFINITY && harness_below(2) == 0)
                d[scalar] = 0;
        }
    free(o);
    twin_push(&t->lse);
    twin_push(&t->d);
}

static struct attention_backward backward_args(const struct problem *p, const struct tensors *t,
                                               bool device)
{
#define PLACE(name) (void *)(device ? t->name.device : t->name.host)
    return (struct attention_backward){.shape = p->shape,
                                       .q = PLACE(q),
                                       .k = PLACE(k),
                                       .v = PLACE(v),
                                       .d_out = PLACE(d_out),
                                       .lse = PLACE(lse),
                                       .d = PLACE(d),
                                       .dq = PLACE(dq),
                                       .dk = PLACE(dk),
                                       .dv = PLACE(dv),
                                       .bias = p->bias_count > 0 ? PLACE(bias) : NULL,
                                       .dbias = p->bias_count > 0 ? PLACE(dbias) : NULL,
                                       .slices = p->slices,
                                       .slice_count = p->slice_count};
#undef PLACE
}

// ---- comparison ----

// A gradient smaller than this is a difference of larger numbers, and its errors are theirs.
#define GRADIENT_LEAST 0.05

// Of actual against expected. The gradient is what was added to `before`.
static double gradient_error(const float *before, const float *expected, const float *actual,
                             int64_t count)
{
    double difference = 0, size = 0, largest = 0, off = 0;
    for (int64_t i = 0; i < count; i++) {
        double e = (double)expected[i] - before[i], x = (double)actual[i] - expected[i];
        difference += x * x;
        size += e * e;
        largest = fmax(largest, fabs(e));
        off = !(fabs(x) <= off) ? fabs(x) : off; // keeps a NaN
    }
    if (count == 0)
        return 0;
    double rms =
        sqrt(difference / (double)count) / fmax(sqrt(size / (double)count), GRADIENT_LEAST);
    double worst = off / fmax(largest, 4 * GRADIENT_LEAST) / 4;
    return rms >= worst ? rms : worst;
}

static double tolerance(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? 8e-3 : dtype == DTYPE_FP16 ? 1.5e-3 : 2e-5;
}

struct compared {
    const char *name;
    struct twin *twin;
    double tolerance;
};

// Runs both and compares. Rounding to fp32 of what is added to small gradients is an error too.
static bool backward_agrees(const struct problem *p, struct tensors *t)
{
    struct error error;
    double wide = tolerance(p->shape.dtype);
    struct compared all[] = {{"dq", &t->dq, wide},
                             {"dk", &t->dk, wide},
                             {"dv", &t->dv, wide},
                             {"dbias", &t->dbias, 1e-4}};
    float *before[4];
    bool good = true;
    for (int i = 0; i < 4; i++) {
        before[i] = malloc(all[i].twin->bytes + 1);
        memcpy(before[i], all[i].twin->host, all[i].twin->bytes);
    }
    struct attention_backward cpu = backward_args(p, t, false), cuda = backward_args(p, t, true);
    EXPECT(attention_cpu.backward(harness_cpu, &cpu, &error) == STATUS_OK, "%s", error.text);
    EXPECT(attention_cuda.backward(harness_cuda, &cuda, &error) == STATUS_OK, "%s", error.text);
    harness_finish();
    for (int i = 0; i < 4; i++) {
        struct twin *twin = all[i].twin;
        float *actual = twin_fetch(twin);
        double off = gradient_error(before[i], (const float *)twin->host, actual,
                                    (int64_t)(twin->bytes / sizeof(float)));
        EXPECT(off <= all[i].tolerance, "%s is off by %g", all[i].name, off);
        good = good && off <= all[i].tolerance;
        free(actual);
        free(before[i]);
    }
    return good;
}

static void problem_run(const struct problem *p)
{
    struct tensors t;
    tensors_create(p, &t);
    tensors_begin(&t);
    tensors_forward(p, &t);
    if (!backward_agrees(p, &t))
        problem_note(p);
    tensors_destroy(&t);
}

// ---- tests ----

static void drawn_problems(void)
{
    int count = harness_small() ? 25 : 400;
    for (int i = 0; i < count; i++) {
        struct problem p;
        problem_draw(&p);
        problem_run(&p);
    }
}

// A sequence against itself, in one slice.
static struct problem problem_square(int32_t heads, int32_t group, int64_t length, int32_t d,
                                     bool causal)
{
    struct problem p = {.shape = {.dtype = DTYPE_BF16,
                                  .heads = heads,
                                  .kv_heads = heads / group,
                                  .group = group,
                                  .d_qk = d,
                                  .d_v = d,
                                  .q_rows = length,
                                  .row_step = 1,
                                  .scale = 1 / sqrt(d)},
                        .slice_count = 1,
                        .q_rows = length,
                        .kv_rows = length,
                        .magnitude = 1};
    p.slices[0] = (struct slice){.q_len = length,
                                 .kv_len = length,
                                 .left = SLICE_UNBOUNDED,
                                 .right = causal ? 0 : SLICE_UNBOUNDED};
    return p;
}

static void long_sequences(void)
{
    static const int32_t widths[] = {64, 128, 192, 256};
    for (int i = 0; i < 8; i++) {
        struct problem p =
            problem_square(2, 1 + i % 2, harness_small() ? 300 : 1300, widths[i / 2], i % 4 < 2);
        p.shape.deterministic = i % 3 == 0;
        problem_run(&p);
    }
}

// Starts from the same numbers and returns the gradients, one behind the other.
static char *gradients_of(const struct problem *p, struct tensors *t, size_t *bytes)
{
    struct error error;
    struct twin *all[] = {&t->dq, &t->dk, &t->dv, &t->dbias};
    char *gradients;
    *bytes = 0;
    for (int i = 0; i < 4; i++) {
        memset(all[i]->host, 0, all[i]->bytes);
        twin_push(all[i]);
        *bytes += all[i]->bytes;
    }
    struct attention_backward args = backward_args(p, t, true);
    EXPECT(attention_cuda.backward(harness_cuda, &args, &error) == STATUS_OK, "%s", error.text);
    harness_finish();
    gradients = malloc(*bytes);
    char *at = gradients;
    for (int i = 0; i < 4; i++) {
        void *gradient = twin_fetch(all[i]);
        memcpy(at, gradient, all[i]->bytes);
        free(gradient);
        at += all[i]->bytes;
    }
    return gradients;
}

static void expect_repeats(const struct problem *p, int repeats)
{
    struct tensors t;
    tensors_create(p, &t);
    tensors_begin(&t);
    float *lse = (float *)t.lse.host, *d = (float *)t.d.host;
    for (int64_t i = 0; i < p->shape.heads * p->shape.q_rows; i++) {
        lse[i] = 4 + harness_uniform();
        d[i] = harness_uniform();
    }
    twin_push(&t.lse);
    twin_push(&t.d);
    size_t bytes;
    char *first = gradients_of(p, &t, &bytes);
    int different = 0;
    for (int i = 0; i < repeats; i++) {
        char *again = gradients_of(p, &t, &bytes);
        different += memcmp(first, again, bytes) != 0;
        free(again);
    }
    EXPECT(different == 0, "%d of %d repeats differ", different, repeats);
    if (different > 0)
        problem_note(p);
    free(first);
    tensors_destroy(&t);
}

static void repeats_are_the_same_bits(void)
{
    int count = harness_small() ? 4 : 60;
    for (int i = 0; i < count; i++) {
        struct problem p;
        problem_draw(&p);
        p.shape.deterministic = true;
        expect_repeats(&p, harness_small() ? 1 : 3);
    }
    for (int i = 0; i < 4; i++) {
        struct problem p = problem_square(harness_small() ? 2 : 8, 1 + i / 2,
                                          harness_small() ? 200 : 3000, i % 2 ? 64 : 128, i < 2);
        p.shape.deterministic = true;
        expect_repeats(&p, harness_small() ? 1 : 4);
    }
}

static const struct harness_test tests[] = {
    {"drawn_problems", drawn_problems},
    {"long_sequences", long_sequences},
    {"repeats_are_the_same_bits", repeats_are_the_same_bits},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
