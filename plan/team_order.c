// SPDX-License-Identifier: Apache-2.0
#include "plan/team_order.h"

#include <stdlib.h>

#include "plan/bias.h"

bool team_in_order(const struct cp_case *c, int size)
{
    return size > 1 && (shard_is_alike(c) || c->batch <= TEAM_SEQUENCES_MAX);
}

// ---- chunks in order ----

// The member that holds the k-th chunk of a team in the order of positions. *i: index of that chunk
// among the member's chunks.
static int chunk_member(const struct team *team, int k, int *i)
{
    *i = k >= team->size;
    return *i ? 2 * team->size - 1 - k : k;
}

static int64_t team_chunk(const struct cp_case *c, enum shard_side side, struct team team,
                          int32_t sequence, int k)
{
    int i, member = chunk_member(&team, k, &i);
    return shard_chunk_tokens(c, side, team.first + member, sequence, i);
}

// Tokens of a sequence in the team's chunks [0, k).
static int64_t tokens_before(const struct cp_case *c, enum shard_side side, struct team team,
                             int32_t sequence, int k)
{
    int64_t tokens = 0;
    while (k-- > 0)
        tokens += team_chunk(c, side, team, sequence, k);
    return tokens;
}

static int team_chunks(const struct cp_case *c, struct team team)
{
    return team.size * shard_chunks_per_rank(c);
}

// The first row of the next sequence in a tensor. This sequence begins at `row` and has `tokens`
// tokens there.
static int64_t next_sequence(const struct cp_case *c, int64_t row, int64_t tokens)
{
    return row + (c->format == FORMAT_SBHD ? 1 : tokens);
}

// ---- blocks ----

// The i-th chunk of a member in one sequence; `base`: the first rows of the sequence.
static struct team_block chunk_block(const struct cp_case *c, enum shard_side side,
                                     struct team team, int32_t sequence, int member, int i,
                                     struct team_block base)
{
    int rank = team.first + member, k = i == 0 ? member : 2 * team.size - 1 - member;
    int64_t step = shard_row_step(c);
    base.own += i == 0 ? 0 : shard_chunk_tokens(c, side, rank, sequence, 0) * step;
    base.team += tokens_before(c, side, team, sequence, k) * step;
    base.rows = shard_chunk_tokens(c, side, rank, sequence, i) * step;
    return base;
}

// If all sequences occupy the same number of tokens, each chunk is one block, repeated for each
// sequence. In sbhd the sequences are interleaved, so the block has no repetitions.
static int alike_blocks(const struct cp_case *c, enum shard_side side, struct team team, int member,
                        struct team_block *blocks)
{
    int per_rank = shard_chunks_per_rank(c);
    struct team_block base = {.repeats = 1};
    if (c->format != FORMAT_SBHD)
        base =
            (struct team_block){.repeats = c->batch,
                                .own_step = shard_tokens(c, side, team.first + member, 0),
                                .team_step = tokens_before(c, side, team, 0, team_chunks(c, team))};
    for (int i = 0; i < per_rank; i++)
        blocks[i] = chunk_block(c, side, team, 0, member, i, base);
    return per_rank;
}

int team_blocks(const struct cp_case *c, enum shard_side side, struct team team, int member,
                struct team_block *blocks)
{
    int per_rank = shard_chunks_per_rank(c), count = 0, rank = team.first + member;
    struct team_block base = {.repeats = 1};
    if (!team_in_order(c, team.size)) {
        blocks[0] = (struct team_block){.team = team_row_base(c, side, team, member),
                                        .rows = shard_rows(c, side, rank),
                                        .repeats = 1};
        return 1;
    }
    if (shard_is_alike(c))
        return alike_blocks(c, side, team, member, blocks);
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        for (int i = 0; i < per_rank; i++)
            blocks[count++] = chunk_block(c, side, team, sequence, member, i, base);
        base.own += shard_tokens(c, side, rank, sequence);
        base.team += tokens_before(c, side, team, sequence, team_chunks(c, team));
    }
    return count;
}

// ---- spans ----

