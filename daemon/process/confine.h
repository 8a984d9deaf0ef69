// SPDX-License-Identifier: Apache-2.0
// What a rank may not do, whatever its libraries try: the limits and the user that it starts with.
// They are in force before the first instruction of its program, and it cannot lift them.
#ifndef CPATTN_DAEMON_PROCESS_CONFINE_H
#define CPATTN_DAEMON_PROCESS_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/process/filter.h"
#include "daemon/settings/rank_user.h"

// Of a rank's memory, what its libraries take before there is a case: most of it OpenBLAS's
// buffers.
#define CONFINE_LIBRARIES_BYTES (INT64_C(192) << 20)

struct confinement {
    struct rank_user user; // not set: the daemon's own
    int64_t memory_bytes;  // of data, the libraries' included; 0: no limit
    bool uses_gpus;        // what the driver needs is let be
    bool is_guest;         // what a framework needs is let be: files, descriptors, sockets
    struct filter filter, guest_filter; // of their system calls
};

#define CONFINE_LIMITS_MAX 8

// The same, worked out for a process, so that the child only has to carry it out.
struct confine_orders {
    const struct rank_user *user; // NULL: the daemon's own
    const struct filter *filter;  // NULL: none
    int limit_count;
    struct {
        int resource;
        struct rlimit limit;
    } limits[CONFINE_LIMITS_MAX];
    char oom_score[8];
    int nice;
};

// `descriptors`: how many it starts with. The confinement is borrowed by the orders.
void confine_plan(const struct confinement *c, int descriptors, struct confine_orders *orders);

// To be called in a child that is about to become the program. False with errno when the system
// refuses.
bool confine_limits(const struct confine_orders *orders);
// As late as can be: the daemon waits until the child has become the program.
void confine_priority(const struct confine_orders *orders);
bool confine_user(const struct rank_user *user);

// Whether the process is that user and nobody else, has no capability and no way to get one, as far
// as the kernel tells. FAILED_PRECONDITION with what is wrong.
enum status confine_check(const struct rank_user *user, pid_t pid, struct error *error) MUST_CHECK;

// Whether the daemon has the rights to run ranks as the user and to kill them then:
// PERMISSION_DENIED with what is missing.
enum status confine_check_rights(const struct rank_user *user, struct error *error) MUST_CHECK;

#endif
