// SPDX-License-Identifier: Apache-2.0
// The rank's side of a kind of job (plan/kind.h): runs a spec and fills a report.
#ifndef CPATTN_RANK_KIND_H
#define CPATTN_RANK_KIND_H

#include "plan/kind.h"
#include "rank/session.h"

// One job on one rank. Everything is borrowed for the call.
struct rank_task {
    struct session *session; // rank, world size, transport (no exchange in progress), and the
                             // arena, which run() reserves
    const struct job_kind *kind;
    const void *spec;                // has passed check(); its world size is the session's
    uint64_t number;                 // job number, the same on all ranks
    const struct segments *segments; // memory of a client's tensors; NULL: none
    struct rank_report *report;      // zeroed, except the rank
};

struct rank_kind {
    const struct job_kind *kind;
    // Fills the report: pass, digest, figures, times. A mismatch is a result and not an error, and
    // so is a refusal on which all ranks have agreed. All ranks of the world call it, for the same
    // jobs in the same order. After an error the session is unusable.
    enum status (*run)(const struct rank_task *task, struct error *error);
};

// One entry for each entry of job_kinds; ends with NULL.
extern const struct rank_kind *const rank_kinds[];
extern const struct rank_kind rank_kind_attention;

// Runs a job of any kind; session_run() runs a case. UNIMPLEMENTED: this rank does not run the
// kind.
enum status rank_kind_run(struct session *s, const struct job_spec *spec, uint64_t number,
                          const struct segments *segments, struct rank_report *report,
                          struct error *error) MUST_CHECK;

// ---- for the code of a kind ----

// Writes phase and step into the progress word, with no awaited rank.
void rank_task_at(const struct rank_task *task, enum report_phase phase, int step);

// Exchanges messages with other ranks and waits for completion. Meanwhile the progress word names
// the awaited rank. `number` identifies the exchange: the same on all participating ranks,
// different for each exchange of a job, 1..2^24-1. Errors are those of the transport.
enum status rank_task_exchange(const struct rank_task *task, int number,
                               const struct message *messages, int count,
                               struct error *error) MUST_CHECK;

// Reports that the ranks cannot run the job. All ranks must call it.
void rank_task_refuse(const struct rank_task *task, enum status status, const char *text);

// True if other code, such as a guest's, computes in place of the plan's operations; the same on
// all ranks of a pool.
bool rank_task_is_guest(const struct rank_task *task);

// Runs a plan on the engine: fills in the members of `run` that follow from the task, reserves
// memory, and calls work(). If one rank lacks memory, all ranks refuse the job and work() is not
// called.
enum status rank_task_plan(const struct rank_task *task, struct plan_run *run,
                           enum status (*work)(void *context, struct error *error), void *context,
                           struct error *error) MUST_CHECK;

#endif
