// SPDX-License-Identifier: Apache-2.0
#include "rank/attends.h"

#include <stdlib.h>
#include <string.h>

#include "plan/bias.h"

struct attention_shape attends_shape(const struct plan *plan, const struct op *op)
{
    const struct cp_case *c = &plan->c;
    int32_t group = c->heads / c->kv_heads;
    return (struct attention_shape){.dtype = c->dtype,
                                    .heads = op->heads.count,
                                    .kv_heads = op->heads.kv_count,
                                    .group = group,
                                    .head_phase = op->heads.first - op->heads.kv_first * group,
                                    .d_qk = c->head_dim_qk,
                                    .d_v = c->head_dim_v,
                                    .q_rows = op->q_rows,
                                    .row_step = shard_row_step(c),
                                    .scale = case_scale(c),
                                    .softcap = c->softcap,
                                    .bias_head_stride = bias_head_stride(c, op->bias_rows),
                                    .bias_row_stride = c->seqlen_kv,
                                    .bias_row_step = bias_row_step(c),
                                    .dbias_once = bias_is_once(c),
                                    .deterministic = c->deterministic};
}

static bool is_attention(const struct op *op)
{
    return op->kind == OP_ATTEND_FORWARD || op->kind == OP_ATTEND_BACKWARD;
}

// True if Q, K, V, O and their gradients begin at multiples of 16 bytes. Buffers begin at multiples
// of 256, so the offsets decide.
static bool is_aligned(const struct op *op)
{
    static const int forward[] = {ATTEND_Q, ATTEND_K, ATTEND_V, ATTEND_O};
    static const int backward[] = {ATTEND_Q,  ATTEND_K,  ATTEND_V, ATTEND_DO,
                                   ATTEND_DQ, ATTEND_DK, ATTEND_DV};
    bool is_forward = op->kind == OP_ATTEND_FORWARD;
    int64_t all = 0;
    for (int i = 0; i < (is_forward ? 4 : 7); i++)
        all |= op->operand[is_forward ? forward[i] : backward[i]].offset;
    return all % 16 == 0;
}

static struct attention_op attention_of(const struct plan *plan, const struct op *op)
{
    return (struct attention_op){.shape = attends_shape(plan, op),
                                 .backward = op->kind == OP_ATTEND_BACKWARD,
                                 .bias = op->operand[ATTEND_BIAS].bytes > 0,
                                 .dbias = op->operand[ATTEND_DBIAS].bytes > 0,
                                 .max_logit = op->operand[ATTEND_MAX].bytes > 0,
                                 .aligned = is_aligned(op),
                                 .slices = plan->slices + op->slice_first,
                                 .slice_count = op->slice_count};
}

// ---- the output of the forward, in the backward -------------------------------------------------

static bool places_same(const struct region *a, const struct region *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->bytes == b->bytes;
}

static bool is_written(const struct plan *plan, const struct op *op, int32_t buffer)
{
    for (int32_t i = 0; i < op->transfer_count; i++)
        if (plan->transfers[op->transfer_first + i].receive.buffer == buffer)
            return true;
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (op_access(op->kind, i) & ACCESS_WRITE && op->operand[i].bytes > 0 &&
            op->operand[i].buffer == buffer)
            return true;
    return false;
}

// Finds O of the forward for a backward operation: the operand of the OP_ROW_DOT that computed its
// D. Empty if there is none, or if an operation in between writes to O's buffer.
static struct region output_find(const struct plan *plan, int32_t backward)
{
    const struct region *d = &plan->ops[backward].operand[ATTEND_D];
    int32_t at = backward - 1;
    while (at >= 0 &&
           !(plan->ops[at].kind == OP_ROW_DOT && places_same(&plan->ops[at].operand[ROW_DOT_D], d)))
        at--;
    if (at < 0)
        return (struct region){0};
    struct region o = plan->ops[at].operand[ROW_DOT_O];
    for (int32_t i = at + 1; i < backward; i++)
        if (is_written(plan, &plan->ops[i], o.buffer))
            return (struct region){0};
    return o;
}

// ---- the choice ---------------------------------------------------------------------------------

