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
    int end_fd; // the daemon's stdin; the daemon ends when this is closed
};

// These fail the test on an error.

// Creates the folder.
void fake_init(struct fake *f);

// Starts the daemon and waits until it listens.
void fake_start(struct fake *f);

// Kills the daemon, if it runs.
void fake_stop(struct fake *f);

// Kills the daemon, if it runs, and removes the folder.
void fake_fini(struct fake *f);

// A client of the daemon; `options` may be NULL.
struct cpattn_client *fake_client(const struct fake *f, const struct cpattn_options *options);

// Folder, daemon and client at once. `client` may be NULL.
struct cpattn_client *fake_open(struct fake *f);
void fake_close(struct fake *f, struct cpattn_client *client);

// A small case; the label selects what the daemon does.
struct cpattn_case *fake_case(const char *label);

// Runs a small case with this label. Fails the test if the returned status and *error disagree.
enum cpattn_status fake_run(struct cpattn_client *client, const char *label,
                            struct cpattn_result **result, struct cpattn_error *error);

// Submits a small case with this label.
struct cpattn_request *fake_submit(struct cpattn_client *client, const char *label);

// Collects an answer, and destroys the request. Returns the status of cpattn_collect().
enum cpattn_status fake_collect(struct cpattn_request *request, struct cpattn_result **result,
                                struct cpattn_error *error);

// Number of cases that the daemon has received since its start.
int fake_runs(struct cpattn_client *client);

// Number of connections that it has accepted since its start.
int fake_connections(struct cpattn_client *client);

// Number of cases with the label "hold" that wait for a cancel.
int fake_held(struct cpattn_client *client);

#endif
