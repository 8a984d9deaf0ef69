// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// TLS 1.2 ciphers with forward secrecy and authenticated encryption; all ciphers of TLS 1.3 have
// both.
#define SUITES_12 "ECDHE+AESGCM:ECDHE+CHACHA20"
// Key exchanges offered to clients; each takes a fraction of a millisecond.
#define GROUPS    "X25519:P-256:P-384"

// Limits of a client's certificate chain: intermediate certificates, and bytes. The library looks
// up the issuers by name and then verifies from the trusted end, so it never uses an untrusted key.
#define CHAIN_BETWEEN_MAX 3
#define CHAIN_BYTES_MAX   (16 * 1024)
// Upper bound of the authority names sent to clients, which choose their certificate by them.
#define SIGNERS_TOLD_MAX  32

struct tls {
    int holders;   // references
    bool connects; // from tls_connect_create()
    enum tls_version version_min;
    SSL_CTX *context;
    BIO_METHOD *pipe;
};

struct tls_session {
    struct tls *tls;
    struct tls_pipe pipe;
    SSL *ssl;
    bool ended;      // the pipe has reported its end
    char fault[160]; // text of server_fault()
};

const char *tls_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}

// ---- the pipe ----------------------------------------------------------------------------------

static int pipe_write(BIO *bio, const char *data, size_t size, size_t *written)
{
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!s->pipe.write(s->pipe.context, data, size))
        return 0;
    *written = size;
    return 1;
}

static int pipe_read(BIO *bio, char *data, size_t size, size_t *got)
{
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t result = s->pipe.read(s->pipe.context, data, size);
    if (result > 0) {
        *got = (size_t)result;
        return 1;
    }
    if (result < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    else
        s->ended = true;
    return 0;
}

static long pipe_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *pipe_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "connection");
    if (method && BIO_meth_set_write_ex(method, pipe_write) &&
        BIO_meth_set_read_ex(method, pipe_read) && BIO_meth_set_ctrl(method, pipe_control))
        return method;
    BIO_meth_free(method);
    return NULL;
}

// ---- files -------------------------------------------------------------------------------------

static enum status file_refused(const char *setting, const char *path, struct error *error)
{
    unsigned long code = ERR_peek_error();
    const char *reason = ERR_reason_error_string(code);
    if (ERR_SYSTEM_ERROR(code))
        reason = strerror(ERR_GET_REASON(code));
    else if (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE)
        reason = strcmp(setting, "tls-key") == 0 ? "it has no key in PEM"
                                                 : "it has no certificate in PEM";
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s: %s", setting, path,
                     reason ? reason : "its contents are not valid");
}

static int no_password(char *text, int size, int writing, void *context)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static enum status key_read(const char *key, const char *certificate, SSL_CTX *context,
                            struct error *error)
{
    struct stat stat_of;
    if (stat(key, &stat_of) == 0 && (stat_of.st_mode & (S_IROTH | S_IWOTH)))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "tls-key: %s can be read by others; chmod 0600 %s", key, key);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
        return STATUS_OK;
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tls-key: %s is not the key of the first certificate in %s", key,
                         certificate);
    return file_refused("tls-key", key, error);
}

// Loads authorities and revocation lists. If the file has any list, the issuer of each client
// certificate must have one.
static enum status clients_read(const char *path, SSL_CTX *context, struct error *error)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    int signers = 0, lists = 0;
    if (X509_STORE_load_file(store, path) != 1)
        return file_refused("tls-clients", path, error);
    const STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(store);
    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        const X509_OBJECT *object = sk_X509_OBJECT_value(objects, i);
        X509 *certificate = X509_OBJECT_get0_X509(object);
        lists += X509_OBJECT_get0_X509_CRL(object) != NULL;
        signers += certificate != NULL;
        if (certificate && signers <= SIGNERS_TOLD_MAX)
            SSL_CTX_add_client_CA(context, certificate);
    }
    if (signers == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "tls-clients: %s has no certificate",
                         path);
    if (lists > 0)
        X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    return STATUS_OK;
}

static bool clients_given(const struct tls_files *files)
{
    return files->clients && files->clients[0];
}

static enum status own_read(const char *certificate, const char *key, SSL_CTX *context,
                            struct error *error)
{
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        return file_refused("tls-certificate", certificate, error);
    return key_read(key, certificate, context, error);
}

static enum status files_read(const struct tls_files *files, SSL_CTX *context, struct error *error)
{
    enum status status = own_read(files->certificate, files->key, context, error);
    if (status == STATUS_OK && clients_given(files))
        status = clients_read(files->clients, context, error);
    return status;
}

// ---- what sessions have in common --------------------------------------------------------------

