// SPDX-License-Identifier: Apache-2.0
// Resources of the machine, and the setup of this process before it starts anything.
#ifndef CPATTN_DAEMON_MACHINE_HOST_H
#define CPATTN_DAEMON_MACHINE_HOST_H

#include <stdint.h>

#include "common/status.h"

// Minimum limit of open descriptors for this process.
#define HOST_DESCRIPTORS_MIN 256

// Number of cores this process may run on, 1..DEVICES_MAX.
int host_cores(void);

// The lowest memory limit in bytes of the control groups in the file `groups` (in the format of
// /proc/self/cgroup) and of their parents, for cgroup v1 and v2. `root` is the mount point of the
// hierarchies. -1: there is no limit.
int64_t host_cgroup_limit(const char *groups, const char *root);

// Bytes that can be used without swapping, limited by the control groups of this process. Positive.
int64_t host_memory_available(void);

// All memory of the machine, limited by the control groups of this process. The kernel kills ranks
// that use more. INT64_MAX: not known.
int64_t host_memory_most(void);

// Raises the limit of open descriptors as far as allowed, to *descriptors; makes inherited
// descriptors close-on-exec; becomes the reaper of orphaned grandchildren; ignores SIGPIPE; sets
// umask 077; requests a short time slice. Call once, before threads are started.
// FAILED_PRECONDITION: the limit is below HOST_DESCRIPTORS_MIN.
enum status host_prepare_process(int *descriptors, struct error *error) MUST_CHECK;

#endif
