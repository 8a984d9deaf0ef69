// SPDX-License-Identifier: Apache-2.0
// Lines of the log about answers.
#ifndef CPATTN_DAEMON_IO_ANSWER_LOG_H
#define CPATTN_DAEMON_IO_ANSWER_LOG_H

#include "daemon/core/core.h"
#include "daemon/io/tasks.h"

// Refuses a request, and says so.
void answer_refuse(struct exchange *exchange, const struct peer *peer,
                   const struct wire_request *request, const struct error *error);

// Says how a case was answered.
void answer_log(const struct task *task, const struct action *a, const struct wire_reply *reply);

#endif
