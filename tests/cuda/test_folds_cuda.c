// SPDX-License-Identifier: Apache-2.0
// Folds on the device: a forward with folds must give the results of separate fills, forward and
// conversion; convert_sum those of additions and a conversion. Memory that has no value before the
// launch is NaN.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/problem.h"

struct trial {
    struct problem problem;
    struct attention_fold fold; // `out`: only whether it is NULL matters
    bool dead;                  // a bias of -inf hides all keys from some queries
    bool infinite;              // the row of one key in V is infinite
    bool max;                   // max_logit is wanted
};

struct tensors {
    struct twin q, k, v, bias, o, lse, out, max;
};

struct results {
    float *o, *lse, *max;
    char *out;
};

static int64_t width(const struct trial *t)
{
    return (int64_t)t->problem.shape.heads * t->problem.shape.d_v;
}

// ---- tensors ------------------------------------------------------------------------------------

static void fill_bias(const struct trial *t, const struct twin *bias)
{
    const struct problem *p = &t->problem;
    twin_fill_dtype(bias, p->shape.dtype, 1);
    for (int64_t i = 0; i < p->bias_count && t->dead; i++)
        if (i / p->shape.bias_row_stride % 7 == 3)
            dtype_store(p->shape.dtype, bias->host, i, -INFINITY);
}

static struct tensors tensors_create(const struct trial *t)
{
    const struct problem *p = &t->problem;
    const struct attention_shape *s = &p->shape;
    size_t element = (size_t)dtype_bytes(s->dtype), d_qk = (size_t)s->d_qk, d_v = (size_t)s->d_v;
    size_t q = (size_t)(s->q_rows * s->heads), kv = (size_t)(p->kv_rows * s->kv_heads);
    struct tensors x = {.q = twin_create(q * d_qk * element, 0),
                        .k = twin_create(kv * d_qk * element, 0),
                        .v = twin_create(kv * d_v * element, 0),
                        .bias = twin_create((size_t)p->bias_count * element, 0),
                        .o = twin_create(q * d_v * sizeof(float), 0),
                        .lse = twin_create(q * sizeof(float), 0),
                        .out = twin_create(q * d_v * element, 0),
                        .max = twin_create((size_t)s->heads * sizeof(float), 0)};
    twin_fill_dtype(&x.q, s->dtype, 3 * p->magnitude);
    twin_fill_dtype(&x.k, s->dtype, 2);
    twin_fill_dtype(&x.v, s->dtype, 2);
    int64_t values = (int64_t)s->kv_heads * s->d_v,
            key = t->infinite ? harness_below(p->kv_rows) : 0;
    for (int64_t i = 0; i < values && t->infinite; i++)
        dtype_store(s->dtype, x.v.host, key * values + i, INFINITY);
    fill_bias(t, &x.bias);
    return x;
}

static void tensors_destroy(struct tensors *x)
{
    struct twin *all[] = {&x->q, &x->k, &x->v, &x->bias, &x->o, &x->lse, &x->out, &x->max};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        twin_destroy(all[i]);
}

static void push_all(const struct tensors *x)
{
    const struct twin *all[] = {&x->q, &x->k, &x->v, &x->bias, &x->o, &x->lse, &x->out, &x->max};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        twin_push(all[i]);
}

// Sets O and LSE before a launch. Where the trial's fold begins them, they are NaN for a launch
// with folds; for one without, O is 0 and LSE is lse_begin. Else they are random, the same in every
// call.
static void prior_set(const struct trial *t, struct tensors *x, bool folded)
{
    const struct attention_fold *fold = &t->fold;
    const struct attention_shape *s = &t->problem.shape;
    float *o = (float *)(void *)x->o.host, *lse = (float *)(void *)x->lse.host;
    for (int32_t i = 0; i < s->heads; i++)
        ((float *)(void *)x->max.host)[i] = -INFINITY;
    srand48(1);
    for (int64_t i = 0; i < s->q_rows * s->heads; i++) {
        int64_t row = i / s->heads, head = i % s->heads;
        float prior = drand48() < 0.2 ? -INFINITY : (float)drand48();
        float before = fold->lse_begins ? fold->lse_begin : prior;
        lse[head * s->q_rows + row] = fold->lse_begins && folded ? NAN : before;
        for (int32_t d = 0; d < s->d_v; d++) {
            float some = (float)drand48();
            o[i * s->d_v + d] = fold->begins && folded                ? NAN
                                : fold->begins || before == -INFINITY ? 0
                                                                      : some;
        }
    }
    push_all(x);
}

