// SPDX-License-Identifier: Apache-2.0
// What has been counted since the start and the pool core does not count.
#ifndef CPATTN_DAEMON_SERVICE_TALLY_H
#define CPATTN_DAEMON_SERVICE_TALLY_H

#include <stdint.h>

#include "proto/wire.h"

struct tally {
    uint64_t began_ns;
    uint64_t verdicts[VERDICT_UNVERIFIED + 1];
    uint64_t refused; // before the core was asked
};

// A case is answered.
void tally_answer(struct tally *t, const struct wire_reply *reply);

// Fills in what it knows of a status.
void tally_fill(const struct tally *t, uint64_t now_ns, struct wire_status *status);

#endif
