// SPDX-License-Identifier: Apache-2.0
// Judges a kernel in C or C++, to copy and change. No daemon and no GPU is needed. Replace attend()
// by your kernel.
//
//     cc kernel.c $(pkg-config --cflags --libs cpattn-check) -lm -o kernel
//     ./kernel                                   # pass
//     ./kernel heads=8 kv_heads=2 seqlen=300     # any field of a case that attend() supports
//     ./kernel wrong=1.05                        # a scale that is 5 % too large
//
// Exit status: 0 pass, 1 fail, 2 the case cannot be run.
#include <cpattn_check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the kernel under test: causal attention in bf16, forward and backward ----------------------

struct shape {
    long batch, tokens, heads, kv_heads, dim; // tensors are [batch][tokens][heads][dim]
    float scale;
};

static float load(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static uint16_t store(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof(wide));
    return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

static float dot(const uint16_t *a, const uint16_t *b, long dim)
{
    float sum = 0;
    for (long d = 0; d < dim; d++)
        sum += load(a[d]) * load(b[d]);
    return sum;
}

struct tensors {
    const uint16_t *q, *k, *v, *dout;
    uint16_t *out, *dq;
    float *lse;      // [batch][heads][tokens]
    float *dk, *dv;  // fp32 accumulators, rounded to bf16 at the end
    float *p, *sums; // [tokens], [dim]: scratch of one query
};

// Replaces logits by exp(logit - top), and returns their sum.
static float exponentials(float *p, long count, float top)
{
    float total = 0;
    for (long j = 0; j < count; j++)
        total += p[j] = expf(p[j] - top);
    return total;
}

// Forward and backward pass of one query and head. `at` is the offset of the query's row, `keys`
// the offset of the first key of its key head.
static void attend_row(const struct shape *s, const struct tensors *t, long query, long at,
                       long keys, float *lse)
{
    long step = s->kv_heads * s->dim;
    float top = -INFINITY, delta = 0;
    for (long j = 0; j <= query; j++) {
        t->p[j] = dot(t->q + at, t->k + keys + j * step, s->dim) * s->scale;
        top = fmaxf(top, t->p[j]);
    }
    float total = exponentials(t->p, query + 1, top);
    *lse = top + logf(total);
    for (long d = 0; d < s->dim; d++) {
        float sum = 0;
        for (long j = 0; j <= query; j++)
            sum += t->p[j] * load(t->v[keys + j * step + d]);
        t->out[at + d] = store(sum / total);
        delta += load(t->out[at + d]) * load(t->dout[at + d]);
        t->sums[d] = 0;
    }
    for (long j = 0; j <= query; j++) {
        long key = keys + j * step;
        float p = t->p[j] / total;
        float ds = p * (dot(t->dout + at, t->v + key, s->dim) - delta) * s->scale;
        for (long d = 0; d < s->dim; d++) {
            t->sums[d] += ds * load(t->k[key + d]);
            t->dk[key + d] += ds * load(t->q[at + d]);
            t->dv[key + d] += p * load(t->dout[at + d]);
        }
    }
    for (long d = 0; d < s->dim; d++)
        t->dq[at + d] = store(t->sums[d]);
}

static void attend(const struct shape *s, const struct tensors *t)
{
    for (long b = 0; b < s->batch; b++)
        for (long h = 0; h < s->heads; h++)
            for (long i = 0; i < s->tokens; i++) {
                long at = ((b * s->tokens + i) * s->heads + h) * s->dim;
                long keys = (b * s->tokens * s->kv_heads + h * s->kv_heads / s->heads) * s->dim;
                attend_row(s, t, i, at, keys, &t->lse[(b * s->heads + h) * s->tokens + i]);
            }
}

// ---- the judge ----------------------------------------------------------------------------------

static struct cpattn_error error;

static void must(enum cpattn_status status)
{
    if (status == CPATTN_OK)
        return;
    fprintf(stderr, "kernel: %s\n", error.text);
    exit(2);
}

static void *room(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    if (!memory)
        exit(2);
    return memory;
}

static long field(const struct cpattn_case *c, const char *name)
{
    char text[64];
    cpattn_case_get(c, name, text, sizeof(text));
    return atol(text);
}

// Refuses what attend() does not compute. Other fields do not change the attention of one rank.
static void insist(const struct cpattn_case *c)
{
    static const char *const needs[][2] = {
        {"dtype", "bf16"},      {"format", "bshd"},    {"mask", "causal"},     {"world_size", "1"},
        {"training", "true"},   {"window_left", "-1"}, {"scale", "0"},         {"softcap", "0"},
        {"softmax", "vanilla"}, {"bias", "none"},      {"max_logit", "false"}, {"lengths_q", ""},
        {"lengths_kv", ""}};
    char text[64];
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        cpattn_case_get(c, needs[i][0], text, sizeof(text));
        if (strcmp(text, needs[i][1]) == 0)
            continue;
        fprintf(stderr, "kernel: %s is %s; only %s is supported\n", needs[i][0], text,
                needs[i][1][0] ? needs[i][1] : "an empty list");
        exit(2);
    }
    if (field(c, "head_dim_qk") != field(c, "head_dim_v") ||
        field(c, "seqlen_q") != field(c, "seqlen_kv")) {
        fprintf(stderr, "kernel: q, k and v must have the same length and dimension\n");
        exit(2);
    }
}

