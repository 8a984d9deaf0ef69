// SPDX-License-Identifier: Apache-2.0
// Compares inputs, strided copies and sums, digests and figures of padding on the device with the
// host's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cuda/digest_cuda.h"
#include "judge/cuda/inputs_cuda.h"
#include "judge/cuda/padding_cuda.h"
#include "judge/digest.h"
#include "judge/padding.h"
#include "kernels/cuda/regions_cuda.h"
#include "kernels/dtype.h"
#include "plan/bias.h"
#include "rank/inputs.h"
#include "tests/cuda/harness.h"
#include "tests/support/generate.h"

// Expects the same bytes on the device as on the host.
static void expect_bytes(const struct twin *t, const char *what, const struct cp_case *c, int rank)
{
    char *got = twin_fetch(t);
    size_t i = 0;
    while (i < t->bytes && got[i] == t->host[i])
        i++;
    EXPECT(i == t->bytes, "%s of rank %d, seed %llu: byte %zu of %zu", what, rank,
           c ? (unsigned long long)c->seed : 0, i, t->bytes);
    free(got);
}

// ---- regions ----

// Draws the stride of `rows` pieces of `bytes` bytes, with or without gaps between them. Returns
// the bytes from the first piece to the end of the last.
static int64_t stride_draw(int64_t rows, int64_t bytes, int64_t unit, int64_t *stride)
{
    *stride = bytes + (harness_below(2) ? unit * harness_below(9) : 0);
    return (rows - 1) * *stride + bytes;
}

#define COPIES 40
static void regions_copy(void)
{
    for (int round = 0; round < 30; round++) {
        struct region_copy copies[COPIES];
        struct twin source[COPIES], destination[COPIES];
        int64_t unit = INT64_C(1) << harness_below(6);
        int count = (int)harness_between(0, round % 3 ? 3 : COPIES);
        for (int i = 0; i < count; i++) {
            int64_t rows = harness_between(1, harness_below(2) ? 4 : 300);
            int64_t bytes = unit * harness_between(1, harness_below(2) ? 16 : 700);
            struct region_copy *c = &copies[i];
            *c = (struct region_copy){.rows = rows, .bytes = bytes};
            int64_t from = stride_draw(rows, bytes, unit, &c->source_stride);
            int64_t to = stride_draw(rows, bytes, unit, &c->destination_stride);
            size_t skew = (size_t)(unit * harness_below(3)) % 256;
            source[i] = twin_create((size_t)from, skew);
            destination[i] = twin_create((size_t)to, skew);
            for (int64_t k = 0; k < from; k++)
                source[i].host[k] = (char)harness_random();
            twin_push(&source[i]);
            for (int64_t row = 0; row < rows; row++)
                memcpy(destination[i].host + row * c->destination_stride,
                       source[i].host + row * c->source_stride, (size_t)bytes);
            c->source = source[i].device;
            c->destination = destination[i].device;
        }
        regions_cuda_copy(harness_cuda, attention_cuda_stream(harness_cuda), copies, count);
        for (int i = 0; i < count; i++) {
            expect_bytes(&destination[i], "copy", NULL, i);
            twin_destroy(&source[i]);
            twin_destroy(&destination[i]);
        }
    }
}

static void regions_add(void)
{
    for (int round = 0; round < 40; round++) {
        int64_t rows = harness_between(0, 200), count = harness_between(0, round % 2 ? 9 : 900);
        int64_t unit = round % 3 ? 4 : 1;
        count *= unit;
        int64_t stride = count + unit * harness_below(7);
        struct twin source = twin_create((size_t)(rows * count) * sizeof(float), 0);
        struct twin sum = twin_create((size_t)(rows * stride) * sizeof(float), round % 5 ? 0 : 4);
        twin_fill_floats(&source, 1);
        twin_fill_floats(&sum, 1);
        twin_push(&source);
        twin_push(&sum);
        float *x = (float *)(void *)source.host, *y = (float *)(void *)sum.host;
        regions_cuda_add(harness_cuda, (float *)(void *)source.device, (float *)(void *)sum.device,
                         rows, count, stride);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < count; i++)
                y[row * stride + i] += x[row * count + i];
        expect_bytes(&sum, "sum", NULL, 0);
        twin_destroy(&source);
        twin_destroy(&sum);
    }
}

// ---- digests ----

