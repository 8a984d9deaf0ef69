// SPDX-License-Identifier: Apache-2.0
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

// An access of an operation to a range of bytes. A later operation may have to wait for it.
struct record {
    int32_t op;
    struct region region;
    bool write;
};

// For each stream an operation, which stands for itself and all earlier ones of the stream; -1:
// none.
struct horizon {
    int32_t op[PLAN_STREAMS];
};

// The records of one buffer.
struct records {
    struct record *list;
    int32_t count, capacity;
};

struct builder {
    struct plan *plan;
    bool failed;
    enum plan_phase phase;
    int step;

    struct records *records; // by buffer
    int32_t record_buffers;
    // For each stream: the operations that its own waits make complete before its next operation
    // starts. With two streams the waits of the other stream add nothing: they refer to this
    // stream.
    struct horizon known[PLAN_STREAMS];

    struct {
        int32_t buffers, ops, slices, transfers, waits, records;
    } capacity;
    void **blocks; // builder_alloc()
    int32_t block_count, block_capacity;
};

// ---- lifetime ----

struct builder *builder_create(const struct cp_case *c, int rank)
{
    struct builder *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->plan = calloc(1, sizeof *b->plan);
    if (!b->plan) {
        builder_destroy(b);
        return NULL;
    }
    b->plan->c = *c;
    b->plan->rank = rank;
    b->phase = PHASE_FORWARD;
    memset(b->known, -1, sizeof b->known);
    return b;
}

// For kinds without a case: stores a default case with only the fields that every plan has.
static struct builder *create_other(int world_size, uint64_t explore_seed, bool operation_times,
                                    int rank)
{
    struct cp_case stub;
    case_init(&stub);
    stub.world_size = world_size;
    stub.explore_seed = explore_seed;
    stub.operation_times = operation_times;
    return builder_create(&stub, rank);
}

struct builder *builder_create_linear(const struct linear *l, int rank)
{
    struct builder *b = create_other(l->world_size, l->explore_seed, l->operation_times, rank);
    if (b)
        b->plan->linear = *l;
    return b;
}

struct builder *builder_create_collective(const struct collective *c, int rank)
{
    struct builder *b = create_other(c->world_size, c->explore_seed, c->operation_times, rank);
    if (b)
        b->plan->collective = *c;
    return b;
}

void builder_destroy(struct builder *b)
{
    if (!b)
        return;
    for (int32_t i = 0; i < b->record_buffers; i++)
        free(b->records[i].list);
    free(b->records);
    plan_destroy(b->plan);
    for (int32_t i = 0; i < b->block_count; i++)
        free(b->blocks[i]);
    free(b->blocks);
    free(b);
}

enum status builder_finish(struct builder *b, struct plan **plan, struct error *error)
{
    if (b->failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the plan of rank %d",
                         b->plan->rank);
    *plan = b->plan;
    b->plan = NULL;
    return STATUS_OK;
}

const struct cp_case *builder_case(const struct builder *b)
{
    return &b->plan->c;
}

int builder_rank(const struct builder *b)
{
    return b->plan->rank;
}

// ---- growing arrays ----

// Makes room for `extra` more elements and returns the array, possibly moved. Out of memory:
// returns it unchanged and sets b->failed.
static void *room(struct builder *b, void *array, int32_t count, int32_t extra, int32_t *capacity,
                  size_t size)
{
    int32_t needed, doubled;
    if (__builtin_add_overflow(count, extra, &needed)) {
        b->failed = true;
        return array;
    }
    if (needed <= *capacity)
        return array;
    if (!__builtin_mul_overflow(needed, 2, &doubled))
        needed = doubled;
    void *grown = reallocarray(array, (size_t)needed, size);
    if (!grown) {
        b->failed = true;
        return array;
    }
    *capacity = needed;
    return grown;
}

#define ROOM(b, array, count, extra, capacity)                                                     \
    ((array) = room(b, array, count, extra, &(capacity), sizeof *(array)))

void *builder_alloc(struct builder *b, size_t count, size_t size)
{
    ROOM(b, b->blocks, b->block_count, 1, b->block_capacity);
    if (b->failed)
        return NULL;
    void *block = calloc(count > 0 ? count : 1, size);
    if (!block)
        b->failed = true;
    else
        b->blocks[b->block_count++] = block;
    return block;
}

