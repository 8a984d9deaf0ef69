// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/verify_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/reference.h"
#include "kernels/dtype.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (!memory)
        abort();
    return memory;
}

void sample_check(enum status status, const struct error *error)
{
    if (status == STATUS_OK)
        return;
    printf("Bail out! %s\n", error->text);
    exit(1);
}

static struct reference_sums sums_at(struct sample *s, struct rank *rank, const struct span *span,
                                     int head)
{
    const struct cp_case *c = &s->c;
    struct reference_sums sums = {.max_logit = &s->sums[head]};
    if (c->training && c->softmax == SOFTMAX_LEARNABLE) {
        sums.dsink = &s->sums[c->heads + head];
        sums.dsink_squares = &s->sums[2 * c->heads + head];
    }
    if (rank->dbias) {
        struct team alone = team_of(rank->number, 1);
        int64_t line =
            (bias_has_heads(c) ? head : 0) * bias_rows(c, alone) + bias_row_of(c, alone, 0, span);
        sums.dbias = rank->dbias + line * c->seqlen_kv;
        sums.dbias_stride = bias_row_step(c) * c->seqlen_kv;
    }
    return sums;
}

// Computes the reference of a rank's queries, which is stored by [head][token].
static void queries_solve(struct sample *s, struct rank *rank)
{
    const struct cp_case *c = &s->c;
    struct error error;
    for (int i = 0; i < rank->span_count[SIDE_Q]; i++)
        for (int head = 0; head < c->heads; head++) {
            const struct span *span = &rank->spans[SIDE_Q][i];
            struct reference_sums sums = sums_at(s, rank, span, head);
            int64_t at =
                head * s->tokens[SIDE_Q] + s->first[SIDE_Q][span->sequence] + span->position;
            sample_check(reference_queries(c, span->sequence, head, span->position,
                                           span->position + span->len, s->out + at * c->head_dim_v,
                                           s->lse + at, c->training ? s->delta + at : NULL,
                                           c->training ? s->dq + at * c->head_dim_qk : NULL, NULL,
                                           &sums, &error),
                         &error);
        }
}

static void keys_solve(struct sample *s)
{
    const struct cp_case *c = &s->c;
    struct error error;
    int group = c->heads / c->kv_heads;
    for (int sequence = 0; sequence < c->batch; sequence++) {
        int64_t queries = case_length(c, SIDE_Q, sequence);
        int64_t keys = case_length(c, SIDE_KV, sequence);
        double *lse = zeros(group * queries, sizeof(double));
        double *delta = zeros(group * queries, sizeof(double));
        for (int kv = 0; kv < c->kv_heads; kv++) {
            for (int h = 0; h < group; h++) {
                int64_t from = (kv * group + h) * s->tokens[SIDE_Q] + s->first[SIDE_Q][sequence];
                memcpy(lse + h * queries, s->lse + from, (size_t)queries * sizeof(double));
                memcpy(delta + h * queries, s->delta + from, (size_t)queries * sizeof(double));
            }
            int64_t at = kv * s->tokens[SIDE_KV] + s->first[SIDE_KV][sequence];
            sample_check(reference_keys(c, sequence, kv, 0, keys, lse, delta,
                                        s->dk + at * c->head_dim_qk, s->dv + at * c->head_dim_v,
                                        NULL, &error),
                         &error);
        }
        free(lse);
        free(delta);
    }
}

// Rounds a right result to fp32, with a random error below every limit.
static float nearly(double value)
{
    return (float)(value * (1 + 5e-8 * harness_uniform()));
}

// Fills a rank's tensor from the reference [head][token][dim]. Padding is zero; in LSE it is NaN
// and is not read.
static void tensor_fill(struct rank *rank, int tensor, enum shard_side side, int heads, int dim,
                        const double *from)
{
    struct sample *s = rank->sample;
    const struct cp_case *c = &s->c;
    enum case_dtype dtype = tensor == LSE ? DTYPE_FP32 : c->dtype;
    int64_t rows = shard_rows(c, side, rank->number);
    rank->bytes[tensor] = (size_t)(rows * heads * dim * dtype_bytes(dtype));
    rank->host[tensor] = zeros(rows * heads * dim, (size_t)dtype_bytes(dtype));
    if (tensor == LSE)
        memset(rank->host[tensor], 0xff, rank->bytes[tensor]);
    for (int i = 0; i < rank->span_count[side]; i++) {
        const struct span *span = &rank->spans[side][i];
        for (int64_t token = 0; token < span->len; token++)
            for (int at = 0; at < heads * dim; at++) {
                int head = at / dim;
                int64_t row = span->row + token * shard_row_step(c);
                int64_t source = head * s->tokens[side] + s->first[side][span->sequence] +
                                 span->position + token;
                dtype_store(dtype, rank->host[tensor],
                            tensor == LSE ? head * rows + row : row * heads * dim + at,
                            nearly(from[source * dim + at % dim]));
            }
    }
}

