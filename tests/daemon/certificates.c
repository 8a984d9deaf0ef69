// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/certificates.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/runner.h"

#define YES(call) ck_assert_int_eq(call, 1)

// ---- certificates ------------------------------------------------------------------------------

static FILE *file_open(const char *path, const char *mode)
{
    mode_t mask = umask(0077);
    FILE *file = fopen(path, mode);
    umask(mask);
    ck_assert_ptr_nonnull(file);
    return file;
}

static void extension_add(X509 *x509, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    ck_assert_ptr_nonnull(extension);
    YES(X509_add_ext(x509, extension, -1));
    X509_EXTENSION_free(extension);
}

static void name_add(X509 *x509, const char *field, const char *text)
{
    YES(X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), field, MBSTRING_UTF8,
                                   (const unsigned char *)text, -1, -1, 0));
}

static void fill(struct certificate *c, const char *common_name, const struct certificate *issuer,
                 const struct certificate_kind *kind)
{
    static long serial;
    YES(X509_set_version(c->x509, X509_VERSION_3));
    YES(ASN1_INTEGER_set(X509_get_serialNumber(c->x509), ++serial));
    name_add(c->x509, "CN", common_name);
    if (kind->unit)
        name_add(c->x509, "OU", kind->unit);
    YES(X509_set_issuer_name(c->x509, X509_get_subject_name(issuer->x509)));
    YES(X509_set_pubkey(c->x509, c->key));
    YES(ASN1_TIME_set_string(X509_getm_notBefore(c->x509),
                             kind->future ? "20480101000000Z" : "20200101000000Z"));
    YES(ASN1_TIME_set_string(X509_getm_notAfter(c->x509),
                             kind->expired ? "20210101000000Z" : "20491231000000Z"));
    extension_add(c->x509, NID_basic_constraints,
                  kind->authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (!strchr(common_name, ' ')) { // the name of a host
        char names[256];
        bool address = common_name[strspn(common_name, "0123456789.")] == '\0';
        snprintf(names, sizeof(names), address ? "DNS:%s,IP:%s" : "DNS:%s", common_name,
                 common_name);
        extension_add(c->x509, NID_subject_alt_name, names);
    }
    if (kind->for_servers)
        extension_add(c->x509, NID_ext_key_usage, "serverAuth");
    if (kind->comment_bytes > 0) {
        char *comment = malloc(kind->comment_bytes + 1);
        memset(comment, 'x', kind->comment_bytes);
        comment[kind->comment_bytes] = '\0';
        extension_add(c->x509, NID_netscape_comment, comment);
        free(comment);
    }
}

void certificate_make(struct certificate *c, const char *folder, const char *word,
                      const char *common_name, const struct certificate *issuer,
                      struct certificate_kind kind)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->file, sizeof(c->file), "%s/%s.pem", folder, word);
    snprintf(c->key_file, sizeof(c->key_file), "%s/%s.key", folder, word);
    c->key = kind.weak ? EVP_RSA_gen(1024) : EVP_EC_gen("P-256");
    c->x509 = X509_new();
    ck_assert(c->key && c->x509);
    fill(c, common_name, issuer ? issuer : c, &kind);
    ck_assert_int_gt(X509_sign(c->x509, (issuer ? issuer : c)->key, EVP_sha256()), 0);
    FILE *file = file_open(c->file, "we");
    YES(PEM_write_X509(file, c->x509));
    ck_assert_int_eq(fclose(file), 0);
    file = file_open(c->key_file, "we");
    YES(PEM_write_PrivateKey(file, c->key, NULL, NULL, 0, NULL, NULL));
    ck_assert_int_eq(fclose(file), 0);
}

void certificate_revoke(const struct certificate *issuer, const struct certificate *revoked)
{
    X509_CRL *list = X509_CRL_new();
    ASN1_TIME *begin = ASN1_TIME_new(), *end = ASN1_TIME_new();
    YES(ASN1_TIME_set_string(begin, "20200101000000Z"));
    YES(ASN1_TIME_set_string(end, "20491231000000Z"));
    YES(X509_CRL_set_version(list, X509_CRL_VERSION_2));
    YES(X509_CRL_set_issuer_name(list, X509_get_subject_name(issuer->x509)));
    YES(X509_CRL_set1_lastUpdate(list, begin));
    YES(X509_CRL_set1_nextUpdate(list, end));
    if (revoked) {
        X509_REVOKED *entry = X509_REVOKED_new();
        YES(X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(revoked->x509)));
        YES(X509_REVOKED_set_revocationDate(entry, begin));
        YES(X509_CRL_add0_revoked(list, entry));
    }
    ck_assert_int_gt(X509_CRL_sign(list, issuer->key, EVP_sha256()), 0);
    FILE *file = file_open(issuer->file, "ae");
    YES(PEM_write_X509_CRL(file, list));
    ck_assert_int_eq(fclose(file), 0);
    ASN1_TIME_free(begin);
    ASN1_TIME_free(end);
    X509_CRL_free(list);
}

void certificate_remove(struct certificate *c)
{
    if (!c->file[0])
        return;
    unlink(c->file);
    unlink(c->key_file);
    X509_free(c->x509);
    EVP_PKEY_free(c->key);
    memset(c, 0, sizeof(*c));
}

// ---- the client --------------------------------------------------------------------------------

static void configure(SSL_CTX *context, const struct tls_client_options *o)
{
    SSL_CTX_set_security_level(context, 0); // test clients may use weak keys and versions
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    if (o->version_max)
        YES(SSL_CTX_set_max_proto_version(context, o->version_max));
    SSL_CTX_set_verify(context, o->trusted ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    if (o->trusted)
        YES(SSL_CTX_load_verify_file(context, o->trusted->file));
    if (!o->own)
        return;
    YES(SSL_CTX_use_certificate_file(context, o->own->file, SSL_FILETYPE_PEM));
    for (int i = 0; i < o->above_count; i++)
        YES(SSL_CTX_add1_chain_cert(context, o->above[i].x509));
    YES(SSL_CTX_use_PrivateKey_file(context, o->own->key_file, SSL_FILETYPE_PEM));
}

void tls_client_prepare(struct tls_client *t, int fd, const struct tls_client_options *options)
{
    signal(SIGPIPE, SIG_IGN);
    t->fd = fd;
    t->context = SSL_CTX_new(TLS_client_method());
    ck_assert_ptr_nonnull(t->context);
    configure(t->context, options);
    t->ssl = SSL_new(t->context);
    ck_assert_ptr_nonnull(t->ssl);
    if (options->trusted)
        YES(SSL_set1_host(t->ssl, "127.0.0.1"));
    YES(SSL_set_fd(t->ssl, fd));
    SSL_set_connect_state(t->ssl);
}

bool tls_client_step(struct tls_client *t)
{
    return SSL_do_handshake(t->ssl) == 1;
}

bool tls_client_open(struct tls_client *t, int fd, const struct tls_client_options *options)
{
    tls_client_prepare(t, fd, options);
    return tls_client_step(t);
}

void tls_client_close(struct tls_client *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->context);
    close(t->fd);
}

bool tls_client_send(struct tls_client *t, const void *data, size_t size)
{
    return SSL_write(t->ssl, data, (int)size) == (int)size;
}

bool tls_client_read(struct tls_client *t, void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        int got = SSL_read(t->ssl, (char *)data + at, (int)(size - at));
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}
