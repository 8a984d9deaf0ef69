// SPDX-License-Identifier: Apache-2.0
// Notifies systemd of the daemon's state: one datagram per message to $NOTIFY_SOCKET. Without the
// variable these functions have no effect.
#ifndef CPATTN_DAEMON_NOTIFY_H
#define CPATTN_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; // -1: no NOTIFY_SOCKET
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t watchdog_ns; // period of the watchdog; 0: no watchdog
};

// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so
// that child processes cannot notify systemd. Call before threads are started.
void notify_init(struct notify *n);
void notify_fini(struct notify *n);

// Sends lines such as "READY=1\nSTATUS=serving". A message that cannot be delivered is dropped.
void notify_send(const struct notify *n, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
