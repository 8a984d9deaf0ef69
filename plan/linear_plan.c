// SPDX-License-Identifier: Apache-2.0
// Linear layers as plans. The tokens of a rank are cut into chunks. While the tokens of one chunk
// are sent, others are multiplied:
//
// - Gathering: this rank's tokens are multiplied first, those of the other ranks chunk by chunk as
//   they arrive.
// - Summing: the products for a chunk of the other ranks' tokens are sent while this rank's part of
//   that chunk and the next products are computed. Each rank sums its own tokens in the order of
//   ranks, and without sequence parallelism sends the sums to all ranks.
#include "plan/builder.h"

struct composer {
    const struct linear *l;
    struct builder *b;
    int rank, size, element;
    struct linear_sizes sizes;
    int64_t middle;                 // middle features of the rank
    int32_t tensor[LINEAR_TENSORS]; // buffers; -1: empty
    int32_t x_all, dy_all;  // buffers of all tokens with sequence parallelism; else the tensor
    int32_t h, a, da, dh;   // of an mlp; else the corresponding tensor
    int32_t partial, parts; // sums over ranks: products to send; parts received from other ranks
    enum plan_phase phase;
    int step;
};

// ---- regions ----

// Rows of a matrix with `columns` columns in a buffer; empty if the buffer is -1.
static struct region rows_of(const struct composer *p, int32_t buffer, struct linear_share rows,
                             int64_t columns)
{
    int64_t bytes = columns * p->element;
    if (buffer < 0 || rows.count * bytes == 0)
        return (struct region){0};
    return (struct region){
        .buffer = buffer, .offset = rows.first * bytes, .bytes = rows.count * bytes};
}

static struct linear_share all_tokens(const struct composer *p)
{
    return (struct linear_share){0, p->l->tokens};
}

// A chunk of a rank's tokens.
static struct linear_share chunk_of(const struct composer *p, int rank, int chunk)
{
    struct linear_share own = linear_share(p->l->tokens, rank, p->size);
    struct linear_share part = linear_share(own.count, chunk, p->l->chunks);
    return (struct linear_share){own.first + part.first, part.count};
}

// The rows, counted from the rank's first token.
static struct linear_share within(const struct composer *p, int rank, struct linear_share rows)
{
    rows.first -= linear_share(p->l->tokens, rank, p->size).first;
    return rows;
}

static int32_t scratch(struct composer *p, const char *name, int64_t rows, int64_t columns)
{
    int64_t bytes = rows * columns * p->element;
    return bytes > 0 ? builder_buffer(p->b, name, BUFFER_SCRATCH, bytes) : -1;
}

// ---- operations ----

static void next_step(struct composer *p)
{
    builder_step(p->b, p->phase, p->step++);
}

static void exchange(struct composer *p, const struct transfer *transfers, int count)
{
    builder_exchange(p->b, transfers, count);
}

// A product of tokens with weights, for any range of tokens: buffers and numbers of columns.
struct layer {
    int32_t from, weights, bias, to;
    int64_t k, n; // columns of `from` and of `to`
    enum product_form form;
};

static void product_rows(struct composer *p, const struct layer *layer, int32_t from,
                         struct linear_share from_rows, struct linear_share rows)
{
    struct product shape = {.m = rows.count, .n = layer->n, .k = layer->k, .form = layer->form};
    struct region operand[OPERANDS_MAX] = {
        [PRODUCT_A] = rows_of(p, from, from_rows, layer->k),
        [PRODUCT_B] = rows_of(p, layer->weights, (struct linear_share){0, layer->n}, layer->k),
        [PRODUCT_BIAS] = rows_of(p, layer->bias, (struct linear_share){0, 1}, layer->n),
        [PRODUCT_C] = rows_of(p, layer->to, rows, layer->n)};
    builder_matrix(p->b, OP_PRODUCT, shape, operand);
}

// Products for a chunk of every other rank's tokens. Adjacent tokens share an operation.
static void product_others(struct composer *p, const struct layer *layer, int chunk)
{
    struct linear_share run = {0, 0};
    for (int peer = 0; peer < p->size; peer++) {
        struct linear_share rows = chunk_of(p, peer, chunk);
        if (peer == p->rank || rows.count == 0)
            continue;
        if (run.first + run.count == rows.first) {
            run.count += rows.count;
            continue;
        }
        product_rows(p, layer, layer->from, run, run);
        run = rows;
    }
    product_rows(p, layer, layer->from, run, run);
}

