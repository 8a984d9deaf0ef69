// SPDX-License-Identifier: Apache-2.0
#include "rank/session.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/plural.h"
#include "judge/complete.h"
#include "judge/cpu/verify.h"
#include "rank/deliver.h"
#include "rank/untouched.h"

enum status session_init(struct session *s, const struct engine_kind *kind, char *const *arguments,
                         struct transport *transport, struct progress *progress,
                         struct error *error)
{
    struct engine_setup setup = {
        .control = transport, .progress = progress, .arguments = arguments};
    *s = (struct session){.rank = transport->rank,
                          .world_size = transport->world_size,
                          .transport = transport,
                          .progress = progress};
    arena_init(&s->arena);
    return kind->create(&setup, &s->engine, error);
}

// ---- state of a repeated case -------------

// Limit on the operations, slices and transfers of a kept plan: an idle rank must be small. Builds
// with deliberate errors (CPATTN_MUTATIONS) change a plan after plan_create(), so they keep none.
#ifdef CPATTN_MUTATIONS
#define KEPT_PARTS_MAX 0
#else
#define KEPT_PARTS_MAX (1 << 16)
#endif

static void kept_drop(struct session *s)
{
    attends_destroy(s->kept.attends);
    plan_destroy(s->kept.plan);
    s->kept.attends = NULL;
    s->kept.plan = NULL;
}

// True if two cases are equal in every field and neither has inputs of a client, which belong to
// one case only.
static bool is_repeat(const struct cp_case *a, const struct cp_case *b)
{
    return !a->source && !b->source && case_bytes(a) == case_bytes(b) &&
           memcmp(a, b, case_bytes(a)) == 0;
}

// Moves the kept plan to the job if the case is the same, else destroys it.
static void kept_take(struct session *s, struct job *j)
{
    if (s->kept.plan && is_repeat(&s->kept.c, j->c)) {
        j->plan = s->kept.plan;
        j->attends = s->kept.attends;
        j->report->flops = s->kept.flops;
        s->kept.plan = NULL;
        s->kept.attends = NULL;
    }
    kept_drop(s);
}

// Keeps the plan of a complete case, or destroys it. Plans of guests are not kept: they are reduced
// to their tensors.
static void kept_store(struct session *s, const struct job *j, bool complete)
{
    const struct plan *plan = j->plan;
    s->kept.plan = j->plan;
    s->kept.attends = j->attends;
    if (!complete || !plan || !j->attends || j->c->source || s->engine->ops->brings_execution ||
        plan->op_count + plan->slice_count + plan->transfer_count > KEPT_PARTS_MAX) {
        kept_drop(s);
    } else {
        s->kept.c = *j->c;
        s->kept.flops = j->report->flops;
    }
}

void session_fini(struct session *s)
{
    kept_drop(s);
    if (s->engine)
        s->engine->ops->destroy(s->engine);
    s->engine = NULL;
    arena_fini(&s->arena);
}

// ---- memory, and agreement on it ----

// Waits for the running exchange. Meanwhile the progress word names the awaited peer.
static enum status peers_await(struct session *s, struct error *error)
{
    struct transport *t = s->transport;
    struct progress_view view = progress_load(s->progress);
    int done = 0;
    enum status status = t->ops->progress(t, 0, &done, error);
    while (status == STATUS_OK && !done) {
        view.waiting_for = t->ops->waiting_for(t);
        progress_store(s->progress, view);
        status = t->ops->progress(t, -1, &done, error);
    }
    view.waiting_for = -1;
    if (status == STATUS_OK)
        progress_store(s->progress, view);
    return status;
}

