// SPDX-License-Identifier: Apache-2.0
// TLS 1.2 and 1.3 for the server's side and for an agent, which connects. Converts between the
// plain and the encrypted bytes of a connection. Never blocks and opens no socket: reads and writes
// encrypted bytes through functions of the caller. Only tls.c uses the TLS library; a build without
// the library has tls_none.c instead, in which tls_create() fails.
#ifndef CPATTN_DAEMON_NET_TLS_H
#define CPATTN_DAEMON_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/status.h"

struct tls;         // settings and certificates, shared by many sessions; counts references
struct tls_session; // one connection; about 30 KiB, up to 200 KiB during the handshake

// The library and its version; NULL: this build has none.
const char *tls_library(void);

enum tls_version { TLS_VERSION_1_2, TLS_VERSION_1_3 };

struct tls_files {
    const char *certificate; // PEM: the server's certificate, then the intermediate ones
    const char *key;         // PEM, without a password; readable by owner and group only
    // PEM: authorities that sign client certificates, roots or not, and their revocation lists;
    // NULL or "": clients need no certificate.
    const char *clients;
    enum tls_version version_min;
};

// Reads the files; later changes of them have no effect. INVALID_ARGUMENT: a file has wrong
// contents (the sentence names it); PERMISSION_DENIED: other users can read the key; UNIMPLEMENTED:
// this build has no TLS; RESOURCE_EXHAUSTED.
enum status tls_create(const struct tls_files *files, struct tls **tls,
                       struct error *error) MUST_CHECK;

struct tls_connect_files {
    const char *authorities; // PEM: authorities that may have signed the server's certificate
    // PEM: the own certificate, for servers that require one, and its key as above; NULL or "":
    // none.
    const char *certificate, *key;
};

// The same for the connecting side. Messages name the file as "tls-ca", "tls-certificate" or
// "tls-key".
enum status tls_connect_create(const struct tls_connect_files *files, struct tls **tls,
                               struct error *error) MUST_CHECK;

// tls_hold() adds a reference and returns `tls`. tls_release() removes one, frees `tls` with the
// last, and accepts NULL. tls_create() returns one reference; each session holds one.
struct tls *tls_hold(struct tls *tls);
void tls_release(struct tls *tls);

// Returns why peers refuse the own certificate at this time, as a phrase: it has expired or is not
// valid yet. NULL: it is valid at this time.
const char *tls_own_fault(const struct tls *tls);

// Source and sink of the encrypted bytes.
struct tls_pipe {
    void *context;
    // Reads up to `size` bytes, like recv() on a non-blocking socket.
    ssize_t (*read)(void *context, void *data, size_t size);
    // Takes all bytes, now or later; false: nothing can be sent any more.
    bool (*write)(void *context, const void *data, size_t size);
};

// Creates a session of the server's side. NULL: memory is short.
struct tls_session *tls_session_create(struct tls *tls, const struct tls_pipe *pipe);

// Creates a session of the connecting side; `tls` is from tls_connect_create(). The server's
// certificate must be for `host`, a name or an address.
struct tls_session *tls_session_connect(struct tls *tls, const struct tls_pipe *pipe,
                                        const char *host);
void tls_session_destroy(struct tls_session *session); // accepts NULL

enum tls_result {
    TLS_DONE,
    TLS_NOTHING, // needs more bytes
    TLS_ENDED,   // the other end has closed
    TLS_BROKEN,  // unusable
};

// Continues the handshake with the bytes that have arrived. TLS_DONE: it is over. With TLS_BROKEN
// *fault is half a sentence about the other end.
enum tls_result tls_session_shake(struct tls_session *session, const char **fault);

// Writes the subject of the client's certificate in the form of RFC 2253, in printable ASCII; "" if
// the client has shown none. Call after the handshake. False: it does not fit, or memory is short.
bool tls_session_subject(const struct tls_session *session, char *text, size_t size);

// Reads plain bytes. TLS_DONE: *got is 1..size. TLS_BROKEN: as of tls_session_shake().
enum tls_result tls_session_read(struct tls_session *session, void *data, size_t size, size_t *got,
                                 const char **fault);

// True if decrypted bytes are buffered in the session, for which the socket reports no event.
bool tls_session_has_more(const struct tls_session *session);

// Encrypts all bytes and writes them to the pipe; false: the session is unusable.
bool tls_session_write(struct tls_session *session, const void *data, size_t size);

#endif