static bool versions_set(SSL_CTX *context, enum tls_version version_min)
{
    int version = version_min == TLS_VERSION_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
    return SSL_CTX_set_min_proto_version(context, version) == 1 &&
           SSL_CTX_set_cipher_list(context, SUITES_12) == 1 &&
           SSL_CTX_set1_groups_list(context, GROUPS) == 1;
}

// Requires client certificates. Certificates in tls-clients are trusted even if they are no roots.
static void clients_ask(SSL_CTX *context)
{
    X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(context, CHAIN_BETWEEN_MAX);
    SSL_CTX_set_max_cert_list(context, CHAIN_BYTES_MAX);
}

static bool context_set(SSL_CTX *context, enum tls_version version_min)
{
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                     SSL_OP_NO_COMPRESSION | SSL_OP_CLEANSE_PLAINTEXT |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_security_level(context, 2);
    return versions_set(context, version_min);
}

// Returns a context with the settings that both sides share. NULL with the error: memory is short.
static struct tls *tls_make(const SSL_METHOD *method, enum tls_version version_min,
                            struct error *error)
{
    struct tls *t = calloc(1, sizeof(*t));
    ERR_clear_error();
    if (t) {
        t->holders = 1;
        t->version_min = version_min;
        t->context = SSL_CTX_new(method);
        t->pipe = pipe_method();
    }
    if (t && t->context && t->pipe && context_set(t->context, version_min))
        return t;
    tls_release(t);
    error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for TLS");
    return NULL;
}

static enum status tls_give(struct tls *t, enum status status, struct tls **tls)
{
    if (status == STATUS_OK)
        *tls = t;
    else
        tls_release(t);
    ERR_clear_error();
    return status;
}

enum status tls_create(const struct tls_files *files, struct tls **tls, struct error *error)
{
    struct tls *t = tls_make(TLS_server_method(), files->version_min, error);
    if (!t)
        return error->status;
    if (clients_given(files))
        clients_ask(t->context);
    return tls_give(t, files_read(files, t->context, error), tls);
}

enum status tls_connect_create(const struct tls_connect_files *files, struct tls **tls,
                               struct error *error)
{
    struct tls *t = tls_make(TLS_client_method(), TLS_VERSION_1_2, error);
    enum status status = STATUS_OK;
    if (!t)
        return error->status;
    t->connects = true;
    SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
    X509_STORE_set_flags(SSL_CTX_get_cert_store(t->context), X509_V_FLAG_PARTIAL_CHAIN);
    if (X509_STORE_load_file(SSL_CTX_get_cert_store(t->context), files->authorities) != 1)
        status = file_refused("tls-ca", files->authorities, error);
    if (status == STATUS_OK && files->certificate && files->certificate[0])
        status = own_read(files->certificate, files->key, t->context, error);
    return tls_give(t, status, tls);
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
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->pipe);
    free(tls);
}

const char *tls_own_fault(const struct tls *tls)
{
    const X509 *own = SSL_CTX_get0_certificate(tls->context);
    if (own && X509_cmp_current_time(X509_get0_notAfter(own)) < 0)
        return "it has expired; clients and agents refuse it";
    if (own && X509_cmp_current_time(X509_get0_notBefore(own)) > 0)
        return "it is not valid yet; clients and agents refuse it";
    return NULL;
}

// ---- sessions ----------------------------------------------------------------------------------

static struct tls_session *session_make(struct tls *tls, const struct tls_pipe *pipe)
{
    struct tls_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->tls = tls_hold(tls);
    s->pipe = *pipe;
    s->ssl = SSL_new(tls->context);
    BIO *bio = s->ssl ? BIO_new(tls->pipe) : NULL;
    if (!bio) {
        tls_session_destroy(s);
        return NULL;
    }
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    return s;
}

struct tls_session *tls_session_create(struct tls *tls, const struct tls_pipe *pipe)
{
    struct tls_session *s = session_make(tls, pipe);
    if (s)
        SSL_set_accept_state(s->ssl);
    return s;
}

struct tls_session *tls_session_connect(struct tls *tls, const struct tls_pipe *pipe,
                                        const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    struct tls_session *s = session_make(tls, pipe);
    if (!s)
        return NULL;
    bool number = inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
    bool set =
        number ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s->ssl), host) == 1
               : SSL_set1_host(s->ssl, host) == 1 && SSL_set_tlsext_host_name(s->ssl, host) == 1;
    if (!set) {
        tls_session_destroy(s);
        return NULL;
    }
    SSL_set_connect_state(s->ssl);
    return s;
}

void tls_session_destroy(struct tls_session *s)
{
    if (!s)
        return;
    SSL_free(s->ssl);
    tls_release(s->tls);
    free(s);
}