// All-gather of one byte: theirs[rank], the own included.
static enum status bytes_swap(struct session *s, uint64_t tag, char *mine,
                              char theirs[WORLD_SIZE_MAX], struct error *error)
{
    struct transport *t = s->transport;
    struct message messages[WORLD_SIZE_MAX];
    int count = 0;
    theirs[s->rank] = *mine;
    for (int peer = 0; peer < s->world_size; peer++)
        if (peer != s->rank)
            messages[count++] = (struct message){peer, mine, 1, &theirs[peer], 1};
    enum status status = t->ops->start(t, tag, messages, count, error);
    return status == STATUS_OK ? peers_await(s, error) : status;
}

enum status session_barrier(struct session *s, struct error *error)
{
    char mine = 0, theirs[WORLD_SIZE_MAX];
    enum status status = bytes_swap(s, 0, &mine, theirs, error);
    s->out_of_step = s->out_of_step || status != STATUS_OK;
    return status;
}

static enum status memory_reserve(struct session *s, struct job *j, struct error *error)
{
    size_t total = 0;
    enum status status = arena_add(&total, j->plan->buffer_count, sizeof(*j->buffers), error);
    for (int i = 0; i < 3 && status == STATUS_OK; i++)
        status = arena_add(&total, shard_spans_max(j->c), sizeof(struct span), error);
    if (status == STATUS_OK)
        status = s->engine->ops->reserve(s->engine, j, &total, error);
    if (status == STATUS_OK)
        status = arena_reserve(&s->arena, total, error);
    return status;
}

// True if a rank may refuse the case, so that the ranks must agree; the same on all ranks.
static bool can_refuse(const struct session *s, const struct job *j)
{
    return s->engine->ops->admit || j->c->provider[0] || j->c->graph;
}

// True if the status means that this rank cannot run the case but is intact.
static bool is_refusal(const struct job *j, enum status status)
{
    return status == STATUS_RESOURCE_EXHAUSTED ||
           ((j->c->provider[0] || j->c->graph) &&
            (status == STATUS_UNIMPLEMENTED || status == STATUS_FAILED_PRECONDITION));
}

// Admits the case if memory_reserve() succeeded (`reserved`; `reason` is its error), and exchanges
// the outcome with all ranks: statuses[world_size]. A refusal is written to the report; any other
// failure is returned.
static enum status admissions_swap(struct session *s, struct job *j, enum status reserved,
                                   struct error reason, char statuses[WORLD_SIZE_MAX],
                                   struct error *error)
{
    struct refusal *refusal = &j->report->refusal;
    enum status own = reserved;
    if (own == STATUS_OK && s->engine->ops->admit)
        own = s->engine->ops->admit(s->engine, j, &reason);
    char mine = (char)own;
    refusal->status = (int32_t)own;
    snprintf(refusal->text, sizeof(refusal->text), "%s", own != STATUS_OK ? reason.text : "");
    if (own != STATUS_OK && !is_refusal(j, own)) {
        *error = reason;
        return reason.status;
    }
    return bytes_swap(s, j->number << 24, &mine, statuses, error);
}

// Ensures that all ranks run the case or none does. *refused: a rank lacks memory, or its provider
// or backend does not support the case; all ranks then report a refusal and continue with the next
// case.
static enum status memory_agree(struct session *s, struct job *j, bool *refused,
                                struct error *error)
{
    struct refusal *refusal = &j->report->refusal;
    struct error reason = {0};
    char statuses[WORLD_SIZE_MAX] = {0};
    bool freed = false;
    *refused = false;
    if (!can_refuse(s, j))
        return memory_reserve(s, j, error);
    enum status reserved = memory_reserve(s, j, &reason);
    enum status status = admissions_swap(s, j, reserved, reason, statuses, error);
    if (status == STATUS_OK && s->engine->ops->spare &&
        memchr(statuses, STATUS_RESOURCE_EXHAUSTED, (size_t)s->world_size))
        status = s->engine->ops->spare(s->engine, &freed, error);
    if (status == STATUS_OK && freed)
        status = admissions_swap(s, j, reserved, reason, statuses, error);
    for (int peer = 0; peer < s->world_size && status == STATUS_OK && !*refused; peer++)
        *refused = statuses[peer] != STATUS_OK;
    if (*refused && refusal->status == STATUS_OK)
        refusal->status = STATUS_ABORTED;
    return status;
}