// Weight gradient: d [tokens][m], transposed, times x [tokens][n].
static void product_tokens(struct composer *p, int32_t d, int64_t m, int32_t x, int64_t n,
                           enum linear_tensor to)
{
    struct product shape = {.m = m, .n = n, .k = p->l->tokens, .form = PRODUCT_TN};
    struct region operand[OPERANDS_MAX] = {
        [PRODUCT_A] = rows_of(p, d, all_tokens(p), m),
        [PRODUCT_B] = rows_of(p, x, all_tokens(p), n),
        [PRODUCT_C] = rows_of(p, p->tensor[to], (struct linear_share){0, m}, n)};
    next_step(p);
    builder_matrix(p->b, OP_PRODUCT, shape, operand);
}

// Bias gradient: the sum of d [tokens][n] over the tokens.
static void sum_tokens(struct composer *p, int32_t d, int64_t n, enum linear_tensor to)
{
    struct product shape = {.m = p->l->tokens, .n = n};
    struct region operand[OPERANDS_MAX] = {
        [UNARY_SOURCE] = rows_of(p, d, all_tokens(p), n),
        [UNARY_DESTINATION] = rows_of(p, p->tensor[to], (struct linear_share){0, 1}, n)};
    builder_matrix(p->b, OP_COLUMN_SUM, shape, operand);
}

// ---- tokens of all ranks ----

// All-gather of a tensor [tokens][columns] into `all`, chunk by chunk. `own` has this rank's
// tokens.
static void gather(struct composer *p, int32_t own, int32_t all, int64_t columns)
{
    for (int chunk = 0; chunk < p->l->chunks; chunk++) {
        struct transfer transfers[WORLD_SIZE_MAX];
        struct linear_share mine = chunk_of(p, p->rank, chunk);
        struct region send = rows_of(p, own, within(p, p->rank, mine), columns);
        for (int peer = 0; peer < p->size; peer++)
            transfers[peer] =
                (struct transfer){.peer = peer,
                                  .send = send,
                                  .receive = rows_of(p, all, chunk_of(p, peer, chunk), columns)};
        next_step(p);
        exchange(p, transfers, p->size);
    }
}

// layer->to = layer->from times weights for all tokens, after gather() from `own`: first this
// rank's tokens, then those of the other ranks chunk by chunk.
static void product_gathered(struct composer *p, const struct layer *layer, int32_t own)
{
    struct linear_share mine = linear_share(p->l->tokens, p->rank, p->size);
    next_step(p);
    product_rows(p, layer, own, within(p, p->rank, mine), mine);
    for (int chunk = 0; chunk < p->l->chunks; chunk++) {
        next_step(p);
        product_others(p, layer, chunk);
    }
}

static bool travels(const struct composer *p)
{
    return p->l->sequence_parallel && p->size > 1;
}

// layer->to = layer->from times weights for all tokens. With sequence parallelism gathers the
// tokens first, from `own` with `columns` columns.
static void product_all(struct composer *p, const struct layer *layer, int32_t own, int64_t columns)
{
    if (travels(p)) {
        gather(p, own, layer->from, columns);
        product_gathered(p, layer, own);
        return;
    }
    next_step(p);
    product_rows(p, layer, layer->from, all_tokens(p), all_tokens(p));
}

// ---- sums of all ranks ----

// Rows in `parts` for `slots` consecutive peers from `slot` on: their parts for this rank's tokens
// of a chunk. The parts of a chunk are consecutive, in the order of the other ranks.
static struct linear_share part_rows(const struct composer *p, int chunk, int slot, int slots)
{
    struct linear_share mine = within(p, p->rank, chunk_of(p, p->rank, chunk));
    return (struct linear_share){mine.first * (p->size - 1) + slot * mine.count,
                                 slots * mine.count};
}

static void parts_exchange(struct composer *p, int chunk, int64_t columns)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    int count = 0;
    for (int peer = 0; peer < p->size; peer++) {
        if (peer == p->rank)
            continue;
        int slot = peer - (peer > p->rank);
        transfers[count++] = (struct transfer){
            .peer = peer,
            .send = rows_of(p, p->partial, chunk_of(p, peer, chunk), columns),
            .receive = rows_of(p, p->parts, part_rows(p, chunk, slot, 1), columns)};
    }
    exchange(p, transfers, count);
}

