// SPDX-License-Identifier: Apache-2.0
// Confinement of rank processes: limits, user and filter of system calls. It is in force before the
// first instruction of the program, and the rank cannot lift it.
#ifndef CPATTN_DAEMON_PROCESS_CONFINE_H
#define CPATTN_DAEMON_PROCESS_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/process/filter.h"
#include "daemon/settings/rank_user.h"

// Memory that a rank's libraries use before any case, mostly buffers of OpenBLAS.
#define CONFINE_LIBRARIES_BYTES (INT64_C(192) << 20)

struct confinement {
    struct rank_user user; // not set: the daemon's own user
    int64_t memory_bytes;  // limit of data memory, including the libraries'; 0: no limit
    bool uses_gpus;        // permit what the GPU driver needs
    bool is_guest;         // permit what a framework needs: files, descriptors, sockets
    struct filter filter, guest_filter; // for ranks of the own program, and of guests
};

#define CONFINE_LIMITS_MAX 8

// Arguments of the system calls that confine one process, prepared so that the child only executes
// the calls.
struct confine_orders {
    const struct rank_user *user; // NULL: the daemon's own user
    const struct filter *filter;  // NULL: none
    int limit_count;
    struct {
        int resource;
        struct rlimit limit;
    } limits[CONFINE_LIMITS_MAX];
    char oom_score[8];
    int nice;
};

// Prepares the orders. `descriptors`: number of descriptors of the process at its start. Borrows
// the confinement.
void confine_plan(const struct confinement *c, int descriptors, struct confine_orders *orders);

// The next three are for the child, before it executes the program. False with errno: a call
// failed.
bool confine_limits(const struct confine_orders *orders);
// Lowers the priority. Call as late as possible: the creator waits until the child has executed the
// program.
void confine_priority(const struct confine_orders *orders);
// Changes the user, and drops groups, capabilities and ways to gain privileges.
bool confine_user(const struct rank_user *user);

// Checks with the kernel that the process has only this user, no capabilities and no way to gain
// them. FAILED_PRECONDITION names the violation.
enum status confine_check(const struct rank_user *user, pid_t pid, struct error *error) MUST_CHECK;

// Checks that the daemon has the rights to run ranks as the user and to kill them.
// PERMISSION_DENIED names the missing right.
enum status confine_check_rights(const struct rank_user *user, struct error *error) MUST_CHECK;

#endif