// Lets the engines agree (engine_ops.join). *refused: a rank lacks memory for this.
static enum status engines_join(struct session *s, struct job *j, bool *refused,
                                struct error *error)
{
    struct refusal *refusal = &j->report->refusal;
    struct error reason = {0};
    if (!s->engine->ops->join)
        return STATUS_OK;
    enum status status = s->engine->ops->join(s->engine, j, refused, &reason);
    if (status != STATUS_OK) {
        *error = reason;
        return status;
    }
    if (*refused) {
        refusal->status = (int32_t)(reason.text[0] ? STATUS_RESOURCE_EXHAUSTED : STATUS_ABORTED);
        snprintf(refusal->text, sizeof(refusal->text), "%s", reason.text);
    }
    return STATUS_OK;
}

// ---- one case ----

static enum status job_admit(const struct session *s, const struct job *j, struct error *error)
{
    if (s->out_of_step)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "rank %d aborted an earlier case and is out of step with its peers",
                         s->rank);
    enum status status = case_check(j->c, error);
    if (status == STATUS_OK && j->c->world_size != s->world_size)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "a job with world_size %d was sent to a pool of %d rank%s",
                           j->c->world_size, s->world_size, plural(s->world_size));
    return status;
}

// Creates the plan. A guest distributes its work itself; it gets the bias of its own queries, like
// a rank with comm p2p.
static enum status plan_make(const struct session *s, struct job *j, struct error *error)
{
    if (!s->engine->ops->brings_execution || j->c->bias == BIAS_NONE)
        return plan_create(j->c, j->rank, &j->plan, error);
    struct cp_case ring = *j->c;
    ring.comm = COMM_P2P;
    return plan_create(&ring, j->rank, &j->plan, error);
}

// True if the code under test is a user's, and its results are judged. Then the memory around the
// tensors is judged, too, and the inputs. A provider's kernels also write scratch of the plan.
static bool is_guarded(const struct session *s, const struct job *j)
{
    return (s->engine->ops->brings_execution || j->c->provider[0]) && j->c->verify != VERIFY_OFF;
}

static enum status job_plan(struct session *s, struct job *j, struct error *error)
{
    job_phase(j, REPORT_PLAN);
    uint64_t start_ns = clock_now_ns();
    kept_take(s, j);
    bool kept = j->plan;
    enum status status = kept ? STATUS_OK : plan_make(s, j, error);
    j->report->timings.plan_ns = clock_now_ns() - start_ns;
    for (int i = 0; status == STATUS_OK && !kept && i < j->plan->op_count; i++)
        j->report->flops += op_flops(j->plan, &j->plan->ops[i]);
    if (status == STATUS_OK && s->engine->ops->brings_execution)
        plan_keep_tensors(j->plan);
    if (status == STATUS_OK && is_guarded(s, j))
        plan_guard(j->plan, true);
    if (status == STATUS_OK)
        j->report->operations = j->plan->op_count;
    return status;
}

static void memory_take(struct job *j)
{
    j->buffers = arena_take(j->arena, j->plan->buffer_count, sizeof(*j->buffers));
    j->spans_of_others = arena_take(j->arena, shard_spans_max(j->c), sizeof(struct span));
    for (int side = 0; side < 2; side++) {
        j->spans[side] = arena_take(j->arena, shard_spans_max(j->c), sizeof(struct span));
        j->span_count[side] = shard_spans(j->c, (enum shard_side)side, j->rank, j->spans[side]);
    }
}

