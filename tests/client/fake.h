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

// Creates the folder; starts the daemon and waits until it listens; kills it; kills it and removes
// the folder. Each fails the test on an error.
void fake_init(struct fake *f);
void fake_start(struct fake *f);
void fake_stop(struct fake *f);
void fake_fini(struct fake *f);

// A client of the daemon; `options` may be NULL.
struct cpattn_client *fake_client(const struct fake *f, const struct cpattn_options *options);

// All of the above, and the reverse. `client` may be NULL.
struct cpattn_client *fake_open(struct fake *f);
void fake_close(struct fake *f, struct cpattn_client *client);

// A small case; the label selects what the daemon does.
struct cpattn_case *fake_case(const char *label);

// Runs the case, and checks that the status, the error and *result agree.
enum cpattn_status fake_run(struct cpattn_client *client, const char *label,
                            struct cpattn_result **result, struct cpattn_error *error);

// Number of cases received and of connections accepted since the start, and of held cases.
int fake_runs(struct cpattn_client *client);
int fake_connections(struct cpattn_client *client);
int fake_held(struct cpattn_client *client);

#endif
