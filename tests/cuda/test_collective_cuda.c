// SPDX-License-Identifier: Apache-2.0
// Collectives on a device: compares reductions with the CPU backend, bit for bit, and the device's
// judge with the host's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cuda/collective_cuda.h"
#include "kernels/dtype.h"
#include "tests/cuda/harness.h"

static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 15, 17, 255, 257, 1023, 4097, 65535, 100003};
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

static const char *const element_names[ELEMENTS] = {
    [ELEMENT_FP32] = "fp32",   [ELEMENT_FP16] = "fp16",   [ELEMENT_BF16] = "bf16",
    [ELEMENT_INT32] = "int32", [ELEMENT_INT64] = "int64", [ELEMENT_UINT8] = "uint8"};

// Replaces some elements by special numbers: zeros of both signs, infinities, NaN, denormals.
static void specials_put(const struct twin *t, enum collective_element element)
{
    static const float specials[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, -1};
    size_t step = (size_t)collective_element_bytes(element), count = t->bytes / step;
    enum case_dtype dtype = element == ELEMENT_FP16   ? DTYPE_FP16
                            : element == ELEMENT_BF16 ? DTYPE_BF16
                                                      : DTYPE_FP32;
    for (size_t i = 0; i < count && element <= ELEMENT_BF16; i += (size_t)harness_between(1, 3)) {
        int64_t which = harness_below(8);
        if (which < 7)
            dtype_store(dtype, t->host, (int64_t)i, specials[which]);
        else
            memset(t->host + i * step, 0, step), t->host[i * step] = 1;
    }
}

// Fills real dtypes with numbers of [-8, 8) and special numbers, integer dtypes with random bits.
static void elements_fill(const struct twin *t, enum collective_element element)
{
    switch (element) {
    case ELEMENT_FP32:
        twin_fill_dtype(t, DTYPE_FP32, 8);
        break;
    case ELEMENT_FP16:
        twin_fill_dtype(t, DTYPE_FP16, 8);
        break;
    case ELEMENT_BF16:
        twin_fill_dtype(t, DTYPE_BF16, 8);
        break;
    default:
        for (size_t i = 0; i < t->bytes; i++)
            t->host[i] = (char)harness_random();
    }
    specials_put(t, element);
    twin_push(t);
}

// Expects the same bits on device and host.
static void expect_same(const struct twin *t, const char *what, const char *element, int64_t count)
{
    char *got = twin_fetch(t);
    size_t i = 0;
    while (i < t->bytes && got[i] == t->host[i])
        i++;
    EXPECT(i == t->bytes, "%s of %lld elements %s: byte %zu", what, (long long)count, element, i);
    free(got);
}

// ---- operations ----

static void reduce_one(enum collective_element element, enum collective_reduction reduction,
                       int64_t count, int skew)
{
    size_t bytes = (size_t)(count * collective_element_bytes(element));
    size_t step = (size_t)collective_element_bytes(element);
    struct twin source = twin_create(bytes, skew & 1 ? step : 0);
    struct twin destination = twin_create(bytes, skew & 2 ? 3 * step : 0);
    elements_fill(&source, element);
    elements_fill(&destination, element);
    backend_cuda.reduce(harness_cuda, element, reduction, source.device, destination.device, count);
    backend_cpu.reduce(NULL, element, reduction, source.host, destination.host, count);
    expect_same(&destination, "a reduction", element_names[element], count);
    expect_same(&source, "the source", element_names[element], count);
    twin_destroy(&source);
    twin_destroy(&destination);
}

static void reductions_have_the_bits_of_the_cpu(void)
{
    for (int i = 0; i < SIZES; i++)
        for (int element = ELEMENT_FP32; element < ELEMENTS; element++)
            for (int reduction = REDUCTION_SUM; reduction < REDUCTIONS; reduction++)
                reduce_one((enum collective_element)element, (enum collective_reduction)reduction,
                           sizes[i], (i + element + reduction) % 4);
}

