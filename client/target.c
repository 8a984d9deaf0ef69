// SPDX-License-Identifier: Apache-2.0
#include "client/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/link_tls.h"
#include "common/net_url.h"

#define PEM_BYTES_MAX (1024 * 1024) // five times the size of a system's root certificates

// NULL: the variable is not set, or empty.
static const char *variable_read(const char *name)
{
    const char *value = secure_getenv(name);
    return value && value[0] ? value : NULL;
}

enum status target_address(const char *given, struct link_target *target, struct error *error)
{
    struct net_url url;
    if (!given)
        given = variable_read("CPATTN_SOCKET");
    if (!given)
        given = CPATTN_SOCKET_PATH;
    size_t length = strlen(given);
    if (net_url_is_meant(given)) {
        if (length >= sizeof target->address || !net_url_parse(given, &url))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "the address of the daemon is '%.100s'; accepted are a path, or "
                             "%s",
                             given, NET_URL_SYNTAX);
    } else if (length == 0 || length >= LINK_PATH_MAX) {
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the path of the socket has %zu characters; accepted are 1 to %d", length,
                         LINK_PATH_MAX - 1);
    }
    memcpy(target->address, given, length + 1);
    return STATUS_OK;
}

// ---- files -------------------------------------------------------------------------------------

static void text_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

// Returns the whole text; NULL if the file is none in PEM.
static char *text_read(FILE *file)
{
    char *text = calloc(1, PEM_BYTES_MAX);
    size_t size = text ? fread(text, 1, PEM_BYTES_MAX, file) : 0;
    if (text && !ferror(file) && size < PEM_BYTES_MAX && strlen(text) == size &&
        strstr(text, "-----BEGIN "))
        return text;
    free(text);
    return NULL;
}

static enum status pem_read(const char *name, const char *path, bool secret, char **text,
                            struct error *error)
{
    struct stat stat_of;
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: cannot read %s: %s", name, path,
                         strerror(errno));
    bool open_to_all = fstat(fileno(file), &stat_of) != 0 || (stat_of.st_mode & S_IROTH);
    char *read = secret && open_to_all ? NULL : text_read(file);
    fclose(file);
    if (read) {
        *text = read;
        return STATUS_OK;
    }
    if (secret && open_to_all)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "%s: %s can be read by everybody; chmod 0600 %s", name, path, path);
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: %s is no file in PEM; accepted is text with a line '-----BEGIN ...'",
                     name, path);
}

// ---- secrets -----------------------------------------------------------------------------------

static const char *given_or(const char *given, const char *variable)
{
    if (!given)
        return variable_read(variable);
    return given[0] ? given : NULL;
}

static enum status tls_read(const struct cpattn_options *o, const char *host,
                            struct nng_tls_config **tls, struct error *error)
{
    const char *ca = given_or(o->tls_ca, "CPATTN_TLS_CA");
    const char *certificate = given_or(o->tls_certificate, "CPATTN_TLS_CERTIFICATE");
    const char *key = given_or(o->tls_key, "CPATTN_TLS_KEY");
    char *texts[3] = {NULL};
    if (!ca)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tls+tcp:// needs to know who signs the daemon's certificate; give the "
                         "file with --tls-ca, or CPATTN_TLS_CA");
    if (!certificate != !key)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a certificate and its key go together: %s is missing",
                         key ? "tls-certificate" : "tls-key");
    enum status status = pem_read("tls-ca", ca, false, &texts[0], error);
    if (status == STATUS_OK && certificate)
        status = pem_read("tls-certificate", certificate, false, &texts[1], error);
    if (status == STATUS_OK && key)
        status = pem_read("tls-key", key, true, &texts[2], error);
    const struct link_tls_pem pem = {texts[0], texts[1], texts[2]};
    if (status == STATUS_OK)
        status = link_tls_create(&pem, host, tls, error);
    for (int i = 0; i < 3; i++)
        text_free(texts[i]);
    return status;
}

enum status target_secrets(const struct cpattn_options *options, struct link_target *target,
                           struct token *token, struct error *error)
{
    struct net_url url;
    const char *token_file = given_or(options->token_file, "CPATTN_TOKEN_FILE");
    if (!net_url_parse(target->address, &url))
        return STATUS_OK;
    enum status status = token_file ? token_read(token_file, token, error) : STATUS_OK;
    if (status == STATUS_OK && url.tls)
        status = tls_read(options, url.host, &target->tls, error);
    if (status != STATUS_OK)
        token_wipe(token);
    return status;
}
