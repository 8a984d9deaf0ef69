// SPDX-License-Identifier: Apache-2.0
// TLS 1.2 and 1.3, the server's side: converts between the plain and the encrypted bytes of a
// connection. Never waits and opens no socket; reads and writes through functions of the caller.
// Only tls.c uses the TLS library; a build without the library has tls_none.c instead, in which
// tls_create() fails.
#ifndef CPATTN_DAEMON_NET_TLS_H
#define CPATTN_DAEMON_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/status.h"

struct tls;         // what the sessions of a server have in common
struct tls_session; // of one connection; some 30 KiB, up to 200 KiB while it shakes hands

// The library and its version; NULL: this build has none.
const char *tls_library(void);

enum tls_version { TLS_VERSION_1_2, TLS_VERSION_1_3 };

struct tls_files {
    const char *certificate; // PEM: the server's, then those between it and the root
    const char *key;         // PEM, without a password; nobody but its owner and group may read it
    // PEM: who signs those of clients, roots or not, and lists of what they have revoked; NULL or
    // "": none are asked.
    const char *clients;
    enum tls_version version_min;
};

// Reads the files; what they say later is of no account. INVALID_ARGUMENT: a file is not what it
// should be (the sentence names it); PERMISSION_DENIED: others can read the key; UNIMPLEMENTED:
// this build has no TLS; RESOURCE_EXHAUSTED.
enum status tls_create(const struct tls_files *files, struct tls **tls,
                       struct error *error) MUST_CHECK;

// One more holder, and one less; the last frees it. Sessions hold theirs. The second takes NULL.
struct tls *tls_hold(struct tls *tls);
void tls_release(struct tls *tls);

// Where the enciphered bytes come from and go to.
struct tls_pipe {
    void *context;
    // As recv() on a socket that does not block.
    ssize_t (*read)(void *context, void *data, size_t size);
    // Takes all of it, at once or later; false: nothing can be sent any more.
    bool (*write)(void *context, const void *data, size_t size);
};

// NULL: memory is short.
struct tls_session *tls_session_create(struct tls *tls, const struct tls_pipe *pipe);
void tls_session_destroy(struct tls_session *session); // takes NULL

enum tls_result {
    TLS_DONE,
    TLS_NOTHING, // until more bytes come
    TLS_ENDED,   // the client has closed its end
    TLS_BROKEN,  // nothing more can come of it
};

// One step of the handshake, as far as the bytes that have come go. `fault`: half a sentence on the
// client, set with TLS_BROKEN.
enum tls_result tls_session_shake(struct tls_session *session, const char **fault);

// The subject of the certificate that the client was asked for, after the handshake: as RFC 2253
// has it, printable ASCII, "" where none was asked for. False: it has no room there.
bool tls_session_subject(const struct tls_session *session, char *text, size_t size);

// Plain bytes, at least one and up to `size`, with TLS_DONE.
enum tls_result tls_session_read(struct tls_session *session, void *data, size_t size, size_t *got,
                                 const char **fault);

// Whether some are left of what was read before.
bool tls_session_has_more(const struct tls_session *session);

// Enciphers all of it into the pipe. False: it could not be.
bool tls_session_write(struct tls_session *session, const void *data, size_t size);

#endif
