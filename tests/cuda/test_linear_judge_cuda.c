// SPDX-License-Identifier: Apache-2.0
// Compares the judge of linear layers on a device with the host's: inputs bit for bit, references
// up to the order of fp64 sums.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cuda/linear_cuda.h"
#include "judge/linear.h"
#include "tests/cuda/harness.h"

static const struct linear_tools *const device = &linear_tools_cuda;

static void *queue(void)
{
    return attention_cuda_queue(harness_cuda);
}

static void expect_ok(enum status status, const struct error *error)
{
    EXPECT(status == STATUS_OK, "%s", error->text);
}

static int64_t size_drawn(int64_t most)
{
    return harness_below(3) ? harness_between(1, most) : harness_between(1, 9);
}

static struct linear linear_drawn(int i)
{
    struct linear l;
    int64_t most = harness_small() ? 40 : 300;
    job_kind_linear.init(&l);
    l.layer = (enum linear_layer)(1 + i % 3);
    l.activation = (enum activation)harness_between(ACTIVATION_GELU, ACTIVATION_SWIGLU);
    l.dtype = i / 3 % 3 == 0 ? DTYPE_FP32 : i / 3 % 3 == 1 ? DTYPE_FP16 : DTYPE_BF16;
    l.world_size = (int32_t)harness_between(1, 5);
    l.tokens = size_drawn(most);
    l.in_features = size_drawn(most);
    l.out_features = size_drawn(most);
    l.hidden = size_drawn(most);
    l.bias = harness_below(2);
    l.sequence_parallel = harness_below(2);
    l.training = harness_below(4) > 0;
    l.seed = harness_random();
    return l;
}

// ---- inputs ----

static void input_check(const struct linear *l, int rank, enum linear_tensor tensor)
{
    struct error error;
    struct twin t = twin_create((size_t)linear_bytes(l, rank, tensor), 0);
    linear_fill(l, rank, tensor, t.host);
    expect_ok(device->fill(queue(), l, rank, tensor, t.device, &error), &error);
    char *got = twin_fetch(&t);
    EXPECT(memcmp(got, t.host, t.bytes) == 0, "tensor %d of layer %d, rank %d of %d", (int)tensor,
           (int)l->layer, rank, l->world_size);
    free(got);
    twin_destroy(&t);
}

static void inputs_have_the_bits_of_the_host(void)
{
    for (int i = 0; i < 60; i++) {
        struct linear l = linear_drawn(i);
        for (int rank = 0; rank < l.world_size; rank++)
            for (int t = LINEAR_X; t < LINEAR_Y; t++)
                input_check(&l, rank, (enum linear_tensor)t);
    }
}

// ---- references ----

// Expects the L2 norm of the difference to be at most `most` times that of `right`. A twin may
// round differently in some elements.
static void expect_near(const double *got, const double *right, int64_t count, double most,
                        const char *what, const struct linear *l, int tensor)
{
    double error2 = 0, right2 = 0;
    for (int64_t i = 0; i < count; i++) {
        error2 += (got[i] - right[i]) * (got[i] - right[i]);
        right2 += right[i] * right[i];
    }
    EXPECT(sqrt(error2) <= most * sqrt(right2) + 1e-300,
           "%s of tensor %d of layer %d, dtype %d, activation %d: %g", what, tensor, (int)l->layer,
           (int)l->dtype, (int)l->activation, sqrt(error2 / right2));
}

static void expect_triples(const struct linear *l, struct triple got[LINEAR_TENSORS],
                           struct triple right[LINEAR_TENSORS], bool values_alone)
{
    double twin = l->dtype == DTYPE_FP32 ? 1e-7 : 1e-4;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++) {
        int64_t count = right[t].rows * right[t].columns;
        EXPECT(got[t].rows * got[t].columns == count, "tensor %d: %lld elements of %lld", t,
               (long long)(got[t].rows * got[t].columns), (long long)count);
        if (count == 0 || got[t].rows * got[t].columns != count)
            continue;
        expect_near(got[t].value, right[t].value, count, 1e-12, "value", l, t);
        if (values_alone)
            continue;
        expect_near(got[t].bound, right[t].bound, count, 1e-9, "bound", l, t);
        expect_near(got[t].twin, right[t].twin, count, twin, "twin", l, t);
    }
    linear_free(got);
    linear_free(right);
}

