// SPDX-License-Identifier: Apache-2.0
// Backward with folds on the device: one launch must give the results of separate fills, backward
// and conversions. Memory that has no value before the launch is NaN.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/problem.h"

// ---- tensors ------------------------------------------------------------------------------------

enum { GRADIENT_DQ, GRADIENT_DK, GRADIENT_DV, GRADIENTS };

// The folds of a launch, and whether dbias is wanted.
struct trial {
    bool queries_begin, keys_begin, rounds; // rounds: converts dK and dV to the dtype
    bool dbias;
};

struct backward_tensors {
    struct twin q, k, v, d_out, lse, d, bias, dbias;
    struct twin gradients[GRADIENTS], rounded[GRADIENTS]; // rounded dQ is empty
};

struct backward_results {
    float *gradients[GRADIENTS];
    char *rounded[GRADIENTS];
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
                                               twin_create(kv * d_v * 4, 0)},
                                 .rounded = {twin_create(0, 0), twin_create(kv * d_qk * element, 0),
                                             twin_create(kv * d_v * element, 0)}};
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
    for (int i = 0; i < GRADIENTS; i++) {
        twin_destroy(&x->gradients[i]);
        twin_destroy(&x->rounded[i]);
    }
}

static void backward_results_free(struct backward_results *x)
{
    for (int i = 0; i < GRADIENTS; i++) {
        free(x->gradients[i]);
        free(x->rounded[i]);
    }
}

// Sets the gradients before a launch. A gradient that begins is NaN if the launch folds its fill,
// else 0. Other gradients are random numbers, the same in every call. Rounded outputs are NaN.
static void gradients_set(struct backward_tensors *x, const struct trial *trial, bool folded)
{
    srand48(2);
    for (int i = 0; i < GRADIENTS; i++) {
        struct twin *gradient = &x->gradients[i];
        float *numbers = (float *)(void *)gradient->host;
        bool begins = i == GRADIENT_DQ ? trial->queries_begin : trial->keys_begin;
        for (size_t n = 0; n < gradient->bytes / sizeof(float); n++) {
            float some = (float)drand48() - 0.5f;
            numbers[n] = !begins ? some : folded ? NAN : 0;
        }
        memset(x->rounded[i].host, 0xff, x->rounded[i].bytes);
        twin_push(gradient);
        twin_push(&x->rounded[i]);
    }
}

static struct attention_backward backward_args(const struct problem *p,
                                               const struct backward_tensors *x, bool dbias)
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
                                       .dbias =
                                           dbias && p->bias_count > 0 ? FLOATS(x->dbias) : NULL,
                                       .slices = p->slices,
                                       .slice_count = p->slice_count};
#undef FLOATS
}

// ---- launches -----------------------------------------------------------------------------------

// Launches a backward, with the trial's folds if `folded`, and fetches its gradients. Returns true
// if the operation can fold; if not, nothing is launched.
static bool backward_launch(const struct problem *p, struct backward_tensors *x, struct trial trial,
                            bool folded, struct backward_results *results)
{
    struct attention_backward args = backward_args(p, x, trial.dbias);
    const struct attention_op op = {.shape = p->shape,
                                    .backward = true,
                                    .bias = args.bias,
                                    .dbias = args.dbias,
                                    .aligned = true,
                                    .slices = args.slices,
                                    .slice_count = args.slice_count};
    struct prepared prepared = prepared_create(&op);
    struct error error;
    trial.queries_begin = trial.queries_begin && prepared.needs.begins_queries;
    args.queries_begin = folded && trial.queries_begin;
    args.keys_begin = folded && trial.keys_begin;
    args.dk_out = folded && trial.rounds ? x->rounded[GRADIENT_DK].device : NULL;
    args.dv_out = folded && trial.rounds ? x->rounded[GRADIENT_DV].device : NULL;
    gradients_set(x, &trial, folded);
    twin_push(&x->dbias);
    if (prepared.needs.folds)
        EXPECT(backend_cuda.attention->launch_backward(harness_cuda, prepared.work, &args,
                                                       prepared.scratch.device,
                                                       &error) == STATUS_OK,
               "%s", error.text);
    prepared_destroy(&prepared);
    for (int i = 0; i < GRADIENTS; i++) {
        results->gradients[i] = twin_fetch(&x->gradients[i]);
        results->rounded[i] = twin_fetch(&x->rounded[i]);
    }
    return prepared.needs.folds;
}

// ---- comparison ---------------------------------------------------------------------------------

// Marks the rows of queries that see a key, or of keys that a query sees.
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

