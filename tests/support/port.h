// SPDX-License-Identifier: Apache-2.0
// TCP ports for tests that listen.
#ifndef CPATTN_TESTS_SUPPORT_PORT_H
#define CPATTN_TESTS_SUPPORT_PORT_H

// Returns a port of 127.0.0.1 on which nothing listens. Each call returns another one. Linux uses
// only higher ports for outgoing connections, so only another test can take the port before the
// caller listens. Ends the process if no port is free.
int port_free(void);

#endif
