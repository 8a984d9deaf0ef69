// SPDX-License-Identifier: Apache-2.0
// Folds on the device: what fills, a forward and a conversion, fills and a backward, or additions
// and a conversion give one after the other. What has no value before is NaN. Only devices of sm_90
// fold attention.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/problem.h"

struct trial {
    struct problem problem;
    struct attention_fold fold; // `out` says whether it is wanted
    bool dead;                  // some queries see no key because of the bias
};

struct tensors {
    struct twin q, k, v, bias, o, lse, out;
};

struct results {
    float *o, *lse;
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
                        .out = twin_create(q * d_v * element, 0)};
    twin_fill_dtype(&x.q, s->dtype, 3 * p->magnitude);
    twin_fill_dtype(&x.k, s->dtype, 2);
    twin_fill_dtype(&x.v, s->dtype, 2);
    fill_bias(t, &x.bias);
    return x;
}

static void tensors_destroy(struct tensors *x)
{
    struct twin *all[] = {&x->q, &x->k, &x->v, &x->bias, &x->o, &x->lse, &x->out};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        twin_destroy(all[i]);
}

static void push_all(const struct tensors *x)
{
    const struct twin *all[] = {&x->q, &x->k, &x->v, &x->bias, &x->o, &x->lse, &x->out};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        twin_push(all[i]);
}

// What there is before a launch: prior O and LSE, or with a fold nothing where they begin.
static void prior_set(const struct trial *t, struct tensors *x, bool folded)
{
    const struct attention_fold *fold = &t->fold;
    const struct attention_shape *s = &t->problem.shape;
    float *o = (float *)(void *)x->o.host, *lse = (float *)(void *)x->lse.host;
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
                                     .slices = p->slices,
                                     .slice_count = p->slice_count};
    if (folded) {
        args.fold = t->fold;
        args.fold.out = t->fold.out ? x->out.device : NULL;
    }
    return args;
}

// Returns whether the operation folds; launches only then.
static bool launch(const struct trial *t, struct tensors *x, bool folded)
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    struct attention_forward args = args_of(t, x, folded);
    const struct attention_op op = {.shape = args.shape,
                                    .bias = args.bias,
                                    .aligned = true,
                                    .slices = args.slices,
                                    .slice_count = args.slice_count};
    struct attention_work *work;
    struct op_needs needs = {0};
    struct error error;
    EXPECT(kernels->prepare(harness_cuda, &op, &work, &needs, &error) == STATUS_OK, "%s",
           error.text);
    struct twin table = twin_create(needs.table_bytes, 0), zeros = twin_create(needs.zero_bytes, 0);
    memset(zeros.host, 0, zeros.bytes);
    twin_push(&zeros);
    if (needs.table_bytes > 0) {
        kernels->place(harness_cuda, work, table.host, table.device, zeros.device);
        twin_push(&table);
    }
    prior_set(t, x, folded);
    if (needs.folds)
        EXPECT(kernels->launch_forward(harness_cuda, work, &args, NULL, &error) == STATUS_OK, "%s",
               error.text);
    kernels->discard(harness_cuda, work);
    harness_finish();
    twin_destroy(&table);
    twin_destroy(&zeros);
    return needs.folds;
}

static struct results fetch(const struct tensors *x)
{
    return (struct results){twin_fetch(&x->o), twin_fetch(&x->lse), twin_fetch(&x->out)};
}

static void results_free(struct results *r)
{
    free(r->o);
    free(r->lse);
    free(r->out);
}

// ---- comparison ---------------------------------------------------------------------------------

enum { ROW_OUTSIDE, ROW_BLIND, ROW_SEEING };

// What the slices make of each row.
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

// A row of O and `out`. What a fold leaves is what the host has.
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
    bool o_right = same(o, from, floats), out_right = same(out, rounded, bytes);
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
    harness_note("begins %d lse_begins %d (%g) out %d out_only %d dead %d", fold->begins,
                 fold->lse_begins, (double)fold->lse_begin, fold->out != NULL, fold->out_only,
                 t->dead);
    problem_note(&t->problem);
}

// Returns whether the operation folds.
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
    free(rows);
    results_free(&wanted);
    results_free(&got);
    tensors_destroy(&x);
    return folds;
}

// ---- tests --------------------------------------------------------------------------------------

static bool is_hopper(void)
{
    int device, major;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (major != 9)
        harness_note("nothing folds on this device");
    return major == 9;
}

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
}

// Any problem that the kernels for sm_90a take: aligned, with a positive scale.
static void drawn_folds(void)
{
    int count = harness_small() ? 20 : 400, folded = 0;
    bool good = true;
    for (int i = 0; i < count && good && is_hopper(); i++) {
        struct trial t = {.problem = problem_draw((enum case_dtype)(DTYPE_BF16 + i % 2))};
        struct attention_shape *s = &t.problem.shape;
        s->d_qk = (s->d_qk + 7) / 8 * 8;
        s->d_v = (s->d_v + 7) / 8 * 8;
        s->scale = fabs(s->scale);
        fold_draw(&t);
        folded += trial_check(&t, &good);
    }
    EXPECT(!good || !is_hopper() || folded >= count / 2, "%d of %d folded", folded, count);
}

