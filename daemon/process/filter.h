// SPDX-License-Identifier: Apache-2.0
// Filter for system calls that ranks do not need: calls that affect other processes or the system,
// or use rarely used parts of the kernel, fail with EPERM. A build without libseccomp has
// filter_none.c, in which no filter is available.
#ifndef CPATTN_DAEMON_PROCESS_FILTER_H
#define CPATTN_DAEMON_PROCESS_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>

#include "common/status.h"

#define FILTER_MAX 512

// A filter in the kernel's format. All zeros: none.
struct filter {
    unsigned short count;
    struct sock_filter code[FILTER_MAX];
};

// True if this build and the kernel support filters.
bool filter_is_there(void);

// `sockets`: permits sockets other than unix sockets. UNIMPLEMENTED: this build has no filters;
// UNAVAILABLE: the filter could not be created. Call before threads are started.
enum status filter_create(bool sockets, struct filter *filter, struct error *error) MUST_CHECK;

// Call in the child as the last step before it executes the program. False with errno: a call
// failed.
bool filter_load(const struct filter *filter);

#endif
