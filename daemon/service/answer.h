// SPDX-License-Identifier: Apache-2.0
// Builds the answer to a case: the verdict with the figures of all ranks, or one sentence about the
// failure and the state of each rank.
#ifndef CPATTN_DAEMON_SERVICE_ANSWER_H
#define CPATTN_DAEMON_SERVICE_ANSWER_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/tasks.h"
#include "proto/wire.h"

// Fills in reply->result from the reports of the pool's ranks, which are borrowed. If the ranks
// have refused the case, fills in status and message.
void answer_result(const struct action *action, const struct crew *crew, struct wire_reply *reply);

// Fills in status, message and, if a pool was involved, reply->failure, whose array `ranks` the
// caller frees. `crew`: the ranks of the action's pool; NULL: no pool was involved. `detail`: from
// reasons_detail().
void answer_failure(const struct action *action, struct crew *crew, uint64_t timeout_ns,
                    const char *detail, struct wire_reply *reply);

// Changes the answer of a cancelled case to UNAVAILABLE: the daemon was stopped.
void answer_stopped(struct wire_reply *reply);

// Returns the time limit that the message names: that of the run if the run has exceeded it, else
// that of the whole request.
uint64_t answer_limit_ns(const struct task *task, const struct action *action);

#endif
