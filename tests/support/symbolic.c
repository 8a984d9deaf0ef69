// SPDX-License-Identifier: Apache-2.0
#include "tests/support/symbolic.h"

#include <stdlib.h>

#include "plan/bias.h"
#include "tests/support/generate.h"
#include "tests/support/symbols.h"

// The progress of a rank.
struct rank_state {
    int32_t next[PLAN_STREAMS]; // operation at the head of each stream, or op_count
    bool *done;                 // by operation
    int32_t exchange;           // the running exchange, or -1
    int exchange_number;        // number of finished exchanges
    bool *sent, *received;      // by transfer of the plan
};

struct world {
    struct plan *const *plans;
    struct fold *const *folds; // by rank; NULL: nothing is folded
    int size;
    struct rank_state ranks[WORLD_SIZE_MAX];
    struct symbols memory;
    uint64_t random;
    uint64_t preference; // decides which ranks and streams run ahead
};

// ---- operations ----

static struct tensor operand(int rank, const struct op *op, int index, int heads, int dim,
                             int element)
{
    return (struct tensor){rank, op->operand[index], heads, dim, element};
}

// The key head that a query head of the operands uses.
static int key_head(const struct cp_case *c, const struct op *op, int head)
{
    return (op->heads.first + head) / (c->heads / c->kv_heads) - op->heads.kv_first;
}

// bias: index of the pair's element in the bias.
typedef void pair_fn(struct world *w, int rank, const struct op *op, int64_t q_row, int64_t kv_row,
                     int head, int64_t bias);

// Index in the bias of a query and the first key of the slice.
static int64_t bias_index(const struct cp_case *c, const struct op *op, const struct slice *s,
                          int head, int64_t i)
{
    int64_t row = s->bias_row + i * bias_row_step(c);
    return head * bias_head_stride(c, op->bias_rows) + row * c->seqlen_kv + s->bias_column;
}

static uint64_t biased(struct world *w, int rank, const struct op *op, uint64_t q, int64_t bias)
{
    const struct cp_case *c = w->memory.c;
    struct tensor t = operand(rank, op, ATTEND_BIAS, 1, 1, case_element_bytes(c));
    return c->bias == BIAS_NONE ? q : symbol_biased(q, tensor_load(&w->memory, &t, bias, 0, 0));
}

static void attend(struct world *w, int rank, const struct op *op, pair_fn *pair)
{
    int64_t step = shard_row_step(w->memory.c);
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &w->plans[rank]->slices[op->slice_first + n];
        for (int64_t i = 0; i < s->q_len; i++)
            for (int64_t j = 0; j < s->kv_len; j++)
                for (int head = 0; head < op->heads.count; head++)
                    if (j + s->offset - i >= -s->left && j + s->offset - i <= s->right)
                        pair(w, rank, op, s->q_row + i * step, s->kv_row + j * step, head,
                             bias_index(w->memory.c, op, s, head, i) + j);
    }
}

static void pair_forward(struct world *w, int rank, const struct op *op, int64_t q_row,
                         int64_t kv_row, int head, int64_t bias)
{
    const struct cp_case *c = w->memory.c;
    int element = case_element_bytes(c), kv_head = key_head(c, op, head);
    int heads = op->heads.count, kv_heads = op->heads.kv_count;
    struct tensor q = operand(rank, op, ATTEND_Q, heads, c->head_dim_qk, element);
    struct tensor k = operand(rank, op, ATTEND_K, kv_heads, c->head_dim_qk, element);
    struct tensor v = operand(rank, op, ATTEND_V, kv_heads, c->head_dim_v, element);
    struct tensor o = operand(rank, op, ATTEND_O, heads, c->head_dim_v, 4);
    struct tensor lse = operand(rank, op, ATTEND_LSE, 1, 1, 4);
    uint64_t q_symbol = biased(w, rank, op, tensor_row(&w->memory, &q, q_row, head), bias);
    uint64_t k_symbol = tensor_row(&w->memory, &k, kv_row, kv_head);
    for (int i = 0; i < c->head_dim_v; i++)
        tensor_add(&w->memory, &o, q_row, head, i,
                   symbol_out(q_symbol, k_symbol, tensor_load(&w->memory, &v, kv_row, kv_head, i)));
    tensor_add(&w->memory, &lse, head * op->q_rows + q_row, 0, 0, symbol_lse(q_symbol, k_symbol));
    struct tensor max = operand(rank, op, ATTEND_MAX, 1, 1, 4);
    if (c->max_logit)
        tensor_add(&w->memory, &max, head, 0, 0, symbol_max(q_symbol, k_symbol));
}