int32_t builder_buffer(struct builder *b, const char *name, enum buffer_role role, int64_t bytes)
{
    struct plan *plan = b->plan;
    ROOM(b, plan->buffers, plan->buffer_count, 1, b->capacity.buffers);
    ROOM(b, b->records, b->record_buffers, 1, b->capacity.records);
    if (b->failed)
        return 0;
    b->records[b->record_buffers++] = (struct records){NULL, 0, 0};
    struct plan_buffer *buffer = &plan->buffers[plan->buffer_count];
    *buffer = (struct plan_buffer){.role = role, .bytes = bytes};
    strncpy(buffer->name, name, sizeof buffer->name - 1);
    return plan->buffer_count++;
}

void builder_step(struct builder *b, enum plan_phase phase, int step)
{
    b->phase = phase;
    b->step = step;
}

// ---- hazards ----

// True if a piece of `r` touches [begin, end) of its buffer.
static bool piece_touches(const struct region *r, int64_t begin, int64_t end)
{
    int64_t first = 0; // the first piece that may reach `begin`
    if (r->rows > 1 && begin > r->offset && region_blocks(r) > 1)
        first = (begin - r->offset) / r->block_stride * r->rows;
    else if (r->rows > 1 && begin > r->offset)
        first = (begin - r->offset) / r->stride;
    for (int64_t i = first; i < region_pieces(r) && region_piece(r, i) < end; i++)
        if (region_piece(r, i) + r->bytes > begin)
            return true;
    return false;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

// For regions of one block and equal strides; b begins `ahead` bytes behind a. Piece i of a
// overlaps piece i - u of b iff ahead - a->bytes < u * stride < ahead + b->bytes.
static bool combs_touch(const struct region *a, const struct region *b, int64_t ahead)
{
    int64_t u = floor_div(ahead - a->bytes, a->stride) + 1;
    if (u < 1 - b->rows)
        u = 1 - b->rows;
    return u < a->rows && u * a->stride < ahead + b->bytes;
}

static int64_t block_extent(const struct region *r)
{
    return (r->rows - 1) * r->stride + r->bytes;
}

// For regions of equal strides, and of equal block strides if both have several blocks. Tries the
// few distances at which a block of a can touch a block of b.
static bool blocks_touch(const struct region *a, const struct region *b)
{
    int64_t stride = region_blocks(a) > 1 ? a->block_stride : b->block_stride;
    int64_t ahead = b->offset - a->offset;
    int64_t first = floor_div(-block_extent(b) - ahead, stride) + 1;
    if (first < 1 - region_blocks(a))
        first = 1 - region_blocks(a);
    for (int64_t n = first; n < region_blocks(b) && ahead + n * stride < block_extent(a); n++)
        if (combs_touch(a, b, ahead + n * stride))
            return true;
    return false;
}

// Regions of different strides are compared piece by piece up to this number of pieces in both
// together. Beyond it they count as overlapping.
#define PIECES_COMPARED 4096

static bool pieces_touch(const struct region *a, const struct region *b)
{
    for (int64_t i = 0, k = 0; i < region_pieces(a) && k < region_pieces(b);) {
        int64_t at = region_piece(a, i), other = region_piece(b, k);
        if (at < other + b->bytes && other < at + a->bytes)
            return true;
        if (at < other)
            i++;
        else
            k++;
    }
    return false;
}

static bool overlap(const struct region *a, const struct region *b)
{
    if (a->buffer != b->buffer || a->offset >= b->offset + region_extent(b) ||
        b->offset >= a->offset + region_extent(a))
        return false;
    if (a->rows <= 1)
        return piece_touches(b, a->offset, a->offset + a->bytes);
    if (b->rows <= 1)
        return piece_touches(a, b->offset, b->offset + b->bytes);
    bool blocks = region_blocks(a) > 1 && region_blocks(b) > 1;
    if (a->stride != b->stride || (blocks && a->block_stride != b->block_stride))
        return region_pieces(a) + region_pieces(b) > PIECES_COMPARED || pieces_touch(a, b);
    if (region_blocks(a) > 1 || region_blocks(b) > 1)
        return blocks_touch(a, b);
    return combs_touch(a, b, b->offset - a->offset);
}

// True only if `a` contains `b`. May be false although `a` contains `b`.
static bool covers(const struct region *a, const struct region *b)
{
    if (a->buffer != b->buffer || a->offset > b->offset ||
        b->offset + region_extent(b) > a->offset + region_extent(a))
        return false;
    if (a->rows <= 1)
        return true;
    if (region_blocks(a) > 1 || region_blocks(b) > 1)
        return false; // not known
    int64_t ahead = b->offset - a->offset, rows = region_pieces(b);
    return (rows == 1 || a->stride == b->stride) && ahead % a->stride + b->bytes <= a->bytes &&
           ahead / a->stride + rows <= a->rows;
}

// Visits every region an operation touches.
typedef void visit_fn(struct builder *b, int32_t op, const struct region *region,
                      enum access access, void *context);

static void visit_regions(struct builder *b, int32_t index, visit_fn *visit, void *context)
{
    const struct op *op = &b->plan->ops[index];
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op->operand[i].bytes > 0)
            visit(b, index, &op->operand[i], op_access(op->kind, i), context);
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &b->plan->transfers[op->transfer_first + i];
        if (t->send.bytes > 0)
            visit(b, index, &t->send, ACCESS_READ, context);
        if (t->receive.bytes > 0)
            visit(b, index, &t->receive, ACCESS_WRITE, context);
    }
}

