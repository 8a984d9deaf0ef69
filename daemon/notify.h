// SPDX-License-Identifier: Apache-2.0
// Tells systemd how the daemon is doing: one datagram per message to $NOTIFY_SOCKET. Without that
// variable everything here is without effect.
#ifndef CPATTN_DAEMON_NOTIFY_H
#define CPATTN_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; // -1: nobody wants to know
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t watchdog_ns; // to be fed within this time; 0: no watchdog
};

// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and takes them out of the environment, so
// that no child speaks in our name. Call before threads are started.
void notify_init(struct notify *n);
void notify_fini(struct notify *n);

// Sends lines such as "READY=1\nSTATUS=serving". A message that cannot be delivered is dropped.
void notify_send(const struct notify *n, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
