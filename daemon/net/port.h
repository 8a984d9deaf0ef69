// SPDX-License-Identifier: Apache-2.0
// The listening socket on a network, with the token and the certificates that go with it.
#ifndef CPATTN_DAEMON_NET_PORT_H
#define CPATTN_DAEMON_NET_PORT_H

#include "common/status.h"
#include "common/token.h"
#include "daemon/net/tls.h"
#include "daemon/settings/listen.h"

struct port {
    int fd;             // listening, non-blocking; -1: none
    struct tls *tls;    // NULL: none
    struct token token; // "": not required
};

// Reads the files and listens; where the settings name no place the port is one with fd -1, which
// is no failure. A name is looked up, which may take a while, and the first of its addresses taken.
// INVALID_ARGUMENT, PERMISSION_DENIED, UNIMPLEMENTED: a file, as token_read() and tls_create() say;
// FAILED_PRECONDITION: somebody else listens there; UNAVAILABLE: the system refused.
enum status port_open(const struct listen_config *listen, struct port *port,
                      struct error *error) MUST_CHECK;

// Reads the files again, for connections and requests to come. When that fails all is as before.
enum status port_reread(const struct listen_config *listen, struct port *port,
                        struct error *error) MUST_CHECK;

// Takes one that was not opened.
void port_fini(struct port *port);

#endif