// Records in `context` (struct horizon) the last operation of each stream whose access conflicts
// with this one.
static void find_conflicts(struct builder *b, int32_t op, const struct region *region,
                           enum access access, void *context)
{
    (void)op;
    struct horizon *needed = context;
    const struct records *records = &b->records[region->buffer];
    for (int32_t i = 0; i < records->count; i++) {
        const struct record *r = &records->list[i];
        if (!overlap(&r->region, region) || !(r->write || (access & ACCESS_WRITE)))
            continue;
        int32_t *last = &needed->op[b->plan->ops[r->op].stream];
        if (r->op > *last)
            *last = r->op;
    }
}

// Records the access and drops earlier ones that it replaces. A write replaces all accesses that it
// covers, because it is ordered behind them. A read replaces the reads of its own stream that it
// covers.
static void remember(struct builder *b, int32_t op, const struct region *region, enum access access,
                     void *context)
{
    (void)context;
    bool write = access & ACCESS_WRITE;
    enum plan_stream stream = b->plan->ops[op].stream;
    struct records *records = &b->records[region->buffer];
    int32_t kept = 0;
    for (int32_t i = 0; i < records->count; i++) {
        struct record r = records->list[i];
        bool behind = write || (!r.write && b->plan->ops[r.op].stream == stream);
        if (!behind || !covers(region, &r.region))
            records->list[kept++] = r;
    }
    records->count = kept;
    ROOM(b, records->list, records->count, 1, records->capacity);
    if (!b->failed)
        records->list[records->count++] =
            (struct record){.op = op, .region = *region, .write = write};
}

static void add_wait(struct builder *b, struct op *op, int32_t other)
{
    struct plan *plan = b->plan;
    ROOM(b, plan->waits, plan->wait_count, 1, b->capacity.waits);
    if (b->failed)
        return;
    plan->waits[plan->wait_count++] = other;
    op->wait_count++;
}

// Adds a wait for each needed operation that is not known to be complete. A stream never waits for
// itself.
static void derive_waits(struct builder *b, struct op *op, const struct horizon *needed)
{
    struct horizon *known = &b->known[op->stream];
    for (int s = 0; s < PLAN_STREAMS; s++) {
        if (needed->op[s] <= known->op[s])
            continue;
        add_wait(b, op, needed->op[s]);
        known->op[s] = needed->op[s];
    }
}

// ---- operations ----

// Begins the next operation; operation_end() completes it. NULL after a memory error.
static struct op *operation_begin(struct builder *b, enum op_kind kind)
{
    struct plan *plan = b->plan;
    ROOM(b, plan->ops, plan->op_count, 1, b->capacity.ops);
    if (b->failed)
        return NULL;
    struct op *op = &plan->ops[plan->op_count];
    *op = (struct op){.kind = kind,
                      .stream = kind == OP_EXCHANGE ? STREAM_COMM : STREAM_COMPUTE,
                      .phase = b->phase,
                      .step = b->step,
                      .slice_first = plan->slice_count,
                      .transfer_first = plan->transfer_count,
                      .wait_first = plan->wait_count};
    return op;
}

static void operation_end(struct builder *b)
{
    int32_t index = b->plan->op_count++;
    struct op *op = &b->plan->ops[index];
    struct horizon needed;
    memset(&needed, -1, sizeof needed);
    visit_regions(b, index, find_conflicts, &needed);
    derive_waits(b, op, &needed);
    visit_regions(b, index, remember, NULL);
    b->known[op->stream].op[op->stream] = index;
}

static void add_sliced(struct builder *b, enum op_kind kind, struct heads heads, int64_t q_rows,
                       int64_t bias_rows, const struct region operand[OPERANDS_MAX],
                       const struct slice *slices, int count)
{
    struct plan *plan = b->plan;
    ROOM(b, plan->slices, plan->slice_count, count, b->capacity.slices);
    struct op *op = count > 0 && heads.count > 0 ? operation_begin(b, kind) : NULL;
    if (!op)
        return;
    op->heads = heads;
    op->q_rows = q_rows;
    op->bias_rows = bias_rows;
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op_access(kind, i) != ACCESS_NONE)
            op->operand[i] = operand[i];
    memcpy(plan->slices + plan->slice_count, slices, (size_t)count * sizeof *slices);
    plan->slice_count += count;
    op->slice_count = count;
    operation_end(b);
}

