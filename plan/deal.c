// SPDX-License-Identifier: Apache-2.0
#include "plan/deal.h"

#include "plan/team_order.h"

// `rows` rows from `first` on, `repeats` times, each `step` rows further.
struct row_pattern {
    int64_t first, rows, repeats, step;
};

// Heads [first, first + count) of the rows, in a tensor [rows][heads][width bytes].
static struct region heads_region(struct region tensor, struct row_pattern rows, int64_t heads,
                                  int64_t width, int64_t first, int64_t count)
{
    struct region r =
        region_part(tensor, rows.first * heads * width + first * width, count * width);
    r.rows = rows.rows;
    r.stride = heads * width;
    r.blocks = rows.repeats;
    r.block_stride = rows.step * r.stride;
    return region_make(r);
}

// Heads [first, first + count) of the rows, in a tensor [heads][all][4 bytes].
static struct region lse_region(struct region tensor, struct row_pattern rows, int64_t all,
                                int64_t first, int64_t count)
{
    struct region r = region_part(tensor, (first * all + rows.first) * 4, rows.rows * 4);
    r.rows = rows.repeats;
    r.stride = rows.step * 4;
    r.blocks = count;
    r.block_stride = all * 4;
    return region_make(r);
}

static struct row_pattern own_rows(const struct team_block *b)
{
    return (struct row_pattern){b->own, b->rows, b->repeats, b->own_step};
}

static struct row_pattern rows_in_team(const struct team_block *b)
{
    return (struct row_pattern){b->team, b->rows, b->repeats, b->team_step};
}

// A tensor in a head exchange: `own` has all heads of the rank's own tokens, `team` has the part's
// heads of the team's tokens.
struct crossing {
    struct region own, team;
    enum shard_side side;
    int64_t heads; // of the whole case
    int64_t width; // bytes of one head in one row
};

static int64_t heads_first(const struct crossing *x, const struct heads *h)
{
    return x->side == SIDE_Q ? h->first : h->kv_first;
}

static int64_t heads_count(const struct crossing *x, const struct heads *h)
{
    return x->side == SIDE_Q ? h->count : h->kv_count;
}

// Rows of the rank's own tensor, with the heads of a member.
static struct region own_side(const struct deal *d, const struct crossing *x, int member,
                              const struct team_block *own)
{
    const struct heads *h = &d->heads[member];
    return heads_region(x->own, own_rows(own), x->heads, x->width, heads_first(x, h),
                        heads_count(x, h));
}

// Rows of a member in the team's tensor, with the part's heads.
static struct region team_side(const struct deal *d, const struct crossing *x,
                               const struct team_block *theirs)
{
    int64_t heads = heads_count(x, &d->part.heads);
    return heads_region(x->team, rows_in_team(theirs), heads, x->width, 0, heads);
}

// cross() calls a put_fn for each block index and each member. `own` is this rank's block of that
// index, `theirs` is the member's.
typedef void put_fn(struct deal *d, const struct crossing *x, int member,
                    const struct team_block *own, const struct team_block *theirs);

static void cross(struct deal *d, const struct crossing *x, put_fn *put)
{
    int count = d->block_count[x->side];
    const struct team_block *blocks = d->blocks[x->side];
    for (int i = 0; i < count; i++)
        for (int m = 0; m < d->part.team.size; m++)
            put(d, x, m, &blocks[d->place * count + i], &blocks[m * count + i]);
}

static void put(struct deal *d, int member, struct region send, struct region receive)
{
    struct transfer t = {.peer = d->part.team.first + member, .send = send, .receive = receive};
    if (member == d->place)
        d->copies[d->copy_count++] = t;
    else
        d->transfers[d->transfer_count++] = t;
}

static void put_in(struct deal *d, const struct crossing *x, int member,
                   const struct team_block *own, const struct team_block *theirs)
{
    put(d, member, own_side(d, x, member, own), team_side(d, x, theirs));
}

static void put_out(struct deal *d, const struct crossing *x, int member,
                    const struct team_block *own, const struct team_block *theirs)
{
    put(d, member, team_side(d, x, theirs), own_side(d, x, member, own));
}

// The LSE is [heads][rows].
static void put_lse(struct deal *d, const struct crossing *x, int member,
                    const struct team_block *own, const struct team_block *theirs)
{
    const struct heads *h = &d->heads[member];
    put(d, member,
        lse_region(x->team, rows_in_team(theirs), d->part.q_rows, 0, d->part.heads.count),
        lse_region(x->own, own_rows(own), d->tensors->q_rows, h->first, h->count));
}

// Adds the exchange with other members, and a copy of the part that stays on this rank. The copy is
// on the compute stream: if it ran beside attention, it would wait for multiprocessors.
static void exchange(struct deal *d)
{
    builder_exchange(d->part.b, d->transfers, d->transfer_count);
    builder_copy(d->part.b, d->copies, d->copy_count);
    d->transfer_count = d->copy_count = 0;
}

