// SPDX-License-Identifier: Apache-2.0
// The pool core: decides what to do about each event. No I/O, no clock, no allocation after
// core_create(), no globals. The shell reports events with the time (monotonic; a step back counts
// as standing still) and carries out actions. After each event it takes all actions before it
// reports the next; only core_start_failed() and core_rank_failed() may be reported while an action
// is carried out, so that a START or RUN that fails can say so at once. What a rank has said is
// reported in its order, and before its exit.
//
// A job is admitted -> queued -> running -> answered: answered exactly once, started at most once.
// A pool is the ranks of one world size on one set of devices, treated as one: when one rank is
// lost, all are killed, and it starts again only after the last of them is reaped. Ranks that are
// not reaped for long after their KILL are stuck, most likely in a driver: only the devices that
// they sit on are out of use until they are reaped after all.
//
// With spares a second pool of the same ranks on the same devices stands by for each that is up, as
// far as there is room, and takes its place when that is lost: see twin.h. Devices have one job at
// a time all the same.
//
// Devices are those of one host or of several. A device is a slot of a host: the i-th of those that
// pools are dealt there. A pool that is spread over hosts has as many ranks on each of them, in the
// same slots; ranks are dealt host by host, lower hosts first. The shell tells when a host is lost
// (its agent is silent, or its connection is cut) and when it is back. Of a host that is lost
// nothing is known: the pools with ranks there are killed and their jobs answered at once, its
// devices are out of use, and its ranks may be alive until it is back. One that is back has shown
// that nothing of before is alive there.
#ifndef CPATTN_DAEMON_CORE_CORE_H
#define CPATTN_DAEMON_CORE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/rank_end.h"
#include "common/status.h"
#include "daemon/core/users.h"
#include "proto/wire.h" // struct request_id, enum pool_state

// Implementation 0 is ours, 1..guest_count are guests: rank programs of others, with pools of their
// own, which have no spares.
struct core_guest {
    uint64_t world_sizes;      // bit w - 1: it takes w ranks
    uint64_t start_timeout_ns; // as in core_config; > 0
};

struct core_host {
    int device_count;           // 1..DEVICES_MAX exclusive units
    bool away;                  // from the start it is lost: its agent has not come yet
    char name[HOST_NAME_BYTES]; // for texts; may be empty where there is one host
};

struct core_config {
    int host_count; // 1..HOSTS_MAX
    struct core_host hosts[HOSTS_MAX];
    bool spares;               // hot spares: daemon/core/twin.h
    bool oversubscribe;        // where there are too few devices for a pool it takes all devices of
                               // its hosts (CPU backend)
    int queue_max;             // jobs queued and running, 1..JOBS_MAX
    int user_queue_max;        // of one user, up to queue_max; 0: as many
    struct user_limits user;   // what of them runs: those beyond wait
    uint64_t timeout_max_ns;   // that a request may ask for; 0: any
    uint64_t memory_max;       // that jobs which run at a time may take together; 0: any
    int ranks_max;             // processes alive over all pools
    uint64_t start_timeout_ns; // from START to the last READY; > 0
    uint64_t peer_grace_ns;    // how long a "peer lost" report waits for the cause itself
    uint64_t idle_timeout_ns;  // an idle pool nobody waits for is stopped after this; 0: never
    uint64_t kill_timeout_ns;  // from KILL to the last exit, before the ranks left are stuck; > 0
    int guest_count;           // 0..GUESTS_MAX
    struct core_guest guests[GUESTS_MAX];
};

struct core;
struct core *core_create(const struct core_config *config); // NULL when memory is short
void core_destroy(struct core *core);

// ---- events ---------------------------------------------------------------------------------

// Bounds beyond this are taken for it: two weeks.
#define CORE_COST_MAX_NS (UINT64_C(1) << 50)

// More than any machine has: what all jobs take can be added up.
#define CORE_MEMORY_MAX (UINT64_C(1) << 48)

