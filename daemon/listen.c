// SPDX-License-Identifier: Apache-2.0
#include "daemon/listen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Takes a beginning off a text.
static bool taken(const char **text, const char *beginning)
{
    size_t length = strlen(beginning);
    bool fits = strncmp(*text, beginning, length) == 0;
    *text += fits ? length : 0;
    return fits;
}

// Takes "NAME" or "[ADDRESS]" off a text, up to what follows it.
static bool host_take(const char **text, char host[LISTEN_HOST_MAX])
{
    bool bracket = taken(text, "[");
    size_t length = strcspn(*text, bracket ? "]" : ":");
    if (length == 0 || length >= LISTEN_HOST_MAX || strcspn(*text, "/@ []%?#") < length)
        return false;
    memcpy(host, *text, length);
    host[length] = '\0';
    *text += length;
    return !bracket || taken(text, "]");
}

bool listen_parse(struct listen_config *listen, const char *text)
{
    const char *at = text;
    char host[LISTEN_HOST_MAX];
    bool tls = taken(&at, "tls+");
    if (strlen(text) >= LISTEN_URL_MAX || !taken(&at, "tcp://") || !host_take(&at, host) ||
        !taken(&at, ":"))
        return false;
    size_t digits = strspn(at, "0123456789");
    int port = digits > 0 && digits <= 5 && !at[digits] ? atoi(at) : 0;
    if (port < 1 || port > 65535)
        return false;
    strcpy(listen->url, text);
    strcpy(listen->host, host);
    snprintf(listen->port, sizeof(listen->port), "%d", port);
    listen->tls = tls;
    return true;
}

static enum status tls_check(const struct listen_config *l, struct error *error)
{
    if (!l->tls_certificate[0] || !l->tls_key[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: %s needs the certificate of this daemon and its key; name the "
                         "files with tls-certificate and tls-key",
                         l->url);
    if (!l->tls_clients[0] && !l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: whoever reaches %s could use the daemon; name the certificates "
                         "that sign those of clients with tls-clients, or a token with token-file, "
                         "or both",
                         l->url);
    return STATUS_OK;
}

// A setting that does nothing was meant to do something.
static enum status useless_check(const struct listen_config *l, struct error *error)
{
    const char *useless = NULL;
    if (l->tls_certificate[0])
        useless = "tls-certificate";
    if (l->tls_key[0])
        useless = "tls-key";
    if (l->tls_clients[0])
        useless = "tls-clients";
    if (useless)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: there is TLS only with listen: tls+tcp://HOST:PORT", useless);
    return STATUS_OK;
}

enum status listen_check(const struct listen_config *l, struct error *error)
{
    if (l->url[0] && l->tls)
        return tls_check(l, error);
    if (l->url[0] && !l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "listen: whoever reaches %s could use the daemon; name a file with a "
                         "token for its clients with token-file, or listen on tls+tcp://",
                         l->url);
    if (!l->url[0] && l->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "token-file: tokens are for clients over a network; say where they come "
                         "in with listen: tcp://HOST:PORT or tls+tcp://HOST:PORT");
    return useless_check(l, error);
}
