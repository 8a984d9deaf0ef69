// SPDX-License-Identifier: Apache-2.0
// The checker shares no code with the builder: it derives from the finished plans alone which
// operations are ordered and which bytes are defined.
//
// Deadlock needs no search. Waits point backwards in the plan, streams run in plan order, and the
// n-th exchanges of all ranks match. Take the smallest n whose exchange is not complete
// on some rank. On every rank, the operations that the n-th exchange waits for stand before it, and
// depend only on exchanges below n. So all its ranks start it, and it completes.
#include <stdlib.h>
#include <string.h>

#include "plan/check.h"

// An access of an operation to a region.
struct touch {
    int32_t op;
    struct region region;
    enum access access;
};

// For each stream, including the operation's own: the last operation of the stream that is complete
// before this operation starts; -1: none.
struct before {
    int32_t op[PLAN_STREAMS];
};

struct interval {
    int64_t begin, end;
};

// Facts about one plan. Owns its arrays.
struct examined {
    const struct plan *plan;
    struct before *before;      // by operation
    struct touch *touches;      // by buffer, within it in plan order
    int32_t *touch_first;       // by buffer, one more at the end
    struct interval *intervals; // room for the written bytes of one buffer
    struct interval *merged;    // room to merge a region into them
};

// ---- order ----

// True if operation a is complete before operation b starts; a < b.
static bool ordered(const struct examined *x, int32_t a, int32_t b)
{
    return x->before[b].op[x->plan->ops[a].stream] >= a;
}

static void join(struct before *known, const struct before *other)
{
    for (int s = 0; s < PLAN_STREAMS; s++)
        if (other->op[s] > known->op[s])
            known->op[s] = other->op[s];
}

static void find_order(struct examined *x)
{
    const struct plan *plan = x->plan;
    int32_t last[PLAN_STREAMS];
    for (int s = 0; s < PLAN_STREAMS; s++)
        last[s] = -1;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        struct before *known = &x->before[i];
        for (int s = 0; s < PLAN_STREAMS; s++)
            known->op[s] = -1;
        if (last[op->stream] >= 0)
            join(known, &x->before[last[op->stream]]);
        known->op[op->stream] = last[op->stream];
        for (int32_t w = 0; w < op->wait_count; w++) {
            int32_t other = plan->waits[op->wait_first + w];
            join(known, &x->before[other]);
            if (other > known->op[plan->ops[other].stream])
                known->op[plan->ops[other].stream] = other;
        }
        last[op->stream] = i;
    }
}

// ---- accesses ----

// Appends an access to the list of its buffer; fill[buffer] is the next index. Without an array it
// only counts.
static void put_touch(struct examined *x, int32_t *fill, int32_t op, const struct region *r,
                      enum access access)
{
    if (r->bytes == 0 || access == ACCESS_NONE)
        return;
    int32_t at = fill[r->buffer]++;
    if (x->touches)
        x->touches[at] = (struct touch){op, *r, access};
}

static void put_touches(struct examined *x, int32_t *fill)
{
    const struct plan *plan = x->plan;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        for (int k = 0; k < OPERANDS_MAX; k++)
            put_touch(x, fill, i, &op->operand[k], op_access(op->kind, k));
        for (int32_t k = 0; k < op->transfer_count; k++) {
            const struct transfer *t = &plan->transfers[op->transfer_first + k];
            put_touch(x, fill, i, &t->send, ACCESS_READ);
            put_touch(x, fill, i, &t->receive, ACCESS_WRITE);
        }
    }
}

// Sorts all accesses by buffer: the first pass counts, the second stores. False: out of memory.
static bool find_touches(struct examined *x)
{
    int32_t buffers = x->plan->buffer_count, total = 0;
    int32_t *fill = calloc((size_t)buffers + 1, sizeof *fill);
    x->touch_first = calloc((size_t)buffers + 1, sizeof *x->touch_first);
    if (!fill || !x->touch_first) {
        free(fill);
        return false;
    }
    put_touches(x, fill);
    for (int32_t i = 0; i < buffers; i++) {
        int32_t count = fill[i];
        fill[i] = x->touch_first[i] = total;
        total += count;
    }
    x->touch_first[buffers] = total;
    x->touches = calloc((size_t)total + 1, sizeof *x->touches);
    if (x->touches)
        put_touches(x, fill);
    free(fill);
    return x->touches != NULL;
}