// ---- the tensors ----

static struct crossing query_crossing(const struct deal *d, struct region own, struct region team,
                                      int dim)
{
    const struct cp_case *c = d->part.c;
    return (struct crossing){own, team, SIDE_Q, c->heads, dim * case_element_bytes(c)};
}

static void keys_in(struct deal *d)
{
    const struct part *p = &d->part;
    const struct cp_case *c = p->c;
    int element = case_element_bytes(c);
    struct pair own = d->tensors->kv;
    struct pair team = part_keys(p, d->kv, team_rows(c, SIDE_KV, p->team), element);
    struct crossing k = {own.k, team.k, SIDE_KV, c->kv_heads, c->head_dim_qk * element};
    struct crossing v = {own.v, team.v, SIDE_KV, c->kv_heads, c->head_dim_v * element};
    cross(d, &k, put_in);
    cross(d, &v, put_in);
}

// ---- dK and dV ----

// True if several members use the same key head.
static bool keys_are_shared(const struct cp_case *c, struct team team)
{
    int32_t dealt = 0;
    for (int m = 0; m < team.size; m++)
        dealt += team_heads(c, team.size, m).kv_count;
    return dealt > c->kv_heads;
}

static struct pair home_pair(const struct deal *d, int member)
{
    return pair_of(d->part.c, d->home[member], d->tensors->kv_rows, d->heads[member].kv_count, 4);
}

// Each member's contribution to dK or dV of this rank's own tokens arrives in a buffer of its own.
static void put_home(struct deal *d, const struct crossing *x, int member, struct region home,
                     const struct team_block *own, const struct team_block *theirs)
{
    int64_t heads = d->heads[member].kv_count;
    put(d, member, team_side(d, x, theirs),
        heads_region(home, own_rows(own), heads, x->width, 0, heads));
}

static void put_keys(struct deal *d, const struct crossing *x, int member,
                     const struct team_block *own, const struct team_block *theirs)
{
    put_home(d, x, member, home_pair(d, member).k, own, theirs);
}

static void put_values(struct deal *d, const struct crossing *x, int member,
                       const struct team_block *own, const struct team_block *theirs)
{
    put_home(d, x, member, home_pair(d, member).v, own, theirs);
}

// Sends the contributions to dK and dV (fp32) to the owners of the tokens, which add them.
static void shared_keys_home(struct deal *d, struct pair dkv)
{
    const struct cp_case *c = d->part.c;
    struct crossing k = {.team = dkv.k, .side = SIDE_KV, .width = c->head_dim_qk * 4};
    struct crossing v = {.team = dkv.v, .side = SIDE_KV, .width = c->head_dim_v * 4};
    cross(d, &k, put_keys);
    cross(d, &v, put_values);
}

// Converts dK and dV to dtype and sends them to their places in the owners' tensors.
static void keys_home(struct deal *d, struct pair dkv)
{
    const struct cp_case *c = d->part.c;
    int element = case_element_bytes(c);
    struct pair own = d->tensors->dkv;
    struct pair team = part_keys(&d->part, d->dkv, team_rows(c, SIDE_KV, d->part.team), element);
    struct crossing k = {own.k, team.k, SIDE_KV, c->kv_heads, c->head_dim_qk * element};
    struct crossing v = {own.v, team.v, SIDE_KV, c->kv_heads, c->head_dim_v * element};
    builder_convert(d->part.b, dkv.both, team.both);
    cross(d, &k, put_out);
    cross(d, &v, put_out);
}

static void shared_keys_add(struct deal *d, struct pair sum)
{
    const struct cp_case *c = d->part.c;
    struct row_pattern rows = {.rows = d->tensors->kv_rows, .repeats = 1};
    for (int m = 0; m < d->part.team.size; m++) {
        const struct heads *h = &d->heads[m];
        struct pair home = home_pair(d, m);
        builder_add(
            d->part.b, home.k,
            heads_region(sum.k, rows, c->kv_heads, c->head_dim_qk * 4, h->kv_first, h->kv_count));
        builder_add(
            d->part.b, home.v,
            heads_region(sum.v, rows, c->kv_heads, c->head_dim_v * 4, h->kv_first, h->kv_count));
    }
}

// ---- the four exchanges ----

static void home_buffers(struct deal *d, const char *suffix)
{
    const struct cp_case *c = d->part.c;
    for (int m = 0; m < d->part.team.size; m++) {
        char name[16];
        snprintf(name, sizeof name, "home%d", m);
        int64_t bytes = pair_bytes(c, d->tensors->kv_rows, d->heads[m].kv_count, 4);
        d->home[m] = tensor_buffer(d->part.b, name, suffix, BUFFER_SCRATCH, bytes);
    }
}