// Sums this rank's tokens of a chunk; without sequence parallelism sends them to all ranks.
static void sum_finish(struct composer *p, int chunk, int32_t bias, int32_t to, int64_t columns)
{
    struct linear_share mine = chunk_of(p, p->rank, chunk);
    struct linear_share place = p->l->sequence_parallel ? within(p, p->rank, mine) : mine;
    struct product shape = {.m = mine.count, .n = columns, .k = p->size};
    struct region operand[OPERANDS_MAX] = {
        [SUM_PARTS] = rows_of(p, p->parts, part_rows(p, chunk, 0, p->size - 1), columns),
        [SUM_OWN] = rows_of(p, p->partial, mine, columns),
        [SUM_BIAS] = rows_of(p, bias, (struct linear_share){0, 1}, columns),
        [SUM_DESTINATION] = rows_of(p, to, place, columns)};
    next_step(p);
    builder_matrix(p->b, OP_SUM_PARTS, shape, operand);
    if (p->l->sequence_parallel)
        return;
    struct transfer transfers[WORLD_SIZE_MAX];
    int count = 0;
    for (int peer = 0; peer < p->size; peer++)
        if (peer != p->rank)
            transfers[count++] =
                (struct transfer){.peer = peer,
                                  .send = rows_of(p, to, mine, columns),
                                  .receive = rows_of(p, to, chunk_of(p, peer, chunk), columns)};
    exchange(p, transfers, count);
}

typedef void meanwhile_fn(struct composer *p, bool last);

// layer.to = the sum over ranks of layer.from times weights, plus the bias. `meanwhile` adds
// operations that do not depend on this sum: with last == false before the last sum, with true
// while that sum is sent.
static void product_summed(struct composer *p, struct layer layer, meanwhile_fn *meanwhile)
{
    int32_t bias = layer.bias, to = layer.to;
    if (p->size == 1) {
        next_step(p);
        product_rows(p, &layer, layer.from, all_tokens(p), all_tokens(p));
        meanwhile(p, false);
        meanwhile(p, true);
        return;
    }
    layer.bias = -1;
    layer.to = p->partial;
    for (int chunk = 0; chunk < p->l->chunks; chunk++) {
        struct linear_share mine = chunk_of(p, p->rank, chunk);
        next_step(p);
        product_others(p, &layer, chunk);
        parts_exchange(p, chunk, layer.n);
        product_rows(p, &layer, layer.from, mine, mine);
        if (chunk > 0)
            sum_finish(p, chunk - 1, bias, to, layer.n);
    }
    meanwhile(p, false);
    sum_finish(p, p->l->chunks - 1, bias, to, layer.n);
    meanwhile(p, true);
}

// ---- the passes ----

static void nothing(struct composer *p, bool last)
{
    (void)p;
    (void)last;
}

static void activate(struct composer *p, enum op_kind kind, int32_t d, int32_t to, int64_t columns)
{
    struct product shape = {.m = p->l->tokens, .n = p->middle, .activation = p->l->activation};
    int64_t before = p->middle * p->sizes.gates;
    struct region operand[OPERANDS_MAX] = {[ACTIVATE_H] = rows_of(p, p->h, all_tokens(p), before),
                                           [ACTIVATE_D] = rows_of(p, d, all_tokens(p), p->middle),
                                           [ACTIVATE_TO] = rows_of(p, to, all_tokens(p), columns)};
    next_step(p);
    builder_matrix(p->b, kind, shape, operand);
}

static void forward(struct composer *p)
{
    const struct linear_sizes *sizes = &p->sizes;
    int64_t wide = p->middle * sizes->gates;
    if (sizes->in > 0) {
        struct layer layer = {
            p->x_all,  p->tensor[LINEAR_W1], p->tensor[LINEAR_B1], p->h, sizes->in, wide,
            PRODUCT_NT};
        product_all(p, &layer, p->tensor[LINEAR_X], sizes->in);
    }
    if (p->l->layer == LINEAR_MLP)
        activate(p, OP_ACTIVATE, -1, p->a, p->middle);
    if (sizes->out > 0) {
        struct layer layer = {p->a,
                              p->tensor[LINEAR_W2],
                              p->tensor[LINEAR_B2],
                              p->tensor[LINEAR_Y],
                              p->middle,
                              sizes->out,
                              PRODUCT_NT};
        product_summed(p, layer, nothing);
    }
}

