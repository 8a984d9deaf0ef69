// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/statistics.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/rules.h"

// Statistics of a query: LSE, delta, the twin's delta.
#define PARTS 3

static int64_t group_size(const struct cp_case *c)
{
    return c->heads / c->kv_heads;
}

// Number of doubles of one part of a rank's statistics.
static int64_t part_count(const struct cp_case *c, int rank)
{
    return shard_rows(c, SIDE_Q, rank) * c->heads;
}

enum status statistics_reserve(const struct cp_case *c, size_t *total, struct error *error)
{
    size_t sum = *total;
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && status == STATUS_OK; r++)
        status = arena_add(&sum, part_count(c, r), PARTS * 8, error);
    for (int i = 0; i < PARTS && status == STATUS_OK; i++)
        status = arena_add(&sum, group_size(c) * c->seqlen_q, 8, error);
    if (status == STATUS_OK)
        *total = sum;
    return status;
}

void statistics_take(struct statistics *s, const struct cp_case *c, int rank, struct arena *arena)
{
    *s = (struct statistics){.c = c, .rank = rank};
    for (int r = 0; r < c->world_size; r++)
        s->ranks[r] = arena_take(arena, part_count(c, r), PARTS * 8);
    s->lse = arena_take(arena, group_size(c) * c->seqlen_q, 8);
    s->delta = arena_take(arena, group_size(c) * c->seqlen_q, 8);
    s->delta_twin = arena_take(arena, group_size(c) * c->seqlen_q, 8);
}

// Index of a rank's first token of a sequence and head in a part of its statistics. s->before keeps
// the tokens before s->sequence, so that ascending sequences cost little.
static int64_t place_of(struct statistics *s, int rank, int32_t sequence, int head)
{
    const struct cp_case *c = s->c;
    if (sequence < s->sequence) {
        s->sequence = 0;
        memset(s->before, 0, sizeof(s->before));
    }
    for (; s->sequence < sequence; s->sequence++)
        for (int r = 0; r < c->world_size; r++)
            s->before[r] += shard_tokens(c, SIDE_Q, r, s->sequence);
    return s->before[rank] * c->heads + head * shard_tokens(c, SIDE_Q, rank, sequence);
}

// Number of tokens of a sequence on a rank before a chunk.
static int64_t tokens_before(const struct cp_case *c, int rank, int32_t sequence, int chunk)
{
    int64_t begin = 0, end = 0;
    int chunks = shard_chunks_per_rank(c) * c->world_size;
    if (chunk > 0)
        shard_chunk(case_occupied(c, SIDE_Q, sequence), chunks, shard_chunk_of(c, rank, 0), &begin,
                    &end);
    return end - begin;
}

// This rank's statistics of a span and head, from its first token on.
static double *own_of(struct statistics *s, const struct span *span, int head)
{
    return s->ranks[s->rank] + place_of(s, s->rank, span->sequence, head) +
           tokens_before(s->c, s->rank, span->sequence, span->chunk);
}

void statistics_keep(struct statistics *s, const struct span *span, int head, int64_t first,
                     int64_t count, const struct expected_statistics *values)
{
    double *own = own_of(s, span, head) + first;
    int64_t part = part_count(s->c, s->rank);
    size_t bytes = (size_t)count * sizeof(double);
    memcpy(own, values->lse, bytes);
    memcpy(own + part, values->delta, bytes);
    memcpy(own + 2 * part, values->delta_twin, bytes);
}

static double row_delta(const struct statistics *s, const struct span *span, int head,
                        int64_t token, const void *out)
{
    const struct cp_case *c = s->c;
    int d = c->head_dim_v;
    float values[HEAD_DIM_MAX], d_out[HEAD_DIM_MAX];
    int64_t row = span->row + token * shard_row_step(c);
    double delta = 0;
    dtype_read(c->dtype, out, (row * c->heads + head) * d, d, values);
    input_token_head(c, INPUT_DO, span->sequence, span->position + token, head, d_out);
    for (int i = 0; i < d; i++)
        delta += (double)values[i] * d_out[i];
    return delta;
}

void statistics_keep_results(struct statistics *s, const struct span *spans, int count,
                             const struct rank_results *results)
{
    const struct cp_case *c = s->c;
    int64_t rows = shard_rows(c, SIDE_Q, s->rank), step = shard_row_step(c);
    int64_t part = part_count(c, s->rank);
    for (int i = 0; i < count; i++)
        for (int head = 0; head < c->heads; head++) {
            double *own = own_of(s, &spans[i], head);
            for (int64_t token = 0; token < spans[i].len; token++) {
                own[token] = results->lse[head * rows + spans[i].row + token * step];
                own[part + token] = row_delta(s, &spans[i], head, token, results->out);
                own[2 * part + token] = own[part + token];
            }
        }
}

// delta is a sum of products with elements of out. Rounding of out changes each product by at most
// half a step; the total is estimated by a fraction of delta.
void statistics_add_sink(struct statistics *s, const struct span *span, int head,
                         const struct expected_sums *sums)
{
    const double *own = own_of(s, span, head), *delta = own + part_count(s->c, s->rank);
    double sink = input_sink(s->c, head), rounding = rules_of(s->c, TENSOR_OUT).step / 4;
    double products = rules_product_squares(s->c);
    for (int64_t i = 0; i < span->len; i++) {
        double weight = exp(sink - own[i]), term = -weight * delta[i];
        *sums->dsink += term;
        *sums->dsink_terms += rules_sink_square(weight, delta[i], products);
        *sums->dsink_twin_squares += rounding * rounding * term * term;
    }
}

struct message statistics_message(const struct statistics *s, int peer)
{
    return (struct message){
        .peer = peer,
        .send = s->ranks[s->rank],
        .send_bytes = (size_t)part_count(s->c, s->rank) * PARTS * sizeof(double),
        .receive = s->ranks[peer],
        .receive_bytes = (size_t)part_count(s->c, peer) * PARTS * sizeof(double)};
}

// Copies the statistics of a rank's tokens of a sequence and head to their positions in `to`.
static void rank_gather(struct statistics *s, int rank, int32_t sequence, int head, int64_t to)
{
    const struct cp_case *c = s->c;
    const double *from = s->ranks[rank] + place_of(s, rank, sequence, head);
    int64_t part = part_count(c, rank), length = case_length(c, SIDE_Q, sequence);
    int chunks = shard_chunks_per_rank(c);
    for (int i = 0; i < chunks; i++) {
        int64_t begin, end;
        shard_chunk(case_occupied(c, SIDE_Q, sequence), chunks * c->world_size,
                    shard_chunk_of(c, rank, i), &begin, &end);
        int64_t valid = (end < length ? end : length) - begin;
        if (valid > 0) {
            size_t bytes = (size_t)valid * sizeof(double);
            memcpy(s->lse + to + begin, from, bytes);
            memcpy(s->delta + to + begin, from + part, bytes);
            memcpy(s->delta_twin + to + begin, from + 2 * part, bytes);
        }
        from += end - begin;
    }
}

struct expected_statistics statistics_of(struct statistics *s, int32_t sequence, int kv_head)
{
    int64_t length = case_length(s->c, SIDE_Q, sequence);
    int group = (int)group_size(s->c);
    for (int rank = 0; rank < s->c->world_size; rank++)
        for (int h = 0; h < group; h++)
            rank_gather(s, rank, sequence, kv_head * group + h, h * length);
    return (struct expected_statistics){s->lse, s->delta, s->delta_twin};
}