// Every pair of flags, for the tiles of every width, at their edges.
static void edges_of_tiles(void)
{
    static const int32_t widths[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    static const int64_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 400};
    bool good = true;
    for (int i = 0; i < 220 && good && is_hopper(); i += harness_small() ? 13 : 1) {
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

// ---- backward -----------------------------------------------------------------------------------

enum { GRADIENT_DQ, GRADIENT_DK, GRADIENT_DV, GRADIENTS };

struct backward_tensors {
    struct twin q, k, v, d_out, lse, d, bias, dbias;
    struct twin gradients[GRADIENTS];
};

static struct backward_tensors backward_tensors_create(const struct problem *p)
{
    const struct attention_shape *s = &p->shape;
    size_t element = (size_t)dtype_bytes(s->dtype), d_qk = (size_t)s->d_qk, d_v = (size_t)s->d_v;
    size_t q = (size_t)(s->q_rows * s->heads), kv = (size_t)(p->kv_rows * s->kv_heads);
    struct backward_tensors x = {.q = twin_create(q * d_qk * element, 0),
                                 .k = twin_create(kv * d_qk * element, 0),
                                 .v = twin_create(kv * d_v * element, 0),
                                 .d_out = twin_create(q * d_v * element, 0),
                                 .lse = twin_create(q * sizeof(float), 0),
                                 .d = twin_create(q * sizeof(float), 0),
                                 .bias = twin_create((size_t)p->bias_count * element, 0),
                                 .dbias = twin_create((size_t)p->bias_count * sizeof(float), 0),
                                 .gradients = {twin_create(q * d_qk * 4, 0),
                                               twin_create(kv * d_qk * 4, 0),
                                               twin_create(kv * d_v * 4, 0)}};
    struct twin *inputs[] = {&x.q, &x.k, &x.v, &x.d_out, &x.bias};
    for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++) {
        twin_fill_dtype(inputs[i], s->dtype, 1);
        twin_push(inputs[i]);
    }
    twin_fill_floats(&x.d, 1);
    twin_fill_floats(&x.lse, 1);
    for (size_t i = 0; i < q; i++)
        ((float *)(void *)x.lse.host)[i] += 4;
    memset(x.dbias.host, 0, x.dbias.bytes);
    twin_push(&x.d);
    twin_push(&x.lse);
    return x;
}

static void backward_tensors_destroy(struct backward_tensors *x)
{
    struct twin *all[] = {&x->q, &x->k, &x->v, &x->d_out, &x->lse, &x->d, &x->bias, &x->dbias};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        twin_destroy(all[i]);
    for (int i = 0; i < GRADIENTS; i++)
        twin_destroy(&x->gradients[i]);
}

static struct attention_backward backward_args(const struct problem *p,
                                               const struct backward_tensors *x)
{
#define FLOATS(twin) ((float *)(void *)(twin).device)
    return (struct attention_backward){.shape = p->shape,
                                       .q = x->q.device,
                                       .k = x->k.device,
                                       .v = x->v.device,
                                       .d_out = x->d_out.device,
                                       .lse = FLOATS(x->lse),
                                       .d = FLOATS(x->d),
                                       .dq = FLOATS(x->gradients[GRADIENT_DQ]),
                                       .dk = FLOATS(x->gradients[GRADIENT_DK]),
                                       .dv = FLOATS(x->gradients[GRADIENT_DV]),
                                       .bias = p->bias_count > 0 ? x->bias.device : NULL,
                                       .dbias = p->bias_count > 0 ? FLOATS(x->dbias) : NULL,
                                       .slices = p->slices,
                                       .slice_count = p->slice_count};
#undef FLOATS
}

// Launches if the operation folds, and returns whether it does. What begins is NaN before.
static bool backward_launch(const struct problem *p, struct backward_tensors *x, bool queries,
                            bool keys, float *results[GRADIENTS])
{
    const struct attention_kernels *kernels = backend_cuda.attention;
    struct attention_backward args = backward_args(p, x);
    const struct attention_op op = {.shape = p->shape,
                                    .backward = true,
                                    .bias = args.bias,
                                    .dbias = args.dbias,
                                    .aligned = true,
                                    .slices = args.slices,
                                    .slice_count = args.slice_count};
    struct attention_work *work;
    struct op_needs needs = {0};
    struct error error;
    EXPECT(kernels->prepare(harness_cuda, &op, &work, &needs, &error) == STATUS_OK, "%s",
           error.text);
    struct twin table = twin_create(needs.table_bytes, 0);
    struct twin scratch = twin_create(needs.scratch_bytes, 0);
    if (needs.table_bytes > 0) {
        kernels->place(harness_cuda, work, table.host, table.device, NULL);
        twin_push(&table);
    }
    args.queries_begin = queries;
    args.keys_begin = keys;
    for (int i = 0; i < GRADIENTS; i++) {
        bool begins = i == GRADIENT_DQ ? queries : keys;
        memset(x->gradients[i].host, begins ? 0xff : 0, x->gradients[i].bytes);
        twin_push(&x->gradients[i]);
    }
    twin_push(&x->dbias);
    if (needs.folds)
        EXPECT(kernels->launch_backward(harness_cuda, work, &args, scratch.device, &error) ==
                   STATUS_OK,
               "%s", error.text);
    kernels->discard(harness_cuda, work);
    harness_finish();
    for (int i = 0; i < GRADIENTS; i++)
        results[i] = twin_fetch(&x->gradients[i]);
    twin_destroy(&table);
    twin_destroy(&scratch);
    return needs.folds;
}

// Rows of queries that see a key, or of keys that are seen.
static bool *rows_met(const struct problem *p, bool queries)
{
    bool *met = calloc((size_t)(queries ? p->shape.q_rows : p->kv_rows) + 1, sizeof(*met));
    for (int n = 0; n < p->slice_count; n++) {
        const struct slice *s = &p->slices[n];
        int64_t begin, end, first = queries ? s->q_row : s->kv_row;
        slice_met(s, queries, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            met[first + i * p->shape.row_step] = true;
    }
    return met;
}

// Zeros may differ in their sign. Returns whether all is right.
static bool gradient_good(const struct problem *p, int gradient, const float *wanted,
                          const float *got, bool begins)
{
    const struct attention_shape *s = &p->shape;
    bool queries = gradient == GRADIENT_DQ, good = true;
    int64_t rows = queries ? s->q_rows : p->kv_rows, heads = queries ? s->heads : s->kv_heads;
    int64_t width = heads * (gradient == GRADIENT_DV ? s->d_v : s->d_qk);
    bool *met = rows_met(p, queries);
    for (int64_t i = 0; i < rows * width && good; i++) {
        bool left = begins && !met[i / width] && isnan(got[i]);
        good = left || got[i] == wanted[i];
        EXPECT(good, "gradient %d, row %lld: %g, not %g", gradient, (long long)(i / width),
               (double)got[i], (double)wanted[i]);
    }
    free(met);
    return good;
}

// Returns whether the operation folds.
static bool backward_check(const struct problem *p, bool *good)
{
    float *wanted[GRADIENTS], *got[GRADIENTS];
    bool queries = harness_below(3) != 0, keys = !queries || harness_below(3) != 0;
    struct backward_tensors x = backward_tensors_create(p);
    bool folds = backward_launch(p, &x, false, false, wanted);
    backward_launch(p, &x, queries, keys, got);
    for (int i = 0; i < GRADIENTS; i++) {
        if (folds && *good)
            *good = gradient_good(p, i, wanted[i], got[i], i == GRADIENT_DQ ? queries : keys);
        free(wanted[i]);
        free(got[i]);
    }
    if (!*good)
        problem_note(p);
    backward_tensors_destroy(&x);
    return folds;
}

static void drawn_backward_folds(void)
{
    int count = harness_small() ? 15 : 300, folded = 0;
    bool good = true;
    for (int i = 0; i < count && good && is_hopper(); i++) {
        struct problem p = problem_draw((enum case_dtype)(DTYPE_BF16 + i % 2));
        p.shape.d_qk = (p.shape.d_qk + 7) / 8 * 8;
        p.shape.d_v = (p.shape.d_v + 7) / 8 * 8;
        p.shape.deterministic = true;
        folded += backward_check(&p, &good);
    }
    EXPECT(!good || !is_hopper() || folded >= count / 3, "%d of %d folded", folded, count);
}

// More tiles than multiprocessors, whose last are cut in pieces, and heads that share keys.
static void many_tiles_of_keys(void)
{
    static const int32_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
    bool good = true;
    for (int i = 0; i < 24 && good && is_hopper(); i += harness_small() ? 11 : 1) {
        const int32_t *d = widths[i % 4];
        struct problem p = problem_rectangle((enum case_dtype)(DTYPE_BF16 + i % 2), d[0], d[1],
                                             1300, harness_below(2) ? 1280 : 1290);
        p.shape.heads = harness_small() ? 4 : 16;
        p.shape.group = i / 4 % 2 ? 4 : 1;
        p.shape.kv_heads = p.shape.heads / p.shape.group;
        p.shape.deterministic = true;
        if (i / 8 != 0)
            p.slices[0].right = i / 8 == 1 ? 0 : -300;
        EXPECT(backward_check(&p, &good), "does not fold");
    }
}

// ---- sums ---------------------------------------------------------------------------------------

// Sums of 2 to 8 arrays, converted, aligned or not.
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
                                                {"drawn backward folds", drawn_backward_folds},
                                                {"many tiles of keys", many_tiles_of_keys},
                                                {"converted sums", converted_sums}};
    return harness_run(tests, (int)(sizeof(tests) / sizeof(*tests)), argc, argv);
}
