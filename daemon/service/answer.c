// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/duration.h"
#include "common/plural.h"
#include "daemon/service/pool_text.h"

// ---- verdicts ----------------------------------------------------------------------------------

// FNV-1a over the digests in the order of the ranks.
static uint64_t digest_combine(const struct rank_report *reports, int count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < count; i++) {
        for (int byte = 0; byte < 8; byte++) {
            hash ^= reports[i].digest >> (8 * byte) & 0xff;
            hash *= UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

// Returns the first rank that refused the case by itself; others refuse with ABORTED because of it.
// -1: the case was run.
static int refuser_find(const struct crew *crew)
{
    int found = -1;
    for (int rank = crew->world_size - 1; rank >= 0; rank--) {
        int32_t status = crew->reports[rank].refusal.status;
        if (status != STATUS_OK && (status != STATUS_ABORTED || found < 0))
            found = rank;
    }
    return found;
}

static void refusal_tell(const struct crew *crew, int rank, struct wire_reply *reply)
{
    const struct refusal *refusal = &crew->reports[rank].refusal;
    struct error error;
    error_set(&error, (enum status)refusal->status, "rank %d of %d: %s", rank, crew->world_size,
              refusal->text);
    reply->status = error.status;
    memcpy(reply->message, error.text, sizeof(reply->message));
}

// A case without verification has not passed, whatever the ranks report.
static enum wire_verdict verdict_of(const struct crew *crew)
{
    if (!crew->verify)
        return VERDICT_UNVERIFIED;
    for (int rank = 0; rank < crew->world_size; rank++) {
        if (!crew->reports[rank].pass)
            return VERDICT_FAIL;
    }
    return VERDICT_PASS;
}

void answer_result(const struct action *action, const struct crew *crew, struct wire_reply *reply)
{
    struct wire_result *result = &reply->result;
    int refuser = refuser_find(crew);
    reply->method = METHOD_RUN;
    if (refuser >= 0) {
        refusal_tell(crew, refuser, reply);
        return;
    }
    result->verdict = verdict_of(crew);
    result->world_size = crew->world_size;
    result->ranks = crew->reports;
    result->digest = digest_combine(crew->reports, crew->world_size);
    result->queue_ns = action->queue_ns;
    result->start_ns = action->start_ns;
    result->run_ns = action->run_ns;
    result->total_ns = action->total_ns;
}

// ---- the ranks of a failure --------------------------------------------------------------------

static bool process_halted(char state)
{
    return state == 'T' || state == 't' || state == 'X' || state == 'Z';
}

// True if several ranks of a guest are in its function and do not say whom they wait for. Then the
// daemon cannot know whether one of them waits for another.
static bool several_work(const struct crew *crew)
{
    int working = 0;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct progress_view view = progress_load(&crew->snapshot[rank]);
        bool in_function = view.phase == REPORT_FORWARD || view.phase == REPORT_BACKWARD;
        working += in_function && view.waiting_for < 0 && view.job == (crew->job & 0xffffff);
    }
    return crew->guest && working > 1;
}

// Returns the only rank of a starting pool that has not sent HELLO, or if all have, the only one
// that has not sent READY. -1: several ranks are late.
static int late_find(const struct crew *crew)
{
    int silent = 0, silent_last = -1, late = 0, late_last = -1;
    for (int rank = 0; rank < crew->world_size; rank++) {
        const struct rank_process *r = &crew->ranks[rank];
        silent += !r->said_hello;
        silent_last = r->said_hello ? silent_last : rank;
        late += !r->said_ready;
        late_last = r->said_ready ? late_last : rank;
    }
    return silent == 1 ? silent_last : silent == 0 && late == 1 ? late_last : -1;
}

// Finds the rank that the others wait for; -1: it cannot be known. A stopped or dead process is the
// culprit without further evidence: its last progress word may name a peer that has already done
// its part.
static int culprit_find(const struct action *action, const struct crew *crew)
{
    if (action->cause != CAUSE_DEADLINE_RUNNING && action->cause != CAUSE_DEADLINE_STARTING)
        return action->rank;
    for (int rank = 0; rank < crew->world_size; rank++) {
        if (process_halted(crew->ranks[rank].state))
            return rank;
    }
    if (action->cause == CAUSE_DEADLINE_STARTING)
        return late_find(crew);
    if (several_work(crew))
        return -1;
    // progress_culprit() misses a rank that has finished the case but not reported: that rank waits
    // for nobody, and nobody waits for it. If the found rank has reported, takes one that has not.
    int culprit = progress_culprit(crew->snapshot, crew->world_size);
    for (int rank = 0; rank < crew->world_size && crew->ranks[culprit].reported; rank++) {
        if (!crew->ranks[rank].reported)
            culprit = rank;
    }
    return culprit;
}

static void fate_tell(const struct rank_process *r, bool culprit, enum cause cause, char *fate)
{
    bool lives = r->end.kind == RANK_LIVES;
    char end[RANK_END_TEXT_MAX];
    const char *text = "aborted sibling";
    if (!lives && (culprit || !r->crew->killed))
        text = rank_end_text(&r->end, end);
    if (lives && culprit)
        text = cause == CAUSE_RANK_FAILED ? "" : "killed by the daemon";
    if (lives && cause == CAUSE_DEADLINE_STARTING && !r->crew->killed)
        text = "still starting";
    snprintf(fate, RANK_END_TEXT_MAX, "%s", text);
}

// Reads the progress of a rank in this job: idle if its progress word is about an earlier job,
// because the rank has not begun this one.
static struct progress_view view_of_job(const struct progress *word, uint64_t job)
{
    struct progress_view view = progress_load(word);
    if (view.job != (job & 0xffffff) || view.phase >= REPORT_PHASES)
        return (struct progress_view){.phase = REPORT_IDLE, .waiting_for = -1};
    return view;
}

// Describes a rank of a failed case. `culprit`: the rank that caused the failure; -1: unknown.
static void rank_describe(const struct rank_process *r, const struct action *action, int culprit,
                          struct wire_rank_state *state)
{
    bool late = action->cause == CAUSE_DEADLINE_RUNNING || action->cause == CAUSE_DEADLINE_STARTING;
    bool accused = r->rank == culprit || (late && culprit < 0);
    struct progress_view view = view_of_job(&r->crew->snapshot[r->rank], action->job);
    if (view.waiting_for >= r->crew->world_size)
        view.waiting_for = -1;
    state->rank = r->rank;
    state->culprit = r->rank == culprit;
    state->phase = view.phase;
    state->step = view.step;
    state->waiting_for = view.waiting_for;
    state->state = r->state;
    _Static_assert(sizeof(state->fate) == RANK_END_TEXT_MAX, "it fits the wire");
    fate_tell(r, accused, action->cause, state->fate);
    if (r->failure.status != STATUS_OK)
        memcpy(state->text, r->failure.text, sizeof(state->text));
    bytering_tail(&r->stderr_text.ring, state->stderr_tail, sizeof(state->stderr_tail));
}

static void ranks_describe(const struct action *action, struct crew *crew, int culprit,
                           struct wire_failure *failure)
{
    failure->ranks = calloc((size_t)crew->world_size, sizeof(*failure->ranks));
    if (!failure->ranks)
        return; // the answer then has only the message
    failure->world_size = crew->world_size;
    for (int rank = 0; rank < crew->world_size; rank++)
        rank_describe(&crew->ranks[rank], action, culprit, &failure->ranks[rank]);
}

// ---- the sentence ------------------------------------------------------------------------------

struct sentence {
    const struct action *action;
    const struct crew *crew; // NULL: no pool was involved
    int culprit;             // -1: unknown
    char place[64];          // where the culprit was: "in forward, step 1"
    char timeout[DURATION_TEXT_MAX];
    const char *detail;
};

// True if the culprit has finished all steps of the case.
static bool case_is_over(const struct sentence *s)
{
    struct progress_view view = progress_load(&s->crew->snapshot[s->culprit]);
    return view.phase == REPORT_IDLE && view.job == (s->action->job & 0xffffff);
}

static void place_write(struct sentence *s)
{
    struct progress_view view = {.phase = REPORT_IDLE};
    if (s->crew && s->culprit >= 0)
        view = view_of_job(&s->crew->snapshot[s->culprit], s->action->job);
    if (view.phase == REPORT_FORWARD || view.phase == REPORT_BACKWARD)
        snprintf(s->place, sizeof(s->place), "in %s, step %d", report_phase_name(view.phase),
                 view.step);
    else if (view.phase != REPORT_IDLE)
        snprintf(s->place, sizeof(s->place), "in %s", report_phase_name(view.phase));
    else if (s->crew && s->culprit >= 0 && case_is_over(s))
        snprintf(s->place, sizeof(s->place), "after the last step of the case");
    else
        snprintf(s->place, sizeof(s->place), "before it began the case");
}

static const struct rank_process *culprit_of(const struct sentence *s)
{
    return s->crew && s->culprit >= 0 ? &s->crew->ranks[s->culprit] : NULL;
}

static const char *reason_of(const struct sentence *s)
{
    const struct rank_process *r = culprit_of(s);
    return r && r->failure.status != STATUS_OK && r->failure.text[0] ? r->failure.text
                                                                     : "it did not say why";
}

static void rank_exited_write(const struct sentence *s, struct error *error)
{
    const struct rank_process *r = culprit_of(s);
    char end[RANK_END_TEXT_MAX];
    const char *said = r && r->end.kind != RANK_LIVES ? rank_end_said(&r->end, end) : "was lost";
    char guest[IMPLEMENTATION_NAME_MAX + 16], wrote[ERROR_TEXT_MAX] = "";
    pool_text_guest(s->crew, guest, sizeof(guest));
    if (r && guest[0])
        pool_text_wrote(r, wrote, sizeof(wrote));
    error_set(error, s->action->status, "rank %d of %d%s %s %s%s%s%s; the pool is being restarted",
              s->culprit, s->action->world_size, guest, said, s->place,
              r && r->failure.text[0] ? ": " : "", r ? r->failure.text : "", wrote);
}

static const char *state_explain(const struct rank_process *r)
{
    char state = r->state;
    if (r->at_memory_limit)
        return ", with all the memory that a rank may have (rank-memory)";
    return state == 'T' || state == 't'   ? ", stopped by a signal (state T)"
           : state == 'D'                 ? ", stuck in the kernel (state D)"
           : state == 'X' || state == 'Z' ? ", already dead"
                                          : "";
}

// Tells what is known of ranks that were in the function of a guest, none of which is accused.
static void where_write(const struct crew *crew, char *text, size_t size)
{
    int wrote = 0, running = 0, last_running = 0;
    for (int rank = 0; rank < crew->world_size; rank++) {
        const struct rank_process *r = crew->ranks + rank;
        wrote += bytering_kept(&r->stderr_text.ring) > 0;
        running += r->state == 'R';
        last_running = r->state == 'R' ? rank : last_running;
    }
    int used = snprintf(text, size, "%s",
                        wrote > 0 ? "their stderr tells where each was"
                                  : "none of them wrote to stderr where it was");
    if (running == 1)
        snprintf(text + used, size - (size_t)used, "; only rank %d was computing (state R)",
                 last_running);
}

static void deadline_running_write(const struct sentence *s, struct error *error)
{
    const struct rank_process *r = culprit_of(s);
    char where[128];
    if (s->crew && s->culprit < 0) {
        where_write(s->crew, where, sizeof(where));
        error_set(error, s->action->status,
                  "the time limit of %s passed while several of %d ranks were in the function of "
                  "guest %s; %s; the pool is being restarted",
                  s->timeout, s->action->world_size, s->crew->guest->name, where);
        return;
    }
    error_set(
        error, s->action->status,
        "the time limit of %s passed while rank %d of %d was %s%s; the pool is being restarted",
        s->timeout, s->culprit, s->action->world_size, s->place, r ? state_explain(r) : "");
}

// Names a limit of the user that was reached. Advises to submit fewer cases only if cases of the
// same user were ahead in the queue.
static void deadline_queued_write(const struct sentence *s, struct error *error)
{
    const struct action *a = s->action;
    char behind[64] = "", limit[96] = "";
    if (a->own_before > 0)
        snprintf(behind, sizeof(behind), ", behind %d of the same user", a->own_before);
    if (a->limit)
        snprintf(limit, sizeof(limit), ", at a limit of the daemon on this user (%s)", a->limit);
    error_set(error, a->status,
              "the time limit of %s passed while the case waited for its turn on the pool of %d "
              "rank%s%s%s%s%s; allow more time%s",
              s->timeout, a->world_size, plural(a->world_size), behind, limit,
              s->detail[0] ? ", while there was no host " : "", s->detail,
              a->own_before > 0 ? ", or submit fewer cases at once" : "");
}

static void deadline_starting_write(const struct sentence *s, struct error *error)
{
    error_set(
        error, s->action->status,
        "the time limit of %s passed while the pool of %d rank%s was being started%s%s; allow "
        "more time, or submit again once it is up",
        s->timeout, s->action->world_size, plural(s->action->world_size), s->detail[0] ? ": " : "",
        s->detail);
}

static void message_write(const struct sentence *s, struct error *error)
{
    const struct action *a = s->action;
    switch (a->cause) {
    case CAUSE_RANK_EXITED:
        rank_exited_write(s, error);
        break;
    case CAUSE_RANK_FAILED:
        error_set(error, a->status, "rank %d of %d failed %s: %s; the pool is being restarted",
                  s->culprit, a->world_size, s->place, reason_of(s));
        break;
    case CAUSE_PEER_LOST:
        error_set(error, a->status,
                  "rank %d of %d was lost by its peers %s, though its process lives; the pool is "
                  "being restarted",
                  s->culprit, a->world_size, s->place);
        break;
    case CAUSE_DEADLINE_QUEUED:
        deadline_queued_write(s, error);
        break;
    case CAUSE_DEADLINE_STARTING:
        deadline_starting_write(s, error);
        break;
    case CAUSE_DEADLINE_RUNNING:
        deadline_running_write(s, error);
        break;
    case CAUSE_START_FAILED:
        error_set(error, a->status, "the pool of %d rank%s cannot be started: %s", a->world_size,
                  plural(a->world_size),
                  s->detail[0] ? s->detail : "its ranks die before they are ready");
        break;
    case CAUSE_CANCELLED:
        error_set(error, a->status, "%s",
                  a->clients_gone ? "cancelled: its client has gone" : "cancelled as asked");
        break;
    case CAUSE_POISON:
        error_set(error, a->status,
                  "POISON: this case has killed two pools while it waited for another run; it is "
                  "not tried again%s%s",
                  s->detail[0] ? "; the last time: " : "", s->detail);
        break;
    case CAUSE_NODE_LOST:
        error_set(error, a->status,
                  "host %s was lost while ranks of this case ran there: its agent is not "
                  "connected; the pool of %d rank%s is being restarted on the remaining hosts",
                  s->detail, a->world_size, plural(a->world_size));
        break;
    case CAUSE_STUCK:
        error_set(error, a->status, "%s", s->detail);
        break;
    case CAUSE_NONE:
        error_set(error, a->status, "the case did not end");
        break;
    }
}

void answer_failure(const struct action *action, struct crew *crew, uint64_t timeout_ns,
                    const char *detail, struct wire_reply *reply)
{
    struct sentence s = {.action = action, .crew = crew, .culprit = action->rank, .detail = detail};
    struct error error;
    duration_format(timeout_ns, s.timeout, sizeof(s.timeout));
    if (crew) {
        crew_snapshot(crew);
        crew_drain_stderr(crew);
        s.culprit = culprit_find(action, crew);
        ranks_describe(action, crew, s.culprit, &reply->failure);
    }
    place_write(&s);
    message_write(&s, &error);
    reply->method = METHOD_RUN;
    reply->status = action->status;
    memcpy(reply->message, error.text, sizeof(reply->message));
}

// A stop of the daemon cancels cases in the core. Replaces that status, because the client has not
// cancelled anything.
void answer_stopped(struct wire_reply *reply)
{
    reply->status = STATUS_UNAVAILABLE;
    snprintf(reply->message, sizeof(reply->message),
             "the daemon was stopped before the case was done; submit it again once it is back");
}

uint64_t answer_limit_ns(const struct task *task, const struct action *a)
{
    bool of_run = task->run_timeout_ns > 0 && a->run_ns >= task->run_timeout_ns;
    return of_run ? task->run_timeout_ns : task->timeout_ns;
}