struct core_request {
    struct request_id id;
    uint32_t user;      // who asks
    int implementation; // 0..guest_count
    int world_size;
    // Over how many hosts the ranks are spread, evenly, and how many are on each. Each may be 0:
    // any. Where both are, one host if the ranks fit there, else as few hosts as divide them; and
    // if the hosts that this comes to are lost or out of use, others that will do.
    int nodes, ranks_per_node;
    uint64_t timeout_ns;     // > 0; the deadline is now + timeout
    uint64_t run_timeout_ns; // > 0: at RUN the deadline comes forward to RUN + this, if it is later
    uint64_t patience_ns;    // it is refused once all pools of its world size are DOWN for so long
    bool cancel_on_disconnect; // core_abandon() cancels it while it runs, too
    uint64_t case_hash;
    uint64_t cost_ns; // it cannot run in less time than this, 0..CORE_COST_MAX_NS
    uint64_t memory;  // that it takes while it runs, up to CORE_MEMORY_MAX
};

// What becomes of a request that is not refused.
struct admission {
    enum {
        ADMISSION_NEW, // a job; `index` is its slot, under which the shell keeps the case until
                       // the ANSWER action
        ADMISSION_ATTACHED, // this request is queued or running already, in the slot `index`
        ADMISSION_ANSWERED, // it was answered; `index` is that ANSWER's `answer_index`
    } kind;
    int index; // 0..JOBS_MAX-1, 0..ANSWERED_IDS_MAX-1
};

// Admits a job, unless its request id is known: then it is the same request again, and gets the
// same answer. RESOURCE_EXHAUSTED: the queue, or the user's share of it, is full; or what the user
// has used of its device time does not lapse before the deadline. ALREADY_EXISTS:
// the id is known for another case or user. UNAVAILABLE: draining; or all pools of this world size
// have been DOWN for longer than the request has patience, or, core_is_stuck(), cannot be had.
// FAILED_PRECONDITION: more ranks than devices, or POISON: the case has killed pools (the text says
// which). INVALID_ARGUMENT: world size outside 1..WORLD_SIZE_MAX, timeout 0 or beyond the longest,
// nodes or ranks per node that do not divide the ranks, or not into each other.
// A guest that does not take the world size is FAILED_PRECONDITION, too. DEADLINE_EXCEEDED: the
// bounds of the job and of those of its user that wait before it leave no way to keep its time
// limit; the text says which would do.
enum status core_submit(struct core *core, uint64_t now_ns, const struct core_request *request,
                        struct admission *admission, struct error *error) MUST_CHECK;

// Whether the request is queued or running, or was answered and is remembered.
bool core_knows(const struct core *core, const struct request_id *id);

// Whether the case is refused as POISON now.
bool core_is_poison(const struct core *core, uint64_t case_hash);

// A rank that was killed and is not reaped.
struct core_stuck {
    int pool; // of the rank, as `generation` and `rank`
    uint32_t generation;
    int rank;
    int host, device; // where it sits: core_seat()
};

// Whether a request like this one is refused because no pool of it can be had, at least one of them
// because of ranks that are stuck; `stuck` is one of these ranks then, else untouched. Not while
// draining, when all are refused. World size 1..WORLD_SIZE_MAX.
bool core_is_stuck(const struct core *core, const struct core_request *request,
                   struct core_stuck *stuck);

// As the user of core_cancel(): any, for those who rule the daemon.
#define CORE_ANY_USER UINT32_MAX

// Cancels a queued job (answered CANCELLED) or a running one (its pool is killed, answered
// CANCELLED) of the user. NOT_FOUND: no such job. PERMISSION_DENIED: it is another user's.
enum status core_cancel(struct core *core, uint64_t now_ns, const struct request_id *id,
                        uint32_t user, struct error *error);
