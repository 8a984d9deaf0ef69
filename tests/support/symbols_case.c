// SPDX-License-Identifier: Apache-2.0
// The inputs of a case in symbols, and the outputs that the definition of attention requires.
#include <stdlib.h>

#include "plan/bias.h"
#include "plan/team_order.h"
#include "tests/support/definition.h"
#include "tests/support/generate.h"
#include "tests/support/symbols.h"

// ---- inputs and outputs ----

// The offset of a row in LSE and D, [heads][q rows].
static int64_t head_row(const struct symbols *s, int rank, int head, int64_t row)
{
    return head * shard_rows(s->c, SIDE_Q, rank) + row;
}

// Finds a tensor in the buffer with the role. V and dV follow K and dK in their buffer.
static struct tensor role_tensor(const struct symbols *s, int rank, enum buffer_role role,
                                 enum symbol which)
{
    const struct cp_case *c = s->c;
    const struct plan *plan = s->plans[rank];
    bool key_side =
        which == SYMBOL_K || which == SYMBOL_V || which == SYMBOL_DK || which == SYMBOL_DV;
    bool wide = which == SYMBOL_Q || which == SYMBOL_K || which == SYMBOL_DQ || which == SYMBOL_DK;
    bool behind = which == SYMBOL_V || which == SYMBOL_DV;
    int element = case_element_bytes(c);
    struct tensor t = {.rank = rank,
                       .heads = key_side ? c->kv_heads : c->heads,
                       .dim = wide ? c->head_dim_qk : c->head_dim_v,
                       .element = element};
    while (plan->buffers[t.region.buffer].role != role)
        t.region.buffer++;
    if (behind)
        t.region.offset = shard_rows(c, SIDE_KV, rank) * c->kv_heads * c->head_dim_qk * element;
    return t;
}

static uint64_t input_element(enum symbol which, int sequence, int64_t position, int head, int i)
{
    uint64_t place = ((uint64_t)sequence << 48) | ((uint64_t)position << 16) | (uint64_t)head << 8;
    return symbol_mix(which, place | (uint64_t)i);
}

// The symbol of a row of an input, by position.
static uint64_t input_row(const struct cp_case *c, enum symbol which, int sequence,
                          int64_t position, int head)
{
    int dim = which == SYMBOL_Q || which == SYMBOL_K ? c->head_dim_qk : c->head_dim_v;
    uint64_t symbol = 0;
    for (int i = 0; i < dim; i++)
        symbol = symbol_mix(symbol, input_element(which, sequence, position, head, i));
    return symbol;
}

static uint64_t *garbage(uint64_t *random, int64_t bytes)
{
    size_t count = (size_t)(bytes / CELL_BYTES);
    uint64_t *cells = malloc((count + 1) * sizeof *cells);
    for (size_t i = 0; cells && i < count; i++)
        cells[i] = generate_next(random);
    return cells;
}

static void fill_input(struct symbols *s, int rank, enum shard_side side, enum buffer_role role,
                       enum symbol which)
{
    struct tensor t = role_tensor(s, rank, role, which);
    struct span *spans = calloc((size_t)shard_spans_max(s->c), sizeof *spans);
    int count = shard_spans(s->c, side, rank, spans);
    for (int n = 0; n < count; n++)
        for (int64_t token = 0; token < spans[n].len; token++)
            for (int head = 0; head < t.heads; head++)
                for (int i = 0; i < t.dim; i++)
                    tensor_store(s, &t, spans[n].row + token * shard_row_step(s->c), head, i,
                                 input_element(which, spans[n].sequence, spans[n].position + token,
                                               head, i));
    free(spans);
}

// One fp32 number for each head of the case.
static struct tensor head_tensor(const struct symbols *s, int rank, enum buffer_role role)
{
    struct tensor t = role_tensor(s, rank, role, SYMBOL_SINK);
    t.heads = t.dim = 1;
    t.element = 4;
    return t;
}

// The initial LSE of a head.
static uint64_t sink_symbol(const struct cp_case *c, int head)
{
    if (c->softmax == SOFTMAX_LEARNABLE)
        return input_element(SYMBOL_SINK, 0, 0, head, 0);
    return c->softmax == SOFTMAX_VANILLA ? SYMBOL_MINUS_INFINITY : 0;
}

static void fill_sinks(struct symbols *s, int rank)
{
    struct tensor t = head_tensor(s, rank, BUFFER_INPUT_SINK);
    for (int head = 0; head < s->c->heads; head++)
        tensor_store(s, &t, head, 0, 0, sink_symbol(s->c, head));
}