static enum status job_work(struct session *s, struct job *j, struct error *error)
{
    struct engine *e = s->engine;
    job_phase(j, REPORT_INPUTS);
    FAULT(INPUTS);
    struct untouched untouched = {.plan = j->plan,
                                  .buffers = j->buffers,
                                  .memory = e->ops->collective_judge,
                                  .queue = e->ops->queue ? e->ops->queue(e) : NULL,
                                  .key_bytes = job_key_bytes(j),
                                  .may_change = e->ops->brings_execution};
    enum status status = e->ops->prepare(e, j, error);
    if (status == STATUS_OK && is_guarded(s, j))
        status = untouched_begin(&untouched, error);
    if (status == STATUS_OK)
        status = e->ops->execute(e, j, error);
    if (status != STATUS_OK || j->report->refusal.status != STATUS_OK)
        return status;
    FAULT(REFERENCE);
    if (status == STATUS_OK)
        status = e->ops->verify(e, j, error);
    if (status == STATUS_OK && j->c->verify != VERIFY_OFF)
        status =
            complete_check(j->c, j->rank, e->ops->verify_work, !j->lse_absent, j->report, error);
    if (status == STATUS_OK && is_guarded(s, j))
        status = untouched_judge(&untouched, j->report, error);
    return status;
}

// Delivers the results, or turns the report into a refusal. All ranks have finished the case, so a
// rank that cannot deliver stays in step.
static void results_deliver(struct session *s, struct job *j, const struct segments *segments)
{
    struct refusal *refusal = &j->report->refusal;
    struct error reason = {0};
    if (!segments || deliver(s->engine, j, segments, &reason) == STATUS_OK)
        return;
    refusal->status = (int32_t)reason.status;
    snprintf(refusal->text, sizeof(refusal->text), "%s", reason.text);
}

static enum status job_run(struct session *s, struct job *j, const struct segments *segments,
                           struct error *error)
{
    bool refused = false;
    enum status status = job_admit(s, j, error);
    if (status == STATUS_OK)
        status = job_plan(s, j, error);
    if (status == STATUS_OK)
        status = memory_agree(s, j, &refused, error);
    if (status == STATUS_OK && !refused)
        status = engines_join(s, j, &refused, error);
    if (status != STATUS_OK || refused)
        return status;
    memory_take(j);
    j->report->use = j->attends->use;
    status = job_work(s, j, error);
    if (status == STATUS_OK && j->report->refusal.status == STATUS_OK)
        results_deliver(s, j, segments);
    return status;
}

enum status session_run(struct session *s, const struct cp_case *c, uint64_t job,
                        const struct segments *segments, struct rank_report *report,
                        struct error *error)
{
    struct rank_report result = {.rank = s->rank};
    s->c = *c;
    s->c.source = segments && segments->given ? &segments->source : NULL;
    // Results of a guest are judged completely.
    if (s->engine->ops->brings_execution && c->verify == VERIFY_AUTO)
        s->c.verify = VERIFY_FULL;
    struct job j = {.c = &s->c,
                    .number = job,
                    .rank = s->rank,
                    .control = s->transport,
                    .progress = s->progress,
                    .report = &result,
                    .arena = &s->arena};
    enum status status = job_run(s, &j, segments, error);
    s->engine->ops->release(s->engine);
    kept_store(s, &j, status == STATUS_OK && result.refusal.status == STATUS_OK);
    arena_trim(&s->arena);
    if (status != STATUS_OK) {
        s->out_of_step = true;
        return status;
    }
    job_phase(&j, REPORT_IDLE);
    *report = result;
    return STATUS_OK;
}

// ---- failures ---------

void session_failure(const struct session *s, const struct error *error,
                     struct rank_failure *failure)
{
    struct progress_view view = {.phase = REPORT_IDLE};
    int lost = s->transport ? s->transport->ops->lost_peer(s->transport) : -1;
    if (s->progress)
        view = progress_load(s->progress);
    *failure = (struct rank_failure){.status = error->status,
                                     .kind = lost >= 0 ? FAILURE_PEER_LOST : FAILURE_OWN,
                                     .peer = lost,
                                     .phase = view.phase,
                                     .step = view.step};
    memcpy(failure->text, error->text, sizeof(failure->text));
}
