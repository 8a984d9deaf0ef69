// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/tls.h"

#include <errno.h>
#include <mbedtls/error.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "daemon/net/chain_screen.h"

#define FAULT_TEXT_MAX 160

struct tls {
    int holders;
    mbedtls_ssl_config config;
    mbedtls_x509_crt certificate, clients;
    mbedtls_pk_context key;
};

struct tls_session {
    struct tls *tls;
    struct tls_pipe pipe;
    mbedtls_ssl_context ssl;
    struct chain_screen screen;
    bool refused; // by it
};

// Forward secrecy, and ciphers that authenticate what they encipher.
static const int suites[] = {
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    0,
};

const char *tls_library(void)
{
    return MBEDTLS_VERSION_STRING_FULL;
}

static int random_get(void *context, unsigned char *data, size_t size)
{
    (void)context;
    for (size_t at = 0; at < size;) {
        ssize_t got = getrandom(data + at, size - at, 0);
        if (got < 0 && errno != EINTR)
            return MBEDTLS_ERR_SSL_INTERNAL_ERROR;
        at += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

// ---- files -------------------------------------------------------------------------------------

static enum status file_refused(const char *setting, const char *path, int result,
                                struct error *error)
{
    char text[FAULT_TEXT_MAX];
    if (result > 0) { // so many certificates of the file cannot be read
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: %s: %d of its certificates cannot be read", setting, path, result);
    }
    mbedtls_strerror(result, text, sizeof(text));
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s: %s", setting, path, text);
}

static enum status certificates_read(const char *setting, const char *path, mbedtls_x509_crt *list,
                                     struct error *error)
{
    int result = mbedtls_x509_crt_parse_file(list, path);
    return result == 0 ? STATUS_OK : file_refused(setting, path, result, error);
}

static enum status key_read(const struct tls_files *files, struct tls *tls, struct error *error)
{
    struct stat stat_of;
    if (stat(files->key, &stat_of) == 0 && (stat_of.st_mode & (S_IROTH | S_IWOTH)))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "tls-key: %s can be read by others; chmod 0600 %s", files->key,
                         files->key);
    int result = mbedtls_pk_parse_keyfile(&tls->key, files->key, NULL);
    if (result != 0)
        return file_refused("tls-key", files->key, result, error);
    if (mbedtls_pk_check_pair(&tls->certificate.pk, &tls->key) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tls-key: %s is not the key of the first certificate in %s", files->key,
                         files->certificate);
    return STATUS_OK;
}

static enum status files_read(const struct tls_files *files, struct tls *tls, struct error *error)
{
    enum status status =
        certificates_read("tls-certificate", files->certificate, &tls->certificate, error);
    if (status == STATUS_OK)
        status = key_read(files, tls, error);
    if (status == STATUS_OK && files->clients && files->clients[0])
        status = certificates_read("tls-clients", files->clients, &tls->clients, error);
    return status;
}

static int configure(struct tls *tls, bool clients)
{
    mbedtls_ssl_config *config = &tls->config;
    int result = mbedtls_ssl_config_defaults(
        config, MBEDTLS_SSL_IS_SERVER, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
    if (result != 0)
        return result;
    mbedtls_ssl_conf_rng(config, random_get, NULL);
    mbedtls_ssl_conf_min_version(config, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
    mbedtls_ssl_conf_ciphersuites(config, suites);
    mbedtls_ssl_conf_authmode(config,
                              clients ? MBEDTLS_SSL_VERIFY_REQUIRED : MBEDTLS_SSL_VERIFY_NONE);
    if (clients)
        mbedtls_ssl_conf_ca_chain(config, &tls->clients, NULL);
    return mbedtls_ssl_conf_own_cert(config, &tls->certificate, &tls->key);
}

enum status tls_create(const struct tls_files *files, struct tls **tls, struct error *error)
{
    struct tls *t = calloc(1, sizeof(*t));
    if (!t)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for TLS");
    t->holders = 1;
    mbedtls_ssl_config_init(&t->config);
    mbedtls_x509_crt_init(&t->certificate);
    mbedtls_x509_crt_init(&t->clients);
    mbedtls_pk_init(&t->key);
    enum status status = files_read(files, t, error);
    if (status == STATUS_OK && configure(t, files->clients && files->clients[0]) != 0)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for TLS");
    if (status == STATUS_OK)
        *tls = t;
    else
        tls_release(t);
    return status;
}

struct tls *tls_hold(struct tls *tls)
{
    tls->holders++;
    return tls;
}

void tls_release(struct tls *tls)
{
    if (!tls || --tls->holders > 0)
        return;
    mbedtls_ssl_config_free(&tls->config);
    mbedtls_x509_crt_free(&tls->certificate);
    mbedtls_x509_crt_free(&tls->clients);
    mbedtls_pk_free(&tls->key);
    free(tls);
}

// ---- sessions ----------------------------------------------------------------------------------

static int pipe_write(void *context, const unsigned char *data, size_t size)
{
    struct tls_session *s = context;
    return s->pipe.write(s->pipe.context, data, size) ? (int)size : MBEDTLS_ERR_SSL_CONN_EOF;
}

static int pipe_read(void *context, unsigned char *data, size_t size)
{
    struct tls_session *s = context;
    ssize_t got = s->pipe.read(s->pipe.context, data, size);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return MBEDTLS_ERR_SSL_WANT_READ;
    if (got > 0 && !chain_screen_pass(&s->screen, data, (size_t)got)) {
        s->refused = true;
        return MBEDTLS_ERR_SSL_CONN_EOF;
    }
    return got > 0 ? (int)got : MBEDTLS_ERR_SSL_CONN_EOF;
}

struct tls_session *tls_session_create(struct tls *tls, const struct tls_pipe *pipe)
{
    struct tls_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->tls = tls_hold(tls);
    s->pipe = *pipe;
    mbedtls_ssl_init(&s->ssl);
    if (mbedtls_ssl_setup(&s->ssl, &tls->config) != 0) {
        tls_session_destroy(s);
        return NULL;
    }
    mbedtls_ssl_set_bio(&s->ssl, s, pipe_write, pipe_read, NULL);
    return s;
}

void tls_session_destroy(struct tls_session *s)
{
    if (!s)
        return;
    mbedtls_ssl_free(&s->ssl);
    tls_release(s->tls);
    free(s);
}

static const char *certificate_fault(const struct tls_session *s)
{
    uint32_t flags = mbedtls_ssl_get_verify_result(&s->ssl);
    if (flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED)
        return "its certificate is not signed by one of those in tls-clients";
    if (flags & MBEDTLS_X509_BADCERT_EXPIRED)
        return "its certificate has expired";
    if (flags & MBEDTLS_X509_BADCERT_FUTURE)
        return "its certificate is not valid yet";
    return "its certificate is not good enough";
}

static const char *fault_of(const struct tls_session *s, int result)
{
    switch (result) {
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
        return "it has no certificate";
    case MBEDTLS_ERR_X509_CERT_VERIFY_FAILED:
    case MBEDTLS_ERR_SSL_BAD_HS_CERTIFICATE:
        return certificate_fault(s);
    case MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE:
        return "it has refused something of the TLS handshake";
    case MBEDTLS_ERR_SSL_ALLOC_FAILED:
    case MBEDTLS_ERR_X509_ALLOC_FAILED:
    case MBEDTLS_ERR_MPI_ALLOC_FAILED:
        return "memory is short for its TLS";
    default:
        return "it does not speak TLS 1.2 as it should";
    }
}

// What a call gave that was to give bytes or nothing.
static enum tls_result result_of(const struct tls_session *s, int result, const char **fault)
{
    if (s->refused) {
        *fault = "it has sent more certificates than its own";
        return TLS_BROKEN;
    }
    switch (result) {
    case MBEDTLS_ERR_SSL_WANT_READ:
    case MBEDTLS_ERR_SSL_WANT_WRITE:
        return TLS_NOTHING;
    case MBEDTLS_ERR_SSL_CONN_EOF:
    case MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY:
        return TLS_ENDED;
    default:
        *fault = fault_of(s, result);
        return TLS_BROKEN;
    }
}

enum tls_result tls_session_shake(struct tls_session *s, const char **fault)
{
    int result = mbedtls_ssl_handshake(&s->ssl);
    return result == 0 ? TLS_DONE : result_of(s, result, fault);
}

enum tls_result tls_session_read(struct tls_session *s, void *data, size_t size, size_t *got,
                                 const char **fault)
{
    int result = mbedtls_ssl_read(&s->ssl, data, size);
    if (result > 0)
        *got = (size_t)result;
    else if (result == 0)
        return TLS_ENDED;
    return result > 0 ? TLS_DONE : result_of(s, result, fault);
}

bool tls_session_has_more(const struct tls_session *s)
{
    return mbedtls_ssl_get_bytes_avail(&s->ssl) > 0;
}

bool tls_session_write(struct tls_session *s, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        int result = mbedtls_ssl_write(&s->ssl, (const unsigned char *)data + at, size - at);
        if (result <= 0)
            return false;
        at += (size_t)result;
    }
    return true;
}