static void pair_backward(struct world *w, int rank, const struct op *op, int64_t q_row,
                          int64_t kv_row, int head, int64_t bias)
{
    const struct cp_case *c = w->memory.c;
    int element = case_element_bytes(c), kv_head = key_head(c, op, head);
    int heads = op->heads.count, kv_heads = op->heads.kv_count;
    struct tensor q = operand(rank, op, ATTEND_Q, heads, c->head_dim_qk, element);
    struct tensor k = operand(rank, op, ATTEND_K, kv_heads, c->head_dim_qk, element);
    struct tensor v = operand(rank, op, ATTEND_V, kv_heads, c->head_dim_v, element);
    struct tensor d_out = operand(rank, op, ATTEND_DO, heads, c->head_dim_v, element);
    struct tensor lse = operand(rank, op, ATTEND_LSE, 1, 1, 4);
    struct tensor d = operand(rank, op, ATTEND_D, 1, 1, 4);
    struct tensor dq = operand(rank, op, ATTEND_DQ, heads, c->head_dim_qk, 4);
    struct tensor dk = operand(rank, op, ATTEND_DK, kv_heads, c->head_dim_qk, 4);
    struct tensor dv = operand(rank, op, ATTEND_DV, kv_heads, c->head_dim_v, 4);
    int64_t row = head * op->q_rows + q_row;
    struct pair_symbols p = {biased(w, rank, op, tensor_row(&w->memory, &q, q_row, head), bias),
                             tensor_row(&w->memory, &k, kv_row, kv_head),
                             tensor_row(&w->memory, &v, kv_row, kv_head),
                             tensor_row(&w->memory, &d_out, q_row, head),
                             tensor_load(&w->memory, &lse, row, 0, 0),
                             tensor_load(&w->memory, &d, row, 0, 0)};
    struct tensor dbias = operand(rank, op, ATTEND_DBIAS, 1, 1, 4);
    if (c->bias != BIAS_NONE)
        tensor_add(&w->memory, &dbias, bias, 0, 0, symbol_gradient(SYMBOL_DBIAS, &p, 0));
    for (int i = 0; i < c->head_dim_qk; i++) {
        tensor_add(&w->memory, &dq, q_row, head, i, symbol_gradient(SYMBOL_DQ, &p, i));
        tensor_add(&w->memory, &dk, kv_row, kv_head, i, symbol_gradient(SYMBOL_DK, &p, i));
    }
    for (int i = 0; i < c->head_dim_v; i++)
        tensor_add(&w->memory, &dv, kv_row, kv_head, i, symbol_gradient(SYMBOL_DV, &p, i));
}

static void run_row_dot(struct world *w, int rank, const struct op *op)
{
    const struct cp_case *c = w->memory.c;
    struct tensor d_out =
        operand(rank, op, ROW_DOT_DO, op->heads.count, c->head_dim_v, case_element_bytes(c));
    struct tensor o = operand(rank, op, ROW_DOT_O, op->heads.count, c->head_dim_v, 4);
    struct tensor d = operand(rank, op, ROW_DOT_D, 1, 1, 4);
    for (int64_t row = 0; row < op->q_rows; row++)
        for (int head = 0; head < op->heads.count; head++)
            tensor_store(&w->memory, &d, head * op->q_rows + row, 0, 0,
                         symbol_row_dot(tensor_row(&w->memory, &d_out, row, head),
                                        tensor_row(&w->memory, &o, row, head)));
}

static void run_fill_heads(struct world *w, int rank, const struct op *op)
{
    struct tensor from = operand(rank, op, UNARY_SOURCE, 1, 1, 4);
    struct tensor to = operand(rank, op, UNARY_DESTINATION, 1, 1, 4);
    for (int head = 0; head < op->heads.count; head++)
        for (int64_t row = 0; row < op->q_rows; row++)
            tensor_store(&w->memory, &to, head * op->q_rows + row, 0, 0,
                         tensor_load(&w->memory, &from, head, 0, 0));
}

