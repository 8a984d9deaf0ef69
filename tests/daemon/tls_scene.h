// SPDX-License-Identifier: Apache-2.0
// A daemon that listens with TLS, certificates for both sides, and clients by hand. A function that
// cannot do its work fails the running test.
#ifndef CPATTN_TESTS_DAEMON_TLS_SCENE_H
#define CPATTN_TESTS_DAEMON_TLS_SCENE_H

#include "tests/daemon/certificates.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/daemon/net_client.h"

extern int port;
extern char url[64];
// `ca` is the authority of `server` and `client`. `stranger` is an unknown authority with the same
// name; it has signed `imposter`.
extern struct certificate ca, server, client, stranger, imposter;

void tls_setup(void);
void tls_teardown(void);

// Clients need certificates, or a token, or both.
void start(bool certificates, bool token);
// The same with a --client-timeout, if not NULL.
void start_with(bool certificates, bool token, const char *client_timeout);

// An accepted client.
extern const struct tls_client_options proper;

// Handshake and greeting.
void open_greeted(struct tls_client *t, const struct tls_client_options *options);

// answer(): the next reply; free it with wire_reply_fini(). ask(): sends a request and returns its
// reply. expect(): requests the status and expects a reply with this status.
struct wire_reply answer(struct tls_client *t);
struct wire_reply ask(struct tls_client *t, const struct wire_request *request, const char *token);
void expect(const struct tls_client_options *options, const char *token, enum status status);

// The handshake fails on the client's or the daemon's side, and the log has this text.
void expect_no_handshake(const struct tls_client_options *options, const char *logged);

// The result of nng for a connection with the certificate of `own` and the key of `key`.
int nng_try(const struct certificate *own, const struct certificate *key);

#endif