static struct interval piece(const struct region *r, int64_t i)
{
    int64_t begin = region_piece(r, i);
    return (struct interval){begin, begin + r->bytes};
}

static bool intervals_meet(struct interval x, struct interval y, struct interval *common)
{
    common->begin = x.begin > y.begin ? x.begin : y.begin;
    common->end = x.end < y.end ? x.end : y.end;
    return common->begin < common->end;
}

// The smallest d for which ahead + d * stride + bytes > 0: at a distance of d pieces, the piece of
// b first ends behind the begin of the piece of a.
static int64_t first_meeting(int64_t ahead, int64_t bytes, int64_t stride)
{
    int64_t before = ahead + bytes;
    return before > 0 ? -((before - 1) / stride) : -before / stride + 1;
}

// For regions of one block and equal strides. Piece k of b begins ahead + (k - i) * stride bytes
// behind piece i of a. Only the smallest distance k - i needs to be compared at which piece k does
// not end before piece i begins.
static bool combs_meet(const struct region *a, const struct region *b, struct interval *common)
{
    int64_t apart = first_meeting(b->offset - a->offset, b->bytes, a->stride);
    apart = apart > 1 - a->rows ? apart : 1 - a->rows;
    if (apart >= b->rows)
        return false;
    int64_t i = apart < 0 ? -apart : 0;
    return intervals_meet(piece(a, i), piece(b, i + apart), common);
}

// For regions of several blocks with equal strides and block strides: the same with whole blocks. A
// block of a can overlap at most two blocks of b.
static bool blocks_meet(const struct region *a, const struct region *b, struct interval *common)
{
    int64_t extent = (b->rows - 1) * b->stride + b->bytes;
    int64_t apart = first_meeting(b->offset - a->offset, extent, a->block_stride);
    apart = apart > 1 - region_blocks(a) ? apart : 1 - region_blocks(a);
    for (int n = 0; n < 2 && apart < region_blocks(b); n++, apart++) {
        struct region x = *a, y = *b;
        x.blocks = y.blocks = 1;
        x.offset += (apart < 0 ? -apart : 0) * a->block_stride;
        y.offset += (apart > 0 ? apart : 0) * b->block_stride;
        if (combs_meet(&x, &y, common))
            return true;
    }
    return false;
}

// True if two regions of a buffer overlap; *common is the first common interval.
static bool regions_overlap(const struct region *a, const struct region *b, struct interval *common)
{
    if (a->rows > 1 && b->rows > 1 && a->stride == b->stride) {
        if (region_blocks(a) == 1 && region_blocks(b) == 1)
            return combs_meet(a, b, common);
        if (a->block_stride == b->block_stride)
            return blocks_meet(a, b, common);
    }
    for (int64_t i = 0, k = 0; i < region_pieces(a) && k < region_pieces(b);) {
        struct interval x = piece(a, i), y = piece(b, k);
        if (intervals_meet(x, y, common))
            return true;
        if (x.end < y.end)
            i++;
        else
            k++;
    }
    return false;
}

static enum status race_fault(const struct examined *x, const struct touch *a,
                              const struct touch *b, struct interval common, struct error *error)
{
    char first[CHECK_TEXT_MAX], second[CHECK_TEXT_MAX];
    return error_set(
        error, STATUS_INTERNAL,
        "rank %d: %s and %s both touch bytes %lld to %lld of %s, one writes, and nothing "
        "orders them",
        x->plan->rank, check_op_text(x->plan, a->op, first), check_op_text(x->plan, b->op, second),
        (long long)common.begin, (long long)common.end, x->plan->buffers[a->region.buffer].name);
}