static void row_sink_grad(struct world *w, int rank, const struct op *op, int head, int64_t row)
{
    struct tensor sink = operand(rank, op, SINK_GRAD_SINK, 1, 1, 4);
    struct tensor lse = operand(rank, op, SINK_GRAD_LSE, 1, 1, 4);
    struct tensor d = operand(rank, op, SINK_GRAD_D, 1, 1, 4);
    struct tensor dsink = operand(rank, op, SINK_GRAD_DSINK, 1, 1, 4);
    int64_t at = head * op->q_rows + row;
    tensor_add(&w->memory, &dsink, head, 0, 0,
               symbol_sink_gradient(tensor_load(&w->memory, &sink, head, 0, 0),
                                    tensor_load(&w->memory, &lse, at, 0, 0),
                                    tensor_load(&w->memory, &d, at, 0, 0)));
}

static void run_sink_grad(struct world *w, int rank, const struct op *op)
{
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &w->plans[rank]->slices[op->slice_first + n];
        for (int64_t i = 0; i < s->q_len; i++)
            for (int head = 0; head < op->heads.count; head++)
                row_sink_grad(w, rank, op, head, s->q_row + i * shard_row_step(w->memory.c));
    }
}

// Offset of the i-th byte of a region.
static int64_t region_place(const struct region *r, int64_t i)
{
    return region_piece(r, i / r->bytes) + i % r->bytes;
}

// Add, max, convert and fill work on single elements. A maximum includes the initial value.
static void run_unary(struct world *w, int rank, const struct op *op)
{
    const struct region *from = &op->operand[UNARY_SOURCE], *to = &op->operand[UNARY_DESTINATION];
    int element = op->kind == OP_CONVERT ? case_element_bytes(w->memory.c) : 4;
    for (int64_t i = 0; i < region_total(to) / element; i++) {
        int64_t place = region_place(to, i * element);
        uint64_t value = op->value == 0 ? 0 : SYMBOL_MINUS_INFINITY;
        if (op->kind != OP_FILL)
            value = symbols_load(&w->memory, rank, from->buffer, from->offset + i * 4, 4);
        if (op->kind == OP_ADD)
            value += symbols_load(&w->memory, rank, to->buffer, place, 4);
        if (op->kind == OP_MAX)
            value += symbols_load(&w->memory, rank, to->buffer, place, 4) - SYMBOL_MINUS_INFINITY;
        symbols_store(&w->memory, rank, to->buffer, place, element, value);
    }
}

static void region_store(struct world *w, int rank, const struct region *r, uint64_t value)
{
    for (int64_t i = 0; i < r->bytes; i += 4)
        symbols_store(&w->memory, rank, r->buffer, r->offset + i, 4, value);
}

// Calls visit() for the rows of queries that see a key.
typedef void visit_row(struct world *w, int rank, const struct op *op, const struct fold *fold,
                       int64_t row);

static void rows_seeing(struct world *w, int rank, const struct op *op, const struct fold *fold,
                        visit_row *visit)
{
    int64_t step = shard_row_step(w->memory.c);
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &w->plans[rank]->slices[op->slice_first + n];
        for (int64_t i = 0; i < s->q_len; i++) {
            int64_t begin, end;
            slice_visible(s, i, &begin, &end);
            if (begin < end)
                visit(w, rank, op, fold, s->q_row + i * step);
        }
    }
}

static void row_begin(struct world *w, int rank, const struct op *op, const struct fold *fold,
                      int64_t row)
{
    int64_t width = (int64_t)op->heads.count * w->memory.c->head_dim_v * 4;
    struct region o = region_part(op->operand[ATTEND_O], row * width, width);
    region_store(w, rank, &o, 0);
    for (int64_t head = 0; head < op->heads.count && fold->lse_begins; head++) {
        struct region lse = region_part(op->operand[ATTEND_LSE], (head * op->q_rows + row) * 4, 4);
        region_store(w, rank, &lse, fold->lse_begin == 0 ? 0 : SYMBOL_MINUS_INFINITY);
    }
}

// Begins O and, if LSE is folded, LSE. Rows that see no key get garbage.
static void fold_begin(struct world *w, int rank, const struct op *op, const struct fold *fold)
{
    region_store(w, rank, &op->operand[ATTEND_O], generate_next(&w->random));
    if (fold->lse_begins)
        region_store(w, rank, &op->operand[ATTEND_LSE], generate_next(&w->random));
    rows_seeing(w, rank, op, fold, row_begin);
}

// Converts a row of all heads.
static void row_round(struct world *w, int rank, const struct op *op, const struct fold *fold,
                      int64_t row)
{
    const struct region *o = &op->operand[ATTEND_O], *out = &fold->out;
    int64_t count = (int64_t)op->heads.count * w->memory.c->head_dim_v;
    int element = case_element_bytes(w->memory.c);
    for (int64_t i = row * count; i < (row + 1) * count; i++)
        symbols_store(&w->memory, rank, out->buffer, out->offset + i * element, element,
                      symbols_load(&w->memory, rank, o->buffer, o->offset + i * 4, 4));
}

