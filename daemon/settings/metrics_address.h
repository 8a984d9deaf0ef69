// SPDX-License-Identifier: Apache-2.0
// The address of the metrics; it must be on the loopback interface.
#ifndef CPATTN_DAEMON_SETTINGS_METRICS_ADDRESS_H
#define CPATTN_DAEMON_SETTINGS_METRICS_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define METRICS_ADDRESS_SYNTAX                                                                     \
    "an address of this machine's loopback interface with a port, such as 127.0.0.1:9464 or "      \
    "[::1]:9464"

struct metrics_address {
    char text[64]; // as given; "": nowhere
    struct sockaddr_storage socket;
    socklen_t length;
};

// Parses 127.x.y.z:PORT, localhost:PORT or [::1]:PORT; returns false and changes nothing for any
// other text.
bool metrics_address_parse(struct metrics_address *address, const char *text);

#endif
