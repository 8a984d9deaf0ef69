// SPDX-License-Identifier: Apache-2.0
#include "plan/bias_grad.h"

static struct region scratch(struct builder *b, const char *name, int64_t bytes)
{
    int32_t buffer = builder_buffer(b, name, BUFFER_SCRATCH, bytes);
    return (struct region){.buffer = buffer, .bytes = bytes};
}

// A reduce-scatter: sends each peer its piece, and adds the received pieces in the order of peers.
// All received pieces have as many elements as `delivered`.
struct reduction {
    struct builder *b;
    struct region delivered;            // dtype, result of this rank
    int first, size;                    // peers [first, first + size)
    struct region send[WORLD_SIZE_MAX]; // fp32, by peer
    bool comes[WORLD_SIZE_MAX];         // the peer sends a piece
};

static void reduce(const struct reduction *r)
{
    const struct cp_case *c = builder_case(r->b);
    int64_t bytes = r->delivered.bytes / case_element_bytes(c) * 4;
    struct region all = scratch(r->b, "dbias_all", bytes * r->size);
    struct region sum = scratch(r->b, "dbias_own", bytes);
    struct transfer transfers[WORLD_SIZE_MAX];
    for (int i = 0; i < r->size; i++)
        transfers[i] =
            (struct transfer){.peer = r->first + i,
                              .send = r->send[i],
                              .receive = region_part(all, i * bytes, r->comes[i] ? bytes : 0)};
    builder_exchange(r->b, transfers, r->size);
    builder_fill(r->b, sum, 0);
    for (int i = 0; i < r->size; i++)
        if (r->comes[i])
            builder_add(r->b, transfers[i].receive, sum);
    builder_convert(r->b, sum, r->delivered);
}

// Every rank contributes to every element.
static void deliver_whole(struct builder *b, struct region sum, struct region delivered)
{
    const struct cp_case *c = builder_case(b);
    struct reduction r = {.b = b, .delivered = delivered, .size = c->world_size};
    for (int peer = 0; peer < c->world_size; peer++) {
        struct bias_share share = bias_share(c, peer);
        r.send[peer] = region_part(sum, share.first * 4, share.count * 4);
        r.comes[peer] = true;
    }
    reduce(&r);
}

// All heads share the bias: every member of the team contributes to every element of the team's
// queries.
static void deliver_shared_head(struct builder *b, struct region sum, struct region delivered)
{
    const struct cp_case *c = builder_case(b);
    struct team team = bias_team(c, builder_rank(b));
    struct reduction r = {.b = b, .delivered = delivered, .first = team.first, .size = team.size};
    for (int m = 0; m < team.size; m++) {
        int64_t base = bias_row_base(c, team, m), end = bias_row_base(c, team, m + 1);
        if (sum.bytes > 0)
            r.send[m] = region_part(sum, base * c->seqlen_kv * 4, (end - base) * c->seqlen_kv * 4);
        r.comes[m] = team_heads(c, team.size, m).count > 0;
    }
    reduce(&r);
}

// Rows [first, first + count) of each head of a tensor [heads][rows][row_bytes].
static struct region rows_of_heads(struct region tensor, int64_t heads, int64_t rows,
                                   int64_t row_bytes, int64_t first, int64_t count)
{
    struct region r = region_part(tensor, first * row_bytes, 0);
    if (count == 0 || heads == 0 || row_bytes == 0)
        return r;
    r.bytes = count * row_bytes;
    r.rows = heads;
    r.stride = rows * row_bytes;
    return r;
}

// Each member has the complete gradient of its heads for all queries of the team. It sends every
// member the rows of that member's queries.
static void deliver_heads(struct builder *b, struct region sum, struct region delivered)
{
    const struct cp_case *c = builder_case(b);
    struct team team = bias_team(c, builder_rank(b));
    struct bias_shape held = bias_shape(c, builder_rank(b));
    int element = case_element_bytes(c);
    int64_t row_bytes = held.columns * element;
    int64_t head_bytes = delivered.bytes / c->heads;
    struct region team_wide = scratch(b, "dbias_team", sum.bytes / 4 * element);
    struct transfer transfers[WORLD_SIZE_MAX];
    builder_convert(b, sum, team_wide);
    for (int m = 0; m < team.size; m++) {
        struct heads heads = team_heads(c, team.size, m);
        int64_t base = bias_row_base(c, team, m), end = bias_row_base(c, team, m + 1);
        transfers[m] = (struct transfer){
            .peer = team.first + m,
            .send = rows_of_heads(team_wide, held.heads, held.rows, row_bytes, base, end - base),
            .receive = region_part(delivered, heads.first * head_bytes, heads.count * head_bytes)};
    }
    builder_exchange(b, transfers, team.size);
}

void bias_grad_deliver(struct builder *b, struct region sum, struct region delivered)
{
    const struct cp_case *c = builder_case(b);
    if (bias_is_whole(c))
        deliver_whole(b, sum, delivered);
    else if (bias_team(c, builder_rank(b)).size == 1)
        builder_convert(b, sum, delivered);
    else if (bias_has_heads(c))
        deliver_heads(b, sum, delivered);
    else
        deliver_shared_head(b, sum, delivered);
}
