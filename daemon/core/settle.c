// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/settle.h"

#include "daemon/core/hosts.h"
#include "daemon/core/line.h"
#include "daemon/core/pool.h"
#include "daemon/core/pool_view.h"
#include "daemon/core/schedule.h"
#include "daemon/core/state.h"

// Charges the users of running jobs for the time since the last event.
static void charge_users(struct core *core, uint64_t elapsed_ns)
{
    LIST_FOREACH (node, &core->jobs_running) {
        const struct job *job = job_entry(node);
        uint64_t device_ns;
        int devices = devices_shared(&core->devices_all, &job->pool->place);
        if (__builtin_mul_overflow(elapsed_ns, (uint64_t)devices, &device_ns))
            device_ns = UINT64_MAX;
        users_charge(&core->users, job->account, core->now_ns + elapsed_ns, device_ns);
    }
}

void settle_begin(struct core *core, uint64_t now_ns)
{
    if (now_ns <= core->now_ns)
        return;
    line_pin(core);
    charge_users(core, now_ns - core->now_ns);
    core->now_ns = now_ns;
}

static void expire(struct core *core)
{
    for (int id; (id = timers_take_due(&core->timers, core->now_ns)) >= 0;) {
        if (id == timer_of_users(core) || id == timer_of_spares(core))
            continue; // the schedule_pass() that follows is enough
        if (id < core->config.queue_max)
            pool_end_job(core, &core->jobs[id], JOB_EXPIRE);
        else
            pool_handle(core, &core->pools[id - core->config.queue_max],
                        &(struct pool_event){.kind = POOL_TIMER, .rank = -1});
    }
}

static void stop_unwanted(struct core *core, enum pool_mode mode)
{
    LIST_FOREACH (node, &core->modes[mode]) {
        struct pool *pool = pool_entry(node);
        if (list_empty(&pool->size->queue))
            pool_handle(
                core, pool,
                &(struct pool_event){.kind = POOL_STOP, .rank = -1, .why = "the daemon ends"});
    }
}

// While draining: stops pools that no job waits for, and exits when nothing is left.
static void wind_down(struct core *core)
{
    stop_unwanted(core, MODE_IDLE);
    stop_unwanted(core, MODE_STARTING);
    int jobs = core->job_counts[JOB_QUEUED] + core->job_counts[JOB_RUNNING];
    if (core->exited || jobs > 0 || bits_in(core->crews_used) > core->pools_stuck)
        return;
    core->exited = true;
    struct action action = pool_action(ACTION_EXIT, NULL);
    actions_push(&core->actions, &action);
}

// Stops pools in this mode on devices that were taken out of use.
static void leave_devices(struct core *core, enum pool_mode mode)
{
    LIST_FOREACH (node, &core->modes[mode])
        if (devices_meet(&core->devices_out, &pool_entry(node)->place))
            pool_handle(core, pool_entry(node),
                        &(struct pool_event){
                            .kind = POOL_STOP, .rank = -1, .why = "a device was taken out of use"});
}

// Moves waiting jobs without a possible pool to another number of hosts, if the request left that
// open.
static void move_waiting(struct core *core)
{
    if (!core->unusable_changed)
        return;
    core->unusable_changed = false;
    LIST_FOREACH (node, &core->sizes_waiting) {
        struct size *size = size_entry(node);
        struct size *other = hosts_other_size(core, size);
        if (!other)
            continue;
        LIST_FOREACH (job, &size->queue)
            if (job_entry(job)->any_nodes)
                job_handle(core, job_entry(job),
                           &(struct job_event){.kind = JOB_MOVE, .size = other});
    }
}

void settle_end(struct core *core)
{
    expire(core);
    if (devices_any(&core->devices_out, core->config.host_count)) {
        leave_devices(core, MODE_IDLE);
        leave_devices(core, MODE_STARTING);
    }
    move_waiting(core);
    schedule_pass(core);
    if (core->draining)
        wind_down(core);
}