// Upper bound of a sequence's spans after adjacent ones are joined.
static int64_t runs_max(const struct cp_case *c, enum shard_side side, int size, int32_t sequence)
{
    int64_t runs = size * shard_chunks_per_rank(c), len = case_length(c, side, sequence);
    bool torn =
        side == SIDE_Q && c->bias != BIAS_NONE; // rows of a bias are in the order of members
    if (team_in_order(c, size) && !torn && runs > 2)
        runs = 2;
    return len < runs ? len : runs;
}

int64_t team_slices_bound(const struct cp_case *c, int size)
{
    int64_t count = 0;
    for (int32_t i = 0; i < c->batch; i++)
        count += runs_max(c, SIDE_Q, size, i) * runs_max(c, SIDE_KV, size, i);
    return count;
}

static int span_order(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int member_spans(const struct cp_case *c, enum shard_side side, struct team team,
                        struct span *spans)
{
    int count = 0;
    for (int m = 0; m < team.size; m++) {
        int64_t base = team_row_base(c, side, team, m);
        int added = shard_spans(c, side, team.first + m, spans + count);
        for (int i = count; i < count + added; i++) {
            if (side == SIDE_Q)
                spans[i].bias_row = bias_row_of(c, team, m, &spans[i]);
            spans[i].row += base;
        }
        count += added;
    }
    if (team.size > 1)
        qsort(spans, (size_t)count, sizeof *spans, span_order);
    return count;
}

// Makes the spans of one sequence in order. `row`: its first row in the team's tensor; `own`: in
// the members' tensors.
static int ordered_spans(const struct cp_case *c, enum shard_side side, struct team team,
                         int32_t sequence, int64_t row, const int64_t *own, struct span *spans)
{
    int64_t occupied = case_occupied(c, side, sequence), length = case_length(c, side, sequence);
    int64_t step = shard_row_step(c);
    int count = 0, chunks = team_chunks(c, team), all = c->world_size * shard_chunks_per_rank(c);
    for (int k = 0; k < chunks; k++) {
        int i, member = chunk_member(&team, k, &i), rank = team.first + member;
        int64_t begin, end;
        shard_chunk(occupied, all, shard_chunk_of(c, rank, i), &begin, &end);
        struct span s = {.sequence = sequence, .chunk = i, .row = own[member], .position = begin};
        s.len = (end < length ? end : length) - begin;
        if (side == SIDE_Q && c->bias != BIAS_NONE) { // with the member's row
            s.row += i == 0 ? 0 : shard_chunk_tokens(c, side, rank, sequence, 0) * step;
            s.bias_row = bias_row_of(c, team, member, &s);
        }
        s.row = row;
        if (s.len > 0)
            spans[count++] = s;
        row += (end - begin) * step;
    }
    return count;
}

// Repeats the `count` spans of sequence 0 for all others. Returns the number of all spans.
static int repeat_spans(const struct cp_case *c, int64_t tokens, struct span *spans, int count)
{
    struct span *next = spans + count;
    int64_t row = 0;
    for (int32_t sequence = 1; sequence < c->batch; sequence++) {
        row = next_sequence(c, row, tokens);
        for (int i = 0; i < count; i++, next++) {
            *next = spans[i];
            next->sequence = sequence;
            next->row += row;
        }
    }
    return count * c->batch;
}

int team_spans(const struct cp_case *c, enum shard_side side, struct team team, struct span *spans)
{
    int64_t row = 0, own[WORLD_SIZE_MAX] = {0};
    int count = 0;
    if (!team_in_order(c, team.size))
        return member_spans(c, side, team, spans);
    if (c->bias == BIAS_NONE && case_is_even(c, SIDE_Q) && case_is_even(c, SIDE_KV)) {
        count = ordered_spans(c, side, team, 0, 0, own, spans);
        return repeat_spans(c, tokens_before(c, side, team, 0, team_chunks(c, team)), spans, count);
    }
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        count += ordered_spans(c, side, team, sequence, row, own, spans + count);
        int64_t tokens = 0;
        for (int m = 0; m < team.size; m++) {
            int64_t local = shard_tokens(c, side, team.first + m, sequence);
            own[m] = next_sequence(c, own[m], local);
            tokens += local;
        }
        row = next_sequence(c, row, tokens);
    }
    return count;
}
