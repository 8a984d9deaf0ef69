// SPDX-License-Identifier: Apache-2.0
// Connections as they are accepted.
#ifndef CPATTN_DAEMON_NET_ACCEPT_H
#define CPATTN_DAEMON_NET_ACCEPT_H

#include <stdbool.h>

// Of a connection over TCP: small requests and replies are not to wait for each other, and hosts
// that are gone are to be noticed within a minute. What these calls refuse is done without.
void accept_options_set(int fd);

// Whether errno tells what became of one connection before it was accepted, and says nothing about
// the next.
bool accept_error_is_theirs(void);

#endif
