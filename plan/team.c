// SPDX-License-Identifier: Apache-2.0
#include "plan/team.h"

static int divisor_common(int a, int b)
{
    while (b != 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int team_size(const struct cp_case *c)
{
    switch (c->comm) {
    case COMM_A2A:
        return c->world_size;
    case COMM_A2A_P2P:
        return c->a2a_size;
    case COMM_AUTO:
        return divisor_common(case_ranks_per_node(c), c->kv_heads);
    default:
        return 1;
    }
}

enum case_comm team_comm(const struct cp_case *c)
{
    int size = team_size(c);
    if (c->comm != COMM_AUTO)
        return c->comm;
    return size == 1 ? COMM_P2P : size == c->world_size ? COMM_A2A : COMM_A2A_P2P;
}

struct team team_of(int rank, int size)
{
    return (struct team){rank / size * size, size};
}

int team_groups(const struct cp_case *c)
{
    int each = c->kv_heads / c->world_size;
    if (team_comm(c) != COMM_A2A || each < 1)
        return 1;
    return each < TEAM_GROUPS_MAX ? each : TEAM_GROUPS_MAX;
}

// The query heads [first, end) with their key heads.
static struct heads heads_between(const struct cp_case *c, int first, int end)
{
    int group = c->heads / c->kv_heads;
    struct heads heads = {.first = first, .kv_first = first / group};
    if (end > first)
        heads.count = end - first;
    if (heads.count > 0)
        heads.kv_count = (end + group - 1) / group - heads.kv_first;
    return heads;
}

struct heads team_heads(const struct cp_case *c, int size, int member)
{
    return heads_between(c, member * c->heads / size, (member + 1) * c->heads / size);
}

struct heads heads_part(const struct cp_case *c, struct heads heads, int i, int count)
{
    int group = c->heads / c->kv_heads, end = heads.first + heads.count;
    int first = (heads.kv_first + i * heads.kv_count / count) * group;
    int last = (heads.kv_first + (i + 1) * heads.kv_count / count) * group;
    return heads_between(c, first > heads.first ? first : heads.first, last < end ? last : end);
}

int64_t team_rows(const struct cp_case *c, enum shard_side side, struct team team)
{
    return team_row_base(c, side, team, team.size);
}

int64_t team_row_base(const struct cp_case *c, enum shard_side side, struct team team, int member)
{
    int64_t rows = 0;
    for (int m = 0; m < member; m++)
        rows += shard_rows(c, side, team.first + m);
    return rows;
}

int64_t team_rows_max(const struct cp_case *c, enum shard_side side, int size)
{
    int64_t rows_max = 0;
    for (int first = 0; first < c->world_size; first += size) {
        int64_t rows = team_rows(c, side, (struct team){first, size});
        if (rows > rows_max)
            rows_max = rows;
    }
    return rows_max;
}