// ---- bias ----

static const char *bias_name(const struct cp_case *c)
{
    return case_choice_name(case_bias_choices, c->bias);
}

// The place of an element of the bias, or of its gradient.
struct bias_place {
    int sequence, head;
    int64_t position, key;
};

// The place in the bias that a pair uses. Other pairs may use it, too.
static struct bias_place bias_at(const struct cp_case *c, int sequence, int head, int64_t position,
                                 int64_t key)
{
    const char *name = bias_name(c);
    return (struct bias_place){name[0] == 'b' ? sequence : 0, name[1] == 'h' ? head : 0,
                               name[2] == 's' ? position : 0, key};
}

static uint64_t bias_symbol(struct bias_place p)
{
    uint64_t row = symbol_mix((uint64_t)p.sequence, (uint64_t)p.position);
    return symbol_mix(SYMBOL_BIAS, symbol_mix(row, (uint64_t)p.key << 16 | (uint64_t)p.head));
}

static int64_t bias_index(const struct cp_case *c, struct bias_place p)
{
    return ((p.sequence * c->heads + p.head) * (c->seqlen_q + 1) + p.position) * c->seqlen_kv +
           p.key;
}

static uint64_t biased(const struct cp_case *c, uint64_t q, int sequence, int head,
                       int64_t position, int64_t key)
{
    if (c->bias == BIAS_NONE)
        return q;
    return symbol_biased(q, bias_symbol(bias_at(c, sequence, head, position, key)));
}

// Visits every row of the bias of a team. In memory: [heads][rows][seqlen_kv].
typedef void bias_row_fn(struct symbols *s, const struct tensor *t, int64_t row, int sequence,
                         int64_t position, void *context);

static void visit_bias_rows(struct symbols *s, const struct tensor *t, struct team team,
                            bias_row_fn *visit, void *context)
{
    const struct cp_case *c = s->c;
    size_t spans_max = (size_t)team.size * (size_t)shard_spans_max(c);
    struct span *spans = calloc(spans_max, sizeof *spans);
    int count = team_spans(c, SIDE_Q, team, spans);
    for (int n = 0; n < count && !bias_is_whole(c); n++)
        for (int64_t i = 0; i < spans[n].len; i++)
            visit(s, t, spans[n].bias_row + i * bias_row_step(c), spans[n].sequence,
                  spans[n].position + i, context);
    if (bias_is_whole(c) && bias_has_queries(c))
        for (int64_t i = 0; i < c->seqlen_q; i++)
            visit(s, t, i, 0, i, context);
    else if (bias_is_whole(c))
        for (int i = 0; i < (bias_has_batch(c) ? c->batch : 1); i++)
            visit(s, t, i, i, 0, context);
    free(spans);
}

static void fill_bias_row(struct symbols *s, const struct tensor *t, int64_t row, int sequence,
                          int64_t position, void *context)
{
    const struct cp_case *c = s->c;
    struct bias_shape shape = *(const struct bias_shape *)context;
    for (int head = 0; head < shape.heads; head++)
        for (int64_t key = 0; key < c->seqlen_kv; key++) {
            struct bias_place p = bias_at(c, sequence, shape.head_first + head, position, key);
            tensor_store(s, t, (head * shape.rows + row) * shape.columns + key, 0, 0,
                         bias_symbol(p));
        }
}

// A tensor with one element in each row.
static struct tensor bias_tensor(const struct symbols *s, int rank, enum buffer_role role)
{
    struct tensor t = role_tensor(s, rank, role, SYMBOL_BIAS);
    t.heads = t.dim = 1;
    return t;
}

static void fill_bias(struct symbols *s, int rank)
{
    struct tensor t = bias_tensor(s, rank, BUFFER_INPUT_BIAS);
    struct bias_shape shape = bias_shape(s->c, rank);
    visit_bias_rows(s, &t, bias_team(s->c, rank), fill_bias_row, &shape);
}

