// SPDX-License-Identifier: Apache-2.0
// The state of the core. Private to daemon/core.
#ifndef CPATTN_DAEMON_CORE_STATE_H
#define CPATTN_DAEMON_CORE_STATE_H

#include <assert.h>

#include "common/list.h"
#include "daemon/core/actions.h"
#include "daemon/core/devices.h"
#include "daemon/core/ids.h"
#include "daemon/core/poison.h"
#include "daemon/core/setup.h"
#include "daemon/core/timers.h"
#include "daemon/core/users.h"

_Static_assert(WORLD_SIZE_MAX <= 64 && POOLS_MAX <= 64,
               "ranks, world sizes, crews and instances over hosts are bits of one word");

struct line;
struct pool;
struct size;

// ---- jobs -----------------------------------------------------------------------------------

enum job_state {
    JOB_FREE,    // on core->jobs_free
    JOB_QUEUED,  // on the queue of its world size, in order of admission
    JOB_RUNNING, // on core->jobs_running, and pool->job of its pool
    JOB_STATES,
};

struct job {
    struct list node;
    struct list mate;  // QUEUED: on its line
    struct line *line; // QUEUED
    enum job_state state;
    int slot;
    uint64_t number;   // order of admission over all jobs, from 1
    bool abandoned;    // the answer is not stored, and the id is forgotten
    bool clients_gone; // the job is cancelled because its clients have disconnected
    bool cancel_on_disconnect;
    bool any_nodes; // the job may move to a size with another number of hosts
    struct size *size;
    struct account *account; // of its user
    uint64_t case_hash, cost_ns, memory;
    uint64_t admitted_ns, deadline_ns, run_ns; // run_ns: start of the run
    uint64_t run_timeout_ns;                   // 0: none
    uint64_t patience_ns;                      // how long the job waits while all pools are DOWN
    uint64_t start_ns;                         // part of the wait in which its pool was starting
    struct pool *pool;                         // RUNNING
};

// The waiting jobs of one user for one size.
struct line {
    struct list node; // on size->lines, or core->lines_free
    struct account *account;
    struct list jobs;  // by job->mate; never empty on size->lines
    uint64_t pass;     // last pass of the scheduler that examined the line
    struct list *next; // in that pass: the next job to examine; the list head: none
};

// ---- pools ----------------------------------------------------------------------------------

// Consecutive failed starts.
struct failures {
    int count;         // in halves, 0..FAILURES_MAX (failures.h), saturates
    uint64_t since_ns; // time of the first failure
    uint64_t down_ns;  // time when the count became FAILURES_MAX
};

enum pool_mode {
    MODE_COLD, // no ranks; may be started
    MODE_STARTING,
    MODE_IDLE, // ready, without a job; core->modes[MODE_IDLE] is in order of last use
    MODE_RUNNING,
    MODE_SUSPECT,  // running; a rank has lost another, and the core waits for the cause
    MODE_STOPPING, // killed; waits for the last exit
    MODE_STUCK,    // killed, and not all ranks were reaped in time
    MODE_BACKOFF,  // no ranks; may not be started yet
    MODE_COUNT,
};

// Why a pool was lost.
enum pool_loss {
    LOSS_NONE,
    LOSS_EXITED,        // `rank` exited
    LOSS_KILLED,        // `rank` was killed from outside
    LOSS_FAILED,        // `rank` failed
    LOSS_PEER,          // another rank lost `rank`
    LOSS_START_TIMEOUT, // not all ranks were ready in time
    LOSS_NOT_STARTED,   // the service could not carry out the START
    LOSS_DEADLINE,      // killed because its job exceeded its deadline
    LOSS_HOST,          // `host` with some of its ranks was lost
    LOSS_COUNT,
};

struct loss {
    enum pool_loss kind;
    int rank;            // the cause, or -1
    int host;            // LOSS_HOST, else -1
    struct rank_end end; // LOSS_EXITED, LOSS_KILLED: how the rank ended
};

struct pool {
    struct list node;
    enum pool_mode mode;
    int index; // in core->pools
    struct size *size;
    int world_size, instance;
    struct place place; // may change while a pool of several hosts has no ranks: hosts.h
    bool leased;        // the pool leases its devices: pool.h
    bool yields;        // STOPPING: the twin has taken over the lease
    struct pool *twin;  // or NULL: see twin.h

