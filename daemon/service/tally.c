// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/tally.h"

void tally_answer(struct tally *t, const struct wire_reply *reply)
{
    if (reply->status == STATUS_OK)
        t->verdicts[reply->result.verdict]++;
}

void tally_fill(const struct tally *t, uint64_t now_ns, struct wire_status *status)
{
    status->uptime_ns = now_ns - t->began_ns;
    status->passed = t->verdicts[VERDICT_PASS];
    status->failed = t->verdicts[VERDICT_FAIL];
    status->unverified = t->verdicts[VERDICT_UNVERIFIED];
    status->refused += t->refused;
}
