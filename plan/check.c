// SPDX-License-Identifier: Apache-2.0
// The checker shares no code with the builder: it derives from the finished plans alone what is
// ordered and what is defined.
//
// Deadlock needs no search. Waits point backwards in the plan, streams run in plan order, and the
// n-th exchanges of all ranks fit to each other. So take the smallest n whose exchange is not
// complete on some rank: on every rank all that its n-th exchange waits for stands before it and
// depends on exchanges below n only, hence all ranks that take part in it start it, and it
// completes.
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/shard.h"

// An access of an operation to a region.
struct touch {
    int32_t op;
    struct region region;
    enum access access;
};

// For each stream, its own too, the last operation that is complete before this one starts, or -1.
struct before {
    int32_t op[PLAN_STREAMS];
};

struct interval {
    int64_t begin, end;
};

// What is known of one plan. Arrays are owned.
struct examined {
    const struct plan *plan;
    struct before *before;      // by operation
    struct touch *touches;      // by buffer, within it in plan order
    int32_t *touch_first;       // by buffer, one more at the end
    struct interval *intervals; // room for what is written of one buffer,
    struct interval *merged;    // and for the same again
};

#define OP_TEXT_MAX 64

static const char *op_text(const struct plan *plan, int32_t index, char text[OP_TEXT_MAX])
{
    const struct op *op = &plan->ops[index];
    snprintf(text, OP_TEXT_MAX, "operation %d (%s, %s step %d)", index, op_kind_name(op->kind),
             op->phase == PHASE_FORWARD ? "forward" : "backward", op->step);
    return text;
}

static enum status op_fault(const struct plan *plan, int32_t index, struct error *error,
                            const char *what)
{
    char text[OP_TEXT_MAX];
    return error_set(error, STATUS_INTERNAL, "rank %d: %s %s", plan->rank,
                     op_text(plan, index, text), what);
}

// ---- structure ----

static bool range_inside(int32_t first, int32_t count, int32_t total)
{
    return first >= 0 && count >= 0 && first <= total && count <= total - first;
}

static bool region_inside(const struct plan *plan, const struct region *r)
{
    if (r->bytes == 0)
        return true;
    if (r->buffer < 0 || r->buffer >= plan->buffer_count || r->bytes < 0 || r->offset < 0)
        return false;
    int64_t bytes = plan->buffers[r->buffer].bytes;
    if (r->offset > bytes || r->bytes > bytes - r->offset)
        return false;
    // Pieces do not meet, so their number is bounded, too.
    int64_t room = bytes - r->offset - r->bytes;
    return r->rows <= 1 || (r->stride >= r->bytes && r->rows - 1 <= room / r->stride);
}

static bool transfers_inside(const struct plan *plan, const struct op *op)
{
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        if (t->peer < 0 || t->peer >= plan->c.world_size || !region_inside(plan, &t->send) ||
            !region_inside(plan, &t->receive))
            return false;
    }
    return true;
}

static bool operands_inside(const struct plan *plan, const struct op *op)
{
    for (int i = 0; i < OPERANDS_MAX; i++) {
        bool used = op_access(op->kind, i) != ACCESS_NONE;
        if (!region_inside(plan, &op->operand[i]) || (!used && op->operand[i].bytes > 0))
            return false;
    }
    return true;
}

static bool waits_valid(const struct plan *plan, int32_t index)
{
    const struct op *op = &plan->ops[index];
    for (int32_t i = 0; i < op->wait_count; i++) {
        int32_t other = plan->waits[op->wait_first + i];
        if (other < 0 || other >= index || plan->ops[other].stream == op->stream)
            return false;
    }
    return true;
}

static enum status check_structure(const struct plan *plan, int32_t index, struct error *error)
{
    const struct op *op = &plan->ops[index];
    if ((unsigned int)op->kind >= OP_KINDS)
        return error_set(error, STATUS_INTERNAL, "rank %d: operation %d is of kind %d", plan->rank,
                         index, (int)op->kind);
    if (op->stream != (op->kind == OP_EXCHANGE ? STREAM_COMM : STREAM_COMPUTE))
        return op_fault(plan, index, error, "is on the wrong stream");
    if (!range_inside(op->slice_first, op->slice_count, plan->slice_count) ||
        !range_inside(op->transfer_first, op->transfer_count, plan->transfer_count) ||
        !range_inside(op->wait_first, op->wait_count, plan->wait_count))
        return op_fault(plan, index, error, "has slices, transfers or waits outside the plan's");
    if (!operands_inside(plan, op))
        return op_fault(plan, index, error, "has an operand outside its buffer");
    if (!transfers_inside(plan, op))
        return op_fault(plan, index, error, "has a transfer outside its buffer or to no rank");
    if (!waits_valid(plan, index))
        return op_fault(plan, index, error, "waits for a later operation or its own stream");
    return STATUS_OK;
}