// Converts the rows that see a key. If only the rounded result must be written, O gets garbage.
static void fold_end(struct world *w, int rank, const struct op *op, const struct fold *fold)
{
    rows_seeing(w, rank, op, fold, row_round);
    if (fold->out_only)
        region_store(w, rank, &op->operand[ATTEND_O], generate_next(&w->random));
}

// Converts a gradient's rows of keys that are seen. The fp32 sum then gets garbage.
static void rows_end(struct world *w, int rank, const struct op *op, int gradient,
                     const struct region *out)
{
    const struct cp_case *c = w->memory.c;
    const struct region *sum = &op->operand[gradient];
    int64_t width =
        (int64_t)op->heads.kv_count * (gradient == ATTEND_DV ? c->head_dim_v : c->head_dim_qk);
    int element = case_element_bytes(c);
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &w->plans[rank]->slices[op->slice_first + n];
        int64_t begin, end;
        slice_met(s, false, &begin, &end);
        int64_t first = s->kv_row + begin * shard_row_step(c);
        for (int64_t row = first; begin < end; begin++, row += shard_row_step(c))
            for (int64_t i = row * width; i < (row + 1) * width; i++)
                symbols_store(&w->memory, rank, out->buffer, out->offset + i * element, element,
                              symbols_load(&w->memory, rank, sum->buffer, sum->offset + i * 4, 4));
    }
    region_store(w, rank, sum, generate_next(&w->random));
}

// Clears a gradient's rows of queries that see a key, or of keys that are seen.
static void rows_begin(struct world *w, int rank, const struct op *op, bool queries, int gradient)
{
    const struct cp_case *c = w->memory.c;
    int64_t heads = queries ? op->heads.count : op->heads.kv_count;
    int64_t width = heads * (gradient == ATTEND_DV ? c->head_dim_v : c->head_dim_qk) * 4;
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &w->plans[rank]->slices[op->slice_first + n];
        int64_t begin, end, first = queries ? s->q_row : s->kv_row;
        slice_met(s, queries, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            struct region row =
                region_part(op->operand[gradient], (first + i * shard_row_step(c)) * width, width);
            region_store(w, rank, &row, 0);
        }
    }
}

// Fills the parts that remain of a folded fill.
static void run_parts(struct world *w, int rank, const struct op *op, const struct fold *fold)
{
    for (int32_t i = 0; i < fold->part_count; i++) {
        struct op part = *op;
        part.operand[UNARY_DESTINATION] = fold->parts[i];
        run_unary(w, rank, &part);
    }
}

// Does the folded additions of a conversion. No operation may read the sum afterwards, so it gets
// garbage.
static void run_convert_sum(struct world *w, int rank, const struct op *op, const struct fold *fold)
{
    const struct region *sum = &op->operand[UNARY_SOURCE];
    for (int32_t i = 0; i < fold->add_count; i++)
        run_unary(w, rank, &w->plans[rank]->ops[fold->adds[i]]);
    run_unary(w, rank, op);
    region_store(w, rank, sum, generate_next(&w->random));
}

static void run_copies(struct world *w, int rank, const struct op *op)
{
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &w->plans[rank]->transfers[op->transfer_first + i];
        const struct region *from = &t->send, *to = &t->receive;
        for (int64_t k = 0; k < region_total(to) && !w->memory.why[0]; k += CELL_BYTES)
            symbols_store(
                &w->memory, rank, to->buffer, region_place(to, k), CELL_BYTES,
                symbols_load(&w->memory, rank, from->buffer, region_place(from, k), CELL_BYTES));
    }
}

