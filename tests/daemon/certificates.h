// SPDX-License-Identifier: Apache-2.0
// Certificates made for a test, and a client that speaks TLS by hand. A function that cannot do its
// work fails the running test, unless its comment says otherwise.
#ifndef CPATTN_TESTS_DAEMON_CERTIFICATES_H
#define CPATTN_TESTS_DAEMON_CERTIFICATES_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#define CERTIFICATES_PATH_MAX 160

struct certificate {
    char file[CERTIFICATES_PATH_MAX], key_file[CERTIFICATES_PATH_MAX]; // PEM
    X509 *x509;
    EVP_PKEY *key;
};

// Makes a key and a certificate with this common name (for a server: the host's name), and writes
// them to FOLDER/WORD.pem and FOLDER/WORD.key. `issuer` signs the certificate; NULL: it signs
// itself. It is valid from 2020 to 2049.
// - authority: it may sign others
// - expired, future: valid until 2021; valid from 2048
// - for_servers: valid for servers only
// - weak: its key is too short
// - comment_bytes: makes the certificate larger by as much
// - unit: one more part of the subject, in UTF-8; NULL: none
struct certificate_kind {
    bool authority, expired, future, for_servers, weak;
    size_t comment_bytes;
    const char *unit;
};
void certificate_make(struct certificate *c, const char *folder, const char *word,
                      const char *common_name, const struct certificate *issuer,
                      struct certificate_kind kind);

// Adds a revocation list to the file of `issuer`, with `revoked` (NULL: empty).
void certificate_revoke(const struct certificate *issuer, const struct certificate *revoked);

// Frees the certificate and removes its files. Accepts a zeroed one.
void certificate_remove(struct certificate *c);

struct tls_client {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
};

struct tls_client_options {
    const struct certificate *trusted; // the issuer of the server's certificate; NULL: any
    const struct certificate *own;     // NULL: none
    const struct certificate *above;   // `above_count` certificates sent after it
    int above_count;
    int version_max; // as the library writes it: TLS1_2_VERSION; 0: the newest
};

// Takes over a connected socket and does the handshake. With TLS 1.3 it succeeds before the server
// has checked the client's certificate. Call tls_client_close() in any case.
bool tls_client_open(struct tls_client *t, int fd, const struct tls_client_options *options);

// The same without a handshake. tls_client_step() starts or continues the handshake; true: it is
// complete.
void tls_client_prepare(struct tls_client *t, int fd, const struct tls_client_options *options);
bool tls_client_step(struct tls_client *t);

void tls_client_close(struct tls_client *t);

// Sends all bytes, as one record up to 16384 bytes; false: the connection has ended.
bool tls_client_send(struct tls_client *t, const void *data, size_t size);

// Reads exactly `size` bytes; false: the connection has ended.
bool tls_client_read(struct tls_client *t, void *data, size_t size);

#endif
