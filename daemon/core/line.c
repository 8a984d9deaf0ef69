// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/line.h"

#include "daemon/core/state.h"
#include "daemon/core/twin.h"

void line_init(struct core *core, struct line *line)
{
    list_init(&line->node);
    list_init(&line->jobs);
    list_push_back(&core->lines_free, &line->node);
}

struct line *line_find(struct size *size, const struct account *account)
{
    LIST_FOREACH (node, &size->lines)
        if (line_entry(node)->account == account)
            return line_entry(node);
    return NULL;
}

void line_join(struct core *core, struct job *job)
{
    struct line *line = line_find(job->size, job->account);
    if (!line) {
        line = line_entry(list_pop_front(&core->lines_free));
        line->account = job->account;
        list_push_back(&job->size->lines, &line->node);
    }
    job->line = line;
    list_push_back(&line->jobs, &job->mate);
}

void line_leave(struct core *core, struct job *job)
{
    struct line *line = job->line;
    if (line->next == &job->mate)
        line->next = job->mate.next;
    list_remove(&job->mate);
    job->line = NULL;
    if (!list_empty(&line->jobs))
        return;
    list_remove(&line->node);
    line->account = NULL;
    list_push_front(&core->lines_free, &line->node);
}

bool line_goes_before(const struct core *core, const struct job *job, const struct job *other)
{
    uint64_t used_ns = job->account->used_ns, other_ns = other->account->used_ns;
    if (core->pinned == job || core->pinned == other)
        return core->pinned == job;
    return used_ns != other_ns ? used_ns < other_ns : job->number < other->number;
}

// True if the size has a possible pool that is up or may be started.
static bool size_is_served(const struct core *core, const struct size *size)
{
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (!devices_meet(&core->unusable, &pool->place) && (twin_is_up(pool) || !twin_rests(pool)))
            return true;
    return false;
}

static bool core_has_idle_devices(const struct core *core)
{
    for (int host = 0; host < core->config.host_count; host++)
        if ((core->devices_leased.on[host] | core->unusable.on[host]) != core->devices_all.on[host])
            return true;
    return false;
}

// Returns the first queued job that has a possible pool and whose user may run one more, or NULL.
static struct job *line_first(struct core *core)
{
    struct job *first = NULL;
    LIST_FOREACH (node, &core->sizes_waiting) {
        if (!size_is_served(core, size_entry(node)))
            continue;
        LIST_FOREACH (line, &size_entry(node)->lines) {
            struct job *job = mate_entry(line_entry(line)->jobs.next);
            if (!users_may_run(&core->users, job->account, core->now_ns))
                continue;
            if (!first || line_goes_before(core, job, first))
                first = job;
        }
    }
    return first;
}

void line_pin(struct core *core)
{
    if (core->pinned && !size_is_served(core, core->pinned->size))
        core->pinned = NULL;
    if (!core->pinned && core_has_idle_devices(core))
        core->pinned = line_first(core);
}

int line_before(const struct core *core, const struct job *job, int *own)
{
    int before = 0;
    *own = 0;
    LIST_FOREACH (node, &job->size->queue) {
        const struct job *other = job_entry(node);
        if (other == job || !line_goes_before(core, other, job))
            continue;
        before++;
        *own += other->account == job->account;
    }
    return before;
}
