// SPDX-License-Identifier: Apache-2.0
// The part of the checker that looks at one operation or buffer at a time.
#include "plan/check.h"

#include "plan/bias.h"

const char *check_op_text(const struct plan *plan, int32_t index, char text[CHECK_TEXT_MAX])
{
    const struct op *op = &plan->ops[index];
    snprintf(text, CHECK_TEXT_MAX, "operation %d (%s, %s step %d)", index, op_kind_name(op->kind),
             op->phase == PHASE_FORWARD ? "forward" : "backward", op->step);
    return text;
}

static enum status op_fault(const struct plan *plan, int32_t index, struct error *error,
                            const char *what)
{
    char text[CHECK_TEXT_MAX];
    return error_set(error, STATUS_INTERNAL, "rank %d: %s %s", plan->rank,
                     check_op_text(plan, index, text), what);
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
    // Pieces do not overlap, so the size of the buffer bounds their number.
    int64_t room = bytes - r->offset - r->bytes;
    if (r->rows <= 1)
        return r->blocks <= 1;
    if (r->stride < r->bytes || r->rows - 1 > room / r->stride)
        return false;
    room -= (r->rows - 1) * r->stride;
    return r->blocks <= 1 || (r->block_stride >= (r->rows - 1) * r->stride + r->bytes &&
                              r->blocks - 1 <= room / r->block_stride);
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

static int64_t bias_bytes(const struct cp_case *c, int rank)
{
    struct bias_shape shape = bias_shape(c, rank);
    return shape.heads * shape.rows * shape.columns * case_element_bytes(c);
}

// Elements of a buffer of a collective, by its role. 0: there is no such buffer.
static int64_t collective_elements(const struct plan *plan, enum buffer_role role)
{
    const struct collective *c = &plan->collective;
    switch (role) {
    case BUFFER_SEND:
        return c->in_place ? 0 : collective_send_count(c, plan->rank);
    case BUFFER_RECEIVE:
        return c->in_place ? 0 : collective_receive_count(c, plan->rank);
    case BUFFER_SHARED:
        return c->in_place ? collective_shared(c, plan->rank).count : 0;
    default:
        return 0;
    }
}

static bool is_collective(const struct plan *plan)
{
    return plan->collective.world_size > 0;
}

static bool is_linear(const struct plan *plan)
{
    return plan->linear.world_size > 0;
}

// Bytes of a buffer of a linear layer, by its role.
static int64_t linear_role_bytes(const struct plan *plan, enum buffer_role role)
{
    if (role < BUFFER_LINEAR || role >= BUFFER_SCRATCH)
        return 0;
    return linear_bytes(&plan->linear, plan->rank, (enum linear_tensor)(role - BUFFER_LINEAR));
}

static int64_t role_bytes(const struct plan *plan, enum buffer_role role)
{
    const struct cp_case *c = &plan->c;
    if (is_collective(plan))
        return role == BUFFER_SCRATCH ? -1
                                      : collective_elements(plan, role) *
                                            collective_element_bytes(plan->collective.dtype);
    if (is_linear(plan))
        return role == BUFFER_SCRATCH ? -1 : linear_role_bytes(plan, role);
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
    case BUFFER_INPUT_BIAS:
        return bias_bytes(c, plan->rank);
    case BUFFER_DBIAS:
        return bias_share(c, plan->rank).count * element;
    case BUFFER_INPUT_SINK:
    case BUFFER_DSINK:
    case BUFFER_MAX_LOGIT:
        return c->heads * 4;
    case BUFFER_SEND:
    case BUFFER_RECEIVE:
    case BUFFER_SHARED:
    case BUFFER_LINEAR:
    case BUFFER_SCRATCH:
        break;
    }
    return -1;
}

