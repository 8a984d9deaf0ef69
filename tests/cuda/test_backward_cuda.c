// SPDX-License-Identifier: Apache-2.0
// Compares the CUDA backward with the CPU backend: random problems of every dtype, head dim, mask,
// bias and layout. Memory that must not be read holds NaN.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/problem.h"

struct trial {
    struct problem problem;
    bool sinks;
};

struct tensors {
    struct twin q, k, v, d_out, bias, lse, d, dq, dk, dv, dbias;
};

// ---- trials ----

static struct trial trial_draw(void)
{
    enum case_dtype dtype =
        (enum case_dtype)ONE_OF(DTYPE_BF16, DTYPE_BF16, DTYPE_FP16, DTYPE_FP16, DTYPE_FP32);
    struct trial trial = {.problem = problem_draw(dtype), .sinks = harness_below(3) == 0};
    trial.problem.shape.deterministic = harness_below(2) == 0;
    return trial;
}

static void trial_note(const struct trial *trial)
{
    harness_note("sinks %d", trial->sinks);
    problem_note(&trial->problem);
}

// ---- tensors ----

// Fills the rows that belong to a slice with random numbers; the other rows stay NaN.
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
    size_t element = (size_t)dtype_bytes(s->dtype), skew = p->skew;
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
    t->dbias = twin_create((size_t)p->bias_count * sizeof(float), (size_t)ONE_OF(0, 0, 4, 8));
    fill_rows(p, &t->q, false, s->heads, s->d_qk, p->magnitude);
    fill_rows(p, &t->d_out, false, s->heads, s->d_v, 1);
    fill_rows(p, &t->k, true, s->kv_heads, s->d_qk, 1);
    fill_rows(p, &t->v, true, s->kv_heads, s->d_v, 1);
    twin_fill_dtype(&t->bias, s->dtype, 2);
    twin_push(&t->bias);
}

// Sets random initial gradients, to which the backward adds.
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

