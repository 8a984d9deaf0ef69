// SPDX-License-Identifier: Apache-2.0
// Accounts of users, and the order between users. An account has the device time that the user's
// jobs have used: the number of devices times the running time. The user with the least used time
// is first. Used time counts from a level that rises as jobs run:
// - A user who returns after a pause starts at the level. The pause gives no credit, and time that
//   was used while no other user waited is not charged.
// - An account differs from the level by at most a window. So a job of a day does not block its
//   user for a day, and a user who had no pool for a day does not block the others.
// No user starves: running jobs move an account towards those that wait.
//
// An administrator may limit the running jobs of a user, and the device time that a user may use in
// a window. Used time lapses evenly over the window: with 2 h in 24 h, one hour is available again
// after 12 hours. Allocates only in users_init().
#ifndef CPATTN_DAEMON_CORE_USERS_H
#define CPATTN_DAEMON_CORE_USERS_H

#include <stdbool.h>
#include <stdint.h>

// Number of accounts of users without jobs that are kept.
#define USERS_REMEMBERED 1024

struct user_limits {
    int running_max;             // running jobs of one user; 0: no limit
    uint64_t time_ns, window_ns; // device time in a window; 0: no limit
};

struct account {
    uint32_t user;
    int queued, running; // jobs
    uint64_t used_ns;    // device time
    uint64_t lapsed_ns;  // when all used device time will have lapsed (user_limits.time_ns)
    uint64_t pass;       // last pass of the scheduler that examined the user's jobs
    int taken;           // in that pass: jobs that run or have reserved a pool
    int next;            // in the chain of a bucket, or in the free list: 1 + index; 0: end
    bool open;
};

struct users {
    struct account *accounts; // [capacity]; an open account does not move
    int capacity;
    int *buckets; // 1 + index of the first account; 0: empty
    uint32_t mask;
    int free, open; // free: 1 + index of the first free account; open: number of open accounts
    uint64_t level_ns, window_ns; // used device time: the level, and the largest distance from it
    struct user_limits limits;
};

// For at most `jobs` jobs at once. False when memory is short; users_fini() accepts this state and
// a zeroed one.
bool users_init(struct users *u, int jobs, uint64_t window_ns);
void users_fini(struct users *u);

// Returns the account of the user; NULL: there is none.
struct account *users_find(const struct users *u, uint32_t user);
// Jobs of the user, queued and running.
int users_jobs(const struct users *u, uint32_t user);

// Counts a queued job of the user, and opens an account if necessary. The returned pointer is valid
// while the account has jobs.
struct account *users_queue(struct users *u, uint32_t user);
// Counts a queued job as running.
void users_run(struct users *u, struct account *account);
// Uncounts a queued or running job, which has ended.
void users_leave(struct users *u, struct account *account, uint64_t now_ns, bool running);
// Adds device time that a running job has used until now_ns.
void users_charge(struct users *u, struct account *account, uint64_t now_ns, uint64_t device_ns);
// Time until the limit of device time lets another job of the user run; 0: now. The account may be
// NULL.
uint64_t users_wait_ns(const struct users *u, const struct account *account, uint64_t now_ns);
// The setting that lets no further job of the user run now; NULL: there is none.
const char *users_limit(const struct users *u, const struct account *account, uint64_t now_ns);
// True if the limits let one more job of the user run now.
bool users_may_run(const struct users *u, const struct account *account, uint64_t now_ns);

#endif
