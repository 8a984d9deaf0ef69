// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/log_quota.h"

#include "common/clock.h"
#include "common/log.h"

bool log_quota_take(struct log_quota *q)
{
    uint64_t second = clock_now_ns() / NS_PER_S;
    if (second != q->second && q->lines > q->lines_max)
        log_info("clients_log omitted=%d", q->lines - q->lines_max);
    if (second != q->second)
        q->lines = 0;
    q->second = second;
    return q->lines++ < q->lines_max;
}