// Computes LSE and delta (D) by a forward of the CPU backend; both stay NaN for queries in no
// slice. Then sets the LSE of about one row in 50 to -inf, as for a query without visible keys.
static void tensors_forward(const struct trial *trial, struct tensors *t)
{
    const struct problem *p = &trial->problem;
    const struct attention_shape *s = &p->shape;
    struct error error;
    float *lse = (float *)(void *)t->lse.host, *d = (float *)(void *)t->d.host;
    float *o = calloc((size_t)(s->q_rows * s->heads * s->d_v), sizeof(float));
    for (int i = 0; i < p->slice_count; i++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t r = 0; r < p->slices[i].q_len; r++)
                lse[h * s->q_rows + p->slices[i].q_row + r * s->row_step] =
                    trial->sinks ? (float)h : -INFINITY;
    struct attention_forward args = {.shape = *s,
                                     .q = t->q.host,
                                     .k = t->k.host,
                                     .v = t->v.host,
                                     .o = o,
                                     .lse = lse,
                                     .bias = p->bias_count > 0 ? t->bias.host : NULL,
                                     .slices = p->slices,
                                     .slice_count = p->slice_count};
    EXPECT(backend_cpu.attention->forward(harness_cpu, &args, &error) == STATUS_OK, "%s",
           error.text);
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

// Lower bound of the scale of relative errors. Smaller gradients are differences of larger numbers
// and have the absolute errors of these.
#define GRADIENT_LEAST 0.05

// The lower bound for results without rounding to 16 bits (fp32 problems, dbias): dP and delta are
// sums over d_v, and they cancel completely if a query sees a single key.
static double gradient_least_exact(const struct problem *p)
{
    return GRADIENT_LEAST * p->magnitude * fmax(1, sqrt(p->shape.d_v) / 4);
}

// The lower bound for dK in fp32. dK is a sum over the queries of all heads of a group; the errors
// of the terms add up as a random walk.
static double dk_least_exact(const struct problem *p)
{
    return gradient_least_exact(p) * fmax(1, sqrt((double)p->q_rows * p->shape.group) / 8);
}

// The lower bound for dbias. If heads or queries share an element, the errors of their terms add up
// as a random walk.
static double dbias_least(const struct problem *p)
{
    const struct attention_shape *s = &p->shape;
    double terms =
        (s->bias_head_stride == 0 ? s->heads : 1) * (s->bias_row_step == 0 ? (double)p->q_rows : 1);
    return gradient_least_exact(p) * fmax(1, sqrt(terms) / 8);
}

// Returns the larger of the RMS error and a quarter of the maximum error of `actual`, relative to
// the RMS and to the maximum of the gradient that was added to `before`. The RMS counts as at least
// `least`, the maximum as at least 4 * `least`.
static double gradient_error(const float *before, const float *expected, const float *actual,
                             int64_t count, double least)
{
    double difference = 0, size = 0, largest = 0, off = 0;
    for (int64_t i = 0; i < count; i++) {
        double e = (double)expected[i] - before[i], x = (double)actual[i] - expected[i];
        difference += x * x;
        size += e * e;
        largest = fmax(largest, fabs(e));
        off = fmax(off, fabs(x)); // ignores NaN, which makes `difference` NaN
    }
    if (count == 0)
        return 0;
    double rms = sqrt(difference / (double)count) / fmax(sqrt(size / (double)count), least);
    double worst = off / fmax(largest, 4 * least) / 4;
    return rms <= worst ? worst : rms; // a NaN in rms is returned
}

static double tolerance(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? 8e-3 : dtype == DTYPE_FP16 ? 1.5e-3 : 5e-5;
}

struct compared {
    const char *name;
    struct twin *twin;
    double tolerance, least;
};

// Runs both backends on the same initial gradients and returns true if the results agree. Adding to
// fp32 gradients rounds, too.
static bool backward_agrees(const struct problem *p, struct tensors *t)
{
    struct error error;
    double wide = tolerance(p->shape.dtype), exact = gradient_least_exact(p);
    bool fp32 = p->shape.dtype == DTYPE_FP32;
    double least = fp32 ? exact : GRADIENT_LEAST;
    struct compared all[] = {{"dq", &t->dq, wide, least},
                             {"dk", &t->dk, wide, fp32 ? dk_least_exact(p) : least},
                             {"dv", &t->dv, wide, least},
                             {"dbias", &t->dbias, 1e-4, dbias_least(p)}};
    float *before[4];
    bool good = true;
    for (int i = 0; i < 4; i++) {
        before[i] = malloc(all[i].twin->bytes + 1);
        memcpy(before[i], all[i].twin->host, all[i].twin->bytes);
    }
    struct attention_backward cpu = backward_args(p, t, false), cuda = backward_args(p, t, true);
    EXPECT(backend_cpu.attention->backward(harness_cpu, &cpu, &error) == STATUS_OK, "%s",
           error.text);
    EXPECT(backend_cuda.attention->backward(harness_cuda, &cuda, &error) == STATUS_OK, "%s",
           error.text);
    harness_finish();
    for (int i = 0; i < 4; i++) {
        struct twin *twin = all[i].twin;
        float *actual = twin_fetch(twin);
        double off = gradient_error(before[i], (const float *)(const void *)twin->host, actual,
                                    (int64_t)(twin->bytes / sizeof(float)), all[i].least);
        EXPECT(off <= all[i].tolerance, "%s is off by %g", all[i].name, off);
        good = good && off <= all[i].tolerance;
        free(actual);
        free(before[i]);
    }
    return good;
}

static void trial_run(const struct trial *trial)
{
    const struct problem *p = &trial->problem;
    struct tensors t;
    tensors_create(p, &t);
    tensors_begin(&t);
    if (p->shape.dbias_once) {
        memset(t.dbias.host, 0, t.dbias.bytes);
        twin_push(&t.dbias);
    }
    tensors_forward(trial, &t);
    if (!backward_agrees(p, &t))
        trial_note(trial);
    tensors_destroy(&t);
}

// ---- tests ----

static void drawn_problems(void)
{
    int count = harness_small() ? 25 : 400;
    for (int i = 0; i < count; i++) {
        struct trial trial = trial_draw();
        trial_run(&trial);
    }
}

// One bf16 sequence of `length` queries and keys, in one slice.
static struct problem problem_square(int32_t heads, int32_t group, int64_t length, int32_t d,
                                     bool causal)
{
    struct problem p = problem_rectangle(DTYPE_BF16, d, d, length, length);
    p.shape.heads = heads;
    p.shape.kv_heads = heads / group;
    p.shape.group = group;
    p.slices[0].right = causal ? 0 : SLICE_UNBOUNDED;
    return p;
}

// Two sequences of q_len queries and kv_len keys each. All rows outside them are NaN: GAP_ROWS
// before, between and after the sequences, and the rows that a row step skips.
#define GAP_ROWS 3
static struct problem problem_gaps(enum case_dtype dtype, int32_t d, int64_t q_len, int64_t kv_len)
{
    struct problem p = problem_rectangle(dtype, d, d, q_len, kv_len);
    int64_t step = p.shape.row_step = harness_between(1, 3);
    p.shape.group = (int32_t)harness_between(1, 3);
    p.shape.head_phase = (int32_t)harness_below(p.shape.group);
    p.shape.heads = (int32_t)harness_between(1, 4);
    p.shape.kv_heads = (p.shape.heads + p.shape.head_phase - 1) / p.shape.group + 1;
    p.shape.deterministic = harness_below(2) == 0;
    p.slice_count = 2;
    for (int i = 0; i < 2; i++)
        p.slices[i] = (struct slice){
            .q_row = harness_below(step) + (GAP_ROWS + i * (q_len + GAP_ROWS)) * step,
            .q_len = q_len,
            .kv_row = harness_below(step) + (GAP_ROWS + i * (kv_len + GAP_ROWS)) * step,
            .kv_len = kv_len,
            .offset = harness_between(-20, 20),
            .left = ONE_OF(0, 40, 100, SLICE_UNBOUNDED),
            .right = ONE_OF(0, 40, 100, SLICE_UNBOUNDED)};
    p.q_rows = (2 * q_len + 3 * GAP_ROWS) * step;
    p.kv_rows = (2 * kv_len + 3 * GAP_ROWS) * step;
    p.shape.q_rows = p.q_rows;
    return p;
}

// Lengths at and next to multiples of block and tile sizes.
static void lengths_around_tiles(void)
{
    static const int64_t lengths[] = {0,   1,   15,  63,  64,  65,  79,  80,  81, 127,
                                      128, 129, 159, 160, 161, 191, 192, 193, 257};
    int count = (int)(sizeof(lengths) / sizeof(lengths[0])), step = harness_small() ? 7 : 2;
    for (int q = 0; q < count; q++)
        for (int kv = (int)harness_below(step); kv < count; kv += step) {
            enum case_dtype dtype = harness_below(3) == 0 ? DTYPE_FP16 : DTYPE_BF16;
            struct trial trial = {.problem = problem_gaps(dtype, (int32_t)ONE_OF(64, 96, 128, 128),
                                                          lengths[q], lengths[kv])};
            trial_run(&trial);
        }
}

static void long_sequences(void)
{
    static const int32_t widths[] = {64, 128, 192, 256};
    for (int i = 0; i < 8; i++) {
        struct trial trial = {.problem = problem_square(2, 1 + i % 2, harness_small() ? 300 : 1300,
                                                        widths[i / 2], i % 4 < 2)};
        trial.problem.shape.deterministic = i % 3 == 0;
        trial_run(&trial);
    }
}

// long_sequences() with a bias (i < 10) or a softcap. The bias is per head, or one row for all
// heads and queries; its rows, and the slice's first column, are aligned to 16 bytes or not. Many,
// some or few scores reach the cap.
static void long_sequences_with_features(void)
{
    static const int32_t widths[] = {64, 96, 128, 192, 256};
    static const double caps[] = {1, 5, 50};
    for (int i = 0; i < (harness_small() ? 5 : 25); i++) {
        int64_t length = harness_small() ? 300 : 1000;
        struct trial trial = {.problem =
                                  problem_square(2, 1 + i % 2, length, widths[i % 5], i % 4 < 2)};
        struct problem *p = &trial.problem;
        if (i < 10) {
            p->shape.bias_row_step = i != 7;
            p->shape.bias_row_stride = length + (i < 5 ? 8 : 3);
            p->shape.bias_head_stride = i == 7 ? 0 : length * p->shape.bias_row_stride;
            p->bias_count = 2 * length * p->shape.bias_row_stride;
            p->slices[0].bias_column = i == 1 || i == 2 ? 3 : 0;
        } else {
            p->shape.softcap = caps[(i - 10) / 5];
            p->shape.deterministic = i % 3 == 0;
        }
        trial_run(&trial);
    }
}

// A problem with dbias_once: the bias has one element for each query and key of each head. Two
// slices split the keys of one sequence.
static struct problem problem_once(void)
{
    int64_t most = harness_small() ? 200 : 700, q_len = harness_between(1, most);
    int64_t kv_len = harness_between(1, most), split = harness_below(kv_len + 1);
    int32_t d = (int32_t)ONE_OF(64, 96, 128, 128, 192, 256);
    struct problem p =
        problem_rectangle(harness_below(3) == 0 ? DTYPE_FP16 : DTYPE_BF16, d, d, q_len, kv_len);
    struct attention_shape *s = &p.shape;
    s->group = (int32_t)harness_between(1, 2);
    s->heads = s->group * (int32_t)harness_between(1, 3);
    s->kv_heads = s->heads / s->group;
    s->softcap = harness_below(6) == 0 ? 5 : 0;
    s->deterministic = harness_below(2) == 0;
    s->dbias_once = true;
    s->bias_row_step = 1;
    s->bias_row_stride = (kv_len + 7) / 8 * 8 + ONE_OF(0, 0, 8, 3);
    s->bias_head_stride = (q_len + harness_below(3)) * s->bias_row_stride;
    p.bias_count = s->heads * s->bias_head_stride;
    p.slices[0].left = ONE_OF(60, 300, SLICE_UNBOUNDED, SLICE_UNBOUNDED);
    p.slices[0].right = ONE_OF(0, 0, 30, 200, SLICE_UNBOUNDED);
    p.slices[1] = p.slices[0];
    p.slices[0].kv_len = split;
    p.slices[1].kv_row = p.slices[1].bias_column = p.slices[1].offset = split;
    p.slices[1].kv_len = kv_len - split;
    p.slice_count = 2;
    return p;
}

static void gradients_of_a_bias_written_once(void)
{
    for (int i = 0; i < (harness_small() ? 20 : 150); i++) {
        struct trial trial = {.problem = problem_once()};
        trial_run(&trial);
    }
}

static struct prepared prepared_backward(const struct problem *p, const struct tensors *t)
{
    struct attention_backward args = backward_args(p, t, true);
    uintptr_t all = (uintptr_t)args.q | (uintptr_t)args.k | (uintptr_t)args.v |
                    (uintptr_t)args.d_out | (uintptr_t)args.dq | (uintptr_t)args.dk |
                    (uintptr_t)args.dv;
    const struct attention_op op = {.shape = args.shape,
                                    .backward = true,
                                    .bias = args.bias,
                                    .dbias = args.dbias,
                                    .aligned = all % 16 == 0,
                                    .slices = args.slices,
                                    .slice_count = args.slice_count};
    struct prepared x = prepared_create(&op);
    EXPECT(x.needs.zero_bytes == 0, "%zu zeros", x.needs.zero_bytes);
    return x;
}

// Runs a backward on gradients of zero. Returns dq, dk, dv and dbias, concatenated, to be freed;
// *bytes is their total size. Launches the prepared operation `x`; NULL: prepares and launches in
// one call.
static char *gradients_of(const struct problem *p, struct tensors *t, const struct prepared *x,
                          size_t *bytes)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
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
    enum status status =
        x ? kernels->launch_backward(harness_cuda, x->work, &args, x->scratch.device, &error)
          : kernels->backward(harness_cuda, &args, &error);
    EXPECT(status == STATUS_OK, "%s", error.text);
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
    float *lse = (float *)(void *)t.lse.host, *d = (float *)(void *)t.d.host;
    for (int64_t i = 0; i < p->shape.heads * p->shape.q_rows; i++) {
        lse[i] = 4 + harness_uniform();
        d[i] = harness_uniform();
    }
    twin_push(&t.lse);
    twin_push(&t.d);
    size_t bytes;
    char *first = gradients_of(p, &t, NULL, &bytes);
    struct prepared prepared = prepared_backward(p, &t);
    int different = 0;
    for (int i = 0; i < repeats; i++) {
        char *again = gradients_of(p, &t, i % 2 ? NULL : &prepared, &bytes);
        different += memcmp(first, again, bytes) != 0;
        free(again);
    }
    EXPECT(different == 0, "%d of %d repeats differ", different, repeats);
    if (different > 0)
        problem_note(p);
    free(first);
    prepared_destroy(&prepared);
    tensors_destroy(&t);
}

static void repeats_are_the_same_bits(void)
{
    int count = harness_small() ? 4 : 60;
    for (int i = 0; i < count; i++) {
        struct problem p = trial_draw().problem;
        p.shape.deterministic = true;
        expect_repeats(&p, harness_small() ? 1 : 3);
    }
    for (int i = 0; i < count; i++) {
        struct problem p = problem_gaps(DTYPE_BF16, i % 2 ? 64 : 128, harness_between(1, 700),
                                        harness_between(1, 700));
        p.shape.deterministic = true;
        expect_repeats(&p, harness_small() ? 1 : 3);
    }
    for (int i = 0; i < count / 2; i++) {
        struct problem p = problem_once();
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
    {"lengths_around_tiles", lengths_around_tiles},
    {"long_sequences", long_sequences},
    {"long_sequences_with_features", long_sequences_with_features},
    {"gradients_of_a_bias_written_once", gradients_of_a_bias_written_once},
    {"repeats_are_the_same_bits", repeats_are_the_same_bits},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
