// SPDX-License-Identifier: Apache-2.0
// A transport to copy: between forked ranks, through memory that they share. Each pair of ranks has
// a ring of bytes in each direction with two counters that only grow, of what has been put in and
// of what has been taken out; nothing is ever reset, so no rank can mistake an old exchange for its
// own.
#ifndef CPATTN_TESTS_RANK_TOY_TRANSPORT_H
#define CPATTN_TESTS_RANK_TOY_TRANSPORT_H

#include "tests/support/world.h"
#include "transport/transport.h"

// For world_transport().
extern const struct world_transport toy_transport;

#endif