static void gradients_first(struct composer *p)
{
    int64_t wide = p->middle * p->sizes.gates;
    if (p->sizes.in == 0)
        return;
    product_tokens(p, p->dh, wide, p->x_all, p->sizes.in, LINEAR_DW1);
    sum_tokens(p, p->dh, wide, LINEAR_DB1);
}

static void gradients_second(struct composer *p)
{
    if (p->sizes.out == 0)
        return;
    product_tokens(p, p->dy_all, p->sizes.out, p->a, p->middle, LINEAR_DW2);
    sum_tokens(p, p->dy_all, p->sizes.out, LINEAR_DB2);
}

static void gradients(struct composer *p, bool last)
{
    if (last)
        gradients_second(p);
    else
        gradients_first(p);
}

static void backward(struct composer *p)
{
    const struct linear_sizes *sizes = &p->sizes;
    int64_t wide = p->middle * sizes->gates;
    p->phase = PHASE_BACKWARD;
    p->step = 0;
    if (sizes->out > 0) {
        struct layer layer = {p->dy_all, p->tensor[LINEAR_W2], -1, p->da, sizes->out, p->middle,
                              PRODUCT_NN};
        product_all(p, &layer, p->tensor[LINEAR_DY], sizes->out);
    }
    if (p->l->layer == LINEAR_MLP)
        activate(p, OP_ACTIVATE_BACKWARD, p->da, p->dh, wide);
    if (sizes->in > 0) {
        struct layer layer = {
            p->dh, p->tensor[LINEAR_W1], -1, p->tensor[LINEAR_DX], wide, sizes->in, PRODUCT_NN};
        product_summed(p, layer, gradients);
    } else {
        gradients_second(p);
    }
}

// ---- buffers ----

static void tensors_add(struct composer *p)
{
    for (int t = 0; t < LINEAR_TENSORS; t++) {
        int64_t bytes = linear_bytes(p->l, p->rank, (enum linear_tensor)t);
        p->tensor[t] = -1;
        if (bytes > 0)
            p->tensor[t] = builder_buffer(p->b, linear_tensor_name(p->l, (enum linear_tensor)t),
                                          (enum buffer_role)(BUFFER_LINEAR + t), bytes);
    }
}

static void scratch_add(struct composer *p)
{
    const struct linear *l = p->l;
    int64_t tokens = l->tokens, wide = p->middle * p->sizes.gates;
    int64_t in = p->sizes.in, out = p->sizes.out;
    bool mlp = l->layer == LINEAR_MLP, training = l->training;
    p->x_all = travels(p) && in > 0 ? scratch(p, "all x", tokens, in) : p->tensor[LINEAR_X];
    p->h = mlp ? scratch(p, "h", tokens, wide) : p->tensor[LINEAR_Y];
    p->a = mlp ? scratch(p, "a", tokens, p->middle) : p->tensor[LINEAR_X];
    p->dy_all = travels(p) && out > 0 && training ? scratch(p, "all dy", tokens, out)
                                                  : p->tensor[LINEAR_DY];
    p->da = mlp && training ? scratch(p, "da", tokens, p->middle) : p->tensor[LINEAR_DX];
    p->dh = mlp && training ? scratch(p, "dh", tokens, wide) : p->tensor[LINEAR_DY];
    // Both passes use the same buffers for their sums.
    int64_t columns = training && in > out ? in : out;
    int64_t own = linear_share(tokens, p->rank, p->size).count;
    p->partial = p->parts = -1;
    if (p->size == 1)
        return;
    p->partial = scratch(p, "partial", tokens, columns);
    p->parts = scratch(p, "parts", own * (p->size - 1), columns);
}

enum status linear_plan(const struct linear *l, int rank, struct plan **plan, struct error *error)
{
    struct builder *b = builder_create_linear(l, rank);
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the plan of rank %d",
                         rank);
    struct composer p = {.l = l,
                         .b = b,
                         .rank = rank,
                         .size = l->world_size,
                         .element = l->dtype == DTYPE_FP32 ? 4 : 2,
                         .sizes = linear_sizes(l),
                         .phase = PHASE_FORWARD};
    p.middle = linear_share(p.sizes.middle, rank, p.size).count;
    tensors_add(&p);
    scratch_add(&p);
    forward(&p);
    if (l->training)
        backward(&p);
    enum status status = builder_finish(b, plan, error);
    if (status == STATUS_OK)
        plan_guard(*plan, false);
    builder_destroy(b);
    return status;
}
