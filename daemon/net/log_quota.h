// SPDX-License-Identifier: Apache-2.0
// Limits the log lines that clients can cause: permits some per second and counts the others.
#ifndef CPATTN_DAEMON_NET_LOG_QUOTA_H
#define CPATTN_DAEMON_NET_LOG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct log_quota {
    int lines_max;   // per second
    uint64_t second; // the current second of CLOCK_MONOTONIC
    int lines;       // requested in the current second
};

// True if one more line may be written. Logs the number of suppressed lines of an earlier second.
bool log_quota_take(struct log_quota *quota);

#endif