static bool races(const struct examined *x, const struct touch *a, const struct touch *b,
                  struct interval *common)
{
    return ((a->access | b->access) & ACCESS_WRITE) &&
           (a->op == b->op || !ordered(x, a->op, b->op)) &&
           regions_overlap(&a->region, &b->region, common);
}

static enum status check_races(const struct examined *x, struct error *error)
{
    struct interval common;
    for (int32_t buffer = 0; buffer < x->plan->buffer_count; buffer++) {
        int32_t end = x->touch_first[buffer + 1];
        for (int32_t b = x->touch_first[buffer]; b < end; b++)
            for (int32_t a = x->touch_first[buffer]; a < b; a++)
                if (races(x, &x->touches[a], &x->touches[b], &common))
                    return race_fault(x, &x->touches[a], &x->touches[b], common, error);
    }
    return STATUS_OK;
}

// ---- definedness ----

// A set of bytes as disjoint ascending intervals that do not touch each other.
struct byte_set {
    struct interval *intervals;
    int64_t count;
};

// Appends an interval, which must not begin before any interval of the set.
static void set_append(struct byte_set *set, struct interval next)
{
    struct interval *last = set->intervals + set->count - 1;
    if (set->count == 0 || next.begin > last->end)
        set->intervals[set->count++] = next;
    else if (next.end > last->end)
        last->end = next.end;
}

// Walks over the pieces of a region without divisions.
struct walk {
    struct interval at;
    int64_t row, block_begin;
};

static struct walk walk_begin(const struct region *r)
{
    return (struct walk){piece(r, 0), 0, r->offset};
}

static void walk_on(struct walk *w, const struct region *r)
{
    int64_t begin = w->at.begin + r->stride;
    if (++w->row >= r->rows) {
        w->row = 0;
        begin = w->block_begin += r->block_stride;
    }
    w->at = (struct interval){begin, begin + r->bytes};
}

// Adds the region to *set. Builds the union in *room, then swaps the arrays of set and room.
static void set_add(struct byte_set *set, struct interval **room, const struct region *r)
{
    struct byte_set merged = {.intervals = *room};
    if (r->bytes == 0)
        return;
    struct walk w = walk_begin(r);
    int64_t k = 0, pieces = region_pieces(r);
    for (int64_t i = 0; i < pieces; i++, walk_on(&w, r)) {
        while (k < set->count && set->intervals[k].begin <= w.at.begin)
            set_append(&merged, set->intervals[k++]);
        set_append(&merged, w.at);
    }
    while (k < set->count)
        set_append(&merged, set->intervals[k++]);
    *room = set->intervals;
    *set = merged;
}

static bool set_covers(const struct byte_set *set, const struct region *r)
{
    struct walk w = walk_begin(r);
    int64_t k = 0, pieces = region_pieces(r), end = r->offset + region_extent(r);
    for (int64_t i = 0; i < pieces; i++, walk_on(&w, r)) {
        while (k < set->count && set->intervals[k].end < w.at.end)
            k++;
        if (w.at.begin < w.at.end && (k == set->count || set->intervals[k].begin > w.at.begin))
            return false;
        if (w.at.begin < w.at.end && set->intervals[k].end >= end)
            return true; // the rest is in the same interval
    }
    return true;
}

// Upper bound of the intervals of one buffer.
static int64_t intervals_max(const struct examined *x)
{
    int64_t most = 2;
    for (int32_t buffer = 0; buffer < x->plan->buffer_count; buffer++) {
        int64_t count = 2;
        for (int32_t i = x->touch_first[buffer]; i < x->touch_first[buffer + 1]; i++)
            count += region_pieces(&x->touches[i].region);
        if (count > most)
            most = count;
    }
    return most;
}

