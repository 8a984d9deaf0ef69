// SPDX-License-Identifier: Apache-2.0
// Options and errors of newly accepted connections.
#ifndef CPATTN_DAEMON_NET_ACCEPT_H
#define CPATTN_DAEMON_NET_ACCEPT_H

#include <stdbool.h>

// Sets up a TCP connection: small requests and replies do not wait for each other, and a lost host
// is noticed within a minute. Failures of these calls are ignored.
void accept_options_set(int fd);

// True if errno is an error of one connection before it was accepted, and not of the listening
// socket.
bool accept_error_is_theirs(void);

#endif
