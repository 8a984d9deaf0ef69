// SPDX-License-Identifier: Apache-2.0
// A plan as text for people.
#include <string.h>

#include "common/plural.h"
#include "common/size.h"
#include "plan/plan.h"
#include "plan/shard.h"

// Maximum number of slices listed for one operation. The sequences of a batch repeat them.
#define SLICES_SHOWN_MAX 6
#define TEXT_MAX         64

static const char *flops_text(double flops, char text[TEXT_MAX])
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
    int unit = 0;
    for (; flops >= 999.5 && unit < 5; unit++)
        flops /= 1000;
    int decimals = unit == 0 ? 0 : flops < 9.995 ? 2 : flops < 99.95 ? 1 : 0;
    snprintf(text, TEXT_MAX, "%.*f %s", decimals, flops, units[unit]);
    return text;
}

static const char *region_name(const struct plan *plan, const struct region *r)
{
    return plan->buffers[r->buffer].name;
}

// ---- head ----

static void explain_shard(const struct plan *plan, FILE *out)
{
    const struct cp_case *c = &plan->c;
    int per_rank = shard_chunks_per_rank(c), rank = plan->rank;
    fprintf(out, "rank %d of %d holds chunk%s %d", rank, c->world_size, plural(per_rank),
            shard_chunk_of(c, rank, 0));
    if (per_rank > 1)
        fprintf(out, " and %d", shard_chunk_of(c, rank, 1));
    fprintf(out, " of %d: ", per_rank * c->world_size);
    if (case_is_even(c, SIDE_Q) && case_is_even(c, SIDE_KV))
        fprintf(out, "%lld of %lld queries, %lld of %lld keys of each sequence\n",
                (long long)shard_tokens(c, SIDE_Q, rank, 0), (long long)c->seqlen_q,
                (long long)shard_tokens(c, SIDE_KV, rank, 0), (long long)c->seqlen_kv);
    else
        fprintf(out, "%lld rows of queries, %lld rows of keys, padding included\n",
                (long long)shard_rows(c, SIDE_Q, rank), (long long)shard_rows(c, SIDE_KV, rank));
}

static void explain_phase_total(const struct plan *plan, enum plan_phase phase, const char *name,
                                FILE *out)
{
    double flops = 0;
    int64_t bytes = 0;
    int operations = 0, waits = 0;
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        if (op->phase != phase)
            continue;
        flops += op_flops(plan, op);
        bytes += op_bytes(plan, op);
        operations++;
        waits += op->wait_count;
    }
    char flops_shown[TEXT_MAX], bytes_shown[SIZE_TEXT_MAX];
    if (operations > 0)
        fprintf(out, "%-8s  %12s  %10s sent  %3d operation%s  %3d wait%s\n", name,
                flops_text(flops, flops_shown), size_format(bytes, bytes_shown), operations,
                plural(operations), waits, plural(waits));
}

static const char *role_text(enum buffer_role role)
{
    if (role >= BUFFER_LINEAR && role < BUFFER_SCRATCH)
        return role - BUFFER_LINEAR < LINEAR_Y ? "input" : "output";
    switch (role) {
    case BUFFER_INPUT_Q:
    case BUFFER_INPUT_KV:
    case BUFFER_INPUT_DO:
    case BUFFER_INPUT_BIAS:
    case BUFFER_INPUT_SINK:
    case BUFFER_SEND:
        return "input";
    case BUFFER_OUT:
    case BUFFER_LSE:
    case BUFFER_DQ:
    case BUFFER_DKV:
    case BUFFER_DBIAS:
    case BUFFER_DSINK:
    case BUFFER_MAX_LOGIT:
    case BUFFER_RECEIVE:
        return "output";
    case BUFFER_SHARED:
        return "both";
    case BUFFER_LINEAR:
    case BUFFER_SCRATCH:
        break;
    }
    return "scratch";
}

static void explain_buffers(const struct plan *plan, FILE *out)
{
    char size[SIZE_TEXT_MAX];
    int64_t total = 0;
    fprintf(out, "\nbuffers\n");
    for (int32_t i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *b = &plan->buffers[i];
        fprintf(out, "  %-12s  %-7s  %10s\n", b->name, role_text(b->role),
                size_format(b->bytes, size));
        total += b->bytes;
    }
    fprintf(out, "  %-12s  %-7s  %10s\n", "together", "", size_format(total, size));
}

// ---- operations ----

static void explain_rows(const char *what, int64_t row, int64_t len, int64_t step, FILE *out)
{
    long long last = row + (len - 1) * step;
    fprintf(out, "%s %lld..%lld", what, (long long)row, last);
    if (step > 1)
        fprintf(out, " by %lld", (long long)step);
}

