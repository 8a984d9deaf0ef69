// SPDX-License-Identifier: Apache-2.0
// Who has jobs, and whose job goes first. Each user has an account of the device time that their
// jobs have used: devices times the time for which they have run. Whoever has used least goes
// first; what was used counts from a level that rises as jobs are run, so that
// - who comes back after a while begins where the others are, and neither gets what was not asked
//   for meanwhile nor pays for devices that nobody else wanted;
// - nobody is ahead of the level, or behind it, by more than a window: a job of a day costs its
//   user no day, and who could not have a pool for a day does not keep the others waiting.
// Nobody starves: whoever is served comes nearer to those that wait.
//
// An administrator may limit how many jobs of a user run at a time, and the device time that they
// use in a window. What was used of that lapses evenly, all of it within the window: with 2 h in
// 24 h, an hour's use is forgotten after half a day. Nothing is allocated after init.
#ifndef CPATTN_DAEMON_CORE_USERS_H
#define CPATTN_DAEMON_CORE_USERS_H

#include <stdbool.h>
#include <stdint.h>

// Accounts beside those of users that have jobs.
#define USERS_REMEMBERED 1024

struct user_limits {
    int running_max;             // jobs of one user that run at a time; 0: as many as there are
    uint64_t time_ns, window_ns; // device time in a window; 0: not limited
};

struct account {
    uint32_t user;
    int queued, running; // jobs
    uint64_t used_ns;    // device time
    uint64_t lapsed_ns;  // when all that it has used of the limit will have lapsed
    uint64_t pass;       // of the scheduler, that has looked at its jobs last
    int taken;           // in that pass: jobs that run, or are to run next
    int next;            // in the chain of its bucket, or of those that are free: 1 + index; 0: end
    bool open;
};

struct users {
    struct account *accounts; // [capacity], which stay where they are while they are open
    int capacity;
    int *buckets; // 1 + index of the first; 0: empty
    uint32_t mask;
    int free, open; // open: how many are
    uint64_t level_ns, window_ns;
    struct user_limits limits;
};

// For at most `jobs` jobs at once. False when memory is short; users_fini() takes that state and a
// zeroed one.
bool users_init(struct users *u, int jobs, uint64_t window_ns);
void users_fini(struct users *u);

// NULL: nothing is known of the user.
struct account *users_find(const struct users *u, uint32_t user);
// Jobs of the user, queued and running.
int users_jobs(const struct users *u, uint32_t user);

// One job more is queued. The account is valid while it has jobs.
struct account *users_queue(struct users *u, uint32_t user);
// One that was queued runs.
void users_run(struct users *u, struct account *account);
// One that was queued, or running, is gone.
void users_leave(struct users *u, struct account *account, uint64_t now_ns, bool running);
// Running jobs have used device time, until now.
void users_charge(struct users *u, struct account *account, uint64_t now_ns, uint64_t device_ns);
// How long the user has to wait before another of its jobs may run, by what it has used; the
// account may be NULL. 0: it may run now.
uint64_t users_wait_ns(const struct users *u, const struct account *account, uint64_t now_ns);
// Whether one more may run now.
bool users_may_run(const struct users *u, const struct account *account, uint64_t now_ns);

#endif
