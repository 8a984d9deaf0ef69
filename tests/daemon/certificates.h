// SPDX-License-Identifier: Apache-2.0
// Certificates made for a test, and a client that speaks TLS by hand. Every function fails the
// running test when it cannot do its work, unless it says otherwise.
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

// Makes a key and a certificate for this common name (that of a host, for a server), signed by
// another or, with NULL, by itself, and writes them to FOLDER/WORD.pem and FOLDER/WORD.key. Those
// that sign others are given as `authority`; a certificate is good from 2020 to 2049, or was until
// 2021 when it has `expired`, or is not before 2048 when it is `future`. `comment_bytes` make it
// larger by as much; `for_servers` says that it is good for nothing else; `unit` is one more part
// of the subject (NULL: none), in UTF-8.
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

// Frees it and removes its files. Accepts a zeroed one.
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

// The same without a handshake; tls_client_step() starts or continues it, and returns whether it is
// complete.
void tls_client_prepare(struct tls_client *t, int fd, const struct tls_client_options *options);
bool tls_client_step(struct tls_client *t);

void tls_client_close(struct tls_client *t);

// Sends all bytes, as one record up to 16384 bytes; false: the connection has ended.
bool tls_client_send(struct tls_client *t, const void *data, size_t size);

// Reads as much; false: the connection has ended.
bool tls_client_read(struct tls_client *t, void *data, size_t size);

#endif
