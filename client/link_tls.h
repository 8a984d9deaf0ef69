// SPDX-License-Identifier: Apache-2.0
// What links present and ask for where they go through TLS; good for many links.
#ifndef CPATTN_CLIENT_LINK_TLS_H
#define CPATTN_CLIENT_LINK_TLS_H

#include "common/status.h"

struct nng_tls_config;

// Texts in PEM.
struct link_tls_pem {
    const char *ca;          // who signs the daemon's certificate
    const char *certificate; // NULL: none
    const char *key;         // of it
};

// The daemon's certificate has to be made out to `host`. INVALID_ARGUMENT: a text is not what it
// should be; UNIMPLEMENTED: nng is built without TLS; FAILED_PRECONDITION, as link_open() says it.
enum status link_tls_create(const struct link_tls_pem *pem, const char *host,
                            struct nng_tls_config **tls, struct error *error) MUST_CHECK;

// Links that use it keep what they need. Takes NULL.
void link_tls_destroy(struct nng_tls_config *tls);

#endif
