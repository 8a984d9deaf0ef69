// SPDX-License-Identifier: Apache-2.0
// Builds the answer to a case: the verdict with the figures of all ranks, or one sentence about the
// failure and the state of each rank.
#ifndef CPATTN_DAEMON_SERVICE_ANSWER_H
#define CPATTN_DAEMON_SERVICE_ANSWER_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

// Fills reply->result from the reports of the pool's ranks (borrowed), or status and message if the
// ranks have refused the case.
void answer_result(const struct action *action, const struct crew *crew, struct wire_reply *reply);

// Fills in status, message and, if a pool was involved, reply->failure; the caller frees its array
// (wire_reply_fini()). `crew`: the ranks of the action's pool, or NULL. `detail`: why the pool
// could not be started, how the case has ended earlier pools, or which rank holds the devices; or
// "".
void answer_failure(const struct action *action, struct crew *crew, uint64_t timeout_ns,
                    const char *detail, struct wire_reply *reply);

// Answers a case that was cancelled because the daemon stops.
void answer_stopped(struct wire_reply *reply);

// Returns which of its time limits the case has exceeded.
uint64_t answer_limit_ns(const struct task *task, const struct action *action);

#endif