void builder_attend(struct builder *b, enum op_kind kind, struct heads heads, int64_t q_rows,
                    int64_t bias_rows, const struct region operand[OPERANDS_MAX],
                    const struct slice *slices, int count)
{
    add_sliced(b, kind, heads, q_rows, bias_rows, operand, slices, count);
}

void builder_sink_grad(struct builder *b, struct heads heads, int64_t q_rows,
                       const struct region operand[OPERANDS_MAX], const struct slice *slices,
                       int count)
{
    add_sliced(b, OP_SINK_GRAD, heads, q_rows, 0, operand, slices, count);
}

void builder_row_dot(struct builder *b, struct heads heads, int64_t q_rows, struct region d_out,
                     struct region out, struct region d)
{
    struct op *op = d.bytes > 0 ? operation_begin(b, OP_ROW_DOT) : NULL;
    if (!op)
        return;
    op->heads = heads;
    op->q_rows = q_rows;
    op->operand[ROW_DOT_DO] = d_out;
    op->operand[ROW_DOT_O] = out;
    op->operand[ROW_DOT_D] = d;
    operation_end(b);
}

static void unary(struct builder *b, enum op_kind kind, struct region source,
                  struct region destination, float value)
{
    struct op *op = destination.bytes > 0 ? operation_begin(b, kind) : NULL;
    if (!op)
        return;
    op->operand[UNARY_SOURCE] = source;
    op->operand[UNARY_DESTINATION] = destination;
    op->value = value;
    operation_end(b);
}

void builder_add(struct builder *b, struct region source, struct region destination)
{
    unary(b, OP_ADD, source, destination, 0);
}

void builder_max(struct builder *b, struct region source, struct region destination)
{
    unary(b, OP_MAX, source, destination, 0);
}

void builder_fill_heads(struct builder *b, struct heads heads, int64_t q_rows, struct region source,
                        struct region destination)
{
    struct op *op = destination.bytes > 0 ? operation_begin(b, OP_FILL_HEADS) : NULL;
    if (!op)
        return;
    op->heads = heads;
    op->q_rows = q_rows;
    op->operand[UNARY_SOURCE] = source;
    op->operand[UNARY_DESTINATION] = destination;
    operation_end(b);
}

void builder_convert(struct builder *b, struct region source, struct region destination)
{
    unary(b, OP_CONVERT, source, destination, 0);
}

void builder_fill(struct builder *b, struct region destination, float value)
{
    unary(b, OP_FILL, (struct region){0}, destination, value);
}

void builder_reduce(struct builder *b, struct region source, struct region destination)
{
    unary(b, OP_REDUCE, source, destination, 0);
}

void builder_divide(struct builder *b, struct region destination, float value)
{
    unary(b, OP_DIVIDE, (struct region){0}, destination, value);
}

void builder_matrix(struct builder *b, enum op_kind kind, struct product product,
                    const struct region operand[OPERANDS_MAX])
{
    bool empty = true;
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op_access(kind, i) & ACCESS_WRITE)
            empty = operand[i].bytes == 0;
    struct op *op = empty ? NULL : operation_begin(b, kind);
    if (!op)
        return;
    op->product = product;
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op_access(kind, i) != ACCESS_NONE)
            op->operand[i] = operand[i];
    operation_end(b);
}

static void transfers_add(struct builder *b, enum op_kind kind, const struct transfer *transfers,
                          int count)
{
    struct plan *plan = b->plan;
    ROOM(b, plan->transfers, plan->transfer_count, count, b->capacity.transfers);
    struct op *op = operation_begin(b, kind);
    if (!op)
        return;
    for (int i = 0; i < count; i++) {
        if (transfers[i].send.bytes == 0 && transfers[i].receive.bytes == 0)
            continue;
        plan->transfers[plan->transfer_count++] = transfers[i];
        op->transfer_count++;
    }
    operation_end(b);
}

void builder_exchange(struct builder *b, const struct transfer *transfers, int count)
{
    transfers_add(b, OP_EXCHANGE, transfers, count);
}

void builder_copy(struct builder *b, const struct transfer *transfers, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || transfers[i].send.bytes > 0;
    if (any)
        transfers_add(b, OP_COPY, transfers, count);
}