    // Of the ranks, from START until the last rank is reaped:
    int crew; // index in core->crews, the pool's number for the service; -1: no ranks
    uint32_t generation;
    uint64_t alive, ready, reported; // bit masks of ranks; alive: on hosts that are not lost
    uint64_t victims;                // ranks that reported the loss of a peer
    int suspect;                     // SUSPECT: the rank that the victims lost
    struct job *job;                 // RUNNING, SUSPECT
    bool as_spare;                   // the pool was started to stand by
    bool used;                       // has run a job since its START
    bool start_failed;               // STOPPING, STUCK: the start failed (failures.h)
    bool must_wait;                  // STOPPING, STUCK: a spare that was lost before its first job
    uint64_t started_ns, ready_ns;

    // Failed starts for a job, and to stand by.
    struct failures failures, spare_failures;
    uint32_t starts;
    uint64_t jobs, deaths;
    struct loss loss; // the last loss
    uint64_t lost_ns; // time of the last loss

    uint64_t pass; // last pass of the scheduler in which a waiting job reserved the pool
};

// A world size of an implementation on a number of hosts: its waiting jobs and its pools.
struct size {
    struct list node; // on core->sizes_waiting while the queue is not empty
    int implementation, world_size, nodes;
    struct list queue;  // of struct job, in order of admission
    struct list lines;  // of struct line: the same jobs, by user
    uint64_t cost_ns;   // sum of the lower bounds of these jobs
    struct pool *pools; // [pool_count]; twins are adjacent
    int pool_count;
    int side_by_side;      // how many of the pools can work at the same time
    bool shared;           // ranks share devices, because too few hosts have enough
    int modes[MODE_COUNT]; // number of pools in each mode
    // Of a pass of the scheduler, while the queue is not empty:
    bool closed;  // no further job of the size can run or reserve a pool
    int starting; // number of starting pools with a lease that no earlier job waits for
};

struct core {
    struct core_config config;
    uint64_t now_ns;

    struct job *jobs; // [config.queue_max], by slot
    struct list jobs_free, jobs_running;
    struct line *lines; // [config.queue_max]
    struct list lines_free;
    uint64_t memory;    // sum over running jobs
    struct job *pinned; // the queued job that stays first until it runs, or NULL: line.h
    int job_counts[JOB_STATES];
    // [size_count], by implementation, world size and nodes. Each world size has one for one host.
    struct size *sizes;
    int *sizes_first; // [(1 + guest_count) * WORLD_SIZE_MAX]: indices of the sizes for one host
    int size_count;
    struct list sizes_waiting; // sizes with queued jobs

    // [pool_count], all possible pools, by implementation, world size and instance.
    struct pool *pools;
    int pool_count;
    struct list modes[MODE_COUNT];
    struct pool *crews[POOLS_MAX]; // the pools with ranks; NULL: free
    uint64_t crews_used;           // bit mask
    struct devices devices_all, devices_leased;
    struct devices devices_stuck; // devices of stuck ranks, on hosts that are not lost
    struct devices devices_out;   // taken out of use by an administrator
    struct devices unusable;      // stuck, out of use, or on a lost host
    bool unusable_changed;        // `unusable` has changed since move_waiting() (settle.c)
    int device_count;             // of all hosts
    uint64_t hosts_lost;          // bit mask
    int ranks_alive, ranks_stuck, pools_stuck;
    uint64_t pass; // number of the scheduler's current pass

    struct ids ids;
    struct users users;
    // Ids: job slots, then queue_max + pool index, then timer_of_users() and timer_of_spares().
    struct timers timers;
    struct poison poison;
    struct actions actions;

    uint64_t number;     // number of the last admitted job
    uint32_t generation; // generation of the last START
    bool draining, exited;
    uint64_t refused;
};

static inline uint64_t time_after(uint64_t now_ns, uint64_t delay_ns)
{
    uint64_t at_ns;
    return __builtin_add_overflow(now_ns, delay_ns, &at_ns) ? TIMERS_NEVER : at_ns;
}

// Id of the timer for the time when a user at the limit of device time may run the next job.
static inline int timer_of_users(const struct core *core)
{
    return core->config.queue_max + core->pool_count;
}

// Id of the timer for the time when the next spare may start.
static inline int timer_of_spares(const struct core *core)
{
    return timer_of_users(core) + 1;
}

// Returns the size for one host; the sizes for several hosts follow it in core->sizes.
static inline struct size *core_size(const struct core *core, int implementation, int world_size)
{
    return &core->sizes[core->sizes_first[implementation * WORLD_SIZE_MAX + world_size - 1]];
}

// Sets the share of the queue that one user may have; 0: all of it.
static inline void core_share(struct core *core, int user_queue_max)
{
    int all = core->config.queue_max;
    assert(user_queue_max >= 0 && user_queue_max <= all);
    core->config.user_queue_max = user_queue_max ? user_queue_max : all;
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