static void digest_sums(void)
{
    for (int round = 0; round < 80; round++) {
        size_t bytes = round < 40 ? (size_t)round : (size_t)harness_below(300000);
        if (round == 79 && !harness_small())
            bytes = 50000001;
        struct twin data = twin_create(bytes, round % 3 ? 0 : 8);
        for (size_t i = 0; i < bytes; i++)
            data.host[i] = (char)harness_random();
        twin_push(&data);
        const uint64_t *sum =
            digest_cuda_sum(attention_cuda_queue(harness_cuda), data.device, bytes);
        harness_finish();
        EXPECT(sum && *sum == digest_sum(data.host, bytes), "%zu bytes", bytes);
        twin_destroy(&data);
    }
}

// ---- inputs ----

// Sets all bytes to the same value on both sides; no dtype reads it as NaN.
static void begin_with_anything(const struct twin *t)
{
    memset(t->host, 0x3c, t->bytes);
    twin_push(t);
}

static void fill_compare(const struct cp_case *c, enum input_tensor tensor, int rank,
                         struct span *spans)
{
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    int64_t elements =
        shard_rows(c, side, rank) * input_heads(c, tensor) * input_head_dim(c, tensor);
    struct twin t = twin_create((size_t)(elements * case_element_bytes(c)),
                                harness_below(3) ? 0 : (size_t)case_element_bytes(c));
    int count = shard_spans(c, side, rank, spans);
    begin_with_anything(&t);
    inputs_cuda_fill(attention_cuda_queue(harness_cuda), c, tensor, rank, spans, count, t.device);
    inputs_fill(c, tensor, rank, spans, count, t.host);
    expect_bytes(&t, "an input", c, rank);
    twin_destroy(&t);
}

static void bias_compare(const struct cp_case *c, int rank, struct span *spans)
{
    struct bias_shape shape = bias_shape(c, rank);
    int64_t elements = shape.heads * shape.rows * shape.columns;
    struct twin t = twin_create((size_t)(elements * case_element_bytes(c)),
                                harness_below(3) ? 0 : (size_t)case_element_bytes(c));
    begin_with_anything(&t);
    inputs_cuda_fill_bias(attention_cuda_queue(harness_cuda), c, rank, spans, t.device);
    inputs_fill_bias(c, rank, spans, t.host);
    expect_bytes(&t, "the bias", c, rank);
    twin_destroy(&t);
}

static void sink_compare(const struct cp_case *c)
{
    struct twin t = twin_create((size_t)c->heads * sizeof(float), 0);
    inputs_cuda_fill_sink(attention_cuda_queue(harness_cuda), c, (float *)(void *)t.device);
    inputs_fill_sink(c, (float *)(void *)t.host);
    expect_bytes(&t, "the sinks", c, 0);
    twin_destroy(&t);
}

static void case_compare(const struct cp_case *c, int rank)
{
    struct span *spans = malloc((size_t)shard_spans_max(c) * sizeof(*spans));
    for (int tensor = INPUT_Q; tensor <= INPUT_DO; tensor++)
        fill_compare(c, (enum input_tensor)tensor, rank, spans);
    if (c->bias != BIAS_NONE)
        bias_compare(c, rank, spans);
    sink_compare(c);
    free(spans);
}

static void inputs_of_generated_cases(void)
{
    for (int n = 0; n < (harness_small() ? 40 : 400); n++) {
        struct cp_case c;
        generate_case(harness_random(), 8, n % 10 ? 64 : 900, &c);
        c.seed = harness_random();
        if (n % 2) {
            uint64_t state = harness_random();
            generate_logits(&state, &c);
        }
        case_compare(&c, (int)harness_below(c.world_size));
    }
}

// Tokens whose elements have an index of more than 32 bits.
static void inputs_beyond_2_32_elements(void)
{
    struct cp_case c;
    case_init(&c);
    c.batch = 2;
    c.heads = c.kv_heads = c.head_dim_qk = c.head_dim_v = 256;
    c.seqlen_q = c.seqlen_kv = 1 << 17;
    c.seed = harness_random();
    const struct span span = {.sequence = 1, .len = 3, .position = c.seqlen_q - 3};
    int64_t elements = span.len * c.heads * c.head_dim_qk;
    struct twin t = twin_create((size_t)(elements * case_element_bytes(&c)), 0);
    inputs_cuda_fill(attention_cuda_queue(harness_cuda), &c, INPUT_Q, 0, &span, 1, t.device);
    inputs_fill(&c, INPUT_Q, 0, &span, 1, t.host);
    expect_bytes(&t, "the far end", &c, 0);
    twin_destroy(&t);
}

