// SPDX-License-Identifier: Apache-2.0
// Lines of the log that a client can cause as often as it likes: so many in a second are written,
// the rest is counted.
#ifndef CPATTN_DAEMON_NET_LOG_QUOTA_H
#define CPATTN_DAEMON_NET_LOG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct log_quota {
    int lines_max; // in a second
    uint64_t second;
    int lines; // asked for in it
};

// Whether one more line may be written. Logs how many a second left out when the next one asks.
bool log_quota_take(struct log_quota *quota);

#endif