static void explain_slice(const struct slice *s, int64_t row_step, FILE *out)
{
    explain_rows("       rows", s->q_row, s->q_len, row_step, out);
    explain_rows("  x  rows", s->kv_row, s->kv_len, row_step, out);
    bool left = s->left < SLICE_UNBOUNDED, right = s->right < SLICE_UNBOUNDED;
    if (left || right) {
        fprintf(out, "  where ");
        if (left)
            fprintf(out, "%lld <= ", (long long)(-s->left - s->offset));
        fprintf(out, "key - query");
        if (right)
            fprintf(out, " <= %lld", (long long)(s->right - s->offset));
    }
    double pairs = (double)slice_pairs(s), all = (double)s->q_len * (double)s->kv_len;
    fprintf(out, "  (%.0f %%)\n", 100 * pairs / all);
}

static void explain_slices(const struct plan *plan, const struct op *op, FILE *out)
{
    if (op->kind == OP_SINK_GRAD)
        return;
    int32_t shown = op->slice_count > SLICES_SHOWN_MAX ? SLICES_SHOWN_MAX : op->slice_count;
    for (int32_t i = 0; i < shown; i++)
        explain_slice(&plan->slices[op->slice_first + i], shard_row_step(&plan->c), out);
    if (shown < op->slice_count)
        fprintf(out, "       and %d more\n", op->slice_count - shown);
}

static void explain_transfers(const struct plan *plan, const struct op *op, FILE *out)
{
    char size[SIZE_TEXT_MAX];
    if (op->transfer_count == 0)
        fprintf(out, "nothing of this rank");
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        const char *joint = i == 0 ? "" : ", ";
        if (t->send.bytes > 0)
            fprintf(out, "%s%s -> rank %d (%s)", joint, region_name(plan, &t->send), t->peer,
                    size_format(region_total(&t->send), size));
        if (t->receive.bytes > 0)
            fprintf(out, "%s%s <- rank %d (%s)", t->send.bytes > 0 ? ", " : joint,
                    region_name(plan, &t->receive), t->peer,
                    size_format(region_total(&t->receive), size));
    }
}

static void explain_copies(const struct plan *plan, const struct op *op, FILE *out)
{
    char size[SIZE_TEXT_MAX];
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        fprintf(out, "%s%s -> %s (%s)", i == 0 ? "" : ", ", region_name(plan, &t->send),
                region_name(plan, &t->receive), size_format(region_total(&t->send), size));
    }
}

// An operation of a linear layer: its operands and its result with their sizes.
static void explain_matrix(const struct plan *plan, const struct op *op, FILE *out)
{
    char flops[TEXT_MAX];
    const char *joint = "";
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const struct region *r = &op->operand[i];
        bool written = op_access(op->kind, i) & ACCESS_WRITE;
        if (r->bytes == 0)
            continue;
        fprintf(out, "%s%s", written ? " -> " : joint, region_name(plan, r));
        joint = op->kind == OP_PRODUCT && i == PRODUCT_A ? " x " : " + ";
    }
    fprintf(out, " [%lld x %lld]", (long long)(op->kind == OP_COLUMN_SUM ? 1 : op->product.m),
            (long long)op->product.n);
    if (op->kind == OP_PRODUCT)
        fprintf(out, ", %s", flops_text(op_flops(plan, op), flops));
}

static void explain_what(const struct plan *plan, const struct op *op, FILE *out)
{
    const struct region *r = op->operand;
    const char *bias = plan->c.bias != BIAS_NONE ? " + bias" : "";
    char flops[TEXT_MAX];
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
        fprintf(out, "%s x %s%s -> %s, %s", region_name(plan, &r[ATTEND_Q]),
                region_name(plan, &r[ATTEND_K]), bias, region_name(plan, &r[ATTEND_O]),
                flops_text(op_flops(plan, op), flops));
        break;
    case OP_ATTEND_BACKWARD:
        fprintf(out, "%s x %s%s -> %s, %s; %s", region_name(plan, &r[ATTEND_Q]),
                region_name(plan, &r[ATTEND_K]), bias, region_name(plan, &r[ATTEND_DQ]),
                region_name(plan, &r[ATTEND_DK]), flops_text(op_flops(plan, op), flops));
        break;
    case OP_ROW_DOT:
        fprintf(out, "%s . %s -> %s", region_name(plan, &r[ROW_DOT_DO]),
                region_name(plan, &r[ROW_DOT_O]), region_name(plan, &r[ROW_DOT_D]));
        break;
    case OP_SINK_GRAD:
        fprintf(out, "%s, %s, %s -> %s", region_name(plan, &r[SINK_GRAD_SINK]),
                region_name(plan, &r[SINK_GRAD_LSE]), region_name(plan, &r[SINK_GRAD_D]),
                region_name(plan, &r[SINK_GRAD_DSINK]));
        break;
    case OP_ADD:
    case OP_MAX:
    case OP_CONVERT:
    case OP_FILL_HEADS:
    case OP_REDUCE:
        fprintf(out, "%s -> %s", region_name(plan, &r[UNARY_SOURCE]),
                region_name(plan, &r[UNARY_DESTINATION]));
        break;
    case OP_FILL:
        fprintf(out, "%s = %g", region_name(plan, &r[UNARY_DESTINATION]), (double)op->value);
        break;
    case OP_DIVIDE:
        fprintf(out, "%s /= %g", region_name(plan, &r[UNARY_DESTINATION]), (double)op->value);
        break;
    case OP_PRODUCT:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BACKWARD:
    case OP_COLUMN_SUM:
    case OP_SUM_PARTS:
        explain_matrix(plan, op, out);
        break;
    case OP_COPY:
        explain_copies(plan, op, out);
        break;
    case OP_EXCHANGE:
        explain_transfers(plan, op, out);
        break;
    case OP_KINDS:
        break;
    }
}

