// SPDX-License-Identifier: Apache-2.0
// Where metrics are served: an address of the loopback interface, and no other.
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

// Reads 127.x.y.z:PORT, localhost:PORT or [::1]:PORT; false when the text is none of these, and
// nothing is changed then.
bool metrics_address_parse(struct metrics_address *address, const char *text);

#endif