static void run_compute(struct world *w, int rank, const struct op *op)
{
    const struct fold *fold = w->folds ? &w->folds[rank][op - w->plans[rank]->ops] : NULL;
    if (fold && fold->done)
        return;
    if (fold && fold->begins)
        fold_begin(w, rank, op, fold);
    if (fold && fold->queries_begin)
        rows_begin(w, rank, op, true, ATTEND_DQ);
    if (fold && fold->keys_begin) {
        rows_begin(w, rank, op, false, ATTEND_DK);
        rows_begin(w, rank, op, false, ATTEND_DV);
    }
    if (fold && fold->add_count > 0)
        run_convert_sum(w, rank, op, fold);
    else if (op->kind == OP_ATTEND_FORWARD)
        attend(w, rank, op, pair_forward);
    else if (op->kind == OP_ATTEND_BACKWARD)
        attend(w, rank, op, pair_backward);
    else if (op->kind == OP_ROW_DOT)
        run_row_dot(w, rank, op);
    else if (op->kind == OP_FILL_HEADS)
        run_fill_heads(w, rank, op);
    else if (op->kind == OP_SINK_GRAD)
        run_sink_grad(w, rank, op);
    else if (op->kind == OP_COPY)
        run_copies(w, rank, op);
    else if (fold && fold->part_count > 0)
        run_parts(w, rank, op, fold);
    else
        run_unary(w, rank, op);
    if (fold && fold->out.bytes > 0)
        fold_end(w, rank, op, fold);
    if (fold && fold->dk_out.bytes > 0)
        rows_end(w, rank, op, ATTEND_DK, &fold->dk_out);
    if (fold && fold->dv_out.bytes > 0)
        rows_end(w, rank, op, ATTEND_DV, &fold->dv_out);
}

// ---- order ----

static void stream_advance(struct world *w, int rank, enum plan_stream stream)
{
    const struct plan *plan = w->plans[rank];
    int32_t *next = &w->ranks[rank].next[stream];
    do
        (*next)++;
    while (*next < plan->op_count && plan->ops[*next].stream != stream);
}

// The operation at the head of a stream if it may start, else NULL.
static const struct op *ready(const struct world *w, int rank, enum plan_stream stream)
{
    const struct plan *plan = w->plans[rank];
    const struct rank_state *r = &w->ranks[rank];
    if (r->next[stream] >= plan->op_count || (stream == STREAM_COMM && r->exchange >= 0))
        return NULL;
    const struct op *op = &plan->ops[r->next[stream]];
    for (int32_t i = 0; i < op->wait_count; i++)
        if (!r->done[plan->waits[op->wait_first + i]])
            return NULL;
    return op;
}

static void finish_exchange(struct world *w, int rank)
{
    struct rank_state *r = &w->ranks[rank];
    const struct op *op = &w->plans[rank]->ops[r->exchange];
    for (int32_t i = op->transfer_first; i < op->transfer_first + op->transfer_count; i++) {
        const struct transfer *t = &w->plans[rank]->transfers[i];
        if ((t->send.bytes > 0 && !r->sent[i]) || (t->receive.bytes > 0 && !r->received[i]))
            return;
    }
    r->done[r->exchange] = true;
    r->exchange = -1;
    r->exchange_number++;
}

static void start(struct world *w, int rank, enum plan_stream stream)
{
    struct rank_state *r = &w->ranks[rank];
    int32_t index = r->next[stream];
    stream_advance(w, rank, stream);
    if (stream == STREAM_COMM) {
        r->exchange = index;
        finish_exchange(w, rank);
        return;
    }
    run_compute(w, rank, &w->plans[rank]->ops[index]);
    r->done[index] = true;
}

// The transfer of `to` that receives transfer `index` of `from`, or -1 before it begins.
static int32_t partner(const struct world *w, int from, int32_t index, int to)
{
    const struct rank_state *a = &w->ranks[from], *b = &w->ranks[to];
    if (b->exchange < 0 || b->exchange_number != a->exchange_number)
        return -1;
    int before = 0;
    for (int32_t i = w->plans[from]->ops[a->exchange].transfer_first; i < index; i++) {
        const struct transfer *t = &w->plans[from]->transfers[i];
        before += t->peer == to && t->send.bytes > 0;
    }
    const struct op *op = &w->plans[to]->ops[b->exchange];
    for (int32_t i = op->transfer_first; i < op->transfer_first + op->transfer_count; i++) {
        const struct transfer *t = &w->plans[to]->transfers[i];
        if (t->peer == from && t->receive.bytes > 0 && before-- == 0)
            return i;
    }
    return -1;
}

static void move(struct world *w, int from, int32_t index, int to, int32_t target)
{
    const struct region *a = &w->plans[from]->transfers[index].send;
    const struct region *b = &w->plans[to]->transfers[target].receive;
    int64_t bytes = region_total(a);
    if (bytes != region_total(b))
        symbols_fault(&w->memory, "rank %d sends %lld bytes, rank %d receives %lld", from,
                      (long long)bytes, to, (long long)region_total(b));
    for (int64_t i = 0; i < bytes && !w->memory.why[0]; i += CELL_BYTES)
        symbols_store(&w->memory, to, b->buffer, region_place(b, i), CELL_BYTES,
                      symbols_load(&w->memory, from, a->buffer, region_place(a, i), CELL_BYTES));
    w->ranks[from].sent[index] = true;
    w->ranks[to].received[target] = true;
    finish_exchange(w, from);
    if (to != from)
        finish_exchange(w, to);
}

