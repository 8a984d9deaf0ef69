// SPDX-License-Identifier: Apache-2.0
// The record of what the core was told, and what follows from it.
#ifndef CPATTN_TESTS_SIM_RECORD_H
#define CPATTN_TESTS_SIM_RECORD_H

#include "tests/sim/sim.h"

// Pools that a world size can have, and the devices of one.
int record_instances(const struct sim *s, int world_size);
uint64_t record_devices(const struct sim *s, int world_size, int instance);
uint64_t record_all(int world_size); // bit mask of its ranks

// Whether a pool without ranks may not be started yet.
bool record_rests(const struct berth *berth, uint64_t now_ns);
// Whether it works with its devices, or may still do so although it was killed.
bool record_leases(const struct crew *crew);
// The crew of a pool, or NULL.
struct crew *record_crew(struct sim *s, int world_size, int instance);
uint64_t record_leased(const struct sim *s); // devices
int record_alive(const struct sim *s);       // ranks
// The job that waits longest, or -1.
int record_oldest(const struct sim *s);
// When, from now, a new job of the world size begins to run at the best: its pools have nothing
// else to do from now on, and take those that wait in order, each for its bound or until its
// deadline. *sum_ns and *longest_ns are of those that wait.
uint64_t record_best_begin(const struct sim *s, int world_size, uint64_t *sum_ns,
                           uint64_t *longest_ns);
// Jobs that wait, and pools that have not become ready and still may.
int record_waiting(const struct sim *s, int world_size);
int record_starting(const struct sim *s, int world_size);
// All pools of the world size rest after too many failed starts.
bool record_down(const struct sim *s, int world_size, uint64_t now_ns);
bool record_poison(const struct sim *s, uint64_t hash);
void record_kill(struct sim *s, uint64_t hash); // a pool was lost that ran the case

#endif
