// SPDX-License-Identifier: Apache-2.0
// A pool core for tests: the test sends single events, expects single actions, and moves the clock.
// Every event ends with core_assert().
#ifndef CPATTN_TESTS_CORE_CORE_FIXTURE_H
#define CPATTN_TESTS_CORE_CORE_FIXTURE_H

#include <check.h>

#include "daemon/core/core.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

// A pool, as named by its START.
struct ranks {
    int pool, world_size;
    uint32_t generation;
};

struct fixture {
    struct core *core;
    uint64_t now_ns;
    uint64_t ids; // counts request ids
    struct error error;
};

extern struct fixture f;

// 4 devices, a queue of 8 jobs, at most 16 ranks. A pool has 10 s to start, a killed rank 5 s to be
// reaped, and the cause of a lost peer 100 ms to arrive. No idle timeout.
struct core_config fixture_config(void);
void fixture_begin(const struct core_config *config);
void fixture_end(void);
// Adds a test case to the suite. Each of its tests runs between `begin` and fixture_end().
TCase *fixture_case(Suite *suite, void (*begin)(void), const char *name);
void fixture_again(const struct core_config *config); // fixture_end(), then fixture_begin()

// Moves the clock and tells the core.
void pass(uint64_t delay_ns);

// Submissions. By default each has a new id, a timeout of 60 s and a new case.
struct core_request request_make(int world_size);
enum status submit_request(const struct core_request *request, int *slot); // with a new id
int submit_for(int world_size, uint64_t timeout_ns); // with this timeout; returns the slot
struct admission submit_again(const struct core_request *request); // with a known id
int submit(int world_size); // must be admitted; returns the slot
void submit_refused(int world_size, enum status status, const char *text_part);

// Takes the next action. It must be of this kind.
struct action expect(enum action_kind kind);
void expect_none(void);
struct ranks expect_start(int world_size, int instance);
struct action expect_run(struct ranks ranks, int slot);
struct action expect_answer(int slot, enum cause cause, int rank);
void expect_kill(struct ranks ranks);

void ranks_ready(struct ranks ranks);                // all of them
void ranks_report(struct ranks ranks, uint64_t job); // all of them
void rank_ready(struct ranks ranks, int rank);
void rank_reports(struct ranks ranks, int rank, uint64_t job);
void rank_dies(struct ranks ranks, int rank);
void rank_fails(struct ranks ranks, int rank);
void rank_loses(struct ranks ranks, int rank, int peer);
void ranks_reap(struct ranks ranks); // every rank exits
void ranks_reap_but(struct ranks ranks, int rank);

// Starts a pool for a job. The pool is idle after the job.
struct ranks pool_up(int world_size);
// Submits a job to an idle pool and returns the RUN.
struct action run_in(struct ranks ranks);
// All ranks report, and the job is answered.
void run_finish(struct ranks ranks, struct action run);
// Makes the pool of the next START ready.
struct ranks start_ready(int world_size, int instance);
// Lets the START of the pool fail, `failures` times in all. Instance 0. The last action before the
// call must be this START.
void fail_starts(struct ranks ranks, int failures);

// ---- spares -----------------------------------------------------------------------------------

struct core_config fixture_config_with_spares(void); // otherwise as fixture_config()

struct pair {
    struct ranks leader, spare;
};

// Takes the START of a spare; of a pool for a job.
struct ranks expect_spare(int world_size);
struct ranks expect_leader(int world_size);

// A pool that has run a job, and its spare: starting; ready.
struct pair pair_starting(int world_size);
struct pair pair_up(int world_size);

// Rank 0 of the leader dies during the run.
void leader_dies(struct pair pair, struct action run);

#endif
