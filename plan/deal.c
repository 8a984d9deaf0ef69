// SPDX-License-Identifier: Apache-2.0
#include "plan/deal.h"

// Some heads of all rows of a tensor [rows][heads][width bytes].
static struct region columns(struct region tensor, int64_t rows, int64_t heads, int64_t width,
                             int64_t first, int64_t count)
{
    struct region r = region_part(tensor, first * width, 0);
    if (rows == 0 || count == 0)
        return r;
    if (count == heads) {
        r.bytes = rows * heads * width;
        return r;
    }
    r.bytes = count * width;
    r.rows = rows;
    r.stride = heads * width;
    return r;
}

// Consecutive rows of a tensor [rows][heads][width bytes].
static struct region rows_of(struct region tensor, int64_t first, int64_t count, int64_t row_bytes)
{
    return region_part(tensor, first * row_bytes, count * row_bytes);
}

// A tensor on the way: all heads of the own tokens here, some heads of the team's tokens there.
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

// What of the own tensor belongs to a member's heads.
static struct region own_side(const struct deal *d, const struct crossing *x, int member)
{
    const struct heads *h = &d->heads[member];
    int64_t rows = x->side == SIDE_Q ? d->tensors->q_rows : d->tensors->kv_rows;
    return columns(x->own, rows, x->heads, x->width, heads_first(x, h), heads_count(x, h));
}

// What of the team's tensor are a member's tokens.
static struct region team_side(const struct deal *d, const struct crossing *x, int member)
{
    const struct part *p = &d->part;
    int64_t row_bytes = heads_count(x, &p->heads) * x->width;
    return rows_of(x->team, team_row_base(p->c, x->side, p->team, member),
                   shard_rows(p->c, x->side, p->team.first + member), row_bytes);
}

static void cross_in(struct deal *d, const struct crossing *x)
{
    int size = d->part.team.size;
    for (int m = 0; m < size; m++)
        d->transfers[d->transfer_count++] = (struct transfer){.peer = d->part.team.first + m,
                                                              .send = own_side(d, x, m),
                                                              .receive = team_side(d, x, m)};
}

static void cross_out(struct deal *d, const struct crossing *x)
{
    for (int m = 0; m < d->part.team.size; m++)
        d->transfers[d->transfer_count++] = (struct transfer){.peer = d->part.team.first + m,
                                                              .send = team_side(d, x, m),
                                                              .receive = own_side(d, x, m)};
}

// The LSE lies the other way round, [heads][rows]: some rows of all heads go, some heads come.
static void lse_out(struct deal *d)
{
    const struct part *p = &d->part;
    int64_t rows = d->tensors->q_rows;
    for (int m = 0; m < p->team.size; m++) {
        const struct heads *h = &d->heads[m];
        int64_t base = team_row_base(p->c, SIDE_Q, p->team, m);
        int64_t member_rows = shard_rows(p->c, SIDE_Q, p->team.first + m);
        d->transfers[d->transfer_count++] = (struct transfer){
            .peer = p->team.first + m,
            .send = columns(p->lse, p->heads.count, p->q_rows, 4, base, member_rows),
            .receive = rows_of(d->tensors->lse, h->first, h->count, rows * 4)};
    }
}

static void exchange(struct deal *d)
{
    builder_exchange(d->part.b, d->transfers, d->transfer_count);
    d->transfer_count = 0;
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
    cross_in(d, &k);
    cross_in(d, &v);
}

static struct pair home_pair(const struct deal *d, int member)
{
    return pair_of(d->part.c, d->home[member], d->tensors->kv_rows, d->heads[member].kv_count, 4);
}

// Each member's contribution to the own tokens arrives in a place of its own.
static void keys_home(struct deal *d, struct pair dkv)
{
    const struct part *p = &d->part;
    const struct cp_case *c = p->c;
    struct crossing k = {.team = dkv.k, .side = SIDE_KV, .width = c->head_dim_qk * 4};
    struct crossing v = {.team = dkv.v, .side = SIDE_KV, .width = c->head_dim_v * 4};
    for (int m = 0; m < p->team.size; m++) {
        struct pair home = home_pair(d, m);
        int peer = p->team.first + m;
        d->transfers[d->transfer_count++] =
            (struct transfer){.peer = peer, .send = team_side(d, &k, m), .receive = home.k};
        d->transfers[d->transfer_count++] =
            (struct transfer){.peer = peer, .send = team_side(d, &v, m), .receive = home.v};
    }
}

static void keys_add(struct deal *d, struct pair sum)
{
    const struct cp_case *c = d->part.c;
    int64_t rows = d->tensors->kv_rows;
    for (int m = 0; m < d->part.team.size; m++) {
        const struct heads *h = &d->heads[m];
        struct pair home = home_pair(d, m);
        builder_add(
            d->part.b, home.k,
            columns(sum.k, rows, c->kv_heads, c->head_dim_qk * 4, h->kv_first, h->kv_count));
        builder_add(d->part.b, home.v,
                    columns(sum.v, rows, c->kv_heads, c->head_dim_v * 4, h->kv_first, h->kv_count));
    }
}

// ---- the four crossings ----

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
    d->transfers = builder_alloc(b, (size_t)team.size * 3, sizeof *d->transfers);
    if (!d->transfers || !part_init_team(p, b, t, team, d->heads[d->place], suffix))
        return false;
    int64_t rows = p->q_rows * p->heads.count;
    d->kv = part_key_buffer(p, "kv_team", suffix, team_rows(c, SIDE_KV, team), element);
    d->out = tensor_whole(b, "out_team", suffix, BUFFER_SCRATCH, rows * c->head_dim_v * element);
    if (!c->training)
        return true;
    d->dq = tensor_whole(b, "dq_team", suffix, BUFFER_SCRATCH, rows * c->head_dim_qk * element);
    home_buffers(d, suffix);
    return true;
}

void deal_forward_in(struct deal *d)
{
    struct crossing q = query_crossing(d, d->tensors->q, d->part.q, d->part.c->head_dim_qk);
    cross_in(d, &q);
    keys_in(d);
    exchange(d);
}

void deal_forward_out(struct deal *d)
{
    struct crossing out = query_crossing(d, d->tensors->out, d->out, d->part.c->head_dim_v);
    builder_convert(d->part.b, d->part.o_sum, d->out);
    cross_out(d, &out);
    lse_out(d);
    exchange(d);
}

void deal_backward_in(struct deal *d)
{
    struct crossing d_out =
        query_crossing(d, d->tensors->d_out, d->part.d_out, d->part.c->head_dim_v);
    cross_in(d, &d_out);
    exchange(d);
}

void deal_backward_out(struct deal *d, struct pair dkv, struct pair sum)
{
    struct crossing dq = query_crossing(d, d->tensors->dq, d->dq, d->part.c->head_dim_qk);
    builder_convert(d->part.b, d->part.dq_sum, d->dq);
    cross_out(d, &dq);
    keys_home(d, dkv);
    exchange(d);
    keys_add(d, sum);
}

struct pair deal_sum(struct builder *b, const struct tensors *t)
{
    const struct cp_case *c = builder_case(b);
    int64_t bytes = pair_bytes(c, t->kv_rows, c->kv_heads, 4);
    struct region sum = tensor_whole(b, "dkv_sum", "", BUFFER_SCRATCH, bytes);
    builder_fill(b, sum, 0);
    return pair_of(c, sum.buffer, t->kv_rows, c->kv_heads, 4);
}