void symbols_init(struct symbols *s, struct plan *const *plans, uint64_t *random, char *why)
{
    *s = (struct symbols){.plans = plans, .c = &plans[0]->c, .why = why};
    why[0] = '\0';
    for (int rank = 0; rank < s->c->world_size; rank++) {
        const struct plan *plan = plans[rank];
        s->cells[rank] = calloc((size_t)plan->buffer_count + 1, sizeof *s->cells[rank]);
        for (int32_t i = 0; i < plan->buffer_count; i++)
            s->cells[rank][i] = garbage(random, plan->buffers[i].bytes);
        fill_input(s, rank, SIDE_Q, BUFFER_INPUT_Q, SYMBOL_Q);
        fill_input(s, rank, SIDE_KV, BUFFER_INPUT_KV, SYMBOL_K);
        fill_input(s, rank, SIDE_KV, BUFFER_INPUT_KV, SYMBOL_V);
        if (s->c->training)
            fill_input(s, rank, SIDE_Q, BUFFER_INPUT_DO, SYMBOL_DO);
        if (s->c->softmax == SOFTMAX_LEARNABLE)
            fill_sinks(s, rank);
        if (s->c->bias != BIAS_NONE)
            fill_bias(s, rank);
    }
}

void symbols_fini(struct symbols *s)
{
    for (int rank = 0; rank < s->c->world_size; rank++) {
        for (int32_t i = 0; i < s->plans[rank]->buffer_count; i++)
            free(s->cells[rank][i]);
        free(s->cells[rank]);
    }
}

// ---- the definition --------------

// One query of one head, with the symbols of its inputs, LSE, D and largest logit.
struct query {
    int sequence, head;
    int64_t position;
    uint64_t q, d_out, lse, d, max;
};

static uint64_t expected_out(const struct cp_case *c, const struct query *x, int i)
{
    uint64_t out = 0;
    int kv_head = x->head / (c->heads / c->kv_heads);
    for (int64_t j = 0; j < c->seqlen_kv; j++)
        if (definition_visible(c, x->sequence, x->position, j))
            out += symbol_out(biased(c, x->q, x->sequence, x->head, x->position, j),
                              input_row(c, SYMBOL_K, x->sequence, j, kv_head),
                              input_element(SYMBOL_V, x->sequence, j, kv_head, i));
    return out;
}

static struct query query_at(const struct cp_case *c, int sequence, int64_t position, int head)
{
    struct query x = {.sequence = sequence, .head = head, .position = position};
    int kv_head = head / (c->heads / c->kv_heads);
    x.q = input_row(c, SYMBOL_Q, sequence, position, head);
    x.d_out = input_row(c, SYMBOL_DO, sequence, position, head);
    x.lse = sink_symbol(c, head);
    for (int64_t j = 0; j < c->seqlen_kv; j++)
        if (definition_visible(c, sequence, position, j)) {
            uint64_t k = input_row(c, SYMBOL_K, sequence, j, kv_head);
            uint64_t q = biased(c, x.q, sequence, head, position, j);
            x.lse += symbol_lse(q, k);
            x.max += symbol_max(q, k);
        }
    uint64_t out = 0;
    for (int i = 0; i < c->head_dim_v; i++)
        out = symbol_mix(out, expected_out(c, &x, i));
    x.d = symbol_row_dot(x.d_out, out);
    return x;
}

static uint64_t pair_gradient(const struct cp_case *c, const struct query *x, int64_t j,
                              enum symbol which, int i)
{
    int kv_head = x->head / (c->heads / c->kv_heads);
    struct pair_symbols p = {biased(c, x->q, x->sequence, x->head, x->position, j),
                             input_row(c, SYMBOL_K, x->sequence, j, kv_head),
                             input_row(c, SYMBOL_V, x->sequence, j, kv_head),
                             x->d_out,
                             x->lse,
                             x->d};
    return symbol_gradient(which, &p, i);
}

static void expect(struct symbols *s, const struct tensor *t, const char *name, int64_t row,
                   int head, int i, uint64_t expected, int64_t position)
{
    if (tensor_load(s, t, row, head, i) != expected)
        symbols_fault(s, "%s of rank %d is wrong: position %lld, head %d, element %d", name,
                      t->rank, (long long)position, head, i);
}

static void check_query(struct symbols *s, int rank, const struct query *x, int64_t row)
{
    const struct cp_case *c = s->c;
    struct tensor out = role_tensor(s, rank, BUFFER_OUT, SYMBOL_O);
    struct tensor lse = role_tensor(s, rank, BUFFER_LSE, SYMBOL_LSE);
    lse.heads = lse.dim = 1;
    lse.element = 4;
    for (int i = 0; i < c->head_dim_v; i++)
        expect(s, &out, "O", row, x->head, i, expected_out(c, x, i), x->position);
    expect(s, &lse, "LSE", head_row(s, rank, x->head, row), 0, 0, x->lse, x->position);
    if (!c->training)
        return;
    struct tensor dq = role_tensor(s, rank, BUFFER_DQ, SYMBOL_DQ);
    for (int i = 0; i < c->head_dim_qk; i++) {
        uint64_t expected = 0;
        for (int64_t j = 0; j < c->seqlen_kv; j++)
            if (definition_visible(c, x->sequence, x->position, j))
                expected += pair_gradient(c, x, j, SYMBOL_DQ, i);
        expect(s, &dq, "dQ", row, x->head, i, expected, x->position);
    }
}

