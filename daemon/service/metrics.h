// SPDX-License-Identifier: Apache-2.0
// The daemon in figures, as Prometheus reads them (text format 0.0.4). No user and no case is
// named.
#ifndef CPATTN_DAEMON_SERVICE_METRICS_H
#define CPATTN_DAEMON_SERVICE_METRICS_H

#include "daemon/service/tally.h"
#include "proto/wire.h"

// From malloc(); NULL: memory is short.
char *metrics_text(const struct wire_description *description, const struct wire_status *status,
                   const struct tally *tally);

#endif