static bool is_input(enum buffer_role role)
{
    return role == BUFFER_INPUT_Q || role == BUFFER_INPUT_KV || role == BUFFER_INPUT_DO ||
           role == BUFFER_INPUT_BIAS || role == BUFFER_INPUT_SINK || role == BUFFER_SEND ||
           (role >= BUFFER_LINEAR && role < BUFFER_LINEAR + LINEAR_Y);
}

static enum status touch_fault(const struct examined *x, const struct touch *t, const char *what,
                               struct error *error)
{
    char text[CHECK_TEXT_MAX];
    long long begin = (long long)t->region.offset;
    return error_set(error, STATUS_INTERNAL, "rank %d: %s %s: bytes %lld to %lld of %s",
                     x->plan->rank, check_op_text(x->plan, t->op, text), what, begin,
                     begin + (long long)region_extent(&t->region),
                     x->plan->buffers[t->region.buffer].name);
}

// Extends *r by the region of a write, if each piece of that region begins where a piece of *r
// ends. So the heads that many ranks send become one region before they are added to the set.
static bool joined(struct region *r, const struct touch *t)
{
    const struct region *next = &t->region;
    if (r->bytes == 0 || r->rows <= 1 || next->rows != r->rows || next->stride != r->stride ||
        region_blocks(next) != region_blocks(r) || next->block_stride != r->block_stride ||
        next->offset != r->offset + r->bytes)
        return false;
    r->bytes += next->bytes;
    return true;
}

static enum status check_defined(struct examined *x, int32_t buffer, struct error *error)
{
    const struct plan_buffer *info = &x->plan->buffers[buffer];
    const struct region whole = {.buffer = buffer, .bytes = info->bytes};
    struct region last = {.bytes = 0}; // written and not yet in the set
    struct byte_set written = {.intervals = x->intervals};
    struct interval *room = x->merged;
    if (is_input(info->role) || info->role == BUFFER_SHARED)
        set_add(&written, &room, &whole);
    for (int32_t i = x->touch_first[buffer]; i < x->touch_first[buffer + 1]; i++) {
        const struct touch *t = &x->touches[i];
        if (t->access == ACCESS_WRITE && !is_input(info->role) && joined(&last, t))
            continue;
        set_add(&written, &room, &last);
        last.bytes = 0;
        if ((t->access & ACCESS_READ) && !set_covers(&written, &t->region))
            return touch_fault(x, t, "reads what nothing has written", error);
        if ((t->access & ACCESS_WRITE) && is_input(info->role))
            return touch_fault(x, t, "writes to an input", error);
        if (t->access == ACCESS_WRITE) // a READ_WRITE region is already in the set
            last = t->region;
    }
    set_add(&written, &room, &last);
    if (info->role != BUFFER_SCRATCH && !set_covers(&written, &whole))
        return error_set(error, STATUS_INTERNAL,
                         "rank %d: output %s of %lld bytes is not written completely",
                         x->plan->rank, info->name, (long long)info->bytes);
    return STATUS_OK;
}

// ---- one plan ----

// False when memory is short.
static bool examined_init(struct examined *x)
{
    x->before = calloc((size_t)x->plan->op_count + 1, sizeof *x->before);
    if (!x->before || !find_touches(x))
        return false;
    size_t intervals = (size_t)intervals_max(x);
    x->intervals = reallocarray(NULL, intervals, sizeof *x->intervals);
    x->merged = reallocarray(NULL, intervals, sizeof *x->merged);
    return x->intervals && x->merged;
}

static enum status examine(struct examined *x, struct error *error)
{
    if (!examined_init(x))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to check the plan of rank %d",
                         x->plan->rank);
    find_order(x);
    enum status status = check_races(x, error);
    for (int32_t i = 0; i < x->plan->buffer_count && status == STATUS_OK; i++)
        status = check_defined(x, i, error);
    return status;
}

enum status plan_check_alone(const struct plan *plan, struct error *error)
{
    enum status status = check_fit(plan, error);
    if (status != STATUS_OK)
        return status;
    struct examined x = {.plan = plan};
    status = examine(&x, error);
    free(x.before);
    free(x.touches);
    free(x.touch_first);
    free(x.intervals);
    free(x.merged);
    return status;
}