static void floats_fill(struct rank *rank, int tensor, const double *from)
{
    int heads = rank->sample->c.heads;
    float *to = zeros(heads, sizeof(float));
    for (int head = 0; head < heads; head++)
        to[head] = nearly(from[head]);
    rank->host[tensor] = to;
    rank->bytes[tensor] = (size_t)heads * sizeof(float);
}

static void dbias_fill(struct rank *rank)
{
    const struct cp_case *c = &rank->sample->c;
    struct bias_share share = bias_share(c, rank->number);
    rank->host[DBIAS] = zeros(share.count, (size_t)dtype_bytes(c->dtype));
    rank->bytes[DBIAS] = (size_t)(share.count * dtype_bytes(c->dtype));
    for (int64_t i = 0; i < share.count; i++) {
        double sum = rank->dbias[share.first + i];
        for (int other = 0; other < c->world_size && bias_is_whole(c); other++)
            if (other != rank->number)
                sum += rank->sample->ranks[other].dbias[share.first + i];
        dtype_store(c->dtype, rank->host[DBIAS], i, nearly(sum));
    }
}

static void rank_init(struct sample *s, int number)
{
    const struct cp_case *c = &s->c;
    struct rank *rank = &s->ranks[number];
    rank->number = number;
    rank->sample = s;
    for (int side = 0; side < 2; side++) {
        rank->spans[side] = zeros(shard_spans_max(c), sizeof(struct span));
        rank->span_count[side] = shard_spans(c, (enum shard_side)side, number, rank->spans[side]);
    }
    if (c->training && c->bias != BIAS_NONE)
        rank->dbias = zeros((bias_has_heads(c) ? c->heads : 1) * bias_rows(c, team_of(number, 1)) *
                                c->seqlen_kv,
                            sizeof(double));
    queries_solve(s, rank);
}

static void rank_fill(struct rank *rank)
{
    struct sample *s = rank->sample;
    const struct cp_case *c = &s->c;
    tensor_fill(rank, OUT, SIDE_Q, c->heads, c->head_dim_v, s->out);
    tensor_fill(rank, LSE, SIDE_Q, c->heads, 1, s->lse);
    if (c->max_logit)
        floats_fill(rank, MAX_LOGIT, s->sums);
    if (!c->training)
        return;
    tensor_fill(rank, DQ, SIDE_Q, c->heads, c->head_dim_qk, s->dq);
    tensor_fill(rank, DK, SIDE_KV, c->kv_heads, c->head_dim_qk, s->dk);
    tensor_fill(rank, DV, SIDE_KV, c->kv_heads, c->head_dim_v, s->dv);
    if (c->softmax == SOFTMAX_LEARNABLE)
        floats_fill(rank, DSINK, s->sums + c->heads);
    if (rank->dbias)
        dbias_fill(rank);
}

void sample_init(struct sample *s, const struct cp_case *c)
{
    memset(s, 0, sizeof(*s));
    s->c = *c;
    for (int side = 0; side < 2; side++) {
        s->first[side] = zeros(c->batch, sizeof(int64_t));
        for (int i = 0; i < c->batch; i++) {
            s->first[side][i] = s->tokens[side];
            s->tokens[side] += case_length(c, (enum shard_side)side, i);
        }
    }
    int64_t q = s->tokens[SIDE_Q] * c->heads, kv = s->tokens[SIDE_KV] * c->kv_heads;
    s->out = zeros(q * c->head_dim_v, sizeof(double));
    s->dq = zeros(q * c->head_dim_qk, sizeof(double));
    s->dk = zeros(kv * c->head_dim_qk, sizeof(double));
    s->dv = zeros(kv * c->head_dim_v, sizeof(double));
    s->lse = zeros(q, sizeof(double));
    s->delta = zeros(q, sizeof(double));
    s->sums = zeros(3 * c->heads, sizeof(double));
    for (int head = 0; head < c->heads; head++)
        s->sums[head] = -INFINITY;
    for (int rank = 0; rank < c->world_size; rank++)
        rank_init(s, rank);
    if (c->training)
        keys_solve(s);
    for (int rank = 0; rank < c->world_size; rank++)
        rank_fill(&s->ranks[rank]);
}

void sample_fini(struct sample *s)
{
    void *all[] = {s->out,   s->dq,   s->dk,       s->dv,      s->lse,
                   s->delta, s->sums, s->first[0], s->first[1]};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    for (int r = 0; r < s->c.world_size; r++) {
        struct rank *rank = &s->ranks[r];
        for (int i = 0; i < TENSORS; i++)
            free(rank->host[i]);
        free(rank->spans[0]);
        free(rank->spans[1]);
        free(rank->dbias);
    }
}
