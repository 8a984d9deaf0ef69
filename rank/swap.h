// SPDX-License-Identifier: Apache-2.0
// Exchanges of messages (common/message.h) over a transport.
#ifndef CPATTN_RANK_SWAP_H
#define CPATTN_RANK_SWAP_H

#include "common/report.h"
#include "transport/transport.h"

struct transport_swap {
    struct transport *transport; // no exchange in progress
    struct progress *progress;   // has phase, step and the awaited rank
    uint64_t tag;                // of the first swap; each takes the next one
};

// Uses `t`, which must outlive it.
struct swap transport_swap(struct transport_swap *t);

#endif
