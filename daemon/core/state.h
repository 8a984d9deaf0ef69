// SPDX-License-Identifier: Apache-2.0
// All the state there is. Private to daemon/core.
#ifndef CPATTN_DAEMON_CORE_STATE_H
#define CPATTN_DAEMON_CORE_STATE_H

#include "daemon/core/actions.h"
#include "daemon/core/ids.h"
#include "daemon/core/job.h"
#include "daemon/core/line.h"
#include "daemon/core/poison.h"
#include "daemon/core/pool.h"
#include "daemon/core/stuck.h"
#include "daemon/core/timers.h"
#include "daemon/core/twin.h"
#include "daemon/core/users.h"

_Static_assert(WORLD_SIZE_MAX <= 64 && DEVICES_MAX <= 64 && POOLS_MAX <= 64,
               "ranks, devices, world sizes and crews are bits of one word");

// A world size of an implementation: who waits for it, and the pools that can serve it.
struct size {
    struct list node; // on core->sizes_waiting while the queue is not empty
    int implementation, world_size;
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
    struct size *sizes; // [size_count], core_size()
    int size_count;
    struct list sizes_waiting; // those whose queues are not empty

    // [pool_count], every pool there can be, by implementation, world size and instance.
    struct pool *pools;
    int pool_count;
    struct list modes[MODE_COUNT];
    struct pool *crews[POOLS_MAX]; // the pools with ranks; NULL: free
    uint64_t crews_used;           // bit mask
    uint64_t devices_all, devices_leased;
    uint64_t devices_stuck; // ranks of pools that are STUCK sit on them
    uint64_t devices_out;   // that an administrator has taken out of use
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

// Bit masks of the first `count`, 0..64.
static inline uint64_t mask_of(int count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static inline uint64_t bit_of(int index)
{
    return UINT64_C(1) << index;
}

static inline int bits_in(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

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

// Devices that nothing is started or run on.
static inline uint64_t core_unusable(const struct core *core)
{
    return core->devices_stuck | core->devices_out;
}

static inline struct size *core_size(const struct core *core, int implementation, int world_size)
{
    return &core->sizes[implementation * WORLD_SIZE_MAX + world_size - 1];
}

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
