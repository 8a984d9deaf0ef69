// SPDX-License-Identifier: Apache-2.0
// TCP ports for tests that listen.
#ifndef CPATTN_TESTS_SUPPORT_PORT_H
#define CPATTN_TESTS_SUPPORT_PORT_H

// A free port of 127.0.0.1, each call another one. It lies below those that the system gives to
// connections, so that none of them takes it before the test listens there; another test could.
// Ends the process when there is none.
int port_free(void);

#endif