static bool role_expected(const struct plan *plan, enum buffer_role role)
{
    const struct cp_case *c = &plan->c;
    bool sink = c->softmax == SOFTMAX_LEARNABLE, bias = c->bias != BIAS_NONE;
    if (is_collective(plan))
        return collective_elements(plan, role) > 0;
    if (is_linear(plan))
        return linear_role_bytes(plan, role) > 0;
    if (role >= BUFFER_SEND)
        return false;
    switch (role) {
    case BUFFER_INPUT_DO:
    case BUFFER_DQ:
    case BUFFER_DKV:
        return c->training;
    case BUFFER_INPUT_BIAS:
        return bias;
    case BUFFER_DBIAS:
        return bias && c->training;
    case BUFFER_INPUT_SINK:
        return sink;
    case BUFFER_DSINK:
        return sink && c->training;
    case BUFFER_MAX_LOGIT:
        return c->max_logit;
    default:
        return true;
    }
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

// Rows of a K or V region. -1: not a whole number of rows.
static int64_t region_rows(const struct region *r, int64_t row_bytes)
{
    return r->bytes % row_bytes == 0 ? r->bytes / row_bytes : -1;
}

static bool bias_inside(const struct cp_case *c, const struct op *op, const struct slice *s)
{
    if (c->bias == BIAS_NONE)
        return true;
    return s->bias_row >= 0 && s->bias_row < op->bias_rows - (s->q_len - 1) * bias_row_step(c) &&
           s->bias_column >= 0 && s->bias_column <= c->seqlen_kv - s->kv_len;
}

static bool slices_inside(const struct plan *plan, const struct op *op, int64_t kv_rows)
{
    int64_t step = shard_row_step(&plan->c);
    for (int32_t i = 0; i < op->slice_count; i++) {
        const struct slice *s = &plan->slices[op->slice_first + i];
        if (s->q_row < 0 || s->q_len < 1 || s->q_row + (s->q_len - 1) * step >= op->q_rows)
            return false;
        bool keys = op->kind != OP_SINK_GRAD;
        if (keys != (s->kv_len > 0) || s->kv_row < 0 || s->kv_len < 0 ||
            s->kv_row + (s->kv_len - 1) * step >= kv_rows)
            return false;
        if (keys && !bias_inside(&plan->c, op, s))
            return false;
    }
    return op->slice_count > 0;
}

// True if the query heads are heads of the case, and the key heads exactly those that they use.
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

// Elements of the bias that the operation reads. -1: bias_rows is not the rank's number of rows.
static int64_t bias_elements(const struct plan *plan, const struct op *op)
{
    const struct cp_case *c = &plan->c;
    if (c->bias == BIAS_NONE)
        return 0;
    if (op->bias_rows != bias_shape(c, plan->rank).rows)
        return -1;
    return op->bias_rows * c->seqlen_kv * (bias_has_heads(c) ? op->heads.count : 1);
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
    int64_t bias = bias_elements(plan, op);
    if (bias < 0 || r[ATTEND_BIAS].bytes != bias * element)
        return false;
    if (op->kind == OP_ATTEND_FORWARD)
        return r[ATTEND_O].bytes == q * c->head_dim_v * 4 &&
               r[ATTEND_MAX].bytes == (c->max_logit ? op->heads.count * 4 : 0);
    return r[ATTEND_DO].bytes == q * c->head_dim_v * element && r[ATTEND_D].bytes == q * 4 &&
           r[ATTEND_DQ].bytes == q * c->head_dim_qk * 4 &&
           r[ATTEND_DK].bytes == kv_rows * k_row * 4 && r[ATTEND_DV].bytes == kv_rows * v_row * 4 &&
           r[ATTEND_DBIAS].bytes == bias * 4;
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

static bool fill_heads_fits(const struct plan *plan, const struct op *op)
{
    return heads_fit(&plan->c, &op->heads) && one_piece(op) &&
           op->operand[UNARY_SOURCE].bytes == op->heads.count * 4 &&
           op->operand[UNARY_DESTINATION].bytes == op->q_rows * op->heads.count * 4;
}

static bool sink_grad_fits(const struct plan *plan, const struct op *op)
{
    int64_t heads = op->heads.count * 4, rows = op->q_rows * heads;
    return heads_fit(&plan->c, &op->heads) && one_piece(op) && slices_inside(plan, op, 0) &&
           op->operand[SINK_GRAD_SINK].bytes == heads && op->operand[SINK_GRAD_LSE].bytes == rows &&
           op->operand[SINK_GRAD_D].bytes == rows && op->operand[SINK_GRAD_DSINK].bytes == heads;
}

static bool elements_fit(const struct plan *plan, const struct op *op)
{
    int64_t source = region_total(&op->operand[UNARY_SOURCE]);
    int64_t destination = region_total(&op->operand[UNARY_DESTINATION]);
    return is_collective(plan) && one_piece(op) &&
           destination % collective_element_bytes(plan->collective.dtype) == 0 &&
           (op->kind == OP_REDUCE ? source == destination : op->value > 0);
}

static bool matrix_is(const struct plan *plan, struct region region, int64_t rows, int64_t columns)
{
    int64_t bytes = rows * columns * (plan->linear.dtype == DTYPE_FP32 ? 4 : 2);
    return region.rows <= 1 && region.bytes == bytes;
}

static bool row_or_none(const struct plan *plan, struct region region, int64_t columns)
{
    return region.bytes == 0 || matrix_is(plan, region, 1, columns);
}

static bool matrices_fit(const struct plan *plan, const struct op *op)
{
    const struct product *p = &op->product;
    const struct region *r = op->operand;
    int64_t wide = p->n * (p->activation == ACTIVATION_SWIGLU ? 2 : 1);
    if (!is_linear(plan) || p->m < 0 || p->n < 0 || p->k < 0 || p->m > LINEAR_SIZE_MAX ||
        p->n > LINEAR_SIZE_MAX || p->k > LINEAR_SIZE_MAX)
        return false;
    switch (op->kind) {
    case OP_PRODUCT:
        return matrix_is(plan, r[PRODUCT_A], p->m, p->k) &&
               matrix_is(plan, r[PRODUCT_B], p->k, p->n) &&
               row_or_none(plan, r[PRODUCT_BIAS], p->n) &&
               matrix_is(plan, r[PRODUCT_C], p->m, p->n);
    case OP_ACTIVATE:
        return matrix_is(plan, r[ACTIVATE_H], p->m, wide) &&
               matrix_is(plan, r[ACTIVATE_TO], p->m, p->n);
    case OP_ACTIVATE_BACKWARD:
        return matrix_is(plan, r[ACTIVATE_H], p->m, wide) &&
               matrix_is(plan, r[ACTIVATE_D], p->m, p->n) &&
               matrix_is(plan, r[ACTIVATE_TO], p->m, wide);
    case OP_COLUMN_SUM:
        return matrix_is(plan, r[UNARY_SOURCE], p->m, p->n) &&
               matrix_is(plan, r[UNARY_DESTINATION], 1, p->n);
    default:
        return p->k == plan->linear.world_size &&
               matrix_is(plan, r[SUM_PARTS], (p->k - 1) * p->m, p->n) &&
               matrix_is(plan, r[SUM_OWN], p->m, p->n) && row_or_none(plan, r[SUM_BIAS], p->n) &&
               matrix_is(plan, r[SUM_DESTINATION], p->m, p->n);
    }
}

static bool copies_fit(const struct plan *plan, const struct op *op)
{
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        int64_t bytes = region_total(&t->send);
        if (t->peer != plan->rank || bytes == 0 || bytes != region_total(&t->receive))
            return false;
    }
    return true;
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
    case OP_FILL_HEADS:
        return fill_heads_fits(plan, op);
    case OP_SINK_GRAD:
        return sink_grad_fits(plan, op);
    case OP_MAX:
        return source == destination && source % 4 == 0 && one_piece(op);
    case OP_ADD: // the destination may be in pieces
        return source == destination && source % 4 == 0 && op->operand[UNARY_SOURCE].rows <= 1;
    case OP_CONVERT:
        return source % 4 == 0 && source / 4 * case_element_bytes(&plan->c) == destination &&
               one_piece(op);
    case OP_FILL:
        return destination % 4 == 0 && one_piece(op);
    case OP_REDUCE:
    case OP_DIVIDE:
        return elements_fit(plan, op);
    case OP_PRODUCT:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BACKWARD:
    case OP_COLUMN_SUM:
    case OP_SUM_PARTS:
        return matrices_fit(plan, op);
    case OP_COPY:
        return copies_fit(plan, op);
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

enum status check_fit(const struct plan *plan, struct error *error)
{
    enum status status = check_buffers(plan, error);
    return status == STATUS_OK ? check_operations(plan, error) : status;
}
