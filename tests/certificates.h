// SPDX-License-Identifier: Apache-2.0
// Certificates made for a test, and a client that speaks TLS by hand. Every function fails the
// running test when it cannot do its work, unless it says otherwise.
#ifndef CPATTN_TESTS_CERTIFICATES_H
#define CPATTN_TESTS_CERTIFICATES_H

#include <mbedtls/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#define CERTIFICATES_PATH_MAX 160

struct certificate {
    char file[CERTIFICATES_PATH_MAX], key_file[CERTIFICATES_PATH_MAX]; // PEM
    char name[64];                                                     // "CN=..."
    mbedtls_pk_context key;
};

// Makes a key and a certificate for this common name (that of a host, for a server), signed by
// another or, with NULL, by itself, and writes them to FOLDER/WORD.pem and FOLDER/WORD.key. Those
// that sign others are given as `authority`; a certificate is good from 2020 to 2049, or was until
// 2021 when it has `expired`.
struct certificate_kind {
    bool authority, expired;
};
void certificate_make(struct certificate *c, const char *folder, const char *word,
                      const char *common_name, const struct certificate *issuer,
                      struct certificate_kind kind);

// Frees it and removes its files. Takes a zeroed one.
void certificate_remove(struct certificate *c);

struct tls_client {
    int fd;
    mbedtls_ssl_config config;
    mbedtls_ssl_context ssl;
    mbedtls_x509_crt trusted, own;
    mbedtls_pk_context key;
};

struct tls_client_options {
    const struct certificate *trusted; // who has signed the server's; NULL: whoever
    const struct certificate *own;     // NULL: none
    const struct certificate *above;   // sent behind it; NULL: none
    int version_max;                   // minor, as the library counts: 3 is TLS 1.2; 0: that
    bool renegotiates;                 // may be asked to shake hands again
};

// Shakes hands over a connected socket, which it takes over. Returns what the library says, 0 when
// all went well; tls_client_close() in any case.
int tls_client_open(struct tls_client *t, int fd, const struct tls_client_options *options);
void tls_client_close(struct tls_client *t);

// Sends all of it, as one record up to 16384 bytes; false: the connection is gone.
bool tls_client_send(struct tls_client *t, const void *data, size_t size);

// Reads as much; false: the connection has ended.
bool tls_client_read(struct tls_client *t, void *data, size_t size);

#endif