// ---- sizes ----

static int64_t role_bytes(const struct plan *plan, enum buffer_role role)
{
    const struct cp_case *c = &plan->c;
    int64_t q = shard_rows(c, SIDE_Q, plan->rank) * c->heads;
    int64_t kv = shard_rows(c, SIDE_KV, plan->rank) * c->kv_heads;
    int element = case_element_bytes(c);
    switch (role) {
    case BUFFER_INPUT_Q:
    case BUFFER_DQ:
        return q * c->head_dim_qk * element;
    case BUFFER_INPUT_KV:
    case BUFFER_DKV:
        return kv * (c->head_dim_qk + c->head_dim_v) * element;
    case BUFFER_INPUT_DO:
    case BUFFER_OUT:
        return q * c->head_dim_v * element;
    case BUFFER_LSE:
        return q * 4;
    case BUFFER_SCRATCH:
        break;
    }
    return -1;
}

static bool role_expected(const struct plan *plan, enum buffer_role role)
{
    bool backward = role == BUFFER_INPUT_DO || role == BUFFER_DQ || role == BUFFER_DKV;
    return plan->c.training || !backward;
}

static enum status check_buffers(const struct plan *plan, struct error *error)
{
    int32_t found[BUFFER_SCRATCH + 1] = {0};
    for (int32_t i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &plan->buffers[i];
        if ((unsigned int)buffer->role > BUFFER_SCRATCH || buffer->bytes < 0)
            return error_set(error, STATUS_INTERNAL, "rank %d: buffer %d has no known role or size",
                             plan->rank, i);
        found[buffer->role]++;
        int64_t bytes = role_bytes(plan, buffer->role);
        if (bytes >= 0 && bytes != buffer->bytes)
            return error_set(error, STATUS_INTERNAL,
                             "rank %d: buffer %s has %lld bytes where the case has %lld",
                             plan->rank, buffer->name, (long long)buffer->bytes, (long long)bytes);
    }
    for (int role = 0; role < BUFFER_SCRATCH; role++)
        if (found[role] != role_expected(plan, (enum buffer_role)role))
            return error_set(error, STATUS_INTERNAL,
                             "rank %d: there are %d buffers of role %d where the case has %d",
                             plan->rank, found[role], role,
                             role_expected(plan, (enum buffer_role)role));
    return STATUS_OK;
}

// Rows of a K or V region, or -1 where it is no whole number of rows.
static int64_t region_rows(const struct region *r, int64_t row_bytes)
{
    return r->bytes % row_bytes == 0 ? r->bytes / row_bytes : -1;
}

static bool slices_inside(const struct plan *plan, const struct op *op, int64_t kv_rows)
{
    int64_t step = shard_row_step(&plan->c);
    for (int32_t i = 0; i < op->slice_count; i++) {
        const struct slice *s = &plan->slices[op->slice_first + i];
        if (s->q_row < 0 || s->q_len < 1 || s->q_row + (s->q_len - 1) * step >= op->q_rows)
            return false;
        if (s->kv_row < 0 || s->kv_len < 1 || s->kv_row + (s->kv_len - 1) * step >= kv_rows)
            return false;
    }
    return op->slice_count > 0;
}

// Whether the query heads are some of the case's and the key heads just those that they use.
static bool heads_fit(const struct cp_case *c, const struct heads *h)
{
    int group = c->heads / c->kv_heads;
    return h->first >= 0 && h->count > 0 && h->first + h->count <= c->heads &&
           h->kv_first == h->first / group &&
           h->kv_first + h->kv_count == (h->first + h->count - 1) / group + 1;
}

static bool one_piece(const struct op *op)
{
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op->operand[i].rows > 1)
            return false;
    return true;
}

static bool attend_fits(const struct plan *plan, const struct op *op)
{
    const struct cp_case *c = &plan->c;
    const struct region *r = op->operand;
    if (!heads_fit(c, &op->heads) || !one_piece(op))
        return false;
    int64_t element = case_element_bytes(c), k_row = op->heads.kv_count * c->head_dim_qk,
            v_row = op->heads.kv_count * c->head_dim_v;
    int64_t q = op->q_rows * op->heads.count;
    int64_t kv_rows = region_rows(&r[ATTEND_K], k_row * element);
    if (kv_rows < 0 || r[ATTEND_V].bytes != kv_rows * v_row * element ||
        r[ATTEND_Q].bytes != q * c->head_dim_qk * element || r[ATTEND_LSE].bytes != q * 4 ||
        !slices_inside(plan, op, kv_rows))
        return false;
    if (op->kind == OP_ATTEND_FORWARD)
        return r[ATTEND_O].bytes == q * c->head_dim_v * 4;
    return r[ATTEND_DO].bytes == q * c->head_dim_v * element && r[ATTEND_D].bytes == q * 4 &&
           r[ATTEND_DQ].bytes == q * c->head_dim_qk * 4 &&
           r[ATTEND_DK].bytes == kv_rows * k_row * 4 && r[ATTEND_DV].bytes == kv_rows * v_row * 4;
}

