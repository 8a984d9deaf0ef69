// SPDX-License-Identifier: Apache-2.0
// Deadlines that cannot be met: what the bounds of the jobs say (core_request.cost_ns).
#ifndef CPATTN_DAEMON_CORE_DEADLINE_H
#define CPATTN_DAEMON_CORE_DEADLINE_H

#include "common/status.h"
#include "daemon/core/request.h"

struct core;

// DEADLINE_EXCEEDED when the job alone takes longer than one of its time limits allows.
enum status deadline_check_job(const struct core *core, const struct core_request *request,
                               struct error *error) MUST_CHECK;

// INVALID_ARGUMENT: the time limit is longer than the longest.
enum status deadline_refuse_long(const struct core_request *request, uint64_t longest_ns,
                                 struct error *error);

// RESOURCE_EXHAUSTED when its user has used so much device time that it could not run before its
// deadline.
enum status deadline_check_share(const struct core *core, const struct core_request *request,
                                 struct error *error) MUST_CHECK;

// DEADLINE_EXCEEDED when it does together with what certainly goes before it: jobs of its user that
// wait for the same size. A few operations, unless the queue is so long that it has to be looked at
// job by job.
enum status deadline_check_queue(const struct core *core, const struct core_request *request,
                                 struct error *error) MUST_CHECK;

#endif
