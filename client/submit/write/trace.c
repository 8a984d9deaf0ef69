// SPDX-License-Identifier: Apache-2.0
// The format is the Trace Event Format of Chromium.
#include "client/submit/write/trace.h"

#include <inttypes.h>

// Order of a rank's two processes in the viewer: the prediction above the measurement.
static int pid_predicted(int rank)
{
    return 2 * rank;
}
static int pid_measured(int rank)
{
    return 2 * rank + 1;
}

// ---- events -----------------------------------------------------------------------------------

// All names are constants of this program and need no escaping.
static void event_begin(struct trace *t)
{
    fputs(t->any ? ",\n{" : "\n{", t->out);
    t->any = true;
}

static void name_thread(struct trace *t, int pid, int tid, const char *name)
{
    event_begin(t);
    fprintf(
        t->out,
        "\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
        pid, tid, name);
}

static void name_process(struct trace *t, int pid, int rank, const char *what)
{
    event_begin(t);
    fprintf(
        t->out,
        "\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d, %s\"}}",
        pid, rank, what);
    event_begin(t);
    fprintf(t->out,
            "\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
            pid, pid);
}

// Begins a slice; the caller adds members and closes its object. Times are in microseconds.
static void put_slice(struct trace *t, const char *name, const char *category, int pid, int tid,
                      double start_us, double length_us)
{
    event_begin(t);
    fprintf(t->out,
            "\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.4f,"
            "\"dur\":%.4f",
            name, category, pid, tid, start_us, length_us);
}

// ---- the prediction ---------------------------------------------------------------------------

static const char *phase_name(const struct op *op)
{
    return op->phase == PHASE_FORWARD ? "forward" : "backward";
}

// Begins the arguments of a slice with those that describe the operation; the caller closes them.
static void put_arguments(struct trace *t, const struct plan *plan, int32_t index)
{
    const struct op *op = &plan->ops[index];
    int64_t sent, received;
    fprintf(t->out, ",\"args\":{\"operation\":%" PRId32 ",\"step\":%" PRId32, index, op->step);
    if (op->kind == OP_EXCHANGE) {
        timeline_traffic(plan, op, &sent, &received);
        fprintf(t->out, ",\"sent_bytes\":%" PRId64 ",\"received_bytes\":%" PRId64, sent, received);
    } else if (op_flops(plan, op) > 0) {
        fprintf(t->out, ",\"flop\":%.0f", op_flops(plan, op));
    } else {
        fprintf(t->out, ",\"touched_bytes\":%" PRId64, timeline_bytes(op));
    }
}

static void put_op(struct trace *t, const struct plan *plan, int32_t index,
                   const struct timeline_span *span)
{
    const struct op *op = &plan->ops[index];
    put_slice(t, op_kind_name(op->kind), phase_name(op), pid_predicted(plan->rank), (int)op->stream,
              span->start * 1e6, (span->end - span->start) * 1e6);
    put_arguments(t, plan, index);
    if (op->kind == OP_EXCHANGE)
        fprintf(t->out, ",\"waited_us\":%.4f,\"last_rank\":%" PRId32,
                (span->moves - span->start) * 1e6, span->last);
    fputs("}}", t->out);
}

static void name_streams(struct trace *t, int pid)
{
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        name_thread(t, pid, stream, stream == STREAM_COMM ? "exchanges" : "computes");
}

static void put_plan(struct trace *t, const struct plan *plan, const struct timeline_rank *rank)
{
    int pid = pid_predicted(plan->rank);
    name_process(t, pid, plan->rank, "predicted");
    name_streams(t, pid);
    for (int32_t i = 0; i < plan->op_count; i++)
        put_op(t, plan, i, &rank->spans[i]);
}

static bool is_message(const struct plan *plan, const struct transfer *transfer)
{
    return transfer->peer != plan->rank && region_total(&transfer->send) > 0;
}

static int64_t count_messages(struct plan *const *plans, int world_size)
{
    int64_t count = 0;
    for (int r = 0; r < world_size; r++)
        for (int32_t i = 0; i < plans[r]->transfer_count; i++)
            count += is_message(plans[r], &plans[r]->transfers[i]);
    return count;
}

static void put_flow(struct trace *t, const char *phase, int64_t id, int rank, double at_s)
{
    event_begin(t);
    fprintf(t->out,
            "\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"bp\":\"e\",\"id\":%" PRId64
            ",\"pid\":%d,\"tid\":%d,\"ts\":%.4f}",
            phase, id, pid_predicted(rank), (int)STREAM_COMM, at_s * 1e6);
}

