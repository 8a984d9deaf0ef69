// SPDX-License-Identifier: Apache-2.0
// A simple transport as an example: between forked ranks, through shared memory. Each pair of ranks
// has a ring of bytes in each direction. A ring has two counters: bytes put in, and bytes taken
// out. Counters only grow and are never reset, so no rank takes an old exchange for its own.
#ifndef CPATTN_TESTS_RANK_TOY_TRANSPORT_H
#define CPATTN_TESTS_RANK_TOY_TRANSPORT_H

#include "tests/support/world.h"
#include "transport/transport.h"

// For world_transport().
extern const struct world_transport toy_transport;

#endif