// Nobody waits for the answers of these jobs any more. Those queued are dropped (answered
// CANCELLED), and as they have not been started, their ids are forgotten. A running one goes on, or
// is cancelled as by core_cancel() where its request said so.
void core_abandon(struct core *core, uint64_t now_ns, const int *slots, int count);

// From ranks. A stale generation is ignored. `pool` and `generation` are those of the START.
void core_rank_ready(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank);
void core_rank_reported(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                        uint64_t job);
// The rank said FAILED (kind: enum failure_kind, peer as there), or broke the channel's protocol
// (own). The end of a channel alone is neither: it is followed by the exit, which is the better
// cause.
void core_rank_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      int kind, int peer);
// The process is ending: its exit is certain, and may take a while, in which nothing is heard of
// it. As good a cause as the exit. May be left out. An end by a signal from outside
// (common/rank_end.h) is no evidence against its case.
void core_rank_ending(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end);
// The process is reaped. Reported exactly once per started rank.
void core_rank_exited(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end);
// A START that could not be carried out; no rank of that generation is alive.
void core_start_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation);
// The same of one host of the pool: none of its ranks there is alive. The ranks of its other hosts
// are killed, and their exits reported as ever.
void core_start_failed_on(struct core *core, uint64_t now_ns, int pool, uint32_t generation,
                          int host);

// A host is lost, 0..host_count-1. The core forgets its ranks, and so should the shell: nothing
// more is reported of them, and what is reported while the host is lost is ignored. Pools that have
// had ranks there are lost: a KILL asks for what they have on other hosts, and there is none if
// that is nothing. Without effect on a host that is lost already.
void core_host_lost(struct core *core, uint64_t now_ns, int host);
// It is back, and nothing of before is alive there. The host must be lost.
void core_host_back(struct core *core, uint64_t now_ns, int host);
bool core_host_is_lost(const struct core *core, int host);
const char *core_host_name(const struct core *core, int host);

// What may change while the daemon runs.
struct core_limits {
    int user_queue_max;       // as in core_config
    uint64_t idle_timeout_ns; // idle pools begin to count anew
    struct user_limits user;
    uint64_t timeout_max_ns;
    uint64_t memory_max; // a job that waits and needs more than this runs alone
};
void core_limit(struct core *core, uint64_t now_ns, const struct core_limits *limits);

// Devices of a host (bit mask of slots) that nothing is to be started or run on from now on; jobs
// that run there go on, and what waits there is stopped. Its others may be used again. Jobs that no
// pool can serve meanwhile wait, and new ones of their kind are UNAVAILABLE.
void core_set_devices_out(struct core *core, uint64_t now_ns, int host, uint64_t devices);
uint64_t core_devices_out(const struct core *core, int host);

// Forgets what cases have done to their pools. Gives how many were refused for it.
int core_unpoison(struct core *core, uint64_t now_ns);

// No new jobs from now on; EXIT once all are answered and every rank is reaped, but for those that
// are stuck: these may still be reported as exited after it.
void core_drain(struct core *core, uint64_t now_ns);
// Acts on deadlines that have passed. Every other event does so too, after it has been dealt with:
// a result that arrives together with its deadline counts.
void core_time(struct core *core, uint64_t now_ns);

// ---- actions --------------------------------------------------------------------------------

enum action_kind {
    ACTION_START,  // start the ranks of pool
    ACTION_RUN,    // hand the case of slot to every rank of pool
    ACTION_ANSWER, // answer the job; the slot is free afterwards
    ACTION_KILL,   // SIGKILL every rank of pool, on hosts that are not lost; exits are reported as
                   // they are reaped. Where a
                   // START fails while another action of its event has failed before it, a KILL may
                   // follow for ranks that never were
    ACTION_STUCK,  // for the log: ranks of pool are stuck since now. `rank` is the first of them,
                   // `devices` are theirs
    ACTION_EXIT,   // drained: nothing is left but ranks that are stuck
};

