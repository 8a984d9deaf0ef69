// SPDX-License-Identifier: Apache-2.0
// Messages between ranks: bytes to send and bytes to receive.
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

// A function that exchanges messages, for modules that do not depend on a transport. All ranks call
// it in the same order. The messages between two ranks match in list order. run() returns when all
// messages have been sent and received, or with an error.
struct swap {
    enum status (*run)(void *context, const struct message *messages, int count,
                       struct error *error);
    void *context;
};

#endif
