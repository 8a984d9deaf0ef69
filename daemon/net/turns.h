// SPDX-License-Identifier: Apache-2.0
// Selects the next connection to read, round robin at three levels: among the classes of
// connections, among the users of a class, and among the connections of a user. So before the next
// turn of a waiting user, each other user of its class has at most one turn, and each other class
// at most one per turn of this class, however many connections the others have.
#ifndef CPATTN_DAEMON_NET_TURNS_H
#define CPATTN_DAEMON_NET_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/list.h"

enum turn_class {
    TURN_UNIX,
    TURN_NETWORK,
    TURN_HANDSHAKE, // of network clients, during their handshake
    TURN_CLASSES,
};

// The waiting connections of a user in a class.
struct turn_group {
    struct list node; // on the list of its class, or on the free list
    struct list queue;
    uint64_t user;
};

struct turns {
    struct list classes[TURN_CLASSES]; // of groups
    struct list free;
    int last; // the class of the last turn
    struct turn_group groups[TURN_CLASSES * CLIENTS_MAX];
};

void turns_init(struct turns *t);

// Adds a node, which is on no list, to those that wait for a turn. list_remove() removes it. At
// most CLIENTS_MAX nodes wait at a time.
void turns_ask(struct turns *t, enum turn_class class, uint64_t user, struct list *node);

// Removes and returns the next node; NULL: none waits (apart from handshakes, if they are left
// out).
struct list *turns_next(struct turns *t, bool handshakes);

bool turns_empty(struct turns *t);

#endif
