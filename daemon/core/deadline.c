// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/deadline.h"

#include <stdio.h>

#include "common/duration.h"
#include "common/plural.h"
#include "daemon/core/hosts.h"
#include "daemon/core/line.h"
#include "daemon/core/state.h"

// Bytes of the advice on an acceptable limit.
#define ADVICE_MAX 64

_Static_assert(CORE_COST_MAX_NS <= UINT64_MAX / 2 / JOBS_MAX, "bounds of all jobs can be added up");

static const char *advise(const struct core *core, uint64_t needed_ns, char text[ADVICE_MAX])
{
    char least[DURATION_TEXT_MAX];
    uint64_t longest_ns = core->config.timeout_max_ns;
    if (needed_ns > (longest_ns > 0 ? longest_ns : TIMEOUT_MAX_NS))
        snprintf(text, ADVICE_MAX, "no time limit that may be asked for is long enough");
    else
        snprintf(text, ADVICE_MAX, "accepted is %s or more",
                 duration_ask(needed_ns, least, sizeof(least)));
    return text;
}

static enum status refuse_job(const struct core *core, const char *limit, uint64_t limit_ns,
                              uint64_t cost_ns, struct error *error)
{
    char cost[DURATION_TEXT_MAX], allowed[DURATION_TEXT_MAX], advice[ADVICE_MAX];
    return error_set(error, STATUS_DEADLINE_EXCEEDED,
                     "the case takes at least %s here, which its %s of %s does not allow; %s",
                     duration_format(cost_ns, cost, sizeof(cost)), limit,
                     duration_format(limit_ns, allowed, sizeof(allowed)),
                     advise(core, cost_ns, advice));
}

enum status deadline_check_job(const struct core *core, const struct core_request *request,
                               struct error *error)
{
    uint64_t run_ns = request->run_timeout_ns, cost_ns = request->cost_ns;
    if (request->timeout_ns < cost_ns)
        return refuse_job(core, "time limit", request->timeout_ns, cost_ns, error);
    if (run_ns > 0 && run_ns < cost_ns)
        return refuse_job(core, "time limit for the run", run_ns, cost_ns, error);
    return STATUS_OK;
}

enum status deadline_refuse_long(const struct core_request *request, uint64_t longest_ns,
                                 struct error *error)
{
    char asked[DURATION_TEXT_MAX], longest[DURATION_TEXT_MAX];
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "timeout: %s is longer than %s, the longest that this daemon grants "
                     "(timeout-max)",
                     duration_format(request->timeout_ns, asked, sizeof(asked)),
                     duration_format(longest_ns, longest, sizeof(longest)));
}

// The wait is a lower bound: queued jobs of the user that run in the meantime only prolong it.
enum status deadline_check_share(const struct core *core, const struct core_request *request,
                                 struct error *error)
{
    const struct user_limits *limits = &core->users.limits;
    char time[DURATION_TEXT_MAX], window[DURATION_TEXT_MAX], wait[DURATION_TEXT_MAX];
    char allowed[DURATION_TEXT_MAX], advice[ADVICE_MAX];
    uint64_t wait_ns =
        users_wait_ns(&core->users, users_find(&core->users, request->user), core->now_ns);
    if (wait_ns == 0 || wait_ns <= request->timeout_ns - request->cost_ns)
        return STATUS_OK;
    return error_set(
        error, STATUS_RESOURCE_EXHAUSTED,
        "cases of this user have used the device time of %s that they may in %s "
        "(user-device-time); the next can run in %s, which its time limit of %s does not allow; %s",
        duration_format(limits->time_ns, time, sizeof(time)),
        duration_format(limits->window_ns, window, sizeof(window)),
        duration_format(wait_ns, wait, sizeof(wait)),
        duration_format(request->timeout_ns, allowed, sizeof(allowed)),
        advise(core, time_after(wait_ns, request->cost_ns), advice));
}

// ---- the queue ------------------------------------------------------------------------------

// The jobs that certainly come before a new job: its user's jobs that wait for the same size. Jobs
// of other users may come later.
struct ahead {
    int jobs;
    uint64_t sum_ns, max_ns;
};

// Adds up the lower bounds of the user's waiting jobs. The cost of each is capped at the time to
// its deadline, since no job delays later jobs beyond its own deadline.
static struct ahead queue_ahead(const struct core *core, struct size *size, uint32_t user)
{
    struct ahead ahead = {.jobs = 0};
    struct line *line = line_find(size, users_find(&core->users, user));
    if (!line)
        return ahead;
    LIST_FOREACH (node, &line->jobs) {
        const struct job *job = mate_entry(node);
        uint64_t left_ns = job->deadline_ns > core->now_ns ? job->deadline_ns - core->now_ns : 0;
        uint64_t cost_ns = job->cost_ns < left_ns ? job->cost_ns : left_ns;
        ahead.jobs++;
        ahead.sum_ns += cost_ns;
        ahead.max_ns = cost_ns > ahead.max_ns ? cost_ns : ahead.max_ns;
    }
    return ahead;
}

// Lower bound of the time until a pool is free for a job behind these. At that time each of the
// other pools may still run one of them.
static uint64_t ahead_ns(const struct ahead *ahead, int pools)
{
    uint64_t unfinished_ns = (uint64_t)(pools - 1) * ahead->max_ns;
    return ahead->sum_ns > unfinished_ns ? (ahead->sum_ns - unfinished_ns) / (uint64_t)pools : 0;
}

static enum status refuse_queued(const struct core *core, const struct core_request *request,
                                 const struct ahead *ahead, uint64_t wait_ns, struct error *error)
{
    char cost[DURATION_TEXT_MAX], wait[DURATION_TEXT_MAX], allowed[DURATION_TEXT_MAX];
    char advice[ADVICE_MAX];
    return error_set(error, STATUS_DEADLINE_EXCEEDED,
                     "the case takes at least %s here and the %d request%s of this user waiting "
                     "before it %s, which its time limit of %s does not allow; %s",
                     duration_format(request->cost_ns, cost, sizeof(cost)), ahead->jobs,
                     plural(ahead->jobs), duration_format(wait_ns, wait, sizeof(wait)),
                     duration_format(request->timeout_ns, allowed, sizeof(allowed)),
                     advise(core, wait_ns + request->cost_ns, advice));
}

enum status deadline_check_queue(const struct core *core, const struct core_request *request,
                                 struct error *error)
{
    struct size *size = hosts_size(core, request);
    uint64_t slack_ns = request->timeout_ns - request->cost_ns;
    if (size->cost_ns / (uint64_t)size->side_by_side <= slack_ns)
        return STATUS_OK;
    struct ahead ahead = queue_ahead(core, size, request->user);
    uint64_t wait_ns = ahead_ns(&ahead, size->side_by_side);
    return wait_ns <= slack_ns ? STATUS_OK : refuse_queued(core, request, &ahead, wait_ns, error);
}