// Why a job was answered, and the status that goes with it. As gRPC has it: ABORTED, not
// UNAVAILABLE, where ranks were lost, because UNAVAILABLE invites a blind retry and the case may be
// what killed them; INTERNAL where a rank says that something of ours is broken.
enum cause {
    CAUSE_NONE,              // OK: every rank has reported
    CAUSE_RANK_EXITED,       // ABORTED: a rank died; `rank` says which
    CAUSE_RANK_FAILED,       // INTERNAL: `rank` reported a failure of its own or broke the protocol
    CAUSE_PEER_LOST,         // ABORTED: `rank` was lost by another; no better cause came in time
    CAUSE_DEADLINE_QUEUED,   // DEADLINE_EXCEEDED
    CAUSE_DEADLINE_STARTING, // DEADLINE_EXCEEDED: its pool was being started
    CAUSE_DEADLINE_RUNNING,  // DEADLINE_EXCEEDED: the shell names the culprit from the progress
                             // words
    CAUSE_START_FAILED, // UNAVAILABLE: its pools have been DOWN for longer than it has patience
    CAUSE_CANCELLED,    // CANCELLED: as asked, or because of `clients_gone`
    CAUSE_POISON,       // FAILED_PRECONDITION: queued while its case killed a second pool
    CAUSE_STUCK, // UNAVAILABLE: queued while `rank` of `pool`, which may be of another world size,
                 // got stuck on the one device in `devices` of `hosts`: core_is_stuck()
    CAUSE_NODE_LOST, // ABORTED: `host`, where some of its ranks were, was lost
};

struct action {
    enum action_kind kind;
    // 0..POOLS_MAX-1; -1 where none. Names the pool, by its crew, from its START until the last of
    // its ranks is reaped, and then perhaps another. The ANSWERs that a last exit brings still
    // carry it.
    int pool;
    uint32_t generation; // counts the starts of all pools; never used twice
    int implementation, world_size, instance;
    bool spare;          // START: it is to stand by for the pool that works on these devices
    int slot;            // RUN, ANSWER
    const char *reason;  // KILL: in words, with the `rank` that is its cause
    struct rank_end end; // KILL: how that rank ended, if this is the reason
    int answer_index;    // ANSWER: what to keep it under, in case it is asked for again, or -1
    enum status status;
    enum cause cause;
    int rank;         // the causing rank, or -1
    int host;         // ANSWER, KILL: the host whose loss is the cause, or -1
    uint64_t hosts;   // of the pool: bit mask
    uint64_t devices; // of the pool, on each of its hosts: bit mask of slots, of which a host may
                      // lack some where devices are oversubscribed: core_seat()
    uint64_t job;     // number, never used twice
    int own_before;   // ANSWER, CAUSE_DEADLINE_QUEUED: jobs of the same user that run, or that wait
                      // for the same world size and go before it
    bool clients_gone;                             // ANSWER
    uint64_t queue_ns, start_ns, run_ns, total_ns; // ANSWER
};

// Next action, in the order they must be carried out; false when there is none.
bool core_next_action(struct core *core, struct action *action);

// Where a rank of a pool is started, and stays: the i-th of the ranks on a host has the i-th of the
// pool's devices there, and where there are fewer, they are dealt in turn. From the START on, until
// the last rank of the pool is reaped.
struct core_seat {
    int host, device; // the device counts from 0 on each host
};
struct core_seat core_seat(const struct core *core, int pool, int rank);

// When core_time() must be called next; UINT64_MAX: never.
uint64_t core_next_time(const struct core *core);

// Fills all but uptime, passed and failed, which the shell counts. The devices of a pool that is
// STUCK are those that are out of use, and last_failure names one of the ranks. `pools` has room
// for POOLS_MAX entries and stays the caller's; status->pools points to it afterwards.
void core_status(const struct core *core, struct wire_status *status, struct wire_pool *pools);

// Aborts the process when an invariant does not hold; for tests and debugging.
void core_assert(const struct core *core);

#endif
