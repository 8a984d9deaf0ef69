// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/listen.h"

#include <string.h>

bool listen_parse(struct listen_config *listen, const char *text)
{
    if (strlen(text) >= sizeof(listen->text) || !net_url_parse(text, &listen->url))
        return false;
    strcpy(listen->text, text);
    return true;
}

static enum status tls_check(const struct listen_config *l, struct error *error)
{
    if (!l->tls_certificate[0] || !l->tls_key[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: %s needs the certificate of this daemon and its key; name the "
                         "files with tls-certificate and tls-key",
                         l->text);
    if (!l->tls_clients[0] && !l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: everyone who reaches %s could use the daemon; name the "
                         "authorities of client certificates with tls-clients, or a token "
                         "with token-file, or both",
                         l->text);
    if (l->subjects.count > 0 && !l->tls_clients[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "allow-subjects: subjects need client certificates; require them "
                         "with tls-clients");
    return STATUS_OK;
}

// A setting without effect is refused, as it is probably a mistake.
static enum status useless_check(const struct listen_config *l, struct error *error)
{
    const char *useless = NULL;
    if (l->tls_certificate[0])
        useless = "tls-certificate";
    if (l->tls_key[0])
        useless = "tls-key";
    if (l->tls_clients[0])
        useless = "tls-clients";
    if (l->tls_13)
        useless = "tls-version-min";
    if (l->subjects.count > 0)
        useless = "allow-subjects";
    if (useless)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: there is TLS only with listen: tls+tcp://HOST:PORT", useless);
    return STATUS_OK;
}

enum status listen_check(const struct listen_config *l, struct error *error)
{
    if (l->text[0] && l->url.tls)
        return tls_check(l, error);
    if (l->text[0] && !l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: everyone who reaches %s could use the daemon; name a file "
                         "with a token for its clients with token-file, or listen on "
                         "tls+tcp://",
                         l->text);
    if (!l->text[0] && l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "token-file: only network clients present a token; set listen: "
                         "tcp://HOST:PORT or tls+tcp://HOST:PORT");
    return useless_check(l, error);
}