static const char *certificate_fault(const struct tls_session *s)
{
    switch (SSL_get_verify_result(s->ssl)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "its certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "its certificate is not valid yet";
    case X509_V_ERR_CERT_REVOKED:
        return "its certificate is revoked";
    case X509_V_ERR_UNABLE_TO_GET_CRL:
        return "tls-clients has no revocation list of the issuer of its certificate";
    case X509_V_ERR_CRL_HAS_EXPIRED:
        return "the list of revoked certificates in tls-clients has expired";
    case X509_V_ERR_CERT_CHAIN_TOO_LONG:
        return "its chain of certificates is too long";
    case X509_V_ERR_INVALID_PURPOSE:
        return "its certificate is not issued for clients";
    case X509_V_ERR_EE_KEY_TOO_SMALL:
    case X509_V_ERR_CA_KEY_TOO_SMALL:
    case X509_V_ERR_CA_MD_TOO_WEAK:
        return "its certificate has a key or digest that is too weak";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
        return "its certificate is not signed by one of those in tls-clients";
    default:
        return "its certificate is not good enough";
    }
}

// Describes the failure for the connecting side, which checks the server's certificate and name.
static const char *server_fault(struct tls_session *s, unsigned long code)
{
    long result = SSL_get_verify_result(s->ssl);
    const char *reason = ERR_reason_error_string(code);
    if (result != X509_V_OK)
        snprintf(s->fault, sizeof(s->fault), "its certificate is not accepted: %s",
                 X509_verify_cert_error_string(result));
    else if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        return "it does not use TLS; a daemon without TLS is at tcp://HOST:PORT";
    else
        snprintf(s->fault, sizeof(s->fault), "TLS fails: %s", reason ? reason : "no reason known");
    return s->fault;
}

static const char *fault_of(struct tls_session *s, unsigned long code)
{
    int reason = ERR_GET_REASON(code);
    if (s->tls->connects)
        return server_fault(s, code);
    if (reason == ERR_R_MALLOC_FAILURE)
        return "memory is short for its TLS";
    if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET)
        return "it has refused something of the TLS handshake";
    switch (ERR_GET_LIB(code) == ERR_LIB_SSL ? reason : 0) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return "it has no certificate";
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return certificate_fault(s);
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
        return "its certificates, or another message of its handshake, are too large";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_WRONG_SSL_VERSION:
        return s->tls->version_min == TLS_VERSION_1_3
                   ? "it speaks TLS 1.2 or older, and tls-version-min is 1.3"
                   : "it speaks TLS 1.1 or older, and this daemon nothing older than TLS 1.2";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
        return "it supports no cipher or no group of this daemon";
    default:
        return "it violates the TLS protocol";
    }
}

// Converts a failed result of an OpenSSL call: more bytes are needed, the end, or a fault.
static enum tls_result result_of(struct tls_session *s, int result, const char **fault)
{
    unsigned long code = ERR_peek_last_error(); // lower layers queue theirs before it
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return TLS_NOTHING;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_ENDED;
    default:
        break;
    }
    if (s->ended)
        return TLS_ENDED;
    *fault = fault_of(s, code);
    return TLS_BROKEN;
}

enum tls_result tls_session_shake(struct tls_session *s, const char **fault)
{
    ERR_clear_error();
    int result = SSL_do_handshake(s->ssl);
    enum tls_result told = result == 1 ? TLS_DONE : result_of(s, result, fault);
    ERR_clear_error();
    return told;
}

// XN_FLAG_RFC2253 escapes control characters and characters outside of ASCII as numbers.
bool tls_session_subject(const struct tls_session *s, char *text, size_t size)
{
    const X509 *certificate = SSL_get0_peer_certificate(s->ssl);
    text[0] = '\0';
    if (!certificate)
        return true;
    BIO *out = BIO_new(BIO_s_mem());
    char *written = NULL;
    bool done =
        out && X509_NAME_print_ex(out, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) >= 0;
    size_t length = done ? (size_t)BIO_get_mem_data(out, &written) : 0;
    done = done && length < size;
    for (size_t i = 0; done && i < length; i++)
        done = written[i] >= ' ' && written[i] <= '~';
    if (done) {
        memcpy(text, written, length);
        text[length] = '\0';
    }
    BIO_free(out);
    return done;
}

enum tls_result tls_session_read(struct tls_session *s, void *data, size_t size, size_t *got,
                                 const char **fault)
{
    ERR_clear_error();
    int result = SSL_read_ex(s->ssl, data, size, got);
    enum tls_result told = result == 1 ? TLS_DONE : result_of(s, result, fault);
    ERR_clear_error();
    return told;
}

bool tls_session_has_more(const struct tls_session *s)
{
    return SSL_pending(s->ssl) > 0;
}

bool tls_session_write(struct tls_session *s, const void *data, size_t size)
{
    size_t written = 0;
    ERR_clear_error();
    bool done = size == 0 || SSL_write_ex(s->ssl, data, size, &written) == 1;
    ERR_clear_error();
    return done;
}