// Factors and limits of the inputs TE and SHARP, in every dtype, with many values of each.
static void inputs_of_every_factor(void)
{
    for (int n = 0; n < 3 * 2 * 4; n++) {
        struct cp_case c;
        case_init(&c);
        c.dtype = (enum case_dtype[]){DTYPE_BF16, DTYPE_FP16, DTYPE_FP32}[n % 3];
        c.inputs = n / 3 % 2 ? INPUTS_TE : INPUTS_SHARP;
        c.head_dim_qk = (int32_t)harness_between(1, HEAD_DIM_MAX);
        c.heads = c.kv_heads = 3;
        c.world_size = 1;
        c.seqlen_q = c.seqlen_kv = harness_small() ? 30 : 4000;
        c.seed = n < 6 ? (uint64_t)n : harness_random();
        case_compare(&c, 0);
    }
}

// ---- padding ----

static bool same_element(const struct element *a, const struct element *b)
{
    return a->sequence == b->sequence && a->position == b->position && a->head == b->head &&
           a->dim == b->dim;
}

static void figures_compare(const struct figures *a, const struct figures *b, bool found, bool had,
                            const struct cp_case *c)
{
    EXPECT(found == had, "seed %llu: %d instead of %d", (unsigned long long)c->seed, found, had);
    if (!found || !had)
        return;
    EXPECT(a->tensor == b->tensor && a->chunk == b->chunk && a->broken == b->broken &&
               a->elements == b->elements && a->mismatches == b->mismatches &&
               a->nonfinite == b->nonfinite && a->max_abs == b->max_abs,
           "%lld of %lld, %lld not finite, up to %g, instead of %lld of %lld, %lld, %g",
           (long long)a->mismatches, (long long)a->elements, (long long)a->nonfinite, a->max_abs,
           (long long)b->mismatches, (long long)b->elements, (long long)b->nonfinite, b->max_abs);
    EXPECT(same_element(&a->first_bad, &b->first_bad) &&
               (a->first_bad_got == b->first_bad_got ||
                (isnan(a->first_bad_got) && isnan(b->first_bad_got))),
           "first at %d/%lld/%d/%d (%g) instead of %d/%lld/%d/%d (%g)", a->first_bad.sequence,
           (long long)a->first_bad.position, a->first_bad.head, a->first_bad.dim, a->first_bad_got,
           b->first_bad.sequence, (long long)b->first_bad.position, b->first_bad.head,
           b->first_bad.dim, b->first_bad_got);
}

// Fills a tensor with zeros of both signs, and puts `bad` odd values at random places, in padding
// or tokens.
static void padding_draw(const struct cp_case *c, struct twin *t, int64_t elements, int bad)
{
    for (int64_t i = 0; i < elements; i++)
        dtype_store(c->dtype, t->host, i, i % 3 ? 0 : -0.0f);
    const float odd[] = {NAN, INFINITY, -INFINITY, 1, -3, 1e-7f};
    for (int k = 0; k < bad; k++)
        dtype_store(c->dtype, t->host, harness_below(elements), odd[harness_below(6)]);
    twin_push(t);
}

static bool padding_compare(const struct cp_case *c, int rank, int bad)
{
    int64_t elements = shard_rows(c, SIDE_KV, rank) * c->kv_heads * c->head_dim_qk;
    if (elements == 0)
        return false;
    struct twin t = twin_create((size_t)(elements * case_element_bytes(c)), 0);
    struct padding_tensor there = {TENSOR_DK, SIDE_KV, t.device, c->kv_heads, c->head_dim_qk};
    struct padded_tensor here = {TENSOR_DK, SIDE_KV, t.host, c->kv_heads, c->head_dim_qk};
    struct figures got, expected;
    padding_draw(c, &t, elements, bad);
    const struct padding_cuda *padding =
        padding_cuda_judge(attention_cuda_queue(harness_cuda), c, rank, &there);
    harness_finish();
    bool had = padding_judge(c, rank, &here, &expected);
    figures_compare(&got, &expected, padding_cuda_figures(padding, &got), had, c);
    twin_destroy(&t);
    return had;
}

static void padding_of_generated_cases(void)
{
    int wanted = harness_small() ? 12 : 150, judged = 0;
    for (int n = 0; n < 100 * wanted && judged < wanted; n++) {
        struct cp_case c;
        generate_case(harness_random(), 8, n % 10 ? 64 : 900, &c);
        judged += padding_compare(&c, (int)harness_below(c.world_size), n % 3 * 5);
    }
    EXPECT(judged == wanted, "only %d had padding", judged);
}

static const struct harness_test tests[] = {
    {"regions_copy", regions_copy},
    {"regions_add", regions_add},
    {"digest_sums", digest_sums},
    {"inputs_of_generated_cases", inputs_of_generated_cases},
    {"inputs_beyond_2_32_elements", inputs_beyond_2_32_elements},
    {"inputs_of_every_factor", inputs_of_every_factor},
    {"padding_of_generated_cases", padding_of_generated_cases},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