// False when memory is short.
static bool find_blocks(struct deal *d, struct builder *b, struct team team)
{
    const struct cp_case *c = builder_case(b);
    struct team_block blocks[TEAM_BLOCKS_MAX];
    for (int side = 0; side < 2; side++) {
        int count = team_blocks(c, (enum shard_side)side, team, 0, blocks);
        d->block_count[side] = count;
        d->blocks[side] =
            builder_alloc(b, (size_t)team.size * (size_t)count, sizeof *d->blocks[side]);
        for (int m = 0; m < team.size && d->blocks[side]; m++)
            (void)team_blocks(c, (enum shard_side)side, team, m, d->blocks[side] + m * count);
    }
    return d->blocks[SIDE_Q] && d->blocks[SIDE_KV];
}

bool deal_init(struct deal *d, struct builder *b, const struct tensors *t, struct team team, int i,
               int n)
{
    const struct cp_case *c = builder_case(b);
    struct part *p = &d->part;
    int element = case_element_bytes(c);
    char suffix[12] = "";
    if (n > 1)
        snprintf(suffix, sizeof suffix, ".%d", i);
    d->tensors = t;
    d->place = builder_rank(b) - team.first;
    for (int m = 0; m < team.size; m++)
        d->heads[m] = heads_part(c, team_heads(c, team.size, m), i, n);
    if (!find_blocks(d, b, team))
        return false;
    int crossings =
        d->block_count[SIDE_Q] + 2 * d->block_count[SIDE_KV]; // per member, in one exchange
    if (crossings < 2 * d->block_count[SIDE_Q])
        crossings = 2 * d->block_count[SIDE_Q];
    d->transfers = builder_alloc(b, (size_t)team.size * (size_t)crossings, sizeof *d->transfers);
    d->copies = builder_alloc(b, (size_t)crossings, sizeof *d->copies);
    if (!d->transfers || !d->copies || !part_init_team(p, b, t, team, d->heads[d->place], suffix))
        return false;
    int64_t rows = p->q_rows * p->heads.count;
    d->kv = part_key_buffer(p, "kv_team", suffix, team_rows(c, SIDE_KV, team), element);
    d->out = tensor_whole(b, "out_team", suffix, BUFFER_SCRATCH, rows * c->head_dim_v * element);
    if (!c->training)
        return true;
    d->dq = tensor_whole(b, "dq_team", suffix, BUFFER_SCRATCH, rows * c->head_dim_qk * element);
    if (keys_are_shared(c, team))
        home_buffers(d, suffix);
    else
        d->dkv = part_key_buffer(p, "dkv_team", suffix, team_rows(c, SIDE_KV, team), element);
    return true;
}

void deal_forward_in(struct deal *d)
{
    struct crossing q = query_crossing(d, d->tensors->q, d->part.q, d->part.c->head_dim_qk);
    cross(d, &q, put_in);
    keys_in(d);
    exchange(d);
}

void deal_forward_out(struct deal *d)
{
    struct crossing out = query_crossing(d, d->tensors->out, d->out, d->part.c->head_dim_v);
    builder_convert(d->part.b, d->part.o_sum, d->out);
    cross(d, &out, put_out);
    struct crossing lse = {.own = d->tensors->lse, .team = d->part.lse, .side = SIDE_Q};
    cross(d, &lse, put_lse);
    exchange(d);
}

void deal_backward_in(struct deal *d)
{
    struct crossing d_out =
        query_crossing(d, d->tensors->d_out, d->part.d_out, d->part.c->head_dim_v);
    cross(d, &d_out, put_in);
    exchange(d);
}

void deal_backward_out(struct deal *d, struct pair dkv, struct pair sum)
{
    struct crossing dq = query_crossing(d, d->tensors->dq, d->dq, d->part.c->head_dim_qk);
    builder_convert(d->part.b, d->part.dq_sum, d->dq);
    cross(d, &dq, put_out);
    if (!keys_are_shared(d->part.c, d->part.team)) {
        keys_home(d, dkv);
        exchange(d);
        return;
    }
    shared_keys_home(d, dkv);
    exchange(d);
    shared_keys_add(d, sum);
}

struct pair deal_sum_begin(struct builder *b, const struct tensors *t, struct team team)
{
    const struct cp_case *c = builder_case(b);
    int64_t bytes = pair_bytes(c, t->kv_rows, c->kv_heads, 4);
    if (!keys_are_shared(c, team))
        return (struct pair){0};
    struct region sum = tensor_whole(b, "dkv_sum", "", BUFFER_SCRATCH, bytes);
    builder_fill(b, sum, 0);
    return pair_of(c, sum.buffer, t->kv_rows, c->kv_heads, 4);
}

void deal_sum_end(struct builder *b, const struct tensors *t, struct pair sum)
{
    if (sum.both.bytes > 0)
        builder_convert(b, sum.both, t->dkv.both);
}