static bool row_dot_fits(const struct plan *plan, const struct op *op)
{
    const struct cp_case *c = &plan->c;
    int64_t q = op->q_rows * op->heads.count;
    return heads_fit(c, &op->heads) && one_piece(op) &&
           op->operand[ROW_DOT_DO].bytes == q * c->head_dim_v * case_element_bytes(c) &&
           op->operand[ROW_DOT_O].bytes == q * c->head_dim_v * 4 &&
           op->operand[ROW_DOT_D].bytes == q * 4;
}

static bool operands_fit(const struct plan *plan, const struct op *op)
{
    int64_t source = region_total(&op->operand[UNARY_SOURCE]);
    int64_t destination = region_total(&op->operand[UNARY_DESTINATION]);
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
    case OP_ATTEND_BACKWARD:
        return attend_fits(plan, op);
    case OP_ROW_DOT:
        return row_dot_fits(plan, op);
    case OP_ADD: // the destination may be some columns
        return source == destination && source % 4 == 0 && op->operand[UNARY_SOURCE].rows <= 1;
    case OP_CONVERT:
        return source % 4 == 0 && source / 4 * case_element_bytes(&plan->c) == destination &&
               one_piece(op);
    case OP_FILL:
        return destination % 4 == 0 && one_piece(op);
    case OP_EXCHANGE:
    case OP_KINDS:
        break;
    }
    return true;
}

static enum status check_operations(const struct plan *plan, struct error *error)
{
    for (int32_t i = 0; i < plan->op_count; i++) {
        enum status status = check_structure(plan, i, error);
        if (status != STATUS_OK)
            return status;
        if (!operands_fit(plan, &plan->ops[i]))
            return op_fault(plan, i, error, "has operands or slices that do not fit to each other");
    }
    return STATUS_OK;
}

// ---- order ----

// Whether operation a is complete before operation b starts; a < b.
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

// Places an access behind those of its buffer; only counts it while there is no array yet.
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

// Sorts all accesses by buffer: one pass counts, one places. False when memory is short.
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

static int64_t pieces(const struct region *r)
{
    return r->rows > 1 ? r->rows : 1;
}

static struct interval piece(const struct region *r, int64_t i)
{
    int64_t begin = r->offset + (r->rows > 1 ? i * r->stride : 0);
    return (struct interval){begin, begin + r->bytes};
}