// ---- all plans ----

// The next exchange from operation *from on, or NULL. Moves *from behind it.
static const struct op *next_exchange(const struct plan *plan, int32_t *from)
{
    while (*from < plan->op_count)
        if (plan->ops[(*from)++].kind == OP_EXCHANGE)
            return &plan->ops[*from - 1];
    return NULL;
}

// Bytes of the k-th non-empty message to `peer` (send) or from it. 0: there are fewer.
static int64_t message_bytes(const struct plan *plan, const struct op *op, int peer, bool send,
                             int k)
{
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        int64_t bytes = region_total(send ? &t->send : &t->receive);
        if (t->peer == peer && bytes > 0 && k-- == 0)
            return bytes;
    }
    return 0;
}

static enum status check_messages(struct plan *const *plans, const struct op *const *ops, int n,
                                  int from, int to, struct error *error)
{
    for (int k = 0;; k++) {
        int64_t sent = message_bytes(plans[from], ops[from], to, true, k);
        int64_t received = message_bytes(plans[to], ops[to], from, false, k);
        if (sent != received)
            return error_set(error, STATUS_INTERNAL,
                             "exchange %d: rank %d sends %lld bytes in its message %d to rank %d, "
                             "which receives %lld",
                             n, from, (long long)sent, k, to, (long long)received);
        if (sent == 0)
            return STATUS_OK;
    }
}

// Checks that the n-th exchanges of the ranks match. *more: at least one rank has an n-th exchange.
static enum status check_exchange(struct plan *const *plans, int world_size, int n, int32_t *from,
                                  bool *more, struct error *error)
{
    const struct op *ops[WORLD_SIZE_MAX];
    int present = 0;
    for (int rank = 0; rank < world_size; rank++) {
        ops[rank] = next_exchange(plans[rank], &from[rank]);
        present += ops[rank] != NULL;
    }
    *more = present > 0;
    for (int rank = 0; rank < world_size && *more; rank++)
        if (!ops[rank])
            return error_set(error, STATUS_INTERNAL,
                             "rank %d has %d exchanges, another rank has more", rank, n);
    for (int a = 0; a < world_size && *more; a++) {
        for (int b = 0; b < world_size; b++) {
            enum status status = check_messages(plans, ops, n, a, b, error);
            if (status != STATUS_OK)
                return status;
        }
    }
    return STATUS_OK;
}

static enum status check_identity(struct plan *const *plans, int world_size, struct error *error)
{
    if (world_size < 1 || world_size > WORLD_SIZE_MAX)
        return error_set(error, STATUS_INTERNAL, "%d is not a number of plans", world_size);
    uint64_t hash = case_hash(&plans[0]->c);
    for (int rank = 0; rank < world_size; rank++)
        if (plans[rank]->rank != rank || plans[rank]->c.world_size != world_size ||
            case_hash(&plans[rank]->c) != hash)
            return error_set(error, STATUS_INTERNAL,
                             "plan %d is of rank %d of %d, or of another case", rank,
                             plans[rank]->rank, plans[rank]->c.world_size);
    return STATUS_OK;
}

enum status plan_check_exchanges(struct plan *const *plans, int world_size, struct error *error)
{
    enum status status = check_identity(plans, world_size, error);
    int32_t from[WORLD_SIZE_MAX] = {0};
    bool more = true;
    for (int n = 0; more && status == STATUS_OK; n++)
        status = check_exchange(plans, world_size, n, from, &more, error);
    return status;
}

enum status plan_check(struct plan *const *plans, int world_size, struct error *error)
{
    enum status status = check_identity(plans, world_size, error);
    for (int rank = 0; rank < world_size && status == STATUS_OK; rank++)
        status = plan_check_alone(plans[rank], error);
    return status == STATUS_OK ? plan_check_exchanges(plans, world_size, error) : status;
}