static enum status attend_prepare(struct attends *x, int32_t index,
                                  struct attention_provider *provider, struct error *error)
{
    struct attend *a = &x->list[index];
    struct attention_op op = attention_of(x->plan, &x->plan->ops[index]);
    struct op_needs needs = {0};
    enum status status = provider->ops->supports(provider, &op, error);
    if (status == STATUS_OK)
        status = provider->ops->prepare(provider, &op, &a->prepared, &needs, error);
    if (status != STATUS_OK)
        return status;
    a->provider = provider;
    a->needs = needs;
    return STATUS_OK;
}

static enum status refuse(const struct attends *x, int32_t index,
                          const struct attention_provider *wanted, const struct error *reason,
                          struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "provider %s does not support the %s of step %d: %s; with provider_fallback "
                     "the daemon's own kernels compute it",
                     wanted->name, op->phase == PHASE_FORWARD ? "forward" : "backward", op->step,
                     reason->text);
}

static void use_note(struct attends *x, bool wanted, const struct op *op)
{
    struct provider_use *use = &x->use;
    if (op->kind == OP_ATTEND_BACKWARD)
        (*(wanted ? &use->provider_backward : &use->own_backward))++;
    else
        (*(wanted ? &use->provider_forward : &use->own_forward))++;
}

// Prepares an attention with `wanted` if possible, else with the own kernels.
static enum status attend_choose(struct attends *x, int32_t index,
                                 struct attention_provider *wanted, bool fallback,
                                 struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    struct error reason = {0};
    enum status status = STATUS_UNIMPLEMENTED;
    if (wanted && op->kind == OP_ATTEND_BACKWARD)
        x->list[index].o = output_find(x->plan, index);
    if (wanted) {
        status = attend_prepare(x, index, wanted, &reason);
        if (status == STATUS_UNIMPLEMENTED && !fallback)
            return refuse(x, index, wanted, &reason, error);
        if (status != STATUS_OK && status != STATUS_UNIMPLEMENTED)
            return error_set(error, status, "provider %s: %s", wanted->name, reason.text);
        if (status != STATUS_OK && !x->use.reason[0])
            memcpy(x->use.reason, reason.text, sizeof(x->use.reason));
    }
    use_note(x, status == STATUS_OK, op);
    struct attention_provider *own = (struct attention_provider *)(uintptr_t)&x->own->base;
    return status == STATUS_OK ? STATUS_OK : attend_prepare(x, index, own, error);
}

// Refuses the case if the provider does not support one of its attentions. Called before any
// operation is prepared, because preparation takes time.
static enum status all_supported(const struct attends *x, struct attention_provider *wanted,
                                 struct error *error)
{
    for (int32_t i = 0; i < x->plan->op_count; i++) {
        struct error reason = {0};
        if (!is_attention(&x->plan->ops[i]))
            continue;
        struct attention_op op = attention_of(x->plan, &x->plan->ops[i]);
        if (wanted->ops->supports(wanted, &op, &reason) == STATUS_UNIMPLEMENTED)
            return refuse(x, i, wanted, &reason, error);
    }
    return STATUS_OK;
}

// ---- folds: operations that other launches do ----

static enum status folds_make(struct attends *x, struct error *error)
{
    int32_t count = x->plan->op_count;
    struct fold_ability *may = calloc((size_t)count + 1, sizeof(*may));
    x->folds = calloc((size_t)count + 1, sizeof(*x->folds));
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < count && may; i++)
        may[i] = (struct fold_ability){x->list[i].needs.folds, x->list[i].needs.begins_queries};
    if (may && x->folds)
        folds_find(x->plan, may, x->own->ops->convert_sum != NULL, x->folds);
    else
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d operations", count);
    free(may);
    return status;
}

// ---- the gradient of sinks ----

static enum status sink_prepare(struct attends *x, int32_t index, struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    const struct backend_ops *ops = x->own->ops;
    struct attend *a = &x->list[index];
    struct attention_shape shape = attends_shape(x->plan, op);
    struct row_run *runs;
    a->rows = malloc(sizeof(*a->rows) + (size_t)op->slice_count * sizeof(*runs));
    if (!a->rows)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d slices",
                         op->slice_count);
    runs = (struct row_run *)(void *)(a->rows + 1);
    packed_rows_of_slices(a->rows, runs, x->plan->slices + op->slice_first, op->slice_count,
                          shape.row_step);
    if (ops->on_device)
        a->needs.table_bytes = packed_rows_bytes(a->rows);
    if (ops->sink_grad_scratch)
        a->needs.scratch_bytes = ops->sink_grad_scratch(&shape, a->rows);
    return STATUS_OK;
}

