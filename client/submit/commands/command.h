// SPDX-License-Identifier: Apache-2.0
// Shared by the subcommands: exit statuses, error messages, connection, interruption.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_COMMAND_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_COMMAND_H

#include <argp.h>
#include <stdbool.h>

#include "client/cpattn.h"
#include "client/submit/outcome/record.h"
#include "common/status.h"
#include "plan/kind.h"

// Exit statuses, documented in cpattn-submit(1) and never changed. If something could not be run,
// the exit status is COMMAND_USAGE plus the number of its status.
enum {
    COMMAND_PASS = 0,   // the command succeeded, and every verdict is a pass
    COMMAND_FAIL = 1,   // a verdict is a fail
    COMMAND_USAGE = 64, // the command line or a file is not valid
};
int command_exit(enum status status);

// The exit status of two steps: a fail, else the first that is not COMMAND_PASS.
int command_graver(int first, int second);

// The exit status for the outcome of a case.
int command_outcome_exit(const struct outcome *outcome);

// One subcommand; argv[0] is "cpattn-submit NAME". Returns the exit status.
struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};
int command_case(int argc, char **argv);
int command_attend(int argc, char **argv);
int command_dump(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_matrix(int argc, char **argv);
int command_report(int argc, char **argv);
int command_describe(int argc, char **argv);
int command_status(int argc, char **argv);
int command_top(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_cancel(int argc, char **argv);
int command_drain(int argc, char **argv);
int command_enable(int argc, char **argv);
int command_unpoison(int argc, char **argv);
int command_reload(int argc, char **argv);
int command_version(int argc, char **argv);

// "cpattn-submit KIND": one job of another kind than attention.
int command_job(const struct job_kind *kind, int argc, char **argv);

// Writes "cpattn-submit: SENTENCE" to stderr.
void command_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same for an error of the library. Returns the exit status.
int command_failed(const struct cpattn_error *error);

// A child parser for every subcommand that connects: token and certificates for a daemon on a
// network. Stores its options for command_connect().
extern const struct argp command_access;
#define COMMAND_ACCESS_CHILD                                                                       \
    {                                                                                              \
        &command_access, 0, "To a daemon on a network:", 300                                       \
    }

// The parsed options of command_access, and the first of them that is given, or NULL.
const struct cpattn_options *command_access_options(void);
const char *command_access_given(void);

// Help of --socket.
#define COMMAND_SOCKET_HELP                                                                        \
    "socket of the daemon, or tcp://HOST:PORT, tls+tcp://HOST:PORT [$CPATTN_SOCKET, or the one "   \
    "built in]"

// Options of a command's requests.
struct command_requests {
    int max;              // at once; 0: the library's default
    uint64_t patience_ns; // how long cases wait for ranks that cannot be started; 0: not at all
    bool cancel_on_disconnect; // cases end with this process
};

// Complains about a given option of command_access that none of the addresses uses; NULL stands for
// the default address. Returns the exit status.
int command_access_check(const char *const *sockets, int count);

// Connects to the daemon. On failure prints a message and returns NULL, with the exit status in
// *exit_status. Free with cpattn_client_destroy().
struct cpattn_client *command_connect(const char *socket, const struct command_requests *requests,
                                      int *exit_status);

// Converts a case that has passed case_check(), or a job of any kind, to the library's type. NULL,
// after a message: out of memory.
struct cpattn_case *command_library_case(const struct cp_case *c);
struct cpattn_case *command_library_job(const struct job_spec *spec);

// Submits a case and waits for the answer, like cpattn_run(). On a terminal it shows what it waits
// for if that takes long. Cancels the case on an interrupt, after command_catch_interrupts().
enum cpattn_status command_run(struct cpattn_client *client, const struct cpattn_case *c,
                               uint64_t timeout_ns, struct cpattn_result **result,
                               struct cpattn_error *error);

// The same for a submitted request, which it destroys.
enum cpattn_status command_collect(struct cpattn_request *request, struct cpattn_result **result,
                                   struct cpattn_error *error);

// A case that is cancelled by an interrupt and has no answer after this time is given up as
// CANCELLED, with this text: the daemon hangs.
#define COMMAND_CANCEL_NS   (UINT64_C(5) * 1000000000)
#define COMMAND_CANCEL_TEXT "cancelled, and not answered in time"

// After this call the first SIGINT or SIGTERM only makes command_interrupted() true; the second
// ends the process.
void command_catch_interrupts(void);
bool command_interrupted(void);

// Monotonic nanoseconds.
uint64_t command_now_ns(void);

// The exit status of a command that could not show `what`. Complains if memory was short; a failed
// stream is left to command_output_complete().
int command_show_failed(const char *what);

// The same for a file of this name; call right after the failed write.
int command_file_failed(FILE *file, const char *path, const char *what);

// The same for a line of JSON on stdout.
int command_json_exit(bool written);

// Complains that an output file cannot be opened; errno says why. Returns the exit status.
int command_unwritable(const char *path);

// Complains that an output file is incomplete; errno says why. Returns the exit status.
int command_unwritten(const char *path);

// Complains if an output file cannot be written; to be called before a case runs. NULL: there is no
// such file. Returns the exit status.
int command_output_check(const char *path);

// Reads a record; warns if its last line is incomplete. *record stays unchanged if `path` is NULL.
// Returns the exit status, after a complaint if it is not COMMAND_PASS.
int command_record_load(const char *path, struct record **record);

// True if everything was written to stdout; otherwise prints a message.
bool command_output_complete(void);

#endif
