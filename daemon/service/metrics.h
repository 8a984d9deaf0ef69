// SPDX-License-Identifier: Apache-2.0
// Metrics of the daemon in the text format of Prometheus (0.0.4). They name no user and no case.
#ifndef CPATTN_DAEMON_SERVICE_METRICS_H
#define CPATTN_DAEMON_SERVICE_METRICS_H

#include "daemon/service/tally.h"
#include "proto/wire.h"

// Returns the text, from malloc(). NULL: memory is short.
char *metrics_text(const struct wire_description *description, const struct wire_status *status,
                   const struct tally *tally);

#endif
