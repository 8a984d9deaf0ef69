// SPDX-License-Identifier: Apache-2.0
// The format is the Trace Event Format of Chromium.
#include "client/submit/write/trace.h"

#include <inttypes.h>

// Of the processes of a rank; the prediction stands above what was measured.
static int pid_predicted(int rank)
{
    return 2 * rank;
}
static int pid_measured(int rank)
{
    return 2 * rank + 1;
}

// ---- events -----------------------------------------------------------------------------------

// The text of all names is ours: nothing in it has to be escaped.
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

// Times are in microseconds.
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

static void put_op(struct trace *t, const struct plan *plan, int32_t index,
                   const struct timeline_span *span)
{
    const struct op *op = &plan->ops[index];
    int64_t sent, received;
    put_slice(t, op_kind_name(op->kind), phase_name(op), pid_predicted(plan->rank), (int)op->stream,
              span->start * 1e6, (span->end - span->start) * 1e6);
    fprintf(t->out, ",\"args\":{\"operation\":%" PRId32 ",\"step\":%" PRId32, index, op->step);
    if (op->kind == OP_EXCHANGE) {
        timeline_traffic(plan, op, &sent, &received);
        fprintf(t->out,
                ",\"sent_bytes\":%" PRId64 ",\"received_bytes\":%" PRId64
                ",\"waited_us\":%.4f,\"last_rank\":%" PRId32,
                sent, received, (span->moves - span->start) * 1e6, span->last);
    } else if (op_flops(plan, op) > 0) {
        fprintf(t->out, ",\"flop\":%.0f", op_flops(plan, op));
    } else {
        fprintf(t->out, ",\"touched_bytes\":%" PRId64, timeline_bytes(op));
    }
    fputs("}}", t->out);
}

static void put_plan(struct trace *t, const struct plan *plan, const struct timeline_rank *rank)
{
    int pid = pid_predicted(plan->rank);
    name_process(t, pid, plan->rank, "predicted");
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        name_thread(t, pid, stream, stream == STREAM_COMM ? "exchanges" : "computes");
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

// The arrows of one exchange of a rank: from the middle of it to the middle of each peer's.
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

void trace_measured(struct trace *trace, const struct cpattn_result *result)
{
    const struct cpattn_rank *rank;
    for (int r = 0; r < result->world_size; r++) {
        if (!(rank = cpattn_result_rank(result, r)))
            continue;
        const struct {
            const char *name;
            uint64_t ns;
        } phases[] = {{"forward", rank->forward_ns},
                      {"backward", rank->backward_ns},
                      {"reference", rank->reference_ns},
                      {"compare", rank->compare_ns}};
        double at_us = 0;
        name_process(trace, pid_measured(r), r, "measured");
        name_thread(trace, pid_measured(r), 0, "phases");
        for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
            if (!phases[i].ns)
                continue;
            put_slice(trace, phases[i].name, "measured", pid_measured(r), 0, at_us,
                      (double)phases[i].ns / 1e3);
            fputc('}', trace->out);
            at_us += (double)phases[i].ns / 1e3;
        }
    }
}

bool trace_end(struct trace *trace)
{
    fputs("\n]}\n", trace->out);
    return fflush(trace->out) == 0 && !ferror(trace->out);
}