// ---- launches -----------------------------------------------------------------------------------

static struct attention_forward args_of(const struct trial *t, const struct tensors *x, bool folded)
{
    const struct problem *p = &t->problem;
    struct attention_forward args = {.shape = p->shape,
                                     .q = x->q.device,
                                     .k = x->k.device,
                                     .v = x->v.device,
                                     .o = (float *)(void *)x->o.device,
                                     .lse = (float *)(void *)x->lse.device,
                                     .bias = p->bias_count > 0 ? x->bias.device : NULL,
                                     .max_logit = t->max ? (float *)(void *)x->max.device : NULL,
                                     .slices = p->slices,
                                     .slice_count = p->slice_count};
    if (folded) {
        args.fold = t->fold;
        args.fold.out = t->fold.out ? x->out.device : NULL;
    }
    return args;
}

// Launches a forward, with the trial's folds if `folded`. Returns true if the operation can fold;
// if not, nothing is launched.
static bool launch(const struct trial *t, struct tensors *x, bool folded)
{
    struct attention_forward args = args_of(t, x, folded);
    const struct attention_op op = {.shape = args.shape,
                                    .bias = args.bias,
                                    .max_logit = args.max_logit,
                                    .aligned = true,
                                    .slices = args.slices,
                                    .slice_count = args.slice_count};
    struct prepared prepared = prepared_create(&op);
    struct error error;
    prior_set(t, x, folded);
    if (prepared.needs.folds)
        EXPECT(backend_cuda.attention->launch_forward(harness_cuda, prepared.work, &args, NULL,
                                                      &error) == STATUS_OK,
               "%s", error.text);
    prepared_destroy(&prepared);
    return prepared.needs.folds;
}

static struct results fetch(const struct tensors *x)
{
    return (struct results){.o = twin_fetch(&x->o),
                            .lse = twin_fetch(&x->lse),
                            .max = twin_fetch(&x->max),
                            .out = twin_fetch(&x->out)};
}

static void results_free(struct results *r)
{
    free(r->o);
    free(r->lse);
    free(r->max);
    free(r->out);
}

// ---- comparison ---------------------------------------------------------------------------------

enum { ROW_OUTSIDE, ROW_BLIND, ROW_SEEING };

// Class of each row of queries by the slices alone: in no slice, in slices but without a visible
// key, or with a visible key.
static char *rows_classify(const struct problem *p)
{
    char *rows = calloc((size_t)p->shape.q_rows + 1, 1);
    for (int n = 0; n < p->slice_count; n++) {
        const struct slice *s = &p->slices[n];
        int64_t begin, end;
        slice_seeing(s, &begin, &end);
        for (int64_t i = 0; i < s->q_len; i++) {
            char *row = &rows[s->q_row + i * p->shape.row_step];
            char class = begin <= i && i < end ? ROW_SEEING : ROW_BLIND;
            *row = class > *row ? class : *row;
        }
    }
    return rows;
}

static bool same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

// True if all elements have the same bits or are NaN in both arrays.
static bool numbers_same(enum case_dtype dtype, const void *a, const void *b, int64_t count)
{
    size_t bytes = (size_t)dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++)
        if (!same((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes,
                  bytes) &&
            !(isnan(dtype_load(dtype, a, i)) && isnan(dtype_load(dtype, b, i))))
            return false;
    return true;
}

