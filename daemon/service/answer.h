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

// Fills status, message and, where a pool was involved, reply->failure, whose array is the caller's
// to free (wire_reply_fini()). `crew`: of the pool the action names, or NULL; `detail`: why it
// could not be started, or what the case has done to the last, or which rank keeps its devices, or
// "".
void answer_failure(const struct action *action, struct crew *crew, uint64_t timeout_ns,
                    const char *detail, struct wire_reply *reply);

// Of a case that the stop of the daemon has ended, through the core's cancel.
void answer_stopped(struct wire_reply *reply);

// The time limit that a case which has passed one has passed.
uint64_t answer_limit_ns(const struct task *task, const struct action *action);

#endif