// Memory for the inputs and results, q to dv. Offsets are in elements: the tensors of tokens are
// [batch][tokens][heads][dim], and LSE is [batch][heads][tokens].
static void allocate(const struct cpattn_check *check, const struct shape *s,
                     struct cpattn_array *arrays)
{
    memset(arrays, 0, CPATTN_TENSORS * sizeof(*arrays)); // no memory: not judged
    for (int i = CPATTN_TENSOR_Q; i <= CPATTN_TENSOR_DV; i++) {
        struct cpattn_shape own = cpattn_check_shape(check, (enum cpattn_tensor)i);
        size_t elements = (size_t)own.rows * (size_t)own.heads * (size_t)own.dim;
        arrays[i].data =
            room(elements * (i == CPATTN_TENSOR_LSE ? sizeof(float) : sizeof(uint16_t)));
        arrays[i].row_stride = own.heads * own.dim;
        arrays[i].head_stride = own.dim;
    }
    arrays[CPATTN_TENSOR_LSE].row_stride = 1;
    arrays[CPATTN_TENSOR_LSE].head_stride = s->tokens;
    arrays[CPATTN_TENSOR_LSE].inner_rows = s->tokens;
    arrays[CPATTN_TENSOR_LSE].outer_stride = s->heads * s->tokens;
}

static void run(const struct shape *s, struct cpattn_array *a)
{
    size_t elements = (size_t)(s->batch * s->tokens * s->kv_heads * s->dim);
    struct tensors t;
    t.q = (const uint16_t *)a[CPATTN_TENSOR_Q].data;
    t.k = (const uint16_t *)a[CPATTN_TENSOR_K].data;
    t.v = (const uint16_t *)a[CPATTN_TENSOR_V].data;
    t.dout = (const uint16_t *)a[CPATTN_TENSOR_DO].data;
    t.out = (uint16_t *)a[CPATTN_TENSOR_OUT].data;
    t.dq = (uint16_t *)a[CPATTN_TENSOR_DQ].data;
    t.lse = (float *)a[CPATTN_TENSOR_LSE].data;
    t.dk = (float *)room(elements * sizeof(float));
    t.dv = (float *)room(elements * sizeof(float));
    t.p = (float *)room((size_t)s->tokens * sizeof(float));
    t.sums = (float *)room((size_t)s->dim * sizeof(float));
    attend(s, &t);
    for (size_t i = 0; i < elements; i++) {
        ((uint16_t *)a[CPATTN_TENSOR_DK].data)[i] = store(t.dk[i]);
        ((uint16_t *)a[CPATTN_TENSOR_DV].data)[i] = store(t.dv[i]);
    }
    free(t.dk);
    free(t.dv);
    free(t.p);
    free(t.sums);
}

static float number(const char *text)
{
    char *end;
    float value = strtof(text, &end);
    if (end == text || *end) {
        fprintf(stderr, "kernel: wrong is '%s'; accepted is a number\n", text);
        exit(2);
    }
    return value;
}

// Sets a field of the case from "heads=8". "wrong=FACTOR", no field, multiplies the softmax scale.
static void set(struct cpattn_case *c, char *text, float *wrong)
{
    char *value = strchr(text, '=');
    if (!value) {
        fprintf(stderr, "kernel: '%s' is no FIELD=VALUE\n", text);
        exit(2);
    }
    *value++ = '\0';
    if (strcmp(text, "wrong") == 0)
        *wrong = number(value);
    else
        must(cpattn_case_set(c, text, value, &error));
}

int main(int argc, char **argv)
{
    static const char *const fields[][2] = {{"world_size", "1"}, {"sharding", "contiguous"},
                                            {"dtype", "bf16"},   {"mask", "causal"},
                                            {"batch", "2"},      {"heads", "4"},
                                            {"seqlen", "200"},   {"head_dim", "64"}};
    struct cpattn_case *c = cpattn_case_create();
    struct cpattn_check *check;
    struct cpattn_check_verdict *verdict;
    struct cpattn_array arrays[CPATTN_TENSORS];
    float wrong = 1;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        must(cpattn_case_set(c, fields[i][0], fields[i][1], &error));
    for (int i = 1; i < argc; i++)
        set(c, argv[i], &wrong);
    insist(c);
    must(cpattn_check_create(c, 0, &check, &error));

    struct shape s;
    s.batch = field(c, "batch");
    s.tokens = field(c, "seqlen_q");
    s.heads = field(c, "heads");
    s.kv_heads = field(c, "kv_heads");
    s.dim = field(c, "head_dim_qk");
    s.scale = wrong / sqrtf((float)s.dim);
    allocate(check, &s, arrays);
    for (int i = CPATTN_TENSOR_Q; i <= CPATTN_TENSOR_DO; i++)
        must(cpattn_check_fill(check, (enum cpattn_tensor)i, &arrays[i], &error));
    run(&s, arrays);
    for (int i = CPATTN_TENSOR_Q; i <= CPATTN_TENSOR_DO; i++) {
        free(arrays[i].data); // cpattn_check_verify() accepts results only
        arrays[i].data = NULL;
    }
    must(cpattn_check_verify(check, arrays, CPATTN_TENSORS, &verdict, &error));
    bool pass = cpattn_check_verdict_pass(verdict);
    printf("%s\n%s", pass ? "pass" : "FAIL", cpattn_check_verdict_text(verdict));
    for (int i = 0; i < CPATTN_TENSORS; i++)
        free(arrays[i].data);
    cpattn_check_verdict_destroy(verdict);
    cpattn_check_destroy(check);
    cpattn_case_destroy(c);
    return !pass;
}