// Checks dK or dV of one key against the queries of its sequence ([heads][seqlen_q]).
static void check_key(struct symbols *s, int rank, enum symbol which, const struct query *queries,
                      int64_t row, int64_t j, int kv_head)
{
    const struct cp_case *c = s->c;
    struct tensor t = role_tensor(s, rank, BUFFER_DKV, which);
    int group = c->heads / c->kv_heads;
    for (int i = 0; i < t.dim; i++) {
        uint64_t expected = 0;
        for (int64_t n = 0; n < group * c->seqlen_q; n++) {
            const struct query *x = &queries[kv_head * group * c->seqlen_q + n];
            if (definition_visible(c, x->sequence, x->position, j))
                expected += pair_gradient(c, x, j, which, i);
        }
        expect(s, &t, which == SYMBOL_DK ? "dK" : "dV", row, kv_head, i, expected, j);
    }
}

static void check_rank(struct symbols *s, int rank, int sequence, const struct query *queries)
{
    const struct cp_case *c = s->c;
    int64_t step = shard_row_step(c);
    struct span *spans = calloc((size_t)shard_spans_max(c), sizeof *spans);
    int count = shard_spans(c, SIDE_Q, rank, spans);
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len && spans[n].sequence == sequence; t++)
            for (int head = 0; head < c->heads; head++)
                check_query(s, rank, &queries[head * c->seqlen_q + spans[n].position + t],
                            spans[n].row + t * step);
    count = c->training ? shard_spans(c, SIDE_KV, rank, spans) : 0;
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len && spans[n].sequence == sequence; t++)
            for (int head = 0; head < c->kv_heads; head++)
                for (int which = SYMBOL_DK; which <= SYMBOL_DV; which++)
                    check_key(s, rank, (enum symbol)which, queries, spans[n].row + t * step,
                              spans[n].position + t, head);
    free(spans);
}

// The sums over all queries of a head.
struct head_sums {
    uint64_t max, dsink;
};

static void add_query(const struct cp_case *c, const struct query *x, struct head_sums *sums)
{
    sums->max += x->max;
    if (x->position < definition_length(c, SIDE_Q, x->sequence))
        sums->dsink += symbol_sink_gradient(sink_symbol(c, x->head), x->lse, x->d);
}

static void check_sums(struct symbols *s, int rank, const struct head_sums *sums)
{
    const struct cp_case *c = s->c;
    struct tensor t;
    if (c->max_logit)
        t = head_tensor(s, rank, BUFFER_MAX_LOGIT);
    for (int head = 0; c->max_logit && head < c->heads; head++)
        expect(s, &t, "the largest logit", head, 0, 0, SYMBOL_MINUS_INFINITY + sums[head].max, 0);
    if (!c->training || c->softmax != SOFTMAX_LEARNABLE)
        return;
    t = head_tensor(s, rank, BUFFER_DSINK);
    for (int head = 0; head < c->heads; head++)
        expect(s, &t, "the sink's gradient", head, 0, 0, sums[head].dsink, 0);
}

// Rows outside of all spans must be zero.
static void check_padding(struct symbols *s, int rank, enum buffer_role role, enum symbol which,
                          const bool *used, int64_t rows)
{
    struct tensor t = role_tensor(s, rank, role, which);
    for (int64_t row = 0; row < rows; row++)
        for (int head = 0; !used[row] && head < t.heads; head++)
            for (int i = 0; i < t.dim; i++)
                if (tensor_load(s, &t, row, head, i) != 0)
                    symbols_fault(s, "padding row %lld of %s of rank %d is not zero",
                                  (long long)row, s->plans[rank]->buffers[t.region.buffer].name,
                                  rank);
}