static void quotients_have_the_bits_of_the_cpu(void)
{
    for (int i = 0; i < SIZES; i++)
        for (int e = ELEMENT_FP32; e < ELEMENTS; e++) {
            enum collective_element element = (enum collective_element)e;
            size_t step = (size_t)collective_element_bytes(element);
            struct twin t = twin_create((size_t)sizes[i] * step, (i + e) % 2 ? step : 0);
            int divisor = (int)harness_between(1, 64);
            elements_fill(&t, element);
            backend_cuda.divide(harness_cuda, element, divisor, t.device, sizes[i]);
            backend_cpu.divide(NULL, element, divisor, t.host, sizes[i]);
            expect_same(&t, "a quotient", element_names[element], sizes[i]);
            twin_destroy(&t);
        }
}

// ---- the judge ----

static const struct collective_judge *const host = &collective_judge_host;
static const struct collective_judge *const device = &collective_judge_cuda;

static void *queue(void)
{
    return attention_cuda_queue(harness_cuda);
}

static struct collective collective_drawn(int operation, int element, int64_t count)
{
    struct collective c;
    job_kind_collective.init(&c);
    c.operation = (enum collective_operation)operation;
    c.dtype = (enum collective_element)element;
    c.reduction = (enum collective_reduction)harness_between(REDUCTION_SUM, REDUCTIONS - 1);
    c.world_size = (int32_t)harness_between(1, 5);
    c.root = (int32_t)harness_below(c.world_size);
    c.count = count;
    c.seed = harness_random();
    c.specials = c.seed % 2;
    return c;
}

static void expect_ok(enum status status, const struct error *error)
{
    EXPECT(status == STATUS_OK, "%s", error->text);
}

static struct figures no_figures(void)
{
    return (struct figures){.first_bad = {.position = -1}, .worst_row = {.position = -1}};
}

