// SPDX-License-Identifier: Apache-2.0
// Runs many cases concurrently on one or several daemons, through the library's asynchronous calls.
// If a daemon goes away, drains or hangs, its cases go to another daemon or wait for the next one.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_FLIGHT_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_FLIGHT_H

#include "client/cpattn.h"
#include "plan/kind.h"

#define FLIGHT_JOBS_MAX    512
#define FLIGHT_CLIENTS_MAX 16
#define FLIGHT_NOTE_MAX    256

// The cases to run and the callbacks, which are all called from flight_run()'s thread.
struct flight {
    struct cpattn_client *const *clients; // [client_count], each of another daemon
    int client_count;                     // 1..FLIGHT_CLIENTS_MAX
    int jobs;                             // in flight at once at each daemon, 1..FLIGHT_JOBS_MAX
    // Time limit of each case from its start; 0: none given, TIMEOUT_DEFAULT_NS. The limit that
    // includes the wait is the largest that the daemon grants. `note` tells if this is less than
    // timeout_ns, or falls during the run.
    uint64_t timeout_ns;
    // How long to wait for a daemon that accepts cases after a case was answered UNAVAILABLE. The
    // case is then submitted a second time, but not a third time: it may be what killed the daemon.
    // The same for cases at a daemon that has answered nothing for this time, not even a question
    // for its state. Also how long to wait for room in a queue that others fill.
    uint64_t patience_ns;
    void *context;

    // The number of the next case; false when there are no more. Called again after each answer, as
    // an answer may lead to another try.
    bool (*next)(void *context, int *number);
    // The case of a number; it is read before the next call.
    const struct job_spec *(*load)(void *context, int number);
    // An answer; `result` (or NULL) is the callee's to destroy.
    void (*answered)(void *context, int number, enum cpattn_status status,
                     struct cpattn_result *result, const char *text);
    // Called ten times a second. `lost`: why one of the daemons accepts no cases now, or NULL;
    // `others`: some daemon accepts cases. Returns true to submit nothing more and cancel the
    // submitted cases.
    bool (*tick)(void *context, const char *lost, bool others);
    // Tells the user of a change, in one sentence.
    void (*note)(void *context, const char *text);
};

// Runs until `next` has no more and everything is answered, or until `tick` stops it; cases that
// are cancelled then are answered CANCELLED. Every number that `next` gave is answered once.
// RESOURCE_EXHAUSTED, with no case taken, when memory is short.
enum status flight_run(const struct flight *flight) MUST_CHECK;

#endif