// Writes the arrows of one exchange of a rank: from the middle of its transfer to that of each
// peer.
static void put_messages_of(struct trace *t, struct plan *const *plans,
                            const struct timeline *timeline, int rank, int32_t index,
                            int32_t number, int64_t *id)
{
    const struct plan *plan = plans[rank];
    const struct op *op = &plan->ops[index];
    const struct timeline_span *from = &timeline->ranks[rank].spans[index];
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *transfer = &plan->transfers[op->transfer_first + i];
        if (!is_message(plan, transfer))
            continue;
        int32_t there = timeline_exchange(plans[transfer->peer], number);
        if (there < 0)
            continue;
        const struct timeline_span *to = &timeline->ranks[transfer->peer].spans[there];
        put_flow(t, "s", *id, rank, (from->moves + from->end) / 2);
        put_flow(t, "f", (*id)++, transfer->peer, (to->moves + to->end) / 2);
    }
}

static void put_messages(struct trace *t, struct plan *const *plans,
                         const struct timeline *timeline)
{
    int64_t id = 1;
    if (count_messages(plans, timeline->world_size) > TRACE_MESSAGES_MAX)
        return;
    for (int r = 0; r < timeline->world_size; r++) {
        int32_t number = 0;
        for (int32_t i = 0; i < plans[r]->op_count; i++)
            if (plans[r]->ops[i].kind == OP_EXCHANGE)
                put_messages_of(t, plans, timeline, r, i, number++, &id);
    }
}

// ---- the measurement --------------------------------------------------------------------------

// Thread number of the phases; the streams have lower ones.
#define TID_PHASES PLAN_STREAMS

static void put_phases(struct trace *t, const struct cpattn_rank *rank, double at_us)
{
    const struct {
        const char *name;
        uint64_t ns;
    } phases[] = {{"forward", rank->forward_ns},
                  {"backward", rank->backward_ns},
                  {"reference", rank->reference_ns},
                  {"compare", rank->compare_ns}};
    name_thread(t, pid_measured(rank->rank), TID_PHASES, "phases");
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        if (!phases[i].ns)
            continue;
        put_slice(t, phases[i].name, "phase", pid_measured(rank->rank), TID_PHASES, at_us,
                  (double)phases[i].ns / 1e3);
        fputs(",\"args\":{}}", t->out);
        at_us += (double)phases[i].ns / 1e3;
    }
}

static void put_measured_op(struct trace *t, const struct plan *plan, int32_t index,
                            const struct cpattn_operation_time *time, double begin_us,
                            const struct timeline_span *predicted)
{
    const struct op *op = &plan->ops[index];
    put_slice(t, op_kind_name(op->kind), phase_name(op), pid_measured(plan->rank), (int)op->stream,
              begin_us + (double)time->start_ns / 1e3,
              (double)(time->end_ns - time->start_ns) / 1e3);
    put_arguments(t, plan, index);
    fprintf(t->out, ",\"predicted_us\":%.4f}}", (predicted->end - predicted->start) * 1e6);
}

// The earliest start of a plan among ranks with operation times; 0: there are none.
static uint64_t first_begin_ns(const struct cpattn_result *result)
{
    uint64_t first_ns = 0;
    for (int r = 0; r < result->world_size; r++) {
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (rank && rank->operation_times_count > 0 &&
            (first_ns == 0 || rank->operations_begin_ns < first_ns))
            first_ns = rank->operations_begin_ns;
    }
    return first_ns;
}

// ---- the file ---------------------------------------------------------------------------------

void trace_begin(struct trace *trace, FILE *out)
{
    *trace = (struct trace){.out = out};
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
}

void trace_predicted(struct trace *trace, struct plan *const *plans,
                     const struct timeline *timeline)
{
    for (int r = 0; r < timeline->world_size; r++)
        put_plan(trace, plans[r], &timeline->ranks[r]);
    put_messages(trace, plans, timeline);
}

// When a rank began its plan, relative to the first rank. The clock of another host can give a time
// outside of the run; such a rank begins at 0.
static double begin_after_us(const struct cpattn_result *result, const struct cpattn_rank *rank,
                             uint64_t first_ns)
{
    if (rank->operation_times_count == 0 || rank->operations_begin_ns - first_ns > result->run_ns)
        return 0;
    return (double)(rank->operations_begin_ns - first_ns) / 1e3;
}

void trace_measured(struct trace *trace, const struct cpattn_result *result,
                    struct plan *const *plans, const struct timeline *timeline)
{
    uint64_t first_ns = first_begin_ns(result);
    for (int r = 0; r < result->world_size && r < timeline->world_size; r++) {
        const struct cpattn_rank *rank = cpattn_result_rank(result, r);
        if (!rank)
            continue;
        double begin_us = begin_after_us(result, rank, first_ns);
        name_process(trace, pid_measured(r), r, "measured");
        if (rank->operation_times_count > 0)
            name_streams(trace, pid_measured(r));
        for (int32_t i = 0; i < rank->operation_times_count && i < plans[r]->op_count; i++)
            put_measured_op(trace, plans[r], i, &rank->operation_times[i], begin_us,
                            &timeline->ranks[r].spans[i]);
        put_phases(trace, rank, begin_us);
    }
}

bool trace_end(struct trace *trace)
{
    fputs("\n]}\n", trace->out);
    return fflush(trace->out) == 0 && !ferror(trace->out);
}