// Deterministic sums must be exact. Others may differ in their last bits, because their order
// varies.
static bool number_good(const struct attention_shape *s, bool rounded, double wanted, double got)
{
    static const double steps[] = {[DTYPE_BF16] = 0x1p-8, [DTYPE_FP16] = 0x1p-11};
    uint16_t nearest;
    dtype_store(s->dtype, &nearest, 0, (float)wanted);
    if (s->deterministic)
        return got == (rounded ? dtype_load(s->dtype, &nearest, 0) : wanted);
    return fabs(got - wanted) <= (rounded ? steps[s->dtype] : 0) * fabs(wanted) + 1e-4;
}

// Returns true if all elements are right. Zeros may differ in their sign. Rows that see no key, or
// are not seen, may stay NaN in gradients that begin or are rounded.
static bool gradient_good(const struct problem *p, int gradient, const float *wanted,
                          const struct backward_results *results, const struct trial *trial)
{
    const struct attention_shape *s = &p->shape;
    bool queries = gradient == GRADIENT_DQ, good = true, rounded = !queries && trial->rounds;
    bool begins = queries ? trial->queries_begin : trial->keys_begin;
    int64_t rows = queries ? s->q_rows : p->kv_rows, heads = queries ? s->heads : s->kv_heads;
    int64_t width = heads * (gradient == GRADIENT_DV ? s->d_v : s->d_qk);
    bool *met = rows_met(p, queries);
    for (int64_t i = 0; i < rows * width && good; i++) {
        double got = rounded ? dtype_load(s->dtype, results->rounded[gradient], i)
                             : results->gradients[gradient][i];
        bool left = (begins || rounded) && !met[i / width] && isnan(got);
        good = left || number_good(s, rounded, wanted[i], got);
        EXPECT(good, "gradient %d, row %lld: %g, not %g", gradient, (long long)(i / width), got,
               (double)wanted[i]);
    }
    free(met);
    return good;
}

// Compares a launch with folds to one without; *good becomes false if they differ. Returns true if
// the operation can fold.
static bool backward_check(const struct problem *p, bool *good)
{
    struct backward_results wanted, got;
    struct trial trial = {.queries_begin = harness_below(3) != 0,
                          .keys_begin = harness_below(3) != 0,
                          .rounds = harness_below(3) != 0,
                          .dbias = harness_below(2) == 0};
    struct backward_tensors x = backward_tensors_create(p);
    bool does = backward_launch(p, &x, trial, false, &wanted);
    backward_launch(p, &x, trial, true, &got);
    for (int i = 0; i < GRADIENTS && does && *good; i++)
        *good = gradient_good(p, i, wanted.gradients[i], &got, &trial);
    if (!*good)
        problem_note(p);
    backward_results_free(&wanted);
    backward_results_free(&got);
    backward_tensors_destroy(&x);
    return does;
}

// ---- tests --------------------------------------------------------------------------------------

static void drawn_folds(void)
{
    int count = harness_small() ? 15 : 300, folded = 0;
    bool good = true;
    for (int i = 0; i < count && good && harness_folds(); i++) {
        struct problem p = problem_draw((enum case_dtype)(DTYPE_BF16 + i % 2));
        p.shape.d_qk = (p.shape.d_qk + 7) / 8 * 8;
        p.shape.d_v = (p.shape.d_v + 7) / 8 * 8;
        p.shape.deterministic = harness_below(2) == 0;
        folded += backward_check(&p, &good);
    }
    EXPECT(!good || !harness_folds() || folded >= count / 3, "%d of %d folded", folded, count);
}

// More key tiles than multiprocessors, so that the last ones are cut into pieces, and several query
// heads per key head. With few heads a thread block takes one query head, with many heads all query
// heads of a key head.
static void many_tiles_of_keys(void)
{
    static const int32_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
    static const int32_t heads[][2] = {{16, 1}, {16, 4}, {16, 16}, {128, 4}}; // and their group
    bool good = true;
    for (int i = 0; i < 48 && good && harness_folds(); i += harness_small() ? 23 : 1) {
        const int32_t *d = widths[i % 4], *h = heads[i / 4 % 4];
        struct problem p = problem_rectangle((enum case_dtype)(DTYPE_BF16 + i % 2), d[0], d[1],
                                             1300, harness_below(2) ? 1280 : 1290);
        p.shape.heads = h[0];
        p.shape.group = h[1];
        p.shape.kv_heads = h[0] / h[1];
        p.shape.deterministic = harness_below(2) == 0;
        if (i / 16 != 0)
            p.slices[0].right = i / 16 == 1 ? 0 : -300;
        EXPECT(backward_check(&p, &good), "does not fold");
    }
}

int main(int argc, char **argv)
{
    static const struct harness_test tests[] = {{"drawn folds", drawn_folds},
                                                {"many tiles of keys", many_tiles_of_keys}};
    return harness_run(tests, (int)(sizeof(tests) / sizeof(*tests)), argc, argv);
}
