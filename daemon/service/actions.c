// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/actions.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/core/core.h"
#include "daemon/service/alarm.h"
#include "daemon/service/answer.h"
#include "daemon/service/answer_cache.h"
#include "daemon/service/answer_log.h"
#include "daemon/service/events.h"
#include "daemon/service/placement.h"
#include "daemon/service/pool_text.h"
#include "daemon/service/reasons.h"
#include "daemon/service/reply.h"
#include "daemon/service/status.h"
#include "daemon/service/tally.h"
#include "daemon/service/tasks.h"
#include "daemon/service/watchers.h"

// Records changes of pools and devices as events, and schedules the replies to watchers.
static void events_look(struct service *s)
{
    struct wire_pool pools[POOLS_MAX];
    struct wire_status status = {0};
    if (s->moved) {
        status_fill(s, &status, pools);
        events_compare(s->events, &status);
    }
    s->moved = false;
    watchers_notice(s->watchers);
}

// Returns the crew of an action; NULL if the action has none, or the crew is of another generation
// or gone.
static struct crew *crew_of(struct service *s, const struct action *a)
{
    struct crew *crew = a->pool >= 0 ? crews_get(s->crews, a->pool) : NULL;
    return crew && crew->generation == a->generation && crew->world_size > 0 ? crew : NULL;
}

static void on_start(struct service *s, const struct action *a)
{
    struct placement placement;
    struct error error;
    placement_make(s->core, &s->config.description, a, &placement);
    s->moved = true;
    log_notice("pool_start implementation=%s world=%d instance=%d generation=%u devices=0x%" PRIx64
               " hosts=0x%" PRIx64 " spare=%d",
               guests_name(s->config.guests, a->implementation), a->world_size, a->instance,
               a->generation, pool_text_devices(&s->config, a->hosts, a->devices), a->hosts,
               a->spare);
    if (crew_start(s->crews, a->pool, &placement.start, &error) == STATUS_OK)
        return;
    reasons_note_start(&s->reasons, a->implementation, a->world_size, a->generation, &error);
    core_start_failed(s->core, clock_now_ns(), a->pool, a->generation);
}

static void on_run(struct service *s, const struct action *a)
{
    struct crew *crew = crew_of(s, a);
    const struct task *task = tasks_get(s->tasks, a->slot);
    tasks_run(s->tasks, a->slot, a->pool, a->generation);
    answer_log_run(task, a);
    events_started(s->events, task, a);
    const struct crew_task given = {&task->spec, task->attends ? &task->places : NULL,
                                    task->segments.given_fd, task->segments.wanted_fd, a->left_ns};
    if (crew)
        crew_run(crew, a->job, &given);
}

static void on_kill(struct service *s, const struct action *a)
{
    struct crew *crew = crew_of(s, a);
    char end[RANK_END_TEXT_MAX];
    s->moved = true;
    log_notice("pool_kill world=%d instance=%d generation=%u rank=%d reason=%s", a->world_size,
               a->instance, a->generation, a->rank,
               log_quote(&(struct log_quoted){0},
                         a->end.kind == RANK_LIVES ? a->reason : rank_end_said(&a->end, end)));
    if (!crew)
        return;
    pool_text_late(crew, reasons_start_error(&s->reasons, a));
    crew_kill(crew);
}

static void on_answer(struct service *s, const struct action *a)
{
    const struct task *task = tasks_get(s->tasks, a->slot);
    struct crew *crew = crew_of(s, a);
    struct wire_reply reply = {.id = task->id};
    if (a->status == STATUS_OK && crew) {
        answer_result(a, crew, &reply);
    } else {
        struct error stuck;
        answer_failure(a, a->cause == CAUSE_STUCK ? NULL : crew, answer_limit_ns(task, a),
                       reasons_detail(&s->reasons, a, task, &stuck), &reply);
        reasons_note_answer(&s->reasons, a, task, reply.message);
        if (s->stopping && a->cause == CAUSE_CANCELLED)
            answer_stopped(&reply);
    }
    answer_log(task, a, &reply);
    events_finished(s->events, task, a, &reply);
    tally_answer(&s->tally, a, &reply);
    size_t size = 0;
    void *data = reply_encode(&reply, &size);
    if (a->answer_index >= 0)
        answer_cache_keep(&s->answers, a->answer_index, data, size);
    struct segments segments = task->segments;
    tasks_answer(s->tasks, a->slot, data, size);
    deposits_release(s->deposits, &segments);
    free(data);
    free(reply.failure.ranks);
}

static void action_do(struct service *s, const struct action *a)
{
    // Records pool events before the events of the cases that the pools run, and before the exit.
    if (a->kind == ACTION_RUN || a->kind == ACTION_EXIT)
        events_look(s);
    switch (a->kind) {
    case ACTION_START:
        on_start(s, a);
        break;
    case ACTION_RUN:
        on_run(s, a);
        break;
    case ACTION_ANSWER:
        on_answer(s, a);
        break;
    case ACTION_KILL:
        on_kill(s, a);
        break;
    case ACTION_STUCK:
        s->moved = true;
        pool_text_log_stuck(s->crews, &s->config, a);
        break;
    case ACTION_EXIT:
        watchers_close(s->watchers);
        s->exited(s->context);
        break;
    }
}

void actions_do(struct service *s)
{
    struct action action;
    if (s->acting)
        return;
    s->acting = true;
    while (core_next_action(s->core, &action))
        action_do(s, &action);
    s->acting = false;
    alarm_set(&s->deadline, core_next_time(s->core));
    events_look(s);
}
