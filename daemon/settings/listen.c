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

static enum status certificate_check(const struct listen_config *l, const char *setting,
                                     const char *url, struct error *error)
{
    if (l->tls_certificate[0] && l->tls_key[0])
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: %s needs the certificate of this daemon and its key; name the files with "
                     "tls-certificate and tls-key",
                     setting, url);
}

static enum status clients_check(const struct listen_config *l, struct error *error)
{
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

// Refuses settings that would have no effect, since they are probably a mistake.
static enum status useless_check(const struct listen_config *l, bool tls, struct error *error)
{
    const char *useless = NULL;
    if (!tls && l->tls_certificate[0])
        useless = "tls-certificate";
    if (!tls && l->tls_key[0])
        useless = "tls-key";
    if (!tls && l->tls_clients[0])
        useless = "tls-clients";
    if (!tls && l->tls_13)
        useless = "tls-version-min";
    if (l->subjects.count > 0)
        useless = "allow-subjects";
    if (useless)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: there is TLS only with listen: tls+tcp://HOST:PORT", useless);
    return STATUS_OK;
}

enum status listen_check(const struct listen_config *l, const char *agents, struct error *error)
{
    enum status status = STATUS_OK;
    if (agents)
        status = certificate_check(l, "agents-listen", agents, error);
    if (status == STATUS_OK && l->text[0] && l->url.tls) {
        status = certificate_check(l, "listen", l->text, error);
        return status == STATUS_OK ? clients_check(l, error) : status;
    }
    if (status != STATUS_OK)
        return status;
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
    return useless_check(l, agents != NULL, error);
}
