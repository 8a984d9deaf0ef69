// SPDX-License-Identifier: Apache-2.0
// The record of what the core was told, and what follows from it.
#ifndef CPATTN_TESTS_CORE_SIM_RECORD_H
#define CPATTN_TESTS_CORE_SIM_RECORD_H

#include "tests/core/sim/sim.h"

// The number of pools of a world size; the devices of one of them.
int record_instances(const struct sim *s, int world_size);
uint64_t record_devices(const struct sim *s, int world_size, int instance);
uint64_t record_all(int world_size); // bit mask of its ranks

// True if a pool without ranks may not be started yet.
bool record_rests(const struct berth *berth, uint64_t now_ns);
// True if the pool uses its devices. A killed pool uses them until it is reaped.
bool record_leases(const struct crew *crew);
// The oldest crew of a world size and instance that is up and not killed; or NULL.
struct crew *record_leader(const struct sim *s, int world_size, int instance);
// True if this crew is up and not killed, and another such crew is older.
bool record_stands_by(const struct sim *s, const struct crew *crew);
// Numbers of crews of a world size and instance: all that are up; those of them that are killed.
int record_crews(const struct sim *s, int world_size, int instance);
int record_killed(const struct sim *s, int world_size, int instance);
// How many pools of a world size and instance may be started for a job, if there are devices and
// room.
int record_startable(const struct sim *s, int world_size, int instance, uint64_t now_ns);
// False while the pool pauses after a failed start for a job, or all its spares pause.
bool record_may_start(const struct sim *s, int world_size, int instance, uint64_t now_ns);
// The device of a rank; the devices of all ranks that are not reaped.
int record_device(const struct sim *s, const struct crew *crew, int rank);
uint64_t record_devices_alive(const struct sim *s, const struct crew *crew);
uint64_t record_stuck(const struct sim *s);    // devices
uint64_t record_unusable(const struct sim *s); // these, and those taken out of use
// True if every pool of the world size has a stuck rank on its devices.
bool record_unserved(const struct sim *s, int world_size);
uint64_t record_leased(const struct sim *s); // devices
// Leased devices without those of the pool's killed twin: the pool takes these over.
uint64_t record_leased_for(const struct sim *s, int world_size, int instance);
// True if the job fits into memory beside the running jobs. A job that runs alone always fits.
bool record_memory_fits(const struct sim *s, const struct sim_job *job);
int record_alive(const struct sim *s); // ranks, without those that are stuck
// The shortest time until a new job of the world size and user can run: its pools do nothing but
// run the user's waiting jobs in order. Each of these takes its lower bound, or ends at its
// deadline. *sum_ns and *longest_ns: sum and maximum of the times of the waiting jobs.
uint64_t record_best_begin(const struct sim *s, int world_size, uint32_t user, uint64_t *sum_ns,
                           uint64_t *longest_ns);
// Numbers of waiting jobs and of starting pools.
int record_waiting(const struct sim *s, int world_size);
int record_starting(const struct sim *s, int world_size);
// record_down(): true if all pools of the world size on usable devices are DOWN; *since_ns: the
// last of them since then. record_down_rests(): and none of them may be started at now_ns.
bool record_down(const struct sim *s, int world_size, uint64_t *since_ns);
bool record_down_rests(const struct sim *s, int world_size, uint64_t now_ns);
// The start of a pool failed.
void record_start_failure(struct sim *s, const struct crew *crew);
// The crew is killed or reaped. Counts a loss if that is the reason.
void record_loss(struct sim *s, const struct crew *crew);
bool record_poison(const struct sim *s, uint64_t hash);
void record_kill(struct sim *s, uint64_t hash); // the case has killed a pool

#endif