// ---- waits ----

// The n-th region of an operation: first its operands, then send and receive of each transfer.
// False: there are fewer.
static bool nth_region(const struct plan *plan, const struct op *op, int n, struct region *region,
                       enum access *access)
{
    if (n < OPERANDS_MAX) {
        *region = op->operand[n];
        *access = op_access(op->kind, n);
        return true;
    }
    n -= OPERANDS_MAX;
    if (n / 2 >= op->transfer_count)
        return false;
    const struct transfer *t = &plan->transfers[op->transfer_first + n / 2];
    *region = n % 2 == 0 ? t->send : t->receive;
    *access = n % 2 == 0 ? ACCESS_READ : ACCESS_WRITE;
    return true;
}

static bool conflict(const struct region *a, enum access a_access, const struct region *b,
                     enum access b_access)
{
    return a->buffer == b->buffer && a->offset < b->offset + region_extent(b) &&
           b->offset < a->offset + region_extent(a) && ((a_access | b_access) & ACCESS_WRITE);
}

// Names the first buffer that makes `op` wait for `other`, and what `other` does to it.
static void explain_reason(const struct plan *plan, const struct op *op, const struct op *other,
                           FILE *out)
{
    struct region a, b;
    enum access a_access, b_access;
    for (int i = 0; nth_region(plan, op, i, &a, &a_access); i++) {
        for (int k = 0; nth_region(plan, other, k, &b, &b_access); k++) {
            if (!conflict(&a, a_access, &b, b_access))
                continue;
            const char *doing = b_access == ACCESS_READ      ? "reads"
                                : other->kind == OP_EXCHANGE ? "brings"
                                                             : "writes";
            fprintf(out, ", which %s %s", doing, region_name(plan, &b));
            return;
        }
    }
}

static void explain_waits(const struct plan *plan, const struct op *op, FILE *out)
{
    for (int32_t i = 0; i < op->wait_count; i++) {
        int32_t index = plan->waits[op->wait_first + i];
        const struct op *other = &plan->ops[index];
        fprintf(out, "       waits for %d (%s)", index, op_kind_name(other->kind));
        explain_reason(plan, op, other, out);
        fprintf(out, "\n");
    }
}

static void explain_op(const struct plan *plan, int32_t index, FILE *out)
{
    const struct op *op = &plan->ops[index];
    fprintf(out, "  %3d  %-8s%-16s  ", index, op->stream == STREAM_COMM ? "comm" : "compute",
            op_kind_name(op->kind));
    explain_what(plan, op, out);
    fprintf(out, "\n");
    explain_waits(plan, op, out);
    explain_slices(plan, op, out);
}

static bool is_case(const struct plan *plan)
{
    return plan->linear.world_size == 0 && plan->collective.world_size == 0;
}

int plan_describe(const struct plan *plan, char *text, size_t size)
{
    struct job_spec spec = {.kind = &job_kind_collective};
    if (is_case(plan))
        return case_describe(&plan->c, text, size);
    if (plan->linear.world_size > 0) {
        spec.kind = &job_kind_linear;
        memcpy(spec.bytes, &plan->linear, sizeof plan->linear);
    } else {
        memcpy(spec.bytes, &plan->collective, sizeof plan->collective);
    }
    return job_spec_describe(&spec, text, size);
}

static void explain_subject(const struct plan *plan, FILE *out)
{
    char text[256];
    plan_describe(plan, text, sizeof text);
    fprintf(out, "%s\n", text);
    if (is_case(plan))
        explain_shard(plan, out);
    else
        fprintf(out, "rank %d of %d\n", plan->rank, plan->c.world_size);
}

void plan_explain(const struct plan *plan, FILE *out)
{
    explain_subject(plan, out);
    explain_phase_total(plan, PHASE_FORWARD, "forward", out);
    explain_phase_total(plan, PHASE_BACKWARD, "backward", out);
    explain_buffers(plan, out);
    for (int32_t i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i], *last = op - 1;
        if (i == 0 || op->phase != last->phase || op->step != last->step)
            fprintf(out, "\n%s step %d\n", op->phase == PHASE_FORWARD ? "forward" : "backward",
                    op->step);
        explain_op(plan, i, out);
    }
    if (plan->collective.world_size > 0 && plan->collective.algorithm == ALGORITHM_NCCL)
        fputs("NCCL runs it, by a call of its own\n", out);
}
