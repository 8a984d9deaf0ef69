// SPDX-License-Identifier: Apache-2.0
// TLS configuration for links: own certificate, and signer of the daemon's. May be used by many
// links.
#ifndef CPATTN_CLIENT_LINK_TLS_H
#define CPATTN_CLIENT_LINK_TLS_H

#include "common/status.h"

struct nng_tls_config;

// Texts in PEM.
struct link_tls_pem {
    const char *ca;          // signer of the daemon's certificate
    const char *certificate; // NULL: none
    const char *key;         // key of the certificate
};

// The daemon's certificate must be issued for `host`. INVALID_ARGUMENT: an invalid PEM text;
// UNIMPLEMENTED: nng is built without TLS; FAILED_PRECONDITION as for link_open().
enum status link_tls_create(const struct link_tls_pem *pem, const char *host,
                            struct nng_tls_config **tls, struct error *error) MUST_CHECK;

// Links that use the configuration stay valid. Takes NULL.
void link_tls_destroy(struct nng_tls_config *tls);

#endif
