// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reasons.h"

#include <stdlib.h>

#include "common/log.h"
#include "daemon/service/pool_text.h"

bool reasons_init(struct reasons *r, const struct service_config *config)
{
    r->config = config;
    r->start_errors = calloc((size_t)config->guests->count + 1, sizeof(*r->start_errors));
    return r->start_errors;
}

void reasons_fini(struct reasons *r)
{
    free(r->start_errors);
}

struct error *reasons_start_error(struct reasons *r, const struct action *a)
{
    return &r->start_errors[a->implementation][a->world_size];
}

void reasons_note_start(struct reasons *r, int implementation, int world_size, uint32_t generation,
                        const struct error *error)
{
    log_error("pool_start_failed world=%d generation=%u error=%s", world_size, generation,
              log_quote(&(struct log_quoted){0}, error->text));
    r->start_errors[implementation][world_size] = *error;
}

void reasons_note_rank(struct reasons *r, const struct crew *crew, int rank)
{
    if (!crew->ranks[rank].said_ready && !crew->killed)
        pool_text_not_ready(crew, rank, &r->start_errors[crew->implementation][crew->world_size]);
}

void reasons_note_answer(struct reasons *r, const struct action *a, const struct task *task,
                         const char *message)
{
    if (a->cause == CAUSE_RANK_EXITED || a->cause == CAUSE_RANK_FAILED ||
        a->cause == CAUSE_PEER_LOST)
        loss_reasons_note(&r->losses, job_spec_hash(&task->spec), message);
}

// Returns the name of the first lost host; "": none is lost.
static const char *lost_host_name(const struct reasons *r)
{
    for (int host = 1; host < r->config->host_count; host++)
        if (core_host_is_lost(r->core, host))
            return core_host_name(r->core, host);
    return "";
}

const char *reasons_detail(const struct reasons *r, const struct action *a, const struct task *task,
                           struct error *room)
{
    if (a->cause == CAUSE_STUCK) {
        const struct core_stuck rank = {a->pool, a->generation, a->rank, __builtin_ctzll(a->hosts),
                                        __builtin_ctzll(a->devices)};
        pool_text_stuck(r->crews, r->config, a->world_size, &rank, room);
        return room->text;
    }
    if (a->cause == CAUSE_DEADLINE_QUEUED)
        return lost_host_name(r);
    if (a->cause == CAUSE_NODE_LOST)
        return core_host_name(r->core, a->host);
    return a->cause == CAUSE_POISON ? loss_reasons_find(&r->losses, job_spec_hash(&task->spec))
                                    : r->start_errors[a->implementation][a->world_size].text;
}

void reasons_explain_refusal(const struct reasons *r, const struct core_request *job,
                             struct error *error)
{
    struct core_stuck stuck;
    struct error told = *error;
    if (error->status == STATUS_UNAVAILABLE && core_is_stuck(r->core, job, &stuck))
        pool_text_stuck(r->crews, r->config, job->world_size, &stuck, error);
    if (error->status != STATUS_FAILED_PRECONDITION)
        return;
    const char *loss = loss_reasons_find(&r->losses, job->case_hash);
    if (core_is_poison(r->core, job->case_hash) && loss[0])
        error_set(error, told.status, "%s; the last time: %s", told.text, loss);
}
