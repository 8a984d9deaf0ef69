// SPDX-License-Identifier: Apache-2.0
#include "plan/bias.h"

bool bias_has_batch(const struct cp_case *c)
{
    return c->bias == BIAS_B11S || c->bias == BIAS_B1SS || c->bias == BIAS_BH1S ||
           c->bias == BIAS_BHSS;
}

bool bias_has_heads(const struct cp_case *c)
{
    return c->bias == BIAS_1H1S || c->bias == BIAS_1HSS || c->bias == BIAS_BH1S ||
           c->bias == BIAS_BHSS;
}

bool bias_has_queries(const struct cp_case *c)
{
    return c->bias == BIAS_11SS || c->bias == BIAS_1HSS || c->bias == BIAS_B1SS ||
           c->bias == BIAS_BHSS;
}

// What a row of the bias in memory stands for: one query of one sequence, one local token of all
// sequences, one position of all sequences, or all queries of one sequence (or of all).
enum bias_row_kind { ROW_OF_QUERY, ROW_OF_TOKEN, ROW_OF_POSITION, ROW_OF_SEQUENCE };

static enum bias_row_kind bias_row_kind(const struct cp_case *c)
{
    if (!bias_has_queries(c))
        return ROW_OF_SEQUENCE;
    if (bias_has_batch(c))
        return ROW_OF_QUERY;
    return c->format == FORMAT_THD ? ROW_OF_POSITION : ROW_OF_TOKEN;
}

bool bias_is_whole(const struct cp_case *c)
{
    enum bias_row_kind kind = bias_row_kind(c);
    return kind == ROW_OF_POSITION || kind == ROW_OF_SEQUENCE;
}

struct team bias_team(const struct cp_case *c, int rank)
{
    return team_of(rank, c->implementation[0] ? 1 : team_size(c));
}

int64_t bias_row_base(const struct cp_case *c, struct team team, int member)
{
    if (bias_row_kind(c) == ROW_OF_QUERY)
        return team_row_base(c, SIDE_Q, team, member);
    if (bias_row_kind(c) == ROW_OF_TOKEN)
        return team_row_base(c, SIDE_Q, team, member) / c->batch;
    return 0;
}

int64_t bias_rows(const struct cp_case *c, struct team team)
{
    switch (bias_row_kind(c)) {
    case ROW_OF_POSITION:
        return c->seqlen_q;
    case ROW_OF_SEQUENCE:
        return bias_has_batch(c) ? c->batch : 1;
    default:
        return bias_row_base(c, team, team.size);
    }
}

// Index of the span's first token among the rank's tokens of the sequence.
static int64_t local_token(const struct cp_case *c, int rank, const struct span *span)
{
    if (c->format == FORMAT_SBHD)
        return span->row / c->batch;
    return span->row - span->sequence * (shard_rows(c, SIDE_Q, rank) / c->batch);
}

int64_t bias_row_of(const struct cp_case *c, struct team team, int member, const struct span *span)
{
    int64_t base = bias_row_base(c, team, member);
    switch (bias_row_kind(c)) {
    case ROW_OF_QUERY:
        return base + span->row;
    case ROW_OF_TOKEN:
        return base + local_token(c, team.first + member, span);
    case ROW_OF_POSITION:
        return span->position;
    case ROW_OF_SEQUENCE:
        break;
    }
    return bias_has_batch(c) ? span->sequence : 0;
}

int64_t bias_row_step(const struct cp_case *c)
{
    if (bias_row_kind(c) == ROW_OF_QUERY)
        return shard_row_step(c);
    return bias_has_queries(c) ? 1 : 0;
}

int64_t bias_head_stride(const struct cp_case *c, int64_t rows)
{
    return bias_has_heads(c) ? rows * c->seqlen_kv : 0;
}

bool bias_is_once(const struct cp_case *c)
{
    bool sequences = bias_has_batch(c) || (c->batch == 1 && c->format != FORMAT_THD);
    return bias_has_heads(c) && bias_has_queries(c) && sequences;
}

struct bias_shape bias_shape(const struct cp_case *c, int rank)
{
    struct team team = bias_team(c, rank);
    struct heads held = team_heads(c, team.size, rank - team.first);
    struct bias_shape shape = {.rows = bias_rows(c, team), .columns = c->seqlen_kv};
    shape.heads = bias_has_heads(c) || held.count == 0 ? held.count : 1;
    shape.head_first = bias_has_heads(c) ? held.first : 0;
    return shape;
}

struct bias_share bias_share(const struct cp_case *c, int rank)
{
    int64_t n = bias_rows(c, team_of(rank, 1)) * c->seqlen_kv;
    n *= bias_has_heads(c) ? c->heads : 1;
    if (!bias_is_whole(c))
        return (struct bias_share){.count = n};
    int64_t first = rank * n / c->world_size;
    return (struct bias_share){first, (rank + 1) * n / c->world_size - first};
}