static bool near(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

static void expect_equal(const struct figures *a, const struct figures *b, const char *what)
{
    EXPECT(a->elements == b->elements && a->judged == b->judged, "%s: %lld of %lld", what,
           (long long)a->judged, (long long)b->judged);
    EXPECT(a->mismatches == b->mismatches && a->nonfinite == b->nonfinite && a->broken == b->broken,
           "%s: %lld and %lld mismatches", what, (long long)a->mismatches,
           (long long)b->mismatches);
    EXPECT(a->first_bad.position == b->first_bad.position, "%s: first %lld and %lld", what,
           (long long)a->first_bad.position, (long long)b->first_bad.position);
    EXPECT(near(a->first_bad_got, b->first_bad_got) &&
               near(a->first_bad_expected, b->first_bad_expected),
           "%s: %g and %g", what, a->first_bad_got, b->first_bad_got);
    EXPECT(near(a->rmse_rel, b->rmse_rel) && near(a->twin_rel, b->twin_rel) &&
               near(a->rmse_limit, b->rmse_limit) && near(a->max_abs, b->max_abs) &&
               near(a->worst_element, b->worst_element),
           "%s: %g and %g", what, a->rmse_rel, b->rmse_rel);
}

// Creates a rank's send, fills it on host and device, and expects the same bits. `skew`:
// misalignment on the device, in elements.
static struct twin send_make(const struct collective *c, int rank, size_t skew)
{
    struct error error;
    size_t step = (size_t)collective_element_bytes(c->dtype);
    struct twin send = twin_create((size_t)collective_send_count(c, rank) * step, skew * step);
    collective_fill(c, rank, send.host);
    expect_ok(device->fill(queue(), c, rank, send.device, &error), &error);
    expect_same(&send, "the send", element_names[c->dtype], c->count);
    return send;
}

// Computes the right result of an all_gather or all_reduce with the CPU backend.
static void receive_make(const struct collective *c, int rank, void *receive)
{
    size_t bytes = (size_t)(c->count * collective_element_bytes(c->dtype));
    char *one = malloc(bytes + 1);
    for (int peer = 0; peer < c->world_size; peer++) {
        collective_fill(c, peer, one);
        if (c->operation == COLLECTIVE_ALL_GATHER)
            memcpy((char *)receive + (size_t)peer * bytes, one, bytes);
        else if (peer == 0)
            memcpy(receive, one, bytes);
        else
            backend_cpu.reduce(NULL, c->dtype, c->reduction, one, receive, c->count);
    }
    if (c->reduction == REDUCTION_AVG && c->operation == COLLECTIVE_ALL_REDUCE)
        backend_cpu.divide(NULL, c->dtype, c->world_size, receive, c->count);
    free(one);
    (void)rank;
}

// Judges the host's bytes of `t` on both sides, and expects equal figures and digests. Returns the
// device's figures.
static struct figures receive_judge(const struct collective *c, int rank, const struct twin *t)
{
    struct figures of_host = no_figures(), of_device = no_figures();
    struct error error;
    uint64_t digests[2] = {0, 1};
    struct twin spare = twin_create(t->bytes, 0);
    twin_push(t);
    expect_ok(host->receive(NULL, c, rank, t->host, &of_host, &error), &error);
    expect_ok(device->receive(queue(), c, rank, t->device, &of_device, &error), &error);
    expect_equal(&of_host, &of_device, element_names[c->dtype]);
    expect_ok(host->digest(NULL, t->host, t->bytes, NULL, &digests[0], &error), &error);
    expect_ok(device->digest(queue(), t->device, t->bytes, spare.device, &digests[1], &error),
              &error);
    EXPECT(digests[0] == digests[1], "digests of %zu bytes", t->bytes);
    twin_destroy(&spare);
    return of_device;
}

// A right result (all_reduce and all_gather only) must pass on both sides. A result with a few
// changed bytes must get the same figures on both.
static void receive_check(int operation, int element, int64_t count)
{
    struct collective c = collective_drawn(operation, element, count);
    int rank = (int)harness_below(c.world_size), step = collective_element_bytes(c.dtype);
    struct twin t = twin_create((size_t)(collective_receive_count(&c, rank) * step), 0);
    bool made = operation == COLLECTIVE_ALL_REDUCE || operation == COLLECTIVE_ALL_GATHER;
    if (made) {
        receive_make(&c, rank, t.host);
        struct figures right = receive_judge(&c, rank, &t);
        EXPECT(right.mismatches == 0 && right.broken == 0, "%s: %lld wrong of %lld",
               element_names[element], (long long)right.mismatches, (long long)count);
    }
    for (int i = 0; i < 3 && t.bytes > 0; i++)
        t.host[harness_below((int64_t)t.bytes)] ^= 0x41;
    (void)receive_judge(&c, rank, &t);
    twin_destroy(&t);
}

static void receives_have_the_verdict_of_the_host(void)
{
    for (int i = 0; i < SIZES; i++)
        for (int element = ELEMENT_FP32; element < ELEMENTS; element++)
            for (int operation = COLLECTIVE_ALL_REDUCE; operation < COLLECTIVE_OPERATIONS;
                 operation++)
                receive_check(operation, element, sizes[i]);
}

static void sends_have_the_verdict_of_the_host(void)
{
    for (int i = 0; i < SIZES; i++)
        for (int element = ELEMENT_FP32; element < ELEMENTS; element++) {
            struct collective c = collective_drawn(COLLECTIVE_ALL_REDUCE, element, sizes[i]);
            struct figures of_host = no_figures(), of_device = no_figures();
            struct error error;
            struct twin t = send_make(&c, 0, (size_t)(i % 2));
            if (i % 3 && t.bytes > 0)
                t.host[harness_below((int64_t)t.bytes)] ^= 1;
            twin_push(&t);
            expect_ok(host->send(NULL, &c, 0, t.host, NULL, &of_host, &error), &error);
            expect_ok(device->send(queue(), &c, 0, t.device, NULL, &of_device, &error), &error);
            expect_equal(&of_host, &of_device, "a send");
            EXPECT(of_device.mismatches == (i % 3 && t.bytes > 0), "%lld wrong",
                   (long long)of_device.mismatches);
            twin_destroy(&t);
        }
}

static const struct harness_test tests[] = {
    {"reductions have the bits of the CPU", reductions_have_the_bits_of_the_cpu},
    {"quotients have the bits of the CPU", quotients_have_the_bits_of_the_cpu},
    {"receives have the verdict of the host", receives_have_the_verdict_of_the_host},
    {"sends have the verdict of the host", sends_have_the_verdict_of_the_host},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
