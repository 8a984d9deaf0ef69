// SPDX-License-Identifier: Apache-2.0
// The record of what the core was told, and what follows from it.
#ifndef CPATTN_TESTS_CORE_SIM_RECORD_H
#define CPATTN_TESTS_CORE_SIM_RECORD_H

#include "tests/core/sim/sim.h"

// Pools that a world size can have, and the devices of one.
int record_instances(const struct sim *s, int world_size);
uint64_t record_devices(const struct sim *s, int world_size, int instance);
uint64_t record_all(int world_size); // bit mask of its ranks

// True if a pool without ranks may not be started yet.
bool record_rests(const struct berth *berth, uint64_t now_ns);
// True if the pool uses its devices, also if it is killed and not yet reaped.
bool record_leases(const struct crew *crew);
// The crew of a world size and instance that was started first, among those that are up and not
// killed; or NULL.
struct crew *record_leader(const struct sim *s, int world_size, int instance);
// True if another such crew is older.
bool record_stands_by(const struct sim *s, const struct crew *crew);
// Crews of a world size and instance that are up; killed ones among them.
int record_crews(const struct sim *s, int world_size, int instance);
int record_killed(const struct sim *s, int world_size, int instance);
// Pools of a world size and instance that could be started for a job but for devices and room.
int record_startable(const struct sim *s, int world_size, int instance, uint64_t now_ns);
// True if a pool may be started: no failed start for a job, and not all spares, make it wait.
bool record_may_start(const struct sim *s, int world_size, int instance, uint64_t now_ns);
// The device that a rank of a crew sits on, and those of the ranks that are not reaped.
int record_device(const struct sim *s, const struct crew *crew, int rank);
uint64_t record_devices_alive(const struct sim *s, const struct crew *crew);
uint64_t record_stuck(const struct sim *s);    // devices
uint64_t record_unusable(const struct sim *s); // these, and those taken out of use
// No pool of the world size can be had because of stuck ranks on the devices of each.
bool record_unserved(const struct sim *s, int world_size);
uint64_t record_leased(const struct sim *s); // devices
// Leased devices, without those of the killed twin: a pool that is up takes them over.
uint64_t record_leased_for(const struct sim *s, int world_size, int instance);
// True if the job fits into memory beside the running jobs; a single job may use all memory.
bool record_memory_fits(const struct sim *s, const struct sim_job *job);
int record_alive(const struct sim *s); // ranks, without those that are stuck
// When, from now, a new job of the world size and user begins to run at the best: its pools have
// nothing else to do from now on, and take those of the user that wait in order, each for its bound
// or until its deadline. *sum_ns and *longest_ns are of those that wait.
uint64_t record_best_begin(const struct sim *s, int world_size, uint32_t user, uint64_t *sum_ns,
                           uint64_t *longest_ns);
// Waiting jobs, and starting pools.
int record_waiting(const struct sim *s, int world_size);
int record_starting(const struct sim *s, int world_size);
// All pools of the world size have failed to start too often, but for those on whose devices ranks
// are stuck; since when. None of them may be tried now.
bool record_down(const struct sim *s, int world_size, uint64_t *since_ns);
bool record_down_rests(const struct sim *s, int world_size, uint64_t now_ns);
// The start of a pool failed.
void record_start_failure(struct sim *s, const struct crew *crew);
bool record_poison(const struct sim *s, uint64_t hash);
void record_kill(struct sim *s, uint64_t hash); // a pool was lost that ran the case

#endif