static struct linear_some some_drawn(int64_t count)
{
    return (struct linear_some){0, count, count == 0 ? 0 : harness_between(1, count)};
}

static void reference_check(const struct linear *l, bool rival)
{
    struct triple got[LINEAR_TENSORS], right[LINEAR_TENSORS];
    struct error error;
    int rank = (int)harness_below(l->world_size);
    struct linear_some tokens = some_drawn(l->tokens);
    struct linear_some features =
        some_drawn(linear_share(linear_sizes(l).middle, rank, l->world_size).count);
    expect_ok(linear_sums(l, tokens, rival, right, &error), &error);
    expect_ok(device->sums(queue(), l, tokens, rival, got, &error), &error);
    expect_triples(l, got, right, rival);
    expect_ok(linear_shares(l, rank, features, rival, right, &error), &error);
    expect_ok(device->shares(queue(), l, rank, features, rival, got, &error), &error);
    expect_triples(l, got, right, rival);
}

static void references_are_those_of_the_host(void)
{
    for (int i = 0; i < 60; i++) {
        struct linear l = linear_drawn(i);
        reference_check(&l, false);
        if (l.layer == LINEAR_MLP && l.activation != ACTIVATION_SWIGLU)
            reference_check(&l, true);
    }
}

// ---- verdicts ----

// Judges random results, which are wrong: both judges must find the same errors.
static void verdicts_are_those_of_the_host(void)
{
    for (int i = 0; i < 30; i++) {
        struct linear l = linear_drawn(i);
        struct error error;
        struct figures on_host[LINEAR_TENSORS], on_device[LINEAR_TENSORS];
        struct twin twins[LINEAR_TENSORS];
        const void *host[LINEAR_TENSORS] = {NULL}, *there[LINEAR_TENSORS] = {NULL};
        int rank = (int)harness_below(l.world_size);
        for (int t = 0; t < LINEAR_TENSORS; t++) {
            size_t bytes = (size_t)linear_bytes(&l, rank, (enum linear_tensor)t);
            on_host[t] = on_device[t] = (struct figures){.first_bad = {.position = -1}};
            twins[t] = twin_create(bytes, 0);
            twin_fill_dtype(&twins[t], l.dtype, 1);
            twin_push(&twins[t]);
            host[t] = bytes > 0 ? twins[t].host : NULL;
            there[t] = bytes > 0 ? twins[t].device : NULL;
        }
        expect_ok(linear_judge(&l, rank, host, on_host, &error), &error);
        expect_ok(linear_judge_where(device, queue(), &l, rank, there, on_device, &error), &error);
        for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++) {
            const struct figures *a = &on_host[t], *b = &on_device[t];
            EXPECT(a->judged == b->judged && a->broken == b->broken &&
                       a->mismatches == b->mismatches &&
                       a->first_bad.position == b->first_bad.position &&
                       a->first_bad.dim == b->first_bad.dim &&
                       fabs(a->rmse_rel - b->rmse_rel) <= 1e-9 * a->rmse_rel,
                   "tensor %d of layer %d: %lld and %lld mismatches", t, (int)l.layer,
                   (long long)a->mismatches, (long long)b->mismatches);
        }
        for (int t = 0; t < LINEAR_TENSORS; t++)
            twin_destroy(&twins[t]);
    }
}

static const struct harness_test tests[] = {
    {"inputs have the bits of the host", inputs_have_the_bits_of_the_host},
    {"references are those of the host", references_are_those_of_the_host},
    {"verdicts are those of the host", verdicts_are_those_of_the_host},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
