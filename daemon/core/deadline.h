// SPDX-License-Identifier: Apache-2.0
// Refuses deadlines that cannot be met, by the lower bounds of jobs (core_request.cost_ns).
#ifndef CPATTN_DAEMON_CORE_DEADLINE_H
#define CPATTN_DAEMON_CORE_DEADLINE_H

#include "common/status.h"
#include "daemon/core/request.h"

struct core;

// DEADLINE_EXCEEDED: the job alone takes longer than one of its time limits.
enum status deadline_check_job(const struct core *core, const struct core_request *request,
                               struct error *error) MUST_CHECK;

// INVALID_ARGUMENT: the time limit is longer than longest_ns.
enum status deadline_refuse_long(const struct core_request *request, uint64_t longest_ns,
                                 struct error *error);

// RESOURCE_EXHAUSTED: the limit on its user's device time keeps the job from running before its
// deadline.
enum status deadline_check_share(const struct core *core, const struct core_request *request,
                                 struct error *error) MUST_CHECK;

// DEADLINE_EXCEEDED: the job takes longer than its time limit together with its user's earlier jobs
// that wait for the same size. Takes constant time, unless the sum over the queue exceeds the
// limit; then it examines the queue job by job.
enum status deadline_check_queue(const struct core *core, const struct core_request *request,
                                 struct error *error) MUST_CHECK;

#endif
