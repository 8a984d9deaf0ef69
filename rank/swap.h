// SPDX-License-Identifier: Apache-2.0
// Exchanges of messages (common/message.h) over a transport.
#ifndef CPATTN_RANK_SWAP_H
#define CPATTN_RANK_SWAP_H

#include "common/report.h"
#include "transport/transport.h"

struct transport_swap {
    struct transport *transport; // nothing under way
    struct progress *progress;   // keeps phase and step, and tells whom the rank waits for
    uint64_t tag;                // of the first swap; each takes the next one
};

// Runs over `t`, which outlives it.
struct swap transport_swap(struct transport_swap *t);

#endif