static void check_side_padding(struct symbols *s, int rank, enum shard_side side)
{
    const struct cp_case *c = s->c;
    int64_t rows = shard_rows(c, side, rank);
    struct span *spans = calloc((size_t)shard_spans_max(c), sizeof *spans);
    bool *used = calloc((size_t)rows + 1, sizeof *used);
    int count = shard_spans(c, side, rank, spans);
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len; t++)
            used[spans[n].row + t * shard_row_step(c)] = true;
    if (side == SIDE_Q)
        check_padding(s, rank, BUFFER_OUT, SYMBOL_O, used, rows);
    if (side == SIDE_Q && c->training)
        check_padding(s, rank, BUFFER_DQ, SYMBOL_DQ, used, rows);
    if (side == SIDE_KV && c->training) {
        check_padding(s, rank, BUFFER_DKV, SYMBOL_DK, used, rows);
        check_padding(s, rank, BUFFER_DKV, SYMBOL_DV, used, rows);
    }
    free(used);
    free(spans);
}

// ---- the gradient of the bias ----

// Adds the pairs of a query to the gradient.
static void add_dbias(const struct cp_case *c, const struct query *x, uint64_t *dbias)
{
    for (int64_t j = 0; j < c->seqlen_kv; j++)
        if (definition_visible(c, x->sequence, x->position, j)) {
            struct bias_place p = bias_at(c, x->sequence, x->head, x->position, j);
            dbias[bias_index(c, p)] += pair_gradient(c, x, j, SYMBOL_DBIAS, 0);
        }
}

// The expected outputs of a rank.
struct delivery {
    const uint64_t *dbias; // of all places
    struct bias_share share;
    int64_t rows;
    uint64_t *expected; // [count]; elements in no row stay 0
};

static void deliver_row(struct symbols *s, const struct tensor *t, int64_t row, int sequence,
                        int64_t position, void *context)
{
    const struct cp_case *c = s->c;
    const struct delivery *d = context;
    (void)t;
    for (int head = 0; head < (bias_has_heads(c) ? c->heads : 1); head++)
        for (int64_t key = 0; key < c->seqlen_kv; key++) {
            int64_t at = (head * d->rows + row) * c->seqlen_kv + key - d->share.first;
            if (at >= 0 && at < d->share.count)
                d->expected[at] =
                    d->dbias[bias_index(c, bias_at(c, sequence, head, position, key))];
        }
}

static void check_dbias(struct symbols *s, int rank, const uint64_t *dbias)
{
    struct tensor t = bias_tensor(s, rank, BUFFER_DBIAS);
    struct team own = {rank, 1};
    struct delivery d = {
        .dbias = dbias, .share = bias_share(s->c, rank), .rows = bias_rows(s->c, own)};
    d.expected = calloc((size_t)d.share.count + 1, sizeof *d.expected);
    visit_bias_rows(s, &t, own, deliver_row, &d);
    for (int64_t i = 0; i < d.share.count; i++)
        expect(s, &t, "dBias", i, 0, 0, d.expected[i], i);
    free(d.expected);
}

void symbols_check(struct symbols *s)
{
    const struct cp_case *c = s->c;
    struct head_sums *sums = calloc((size_t)c->heads, sizeof *sums);
    size_t places = (size_t)(c->batch * c->heads * (c->seqlen_q + 1) * c->seqlen_kv) + 1;
    uint64_t *dbias = c->bias != BIAS_NONE && c->training ? calloc(places, sizeof *dbias) : NULL;
    for (int rank = 0; rank < c->world_size; rank++) {
        check_side_padding(s, rank, SIDE_Q);
        check_side_padding(s, rank, SIDE_KV);
    }
    struct query *queries = calloc((size_t)(c->heads * c->seqlen_q) + 1, sizeof *queries);
    for (int sequence = 0; sequence < c->batch; sequence++) {
        for (int head = 0; head < c->heads; head++)
            for (int64_t i = 0; i < c->seqlen_q; i++) {
                struct query *x = &queries[head * c->seqlen_q + i];
                *x = query_at(c, sequence, i, head);
                if (i < definition_length(c, SIDE_Q, sequence))
                    add_query(c, x, &sums[head]);
                if (dbias)
                    add_dbias(c, x, dbias);
            }
        for (int rank = 0; rank < c->world_size; rank++)
            check_rank(s, rank, sequence, queries);
    }
    for (int rank = 0; rank < c->world_size; rank++)
        check_sums(s, rank, sums);
    for (int rank = 0; rank < c->world_size && dbias; rank++)
        check_dbias(s, rank, dbias);
    free(dbias);
    free(sums);
    free(queries);
}
