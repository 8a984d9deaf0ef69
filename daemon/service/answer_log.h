// SPDX-License-Identifier: Apache-2.0
// Log lines about requests and answers.
#ifndef CPATTN_DAEMON_SERVICE_ANSWER_LOG_H
#define CPATTN_DAEMON_SERVICE_ANSWER_LOG_H

#include "daemon/core/core.h"
#include "daemon/service/tasks.h"

// Refuses a request with an error reply, and logs it.
void answer_refuse(struct exchange *exchange, const struct peer *peer,
                   const struct wire_request *request, const struct error *error);

// Logs the answer of a case.
void answer_log(const struct task *task, const struct action *a, const struct wire_reply *reply);

// Log that a case was admitted, that ranks get it to run, and a request to cancel a case with its
// outcome.
void answer_log_admitted(const struct task *task);
void answer_log_run(const struct task *task, const struct action *a);
void answer_log_cancel(const struct request_id *id, const struct peer *peer, enum status status);

// Logs an order with its outcome.
void answer_log_order(const struct wire_order *order, const struct peer *peer, enum status status);

#endif
