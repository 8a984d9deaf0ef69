// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/rank_events.h"

#include "common/clock.h"
#include "common/log.h"
#include "daemon/service/actions.h"
#include "daemon/service/service_state.h"

static void on_ready(void *context, int pool, uint32_t generation, int rank)
{
    struct service *s = context;
    const struct crew *crew = crews_get(s->crews, pool);
    if (crew_is_ready(crew))
        log_notice("pool_ready world=%d generation=%u%s%s", crew->world_size, crew->generation,
                   crew->exchange[0] ? " exchange=" : "",
                   crew->exchange[0] ? log_quote(&(struct log_quoted){0}, crew->exchange) : "");
    s->moved |= crew_is_ready(crew);
    core_rank_ready(s->core, clock_now_ns(), pool, generation, rank);
    actions_do(s);
}

static void on_reported(void *context, int pool, uint32_t generation, int rank, uint64_t job)
{
    struct service *s = context;
    core_rank_reported(s->core, clock_now_ns(), pool, generation, rank, job);
    actions_do(s);
}

static void on_not_started(void *context, int pool, uint32_t generation, int host,
                           const struct error *error)
{
    struct service *s = context;
    const struct crew *crew = crews_get(s->crews, pool);
    reasons_note_start(&s->reasons, crew->implementation, crew->world_size, generation, error);
    s->moved = true;
    core_start_failed_on(s->core, clock_now_ns(), pool, generation, host);
    actions_do(s);
}

static void on_failed(void *context, int pool, uint32_t generation, int rank, int kind, int peer)
{
    struct service *s = context;
    reasons_note_rank(&s->reasons, crews_get(s->crews, pool), rank);
    core_rank_failed(s->core, clock_now_ns(), pool, generation, rank, kind, peer);
    actions_do(s);
}

static void on_ending(void *context, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    struct service *s = context;
    reasons_note_rank(&s->reasons, crews_get(s->crews, pool), rank);
    core_rank_ending(s->core, clock_now_ns(), pool, generation, rank, end);
    actions_do(s);
}

static void on_exited(void *context, int pool, uint32_t generation, int rank,
                      const struct rank_end *end)
{
    struct service *s = context;
    reasons_note_rank(&s->reasons, crews_get(s->crews, pool), rank);
    s->moved = true;
    core_rank_exited(s->core, clock_now_ns(), pool, generation, rank, end);
    actions_do(s);
}

struct crew_handler rank_events_handler(struct service *s)
{
    return (struct crew_handler){s,         on_not_started, on_ready, on_reported,
                                 on_failed, on_ending,      on_exited};
}
