// SPDX-License-Identifier: Apache-2.0
// All the state there is. Private to daemon/core.
#ifndef CPATTN_DAEMON_CORE_STATE_H
#define CPATTN_DAEMON_CORE_STATE_H

#include "daemon/core/actions.h"
#include "daemon/core/devices.h"
#include "daemon/core/hosts.h"
#include "daemon/core/ids.h"
#include "daemon/core/job.h"
#include "daemon/core/line.h"
#include "daemon/core/poison.h"
#include "daemon/core/pool.h"
#include "daemon/core/stuck.h"
#include "daemon/core/timers.h"
#include "daemon/core/twin.h"
#include "daemon/core/users.h"

_Static_assert(WORLD_SIZE_MAX <= 64 && POOLS_MAX <= 64,
               "ranks, world sizes, crews and instances over hosts are bits of one word");

// A world size of an implementation, spread over so many hosts: who waits for it, and the pools
// that can serve it.
struct size {
    struct list node; // on core->sizes_waiting while the queue is not empty
    int implementation, world_size, nodes;
    struct list queue;  // of struct job, in order of admission
    struct list lines;  // of struct line: the same jobs, by user
    uint64_t cost_ns;   // their bounds, added up
    struct pool *pools; // [pool_count], twins side by side
    int pool_count;
    int side_by_side;      // how many of them can work at a time
    int modes[MODE_COUNT]; // how many of its pools are in each
    // Of a pass of the scheduler, while the queue is not empty:
    bool closed;  // no job of it can run
    int starting; // pools being started on devices of their own that no earlier job waits for
};

struct core {
    struct core_config config;
    uint64_t now_ns;

    struct job *jobs; // [config.queue_max], by slot
    struct list jobs_free, jobs_running;
    struct line *lines; // [config.queue_max]
    struct list lines_free;
    uint64_t memory;    // that jobs which run take
    struct job *pinned; // the queued job that goes first until it runs, or NULL: line.h
    int job_counts[JOB_STATES];
    // [size_count], by implementation, world size and nodes; each world size has one of one host.
    struct size *sizes;
    int *sizes_first; // [(1 + guest_count) * WORLD_SIZE_MAX] indices of these: core_size()
    int size_count;
    struct list sizes_waiting; // those whose queues are not empty

    // [pool_count], every pool there can be, by implementation, world size and instance.
    struct pool *pools;
    int pool_count;
    struct list modes[MODE_COUNT];
    struct pool *crews[POOLS_MAX]; // the pools with ranks; NULL: free
    uint64_t crews_used;           // bit mask
    struct devices devices_all, devices_leased;
    struct devices devices_stuck; // ranks that are stuck sit on them, on hosts that are not lost
    struct devices devices_out;   // that an administrator has taken out of use
    struct devices unusable;      // these, and those of hosts that are lost
    bool unusable_changed;        // since waiting jobs were looked at
    int device_count;             // of all hosts
    uint64_t hosts_lost;          // bit mask
    int ranks_alive, ranks_stuck, pools_stuck;
    uint64_t pass; // of the scheduler, counted

    struct ids ids;
    struct users users;
    struct timers timers; // of jobs by slot, of pools by index, and that of users: timer_of_users()
    struct poison poison;
    struct actions actions;

    uint64_t number;     // of the last job admitted
    uint32_t generation; // of the last START
    bool draining, exited;
    uint64_t refused, errors;
};

static inline uint64_t time_after(uint64_t now_ns, uint64_t delay_ns)
{
    uint64_t at_ns;
    return __builtin_add_overflow(now_ns, delay_ns, &at_ns) ? TIMERS_NEVER : at_ns;
}

// Rings when a user whose jobs wait, because of the device time it has used, may run one.
static inline int timer_of_users(const struct core *core)
{
    return core->config.queue_max + core->pool_count;
}

// That of one host; those of several follow it.
static inline struct size *core_size(const struct core *core, int implementation, int world_size)
{
    return &core->sizes[core->sizes_first[implementation * WORLD_SIZE_MAX + world_size - 1]];
}

// The share of the queue that a user may have; 0: all of it.
void core_share(struct core *core, int user_queue_max);

// What every event begins and ends with.
void core_begin(struct core *core, uint64_t now_ns);
void core_settle(struct core *core);

static inline struct size *size_entry(struct list *node)
{
    return LIST_ENTRY(node, struct size, node);
}

static inline struct job *job_entry(struct list *node)
{
    return LIST_ENTRY(node, struct job, node);
}

static inline struct job *mate_entry(struct list *node)
{
    return LIST_ENTRY(node, struct job, mate);
}

static inline struct line *line_entry(struct list *node)
{
    return LIST_ENTRY(node, struct line, node);
}

static inline struct pool *pool_entry(struct list *node)
{
    return LIST_ENTRY(node, struct pool, node);
}

#endif
