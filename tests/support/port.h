// SPDX-License-Identifier: Apache-2.0
// TCP ports for tests that listen.
#ifndef CPATTN_TESTS_SUPPORT_PORT_H
#define CPATTN_TESTS_SUPPORT_PORT_H

// A port of 127.0.0.1 on which nothing listens now; each call returns another one. It is below the
// ports that Linux uses for outgoing connections, so only another test can take it before the
// caller listens. Ends the process when there is none.
int port_free(void);

#endif