// ---- tables -------------------------------------------------------------------------------------

#define ALIGNMENT 256

static size_t piece(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void attend_place(struct attend *a, void *host, const void *device, void *zeros)
{
    if (a->rows) {
        memcpy(host, a->rows->runs, packed_rows_bytes(a->rows));
        a->rows->table = device;
    } else {
        a->provider->ops->place(a->provider, a->prepared, host, device, zeros);
    }
}

// Assigns each operation its part of the device memory, all tables first, then all zeroed memory,
// and writes the tables to `host`.
static void tables_fill(struct attends *x, char *host, char *device, size_t table_bytes)
{
    size_t table = 0, zeros = table_bytes;
    for (int32_t i = 0; i < x->plan->op_count; i++) {
        struct attend *a = &x->list[i];
        if (a->needs.table_bytes + a->needs.zero_bytes == 0)
            continue;
        attend_place(a, host + table, device + table, device + zeros);
        table += piece(a->needs.table_bytes);
        zeros += piece(a->needs.zero_bytes);
    }
}

static enum status tables_make(struct attends *x, struct error *error)
{
    const struct backend_ops *ops = x->own->ops;
    size_t tables = 0;
    void *host, *device;
    for (int32_t i = 0; i < x->plan->op_count; i++) {
        const struct op_needs *needs = &x->list[i].needs;
        tables += piece(needs->table_bytes);
        x->zero_bytes += piece(needs->zero_bytes);
        if (needs->scratch_bytes > x->scratch_bytes)
            x->scratch_bytes = needs->scratch_bytes;
    }
    if (tables + x->zero_bytes == 0)
        return STATUS_OK;
    enum status status =
        ops->tables_reserve(x->own->backend, tables + x->zero_bytes, &host, &device, error);
    if (status != STATUS_OK)
        return status;
    tables_fill(x, host, device, tables);
    ops->tables_push(x->own->backend, tables);
    x->zeros = x->zero_bytes > 0 ? (char *)device + tables : NULL;
    return STATUS_OK;
}

void attends_begin(const struct attends *attends)
{
    if (attends->zeros)
        attends->own->ops->fill(attends->own->backend, attends->zeros, 0,
                                (int64_t)(attends->zero_bytes / sizeof(float)));
}

// ---- life ---------------------------------------------------------------------------------------

static enum status op_prepare(struct attends *x, int32_t index, struct attention_provider *wanted,
                              bool fallback, struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    if (is_attention(op))
        return attend_choose(x, index, wanted, fallback, error);
    return op->kind == OP_SINK_GRAD ? sink_prepare(x, index, error) : STATUS_OK;
}

enum status attends_create(const struct plan *plan, struct own_provider *own,
                           struct attention_provider *wanted, bool fallback,
                           struct attends **attends, struct error *error)
{
    struct attends *x = calloc(1, sizeof(*x));
    if (x)
        x->list = calloc((size_t)plan->op_count + 1, sizeof(*x->list));
    if (!x || !x->list) {
        free(x);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d operations",
                         plan->op_count);
    }
    static uint64_t count;
    enum status status = STATUS_OK;
    x->plan = plan;
    x->number = ++count;
    x->own = own;
    if (wanted && !fallback)
        status = all_supported(x, wanted, error);
    for (int32_t i = 0; i < plan->op_count && status == STATUS_OK; i++)
        status = op_prepare(x, i, wanted, fallback, error);
    if (status == STATUS_OK)
        status = folds_make(x, error);
    if (status == STATUS_OK)
        status = tables_make(x, error);
    if (status != STATUS_OK) {
        attends_destroy(x);
        return status;
    }
    *attends = x;
    return STATUS_OK;
}

void attends_destroy(struct attends *attends)
{
    if (!attends)
        return;
    for (int32_t i = 0; i < attends->plan->op_count; i++) {
        struct attend *a = &attends->list[i];
        if (a->provider)
            a->provider->ops->discard(a->provider, a->prepared);
        free(a->rows);
    }
    if (attends->own->ops->tables_release)
        attends->own->ops->tables_release(attends->own->backend);
    free(attends->list);
    free(attends->folds);
    free(attends);
}
