// SPDX-License-Identifier: Apache-2.0
// Exchanges of messages (common/message.h) over a transport.
#ifndef CPATTN_RANK_SWAP_H
#define CPATTN_RANK_SWAP_H

#include "common/report.h"
#include "transport/transport.h"

struct transport_swap {
    struct transport *transport; // no exchange in progress
    struct progress *progress;   // each swap writes the awaited rank, and keeps phase and step
    uint64_t tag;                // of the next swap; each swap increments it
};

// Uses `t`, which must outlive it.
struct swap transport_swap(struct transport_swap *t);

#endif
