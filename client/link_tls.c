// SPDX-License-Identifier: Apache-2.0
#include "client/link_tls.h"

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <stdlib.h>
#include <string.h>

#include "client/link.h"

static enum status refuse(const char *what, int result, struct error *error)
{
    if (result == NNG_ENOTSUP)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "tls+tcp:// needs an nng that is built with TLS, which this one is not; "
                         "forward the daemon's unix socket with ssh instead");
    if (result == NNG_ENOMEM)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for TLS");
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s cannot be used: %s; accepted are certificates, and a private key, in PEM",
                     what, nng_strerror(result));
}

enum status link_tls_create(const struct link_tls_pem *pem, const char *host, nng_tls_config **tls,
                            struct error *error)
{
    nng_tls_config *config = NULL;
    const char *what = "TLS";
    enum status status = link_check_process(error);
    if (status != STATUS_OK)
        return status;
    int result = nng_tls_config_alloc(&config, NNG_TLS_MODE_CLIENT);
    if (result == 0)
        result = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
    if (result == 0)
        result = nng_tls_config_server_name(config, host);
    if (result == 0) {
        what = "tls-ca";
        result = nng_tls_config_ca_chain(config, pem->ca, NULL);
    }
    if (result == 0 && pem->certificate) {
        what = "tls-certificate with tls-key";
        result = nng_tls_config_own_cert(config, pem->certificate, pem->key, NULL);
    }
    if (result == 0) {
        *tls = config;
        return STATUS_OK;
    }
    if (config)
        nng_tls_config_free(config);
    return refuse(what, result, error);
}

void link_tls_destroy(nng_tls_config *tls)
{
    if (tls)
        nng_tls_config_free(tls);
}
