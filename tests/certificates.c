// SPDX-License-Identifier: Apache-2.0
#include "tests/certificates.h"

#include <errno.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/runner.h"

#define PEM_MAX 4096

static int random_get(void *context, unsigned char *data, size_t size)
{
    (void)context;
    return getrandom(data, size, 0) == (ssize_t)size ? 0 : -1;
}

// ---- certificates ------------------------------------------------------------------------------

static void file_write(const char *path, const unsigned char *text)
{
    mode_t mask = umask(0077);
    FILE *file = fopen(path, "we");
    umask(mask);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs((const char *)text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void key_make(struct certificate *c)
{
    unsigned char text[PEM_MAX];
    mbedtls_pk_init(&c->key);
    ck_assert_int_eq(mbedtls_pk_setup(&c->key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)), 0);
    ck_assert_int_eq(
        mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(c->key), random_get, NULL), 0);
    ck_assert_int_eq(mbedtls_pk_write_key_pem(&c->key, text, sizeof(text)), 0);
    file_write(c->key_file, text);
}

static void certificate_sign(struct certificate *c, const struct certificate *issuer,
                             struct certificate_kind kind)
{
    static int serial;
    unsigned char text[PEM_MAX];
    mbedtls_x509write_cert write;
    mbedtls_mpi number;
    mbedtls_x509write_crt_init(&write);
    mbedtls_mpi_init(&number);
    mbedtls_x509write_crt_set_md_alg(&write, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(&write, &c->key);
    mbedtls_x509write_crt_set_issuer_key(&write, (mbedtls_pk_context *)(uintptr_t)&issuer->key);
    ck_assert_int_eq(mbedtls_x509write_crt_set_subject_name(&write, c->name), 0);
    ck_assert_int_eq(mbedtls_x509write_crt_set_issuer_name(&write, issuer->name), 0);
    ck_assert_int_eq(mbedtls_mpi_lset(&number, ++serial), 0);
    ck_assert_int_eq(mbedtls_x509write_crt_set_serial(&write, &number), 0);
    ck_assert_int_eq(
        mbedtls_x509write_crt_set_validity(&write, "20200101000000",
                                           kind.expired ? "20210101000000" : "20491231000000"),
        0);
    ck_assert_int_eq(mbedtls_x509write_crt_set_basic_constraints(&write, kind.authority, -1), 0);
    ck_assert_int_eq(mbedtls_x509write_crt_pem(&write, text, sizeof(text), random_get, NULL), 0);
    mbedtls_mpi_free(&number);
    mbedtls_x509write_crt_free(&write);
    file_write(c->file, text);
}

void certificate_make(struct certificate *c, const char *folder, const char *word,
                      const char *common_name, const struct certificate *issuer,
                      struct certificate_kind kind)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->file, sizeof(c->file), "%s/%s.pem", folder, word);
    snprintf(c->key_file, sizeof(c->key_file), "%s/%s.key", folder, word);
    snprintf(c->name, sizeof(c->name), "CN=%s", common_name);
    key_make(c);
    certificate_sign(c, issuer ? issuer : c, kind);
}

void certificate_remove(struct certificate *c)
{
    if (!c->file[0])
        return;
    unlink(c->file);
    unlink(c->key_file);
    mbedtls_pk_free(&c->key);
    memset(c, 0, sizeof(*c));
}

// ---- the client --------------------------------------------------------------------------------

static int pipe_send(void *context, const unsigned char *data, size_t size)
{
    ssize_t sent = send(*(int *)context, data, size, MSG_NOSIGNAL);
    return sent >= 0 ? (int)sent : MBEDTLS_ERR_SSL_CONN_EOF;
}

static int pipe_receive(void *context, unsigned char *data, size_t size)
{
    ssize_t got = recv(*(int *)context, data, size, 0);
    return got > 0 ? (int)got : MBEDTLS_ERR_SSL_CONN_EOF;
}

static void configure(struct tls_client *t, const struct tls_client_options *o)
{
    ck_assert_int_eq(mbedtls_ssl_config_defaults(&t->config, MBEDTLS_SSL_IS_CLIENT,
                                                 MBEDTLS_SSL_TRANSPORT_STREAM,
                                                 MBEDTLS_SSL_PRESET_DEFAULT),
                     0);
    mbedtls_ssl_conf_rng(&t->config, random_get, NULL);
    mbedtls_ssl_conf_authmode(&t->config,
                              o->trusted ? MBEDTLS_SSL_VERIFY_REQUIRED : MBEDTLS_SSL_VERIFY_NONE);
    if (o->version_max)
        mbedtls_ssl_conf_max_version(&t->config, MBEDTLS_SSL_MAJOR_VERSION_3, o->version_max);
    if (o->renegotiates)
        mbedtls_ssl_conf_renegotiation(&t->config, MBEDTLS_SSL_RENEGOTIATION_ENABLED);
    if (o->trusted) {
        ck_assert_int_eq(mbedtls_x509_crt_parse_file(&t->trusted, o->trusted->file), 0);
        mbedtls_ssl_conf_ca_chain(&t->config, &t->trusted, NULL);
    }
    if (o->own) {
        ck_assert_int_eq(mbedtls_x509_crt_parse_file(&t->own, o->own->file), 0);
        if (o->above)
            ck_assert_int_eq(mbedtls_x509_crt_parse_file(&t->own, o->above->file), 0);
        ck_assert_int_eq(mbedtls_pk_parse_keyfile(&t->key, o->own->key_file, NULL), 0);
        ck_assert_int_eq(mbedtls_ssl_conf_own_cert(&t->config, &t->own, &t->key), 0);
    }
}

int tls_client_open(struct tls_client *t, int fd, const struct tls_client_options *options)
{
    t->fd = fd;
    mbedtls_ssl_config_init(&t->config);
    mbedtls_ssl_init(&t->ssl);
    mbedtls_x509_crt_init(&t->trusted);
    mbedtls_x509_crt_init(&t->own);
    mbedtls_pk_init(&t->key);
    configure(t, options);
    ck_assert_int_eq(mbedtls_ssl_setup(&t->ssl, &t->config), 0);
    ck_assert_int_eq(mbedtls_ssl_set_hostname(&t->ssl, "127.0.0.1"), 0);
    mbedtls_ssl_set_bio(&t->ssl, &t->fd, pipe_send, pipe_receive, NULL);
    return mbedtls_ssl_handshake(&t->ssl);
}

void tls_client_close(struct tls_client *t)
{
    mbedtls_ssl_free(&t->ssl);
    mbedtls_ssl_config_free(&t->config);
    mbedtls_x509_crt_free(&t->trusted);
    mbedtls_x509_crt_free(&t->own);
    mbedtls_pk_free(&t->key);
    close(t->fd);
}

bool tls_client_send(struct tls_client *t, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        int sent = mbedtls_ssl_write(&t->ssl, (const unsigned char *)data + at, size - at);
        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

bool tls_client_read(struct tls_client *t, void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        int got = mbedtls_ssl_read(&t->ssl, (unsigned char *)data + at, size - at);
        if (got <= 0)
            return false;
        at += (size_t)got;
    }
    return true;
}
