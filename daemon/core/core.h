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

#include "common/status.h"
#include "daemon/core/action.h"
#include "daemon/core/request.h"
#include "daemon/core/setup.h"
#include "proto/wire.h" // struct wire_status

struct core;
struct core *core_create(const struct core_config *config); // NULL when memory is short
void core_destroy(struct core *core);

// ---- events ---------------------------------------------------------------------------------

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

// The new limits count from now on.
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

// Next action, in the order they must be carried out; false when there is none.
bool core_next_action(struct core *core, struct action *action);

// Where a rank of the pool sits, from its START until the last rank of the pool is reaped.
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
