// SPDX-License-Identifier: Apache-2.0
// Runs many cases concurrently on one or several daemons, through the library's asynchronous calls.
// If a daemon goes away or drains, its cases go to another daemon or wait for the next one.
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
    // Limit of each case from its start; 0: none given, TIMEOUT_DEFAULT_NS. With the wait a case
    // has what its daemon grants. `note` tells if that is less than given, or falls during the run.
    uint64_t timeout_ns;
    // How long to wait for a daemon that takes cases when one was answered UNAVAILABLE. That case
    // is submitted a second time then, and not a third time, for it may be what the daemon died of.
    uint64_t patience_ns;
    void *context;

    // The number of the next case; false when there are no more. Asked again after each answer,
    // which may bring a number back.
    bool (*next)(void *context, int *number);
    // The case of a number; it is read before the next call.
    const struct job_spec *(*load)(void *context, int number);
    // An answer; `result` (or NULL) is the callee's to destroy.
    void (*answered)(void *context, int number, enum cpattn_status status,
                     struct cpattn_result *result, const char *text);
    // Ten times a second. `lost` is NULL, or why a daemon cannot be submitted to now; `others`:
    // another can. True: submit nothing more, cancel the submitted cases.
    bool (*tick)(void *context, const char *lost, bool others);
    // A change that the user should know of: one sentence.
    void (*note)(void *context, const char *text);
};

// Runs until `next` has no more and everything is answered, or until `tick` stops it; cases that
// are cancelled then are answered CANCELLED. Every number that `next` gave is answered once.
// RESOURCE_EXHAUSTED, with no case taken, when memory is short.
enum status flight_run(const struct flight *flight) MUST_CHECK;

#endif