// Whether two regions of a buffer have bytes in common; *common is the first stretch of them.
static bool regions_meet(const struct region *a, const struct region *b, struct interval *common)
{
    for (int64_t i = 0, k = 0; i < pieces(a) && k < pieces(b);) {
        struct interval x = piece(a, i), y = piece(b, k);
        common->begin = x.begin > y.begin ? x.begin : y.begin;
        common->end = x.end < y.end ? x.end : y.end;
        if (common->begin < common->end)
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
    char first[OP_TEXT_MAX], second[OP_TEXT_MAX];
    return error_set(
        error, STATUS_INTERNAL,
        "rank %d: %s and %s both touch bytes %lld to %lld of %s, one writes, and nothing "
        "orders them",
        x->plan->rank, op_text(x->plan, a->op, first), op_text(x->plan, b->op, second),
        (long long)common.begin, (long long)common.end, x->plan->buffers[a->region.buffer].name);
}

static bool races(const struct examined *x, const struct touch *a, const struct touch *b,
                  struct interval *common)
{
    return ((a->access | b->access) & ACCESS_WRITE) &&
           (a->op == b->op || !ordered(x, a->op, b->op)) &&
           regions_meet(&a->region, &b->region, common);
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

// Puts an interval behind the others, all of which begin before it.
static void set_append(struct byte_set *set, struct interval next)
{
    struct interval *last = set->intervals + set->count - 1;
    if (set->count == 0 || next.begin > last->end)
        set->intervals[set->count++] = next;
    else if (next.end > last->end)
        last->end = next.end;
}

// *set with the region, made in `room`; the two change places.
static void set_add(struct byte_set *set, struct interval **room, const struct region *r)
{
    struct byte_set merged = {.intervals = *room};
    int64_t k = 0;
    for (int64_t i = 0; i < pieces(r); i++) {
        struct interval next = piece(r, i);
        while (k < set->count && set->intervals[k].begin <= next.begin)
            set_append(&merged, set->intervals[k++]);
        set_append(&merged, next);
    }
    while (k < set->count)
        set_append(&merged, set->intervals[k++]);
    *room = set->intervals;
    *set = merged;
}

static bool set_covers(const struct byte_set *set, const struct region *r)
{
    int64_t k = 0;
    for (int64_t i = 0; i < pieces(r); i++) {
        struct interval wanted = piece(r, i);
        while (k < set->count && set->intervals[k].end < wanted.end)
            k++;
        if (wanted.begin < wanted.end &&
            (k == set->count || set->intervals[k].begin > wanted.begin))
            return false;
    }
    return true;
}

// Most intervals that the touches of one buffer can make.
static int64_t intervals_max(const struct examined *x)
{
    int64_t most = 0;
    for (int32_t buffer = 0; buffer < x->plan->buffer_count; buffer++) {
        int64_t count = 2;
        for (int32_t i = x->touch_first[buffer]; i < x->touch_first[buffer + 1]; i++)
            count += pieces(&x->touches[i].region);
        if (count > most)
            most = count;
    }
    return most;
}

static bool is_input(enum buffer_role role)
{
    return role == BUFFER_INPUT_Q || role == BUFFER_INPUT_KV || role == BUFFER_INPUT_DO;
}

static enum status touch_fault(const struct examined *x, const struct touch *t, const char *what,
                               struct error *error)
{
    char text[OP_TEXT_MAX];
    long long begin = (long long)t->region.offset;
    return error_set(error, STATUS_INTERNAL, "rank %d: %s %s: bytes %lld to %lld of %s",
                     x->plan->rank, op_text(x->plan, t->op, text), what, begin,
                     begin + (long long)region_extent(&t->region),
                     x->plan->buffers[t->region.buffer].name);
}

static enum status check_defined(struct examined *x, int32_t buffer, struct error *error)
{
    const struct plan_buffer *info = &x->plan->buffers[buffer];
    const struct region whole = {.buffer = buffer, .bytes = info->bytes};
    struct byte_set written = {.intervals = x->intervals};
    struct interval *room = x->merged;
    if (is_input(info->role))
        set_add(&written, &room, &whole);
    for (int32_t i = x->touch_first[buffer]; i < x->touch_first[buffer + 1]; i++) {
        const struct touch *t = &x->touches[i];
        if ((t->access & ACCESS_READ) && !set_covers(&written, &t->region))
            return touch_fault(x, t, "reads what nothing has written", error);
        if ((t->access & ACCESS_WRITE) && is_input(info->role))
            return touch_fault(x, t, "writes to an input", error);
        if (t->access & ACCESS_WRITE)
            set_add(&written, &room, &t->region);
    }
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
    x->intervals = calloc(intervals, sizeof *x->intervals);
    x->merged = calloc(intervals, sizeof *x->merged);
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

static enum status check_plan(const struct plan *plan, struct error *error)
{
    enum status status = check_buffers(plan, error);
    if (status == STATUS_OK)
        status = check_operations(plan, error);
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

// The n-th exchange at or behind operation *from, which moves behind it; NULL where there is none.
static const struct op *next_exchange(const struct plan *plan, int32_t *from)
{
    while (*from < plan->op_count)
        if (plan->ops[(*from)++].kind == OP_EXCHANGE)
            return &plan->ops[*from - 1];
    return NULL;
}

// Bytes of the k-th message that is not empty between this rank and `peer`, or 0.
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

// Whether the ranks' n-th exchanges fit; *more tells whether there are any.
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
        return error_set(error, STATUS_INTERNAL, "%d plans are no world", world_size);
    uint64_t hash = case_hash(&plans[0]->c);
    for (int rank = 0; rank < world_size; rank++)
        if (plans[rank]->rank != rank || plans[rank]->c.world_size != world_size ||
            case_hash(&plans[rank]->c) != hash)
            return error_set(error, STATUS_INTERNAL,
                             "plan %d is of rank %d of %d, or of another case", rank,
                             plans[rank]->rank, plans[rank]->c.world_size);
    return STATUS_OK;
}

enum status plan_check(struct plan *const *plans, int world_size, struct error *error)
{
    enum status status = check_identity(plans, world_size, error);
    for (int rank = 0; rank < world_size && status == STATUS_OK; rank++)
        status = check_plan(plans[rank], error);
    int32_t from[WORLD_SIZE_MAX] = {0};
    bool more = true;
    for (int n = 0; more && status == STATUS_OK; n++)
        status = check_exchange(plans, world_size, n, from, &more, error);
    return status;
}
