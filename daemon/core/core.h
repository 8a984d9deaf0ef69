// SPDX-License-Identifier: Apache-2.0
// The pool core: decides how to react to each event. No I/O, no clock, no allocation after
// core_create(), no globals. The service reports events with the time (monotonic; a step back
// counts as no step) and carries out actions. After each event it takes all actions before it
// reports the next event. Exception: core_start_failed() and core_rank_failed() may be called while
// an action is carried out, to report a failed START or RUN at once. The messages of a rank are
// reported in their order, and before its exit.
//
// A job is admitted -> queued -> running -> answered: answered exactly once, started at most once.
// A pool is the ranks of one world size on one set of devices. When one rank is lost, all ranks are
// killed, and the pool starts again only after the last of them is reaped. A rank that is not
// reaped kill_timeout_ns after its KILL is stuck, most likely in a driver; its device is out of use
// until it is reaped.
//
// With spares each pool that is up has a second pool on the same devices, as far as the limits of
// ranks and pools permit. It stands by, and takes over when the first is lost: see twin.h. A device
// still has one job at a time. A spare starts spare_delay_ns after its pool is ready, when nothing
// else starts on its devices, and after the pools that waiting jobs need there. If the pool was
// started less than spare_delay_ns after a loss, its spare starts without this delay.
//
// Devices are those of one host or of several. A device is a slot of a host: the i-th device that
// pools may use there. A pool that is spread over hosts has the same number of ranks on each, in
// the same slots; lower ranks are on lower hosts. The service reports when a host is lost (its
// agent is not connected) and when it is back. The pools with ranks on a lost host are killed and
// their jobs answered at once. Its devices are out of use, and its ranks may be alive until it is
// back. When a host is back, none of its former ranks is alive.
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

// Admits a job. A request with a known id is a repetition, and gets the same answer.
// - RESOURCE_EXHAUSTED: the queue, or the user's share of it, is full; or too little of the user's
//   used device time lapses before the deadline.
// - ALREADY_EXISTS: the id is known for another case or user.
// - UNAVAILABLE: draining; all pools of this world size have been DOWN for longer than patience_ns,
//   or none is possible (core_is_stuck()).
// - FAILED_PRECONDITION: more ranks than devices; the guest does not support the world size; or
//   POISON: the case has killed pools.
// - INVALID_ARGUMENT: world size outside 1..WORLD_SIZE_MAX, timeout 0 or beyond timeout_max_ns,
//   nodes and ranks_per_node that do not divide the world size.
// - DEADLINE_EXCEEDED: the lower bounds of the job and of its user's earlier jobs exceed its time
//   limit; the text gives a limit that is accepted.
enum status core_submit(struct core *core, uint64_t now_ns, const struct core_request *request,
                        struct admission *admission, struct error *error) MUST_CHECK;

// True if the request is queued or running, or its answer is stored.
bool core_knows(const struct core *core, const struct request_id *id);

// True if the case is refused as POISON now.
bool core_is_poison(const struct core *core, uint64_t case_hash);

// True if a request like this one is refused because none of its pools is possible, at least one of
// them because of stuck ranks; then sets *stuck to one of these ranks. False while draining, when
// all requests are refused. World size 1..WORLD_SIZE_MAX.
bool core_is_stuck(const struct core *core, const struct core_request *request,
                   struct core_stuck *stuck);

// The user of core_cancel() for administrators: jobs of any user.
#define CORE_ANY_USER UINT32_MAX

// Cancels a queued or running job of the user, which is answered CANCELLED; the pool of a running
// job is killed. NOT_FOUND: no such job. PERMISSION_DENIED: it is another user's.
enum status core_cancel(struct core *core, uint64_t now_ns, const struct request_id *id,
                        uint32_t user, struct error *error);
// No client waits for the answers of these jobs. Queued jobs are answered CANCELLED and their ids
// are forgotten, because they have not been started. A running job continues, or is cancelled as by
// core_cancel() if its request has cancel_on_disconnect.
void core_abandon(struct core *core, uint64_t now_ns, const int *slots, int count);