// True if a row of O and of `out` is right after a launch with folds. x->o.host and x->out.host
// have the row before this launch, for rows that the launch must not or need not write.
static bool row_good(const struct trial *t, const struct tensors *x, const struct results *wanted,
                     const struct results *got, int64_t row, int class)
{
    enum case_dtype dtype = t->problem.shape.dtype;
    size_t floats = (size_t)width(t) * sizeof(float);
    size_t bytes = (size_t)width(t) * (size_t)dtype_bytes(dtype);
    const float *o = got->o + row * width(t), *from = wanted->o + row * width(t);
    const char *out = got->out + (size_t)row * bytes;
    char *rounded = calloc(1, bytes + 1);
    for (int64_t i = 0; i < width(t); i++)
        dtype_store(dtype, rounded, i, from[i]);
    bool o_left = same(o, x->o.host + (size_t)row * floats, floats);
    bool out_left = same(out, x->out.host + (size_t)row * bytes, bytes);
    bool o_right = numbers_same(DTYPE_FP32, o, from, width(t));
    bool out_right = numbers_same(dtype, out, rounded, width(t));
    free(rounded);
    if (class == ROW_OUTSIDE)
        return o_left && out_left;
    if (class == ROW_BLIND)
        return (o_right || o_left) && (out_right || out_left);
    return (o_right || t->fold.out_only) && (t->fold.out ? out_right : out_left);
}

static bool lse_good(const struct trial *t, const struct tensors *x, const struct results *wanted,
                     const struct results *got, int64_t row, int class)
{
    const float *before = (const float *)(const void *)x->lse.host;
    for (int64_t h = 0; h < t->problem.shape.heads; h++) {
        int64_t at = h * t->problem.shape.q_rows + row;
        bool right = same(&got->lse[at], &wanted->lse[at], sizeof(float));
        bool left = same(&got->lse[at], &before[at], sizeof(float));
        if (!(class == ROW_OUTSIDE ? left : right || (class == ROW_BLIND && left)))
            return false;
    }
    return true;
}

static void trial_note(const struct trial *t)
{
    const struct attention_fold *fold = &t->fold;
    harness_note("begins %d lse_begins %d (%g) out %d out_only %d dead %d infinite %d max %d",
                 fold->begins, fold->lse_begins, (double)fold->lse_begin, fold->out != NULL,
                 fold->out_only, t->dead, t->infinite, t->max);
    problem_note(&t->problem);
}

// Compares a launch with folds to one without; *good becomes false if they differ. Returns true if
// the operation can fold.
static bool trial_check(const struct trial *t, bool *good)
{
    struct tensors x = tensors_create(t);
    bool folds = launch(t, &x, false);
    struct results wanted = fetch(&x);
    if (folds)
        launch(t, &x, true);
    struct results got = fetch(&x);
    char *rows = rows_classify(&t->problem);
    for (int64_t row = 0; row < t->problem.shape.q_rows && folds && *good; row++) {
        *good = row_good(t, &x, &wanted, &got, row, rows[row]) &&
                lse_good(t, &x, &wanted, &got, row, rows[row]);
        EXPECT(*good, "row %lld of class %d is wrong", (long long)row, rows[row]);
        if (!*good)
            trial_note(t);
    }
    if (folds && *good)
        EXPECT(same(got.max, wanted.max, x.max.bytes), "max_logit differs");
    free(rows);
    results_free(&wanted);
    results_free(&got);
    tensors_destroy(&x);
    return folds;
}

// ---- tests --------------------------------------------------------------------------------------

static void fold_draw(struct trial *t)
{
    struct attention_fold *fold = &t->fold;
    static char wanted;
    fold->begins = harness_below(3) != 0;
    fold->lse_begins = fold->begins && harness_below(3) != 0;
    fold->lse_begin = harness_below(2) ? -INFINITY : (float)harness_below(3);
    fold->out = harness_below(5) != 0 ? &wanted : NULL;
    fold->out_only = fold->out && harness_below(2) == 0;
    t->dead = harness_below(2) == 0;
    t->infinite = harness_below(3) == 0 && t->problem.kv_rows > 0;
    t->max = harness_below(3) == 0;
}