// A possible event. index < 0: the head of a stream starts.
struct event {
    int rank;
    enum plan_stream stream;
    int32_t index, target;
};

struct event_choice {
    struct event event;
    uint64_t rank; // order of the best event so far
    int count;
};

// Chooses one of the possible events: half of the time a random one, else by a preference of the
// seed, so that a rank or a stream can run far ahead of the others.
static void offer(struct world *w, struct event_choice *choice, struct event event, bool any)
{
    uint64_t kind = (uint64_t)event.rank * 4 + (event.index >= 0 ? 2 : event.stream);
    uint64_t rank = any ? generate_next(&w->random) : symbol_mix(w->preference, kind);
    if (choice->count++ > 0 && rank <= choice->rank)
        return;
    choice->event = event;
    choice->rank = rank;
}

static void offer_messages(struct world *w, struct event_choice *choice, int rank, bool any)
{
    const struct rank_state *r = &w->ranks[rank];
    if (r->exchange < 0)
        return;
    const struct op *op = &w->plans[rank]->ops[r->exchange];
    for (int32_t i = op->transfer_first; i < op->transfer_first + op->transfer_count; i++) {
        const struct transfer *t = &w->plans[rank]->transfers[i];
        int32_t target = t->send.bytes > 0 && !r->sent[i] ? partner(w, rank, i, t->peer) : -1;
        if (target >= 0)
            offer(w, choice, (struct event){rank, STREAM_COMM, i, target}, any);
    }
}

// Runs one event. False if none is possible.
static bool world_step(struct world *w)
{
    struct event_choice choice = {.count = 0};
    bool any = generate_below(&w->random, 2) == 0;
    for (int rank = 0; rank < w->size; rank++) {
        for (int s = 0; s < PLAN_STREAMS; s++)
            if (ready(w, rank, (enum plan_stream)s))
                offer(w, &choice, (struct event){rank, (enum plan_stream)s, -1, -1}, any);
        offer_messages(w, &choice, rank, any);
    }
    const struct event *e = &choice.event;
    if (choice.count == 0)
        return false;
    if (e->index < 0)
        start(w, e->rank, e->stream);
    else
        move(w, e->rank, e->index, w->plans[e->rank]->transfers[e->index].peer, e->target);
    return true;
}

static void rank_init(struct world *w, int rank)
{
    const struct plan *plan = w->plans[rank];
    struct rank_state *r = &w->ranks[rank];
    r->exchange = -1;
    r->done = calloc((size_t)plan->op_count + 1, 1);
    r->sent = calloc((size_t)plan->transfer_count + 1, 1);
    r->received = calloc((size_t)plan->transfer_count + 1, 1);
    for (int s = 0; s < PLAN_STREAMS; s++) {
        r->next[s] = -1;
        stream_advance(w, rank, (enum plan_stream)s);
    }
}

static void rank_fini(struct rank_state *r)
{
    free(r->done);
    free(r->sent);
    free(r->received);
}

// If no event is possible, the remaining operations are stuck.
static void check_done(struct world *w, int rank)
{
    for (int32_t i = 0; i < w->plans[rank]->op_count; i++)
        if (!w->ranks[rank].done[i])
            symbols_fault(&w->memory, "rank %d is stuck before operation %d", rank, i);
}

bool symbolic_run_folded(struct plan *const *plans, struct fold *const *folds, uint64_t seed,
                         char *why)
{
    struct world w = {
        .plans = plans, .folds = folds, .size = plans[0]->c.world_size, .random = seed};
    w.preference = generate_next(&w.random);
    symbols_init(&w.memory, plans, &w.random, why);
    for (int rank = 0; rank < w.size; rank++)
        rank_init(&w, rank);
    while (!why[0] && world_step(&w))
        continue;
    for (int rank = 0; rank < w.size; rank++)
        check_done(&w, rank);
    if (!why[0])
        symbols_check(&w.memory);
    for (int rank = 0; rank < w.size; rank++)
        rank_fini(&w.ranks[rank]);
    symbols_fini(&w.memory);
    return !why[0];
}

bool symbolic_run(struct plan *const *plans, uint64_t seed, char *why)
{
    return symbolic_run_folded(plans, NULL, seed, why);
}