// Events of ranks. A stale generation is ignored. `pool` and `generation` are those of the START.
void core_rank_ready(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank);
void core_rank_reported(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                        uint64_t job);
// The rank sent FAILED (kind and peer: enum failure_kind), or broke the protocol of its channel
// (kind: own failure). The end of a channel is not reported here: an exit follows, which is the
// better cause.
void core_rank_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      int kind, int peer);
// The process is ending: its exit is certain and will follow, without messages in between. Counts
// as a cause like the exit. Optional. An end by a signal from outside (common/rank_end.h) is not
// counted against the case.
void core_rank_ending(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end);
// The process is reaped. Reported exactly once per started rank.
void core_rank_exited(struct core *core, uint64_t now_ns, int pool, uint32_t generation, int rank,
                      const struct rank_end *end);
// A START failed; no rank of that generation is alive.
void core_start_failed(struct core *core, uint64_t now_ns, int pool, uint32_t generation);
// The same for one host of the pool: none of its ranks there is alive. The ranks on its other hosts
// are killed, and the service reports their exits.
void core_start_failed_on(struct core *core, uint64_t now_ns, int pool, uint32_t generation,
                          int host);

// A host is lost, 0..host_count-1. The core forgets its ranks and ignores events of them; the
// service reports none. Pools with ranks there are lost: a KILL follows for their ranks on other
// hosts, if there are any. No effect if the host is already lost.
void core_host_lost(struct core *core, uint64_t now_ns, int host);
// The host is back, and none of its former ranks is alive. The host must be lost.
void core_host_back(struct core *core, uint64_t now_ns, int host);
bool core_host_is_lost(const struct core *core, int host);
const char *core_host_name(const struct core *core, int host);

// Sets new limits.
void core_limit(struct core *core, uint64_t now_ns, const struct core_limits *limits);

// Sets the devices of a host (bit mask of slots) that are out of use; its other devices are in use.
// No pool starts or runs on devices out of use; running jobs there continue, and idle pools are
// stopped. Queued jobs without a possible pool wait; new jobs of that kind are UNAVAILABLE.
void core_set_devices_out(struct core *core, uint64_t now_ns, int host, uint64_t devices);
uint64_t core_devices_out(const struct core *core, int host);

// Clears the record of cases that killed pools. Returns the number of cases that were refused.
int core_unpoison(struct core *core, uint64_t now_ns);

// Admits no new jobs from now on. EXIT follows when all jobs are answered and all ranks are reaped
// or stuck. Exits of stuck ranks may still be reported after it.
void core_drain(struct core *core, uint64_t now_ns);

// Why no case at all would be admitted: it drains, or every device is out of use, stuck or on a
// lost host. A few words; NULL: cases are admitted.
const char *core_obstacle(const struct core *core);

// Handles passed deadlines. All other events do this too, after the event itself: a result that
// arrives together with its deadline counts.
void core_time(struct core *core, uint64_t now_ns);

// ---- actions --------------------------------------------------------------------------------

// Next action, in the order they must be carried out; false when there is none.
bool core_next_action(struct core *core, struct action *action);

// Host and device of a rank of the pool, from its START until the last rank of the pool is reaped.
struct core_seat core_seat(const struct core *core, int pool, int rank);

// The time at which core_time() must be called; UINT64_MAX: never.
uint64_t core_next_time(const struct core *core);

// Fills all members except uptime and the outcomes (passed, failed, unverified, errors), which the
// service counts. The devices of a STUCK pool are those that are out of use, and last_failure names
// one of its ranks. The caller owns `pools`, an array of POOLS_MAX; status->pools points to it
// afterwards.
void core_status(const struct core *core, struct wire_status *status, struct wire_pool *pools);

// Aborts the process when an invariant does not hold; for tests and debugging.
void core_assert(const struct core *core);

#endif