// Random problems that the sm_90a kernels support: aligned rows and a positive scale.
static void drawn_folds(void)
{
    int count = harness_small() ? 20 : 400, folded = 0;
    bool good = true;
    for (int i = 0; i < count && good && harness_folds(); i++) {
        struct trial t = {.problem = problem_draw((enum case_dtype)(DTYPE_BF16 + i % 2))};
        struct attention_shape *s = &t.problem.shape;
        s->d_qk = (s->d_qk + 7) / 8 * 8;
        s->d_v = (s->d_v + 7) / 8 * 8;
        s->scale = fabs(s->scale);
        fold_draw(&t);
        folded += trial_check(&t, &good);
    }
    EXPECT(!good || !harness_folds() || folded >= count / 2, "%d of %d folded", folded, count);
}

// Numbers of queries at the edges of tiles, for the tiles of every head dim.
static void edges_of_tiles(void)
{
    static const int32_t widths[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    static const int64_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 400};
    bool good = true;
    for (int i = 0; i < 220 && good && harness_folds(); i += harness_small() ? 13 : 1) {
        const int32_t *d = widths[i % 5];
        struct trial t = {.problem = problem_rectangle((enum case_dtype)(DTYPE_BF16 + i % 2), d[0],
                                                       d[1], lengths[i / 5 % 11], 130)};
        t.problem.shape.heads = t.problem.shape.kv_heads = 3;
        if (i % 3 == 0)
            t.problem.slices[0].right = harness_below(200) - 50;
        fold_draw(&t);
        EXPECT(trial_check(&t, &good), "does not fold");
    }
}

// ---- sums ---------------------------------------------------------------------------------------

// Converts sums of 2 to CONVERT_SUMMANDS_MAX arrays, aligned or not.
static void converted_sums(void)
{
    static const int64_t sizes[] = {0, 1, 3, 4, 5, 4095, 4096, 4099, 100001, 1 << 20};
    for (int i = 0; i < 120; i++) {
        struct twin x[CONVERT_SUMMANDS_MAX];
        const float *sources[CONVERT_SUMMANDS_MAX];
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + i % 3);
        int64_t size = sizes[i % 10];
        int count = 2 + i / 10 % (CONVERT_SUMMANDS_MAX - 1);
        struct twin y = twin_create((size_t)(size * dtype_bytes(dtype)), i % 4 == 1 ? 4 : 0);
        float *sum = calloc((size_t)size + 1, sizeof(float));
        for (int n = 0; n < count; n++) {
            x[n] = twin_create((size_t)size * sizeof(float), i % 9 == n ? 4 : 0);
            twin_fill_floats(&x[n], 100);
            twin_push(&x[n]);
            sources[n] = (const float *)(const void *)x[n].device;
            backend_cpu.add(harness_cpu, (const float *)(const void *)x[n].host, sum, size);
        }
        backend_cuda.convert_sum(harness_cuda, dtype, sources, count, y.device, size);
        backend_cpu.convert(harness_cpu, dtype, sum, y.host, size);
        char *got = twin_fetch(&y);
        EXPECT(same(got, y.host, y.bytes), "%d arrays of %lld", count, (long long)size);
        free(got);
        free(sum);
        for (int n = 0; n < count; n++)
            twin_destroy(&x[n]);
        twin_destroy(&y);
    }
}

int main(int argc, char **argv)
{
    static const struct harness_test tests[] = {{"drawn folds", drawn_folds},
                                                {"edges of tiles", edges_of_tiles},
                                                {"converted sums", converted_sums}};
    return harness_run(tests, (int)(sizeof(tests) / sizeof(*tests)), argc, argv);
}
