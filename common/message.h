// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other: bytes that go and bytes that come.
#ifndef CPATTN_COMMON_MESSAGE_H
#define CPATTN_COMMON_MESSAGE_H

#include <stddef.h>

#include "common/status.h"

// One message pair with a peer; either side may be empty. peer == own rank is a local copy.
struct message {
    int peer;
    const void *send;
    size_t send_bytes;
    void *receive;
    size_t receive_bytes;
};

// A way to swap messages that is lent to a module which knows no transport. All ranks call it in
// the same order, each with messages that match those of its peers in list order. run() returns
// when all have been sent and received, or why they cannot be.
struct swap {
    enum status (*run)(void *context, const struct message *messages, int count,
                       struct error *error);
    void *context;
};

#endif
