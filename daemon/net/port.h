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

// Reads token and TLS files and listens. Without an address in the settings succeeds with fd -1. A
// host name is resolved, which may block, and its first address is used. Errors of the files: see
// token_read() and tls_create(). FAILED_PRECONDITION: the address is in use; UNAVAILABLE: the
// system refused.
enum status port_open(const struct listen_config *listen, struct port *port,
                      struct error *error) MUST_CHECK;

// Reads token and TLS files again, into a port with fd -1, for port_renew(). TLS files must be
// regular files. Free with port_fini(); a failure leaves nothing to free.
enum status port_reread(const struct listen_config *listen, struct port *read,
                        struct error *error) MUST_CHECK;

// Gives the port the token and TLS of `read`, for future connections and requests. `read` is then
// empty.
void port_renew(struct port *port, struct port *read);

// Closes the port, releases TLS and wipes the token. Accepts a port that was not opened (fd -1).
void port_fini(struct port *port);

#endif
