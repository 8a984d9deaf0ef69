// SPDX-License-Identifier: Apache-2.0
// Runs the real cpattnd on its own socket, talks to it with the bare codec, and looks at its
// processes from outside. A function that cannot do its work fails the running test.
#ifndef CPATTN_TESTS_DAEMON_DAEMON_FIXTURE_H
#define CPATTN_TESTS_DAEMON_DAEMON_FIXTURE_H

#include <nng/nng.h>
#include <stdbool.h>
#include <sys/types.h>

#include "proto/wire.h"

#define DAEMON_ARGUMENTS_MAX 16

// A --client-timeout for tests that wait until it has passed. It is shorter than the default, and
// longer than any client here needs.
#define DAEMON_CLIENT_TIMEOUT "3s"

struct daemon {
    const char *program; // in the build folder; daemon_init() names cpattnd
    char folder[64];     // holds the socket, its lock, and the log
    char socket[96];     // path
    char log[96];        // path of its stderr
    pid_t pid;           // 0: not running
    nng_socket client;
    bool connected;
};

// Creates a folder, and makes this process a subreaper.
void daemon_init(struct daemon *d);

// Starts the daemon with --socket, --backend cpu and these arguments (ended by NULL; NULL: none).
// Waits until it serves.
void daemon_start(struct daemon *d, const char *const *arguments);

// Sends SIGTERM; returns the exit status, or -signal.
int daemon_stop(struct daemon *d);

// Waits for the end of the daemon. Checks that no process and no socket is left. Returns the exit
// status, or -signal.
int daemon_wait(struct daemon *d);

// Prints the log if CPATTN_TEST_LOG is set, stops a running daemon, and removes the folder. The
// daemon must end with status 0.
void daemon_fini(struct daemon *d);

// Runs cpattnd until it ends. Returns the exit status; its stderr is in `text`.
int daemon_run(const char *const *arguments, char *text, size_t size);
// Checks that cpattnd refuses this command line with this text.
void daemon_refuses(const char *const *arguments, const char *text);

// True if the log holds this text.
bool daemon_logged(const struct daemon *d, const char *text);

// ---- requests ---------------------------------------------------------------------------------

// A request with a fresh id; a RUN request holds a small case that passes.
struct wire_request daemon_request(enum wire_method method);

// A RUN request. The label is the model of the case; it tells tests/daemon/odd_rank what to do.
struct wire_request daemon_request_labelled(const char *label, int world_size);

// A case that takes some seconds. Each call gives a different case.
struct wire_request daemon_request_long(int world_size);

// Writes the bytes of a request, at most REQUEST_BYTES_MAX.
void daemon_request_encode(const struct wire_request *request, uint8_t *bytes, size_t *size);

struct call {
    nng_ctx context;
    nng_aio *aio;
};

// daemon_call_begin() sends a request and does not wait. daemon_call_end() waits for the answer;
// free it with wire_reply_fini(). daemon_call() does both.
struct call daemon_call_begin(struct daemon *d, const struct wire_request *request);
struct wire_reply daemon_call_end(struct call *call);
struct wire_reply daemon_call(struct daemon *d, const struct wire_request *request);

// Requests the status through a new connection. Fails if there is no answer in 15 s.
void daemon_ping_fresh(const struct daemon *d);

// A plain connection, without and with the client's greeting.
int daemon_connect_bare(const struct daemon *d);
int daemon_connect(const struct daemon *d);

// Sends a request over a plain connection, as a frame with this number.
void daemon_send(int fd, uint32_t number, const struct wire_request *request);

// The next reply on a plain connection, after the greeting; free with wire_reply_fini().
struct wire_reply daemon_receive(int fd);

// The status, without pools.
struct wire_status daemon_status(struct daemon *d);

// Waits until this many cases are running (queued).
void daemon_await_running(struct daemon *d, int running);
void daemon_await_queued(struct daemon *d, int queued);

// expect_status(): the reply has this status. expect_pass(): it is a pass; frees it.
void expect_status(const struct wire_reply *reply, enum status status);
void expect_pass(struct wire_reply *reply);

// Runs a small case, which must pass.
void run_and_pass(struct daemon *d, int world_size);

// Sends a request. The answer must have this status and a message with this part.
void run_and_expect(struct daemon *d, const struct wire_request *request, enum status status,
                    const char *part);

// Warms up the pool of this world size, stops its rank 0 by SIGSTOP, and returns that process. The
// next case then runs until daemon_release().
pid_t daemon_hold(struct daemon *d, int world_size);
void daemon_release(pid_t rank);

// Sends a signal to a rank, which must exist. Returns its process.
pid_t daemon_signal_rank(const struct daemon *d, int world_size, int rank, int number);

#define expect_text(text, part)                                                                    \
    ck_assert_msg(strstr(text, part), "'%s' is not in \"%s\"", part, text)

// ---- seen from outside ------------------------------------------------------------------------

// The process of a rank of the pool of this world size; 0: there is none.
pid_t daemon_rank_pid(const struct daemon *d, int world_size, int rank);

// The same of several pools, in the order of their start, up to `max`; returns their number.
int daemon_rank_pids(const struct daemon *d, int world_size, int rank, pid_t *pids, int max);

// Number of living rank processes, without zombies.
int daemon_rank_count(const struct daemon *d);

// Number of children of the daemon, zombies included, without its starter.
int daemon_child_count(const struct daemon *d);

int daemon_descriptors(const struct daemon *d);
int daemon_threads(const struct daemon *d);
// Mappings of memory that the daemon shares with ranks.
int daemon_mapped(const struct daemon *d);
long daemon_resident_kib(const struct daemon *d);

#endif
