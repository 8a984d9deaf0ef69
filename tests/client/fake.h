// SPDX-License-Identifier: Apache-2.0
// Runs tests/client/fake_daemon on a socket of its own.
#ifndef CPATTN_TESTS_CLIENT_FAKE_H
#define CPATTN_TESTS_CLIENT_FAKE_H

#include <sys/types.h>

#include "client/cpattn.h"

struct fake {
    char folder[64]; // holds the socket
    char path[96];
    pid_t pid;  // 0: not running
    int end_fd; // the daemon ends when this is closed
};

// Makes the folder; starts the daemon in it and waits until it listens; ends it at once; removes
// the folder too. Each fails the test when it cannot.
void fake_init(struct fake *f);
void fake_start(struct fake *f);
void fake_stop(struct fake *f);
void fake_fini(struct fake *f);

// A client of it; `options` NULL means defaults.
struct cpattn_client *fake_client(const struct fake *f, const struct cpattn_options *options);

// All of this at once, and the end of it. `client` may be NULL.
struct cpattn_client *fake_open(struct fake *f);
void fake_close(struct fake *f, struct cpattn_client *client);

// A small case with this label, which tells the daemon what to do.
struct cpattn_case *fake_case(const char *label);

// Runs it, and checks that the status, the error and *result say the same.
enum cpattn_status fake_run(struct cpattn_client *client, const char *label,
                            struct cpattn_result **result, struct cpattn_error *error);

// Cases the daemon received since it started, connections it took, and cases that it holds.
int fake_runs(struct cpattn_client *client);
int fake_connections(struct cpattn_client *client);
int fake_held(struct cpattn_client *client);

#endif
