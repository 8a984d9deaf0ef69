// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/tally.h"

#define MS UINT64_C(1000000)

const uint64_t tally_bounds_ns[TALLY_BOUNDS] = {
    MS,        5 * MS,     10 * MS,    50 * MS,    100 * MS,    500 * MS,    1000 * MS,
    5000 * MS, 10000 * MS, 30000 * MS, 60000 * MS, 300000 * MS, 900000 * MS, 3600000 * MS,
};

static void times_add(struct tally_times *times, uint64_t ns)
{
    int place = 0;
    while (place < TALLY_BOUNDS && ns > tally_bounds_ns[place])
        place++;
    times->counts[place]++;
    times->sum_s += (double)ns / 1e9;
}

void tally_answer(struct tally *t, const struct action *answer, const struct wire_reply *reply)
{
    if (reply->status == STATUS_OK)
        t->verdicts[reply->result.verdict]++;
    else
        t->codes[reply->status]++;
    times_add(&t->total, answer->total_ns);
    times_add(&t->wait, answer->queue_ns + answer->start_ns);
    times_add(&t->run, answer->run_ns);
}

void tally_fill(const struct tally *t, uint64_t now_ns, struct wire_status *status)
{
    status->uptime_ns = now_ns - t->began_ns;
    status->passed = t->verdicts[VERDICT_PASS];
    status->failed = t->verdicts[VERDICT_FAIL];
    status->unverified = t->verdicts[VERDICT_UNVERIFIED];
    status->errors = 0;
    for (int code = 0; code < STATUS_COUNT; code++)
        status->errors += t->codes[code];
    status->refused += t->refused;
}
