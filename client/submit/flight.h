// SPDX-License-Identifier: Apache-2.0
// Many cases on their way at once, through the library's asynchronous calls.
#ifndef CPATTN_CLIENT_SUBMIT_FLIGHT_H
#define CPATTN_CLIENT_SUBMIT_FLIGHT_H

#include "client/cpattn.h"
#include "plan/case.h"

#define FLIGHT_JOBS_MAX 512

// What to run, and whom to tell. All calls come from flight_run()'s thread.
struct flight {
    struct cpattn_client *client;
    int jobs;            // in flight at once, 1..FLIGHT_JOBS_MAX
    uint64_t timeout_ns; // of each case from its start; the wait for its turn is not limited
    void *context;

    // The next case and its number; NULL when there are no more. It is read before the next call.
    const struct cp_case *(*next)(void *context, int *number);
    // An answer; `result` (or NULL) is the callee's to destroy.
    void (*answered)(void *context, int number, enum cpattn_status status,
                     struct cpattn_result *result, const char *text);
    // Ten times a second. True: submit nothing more, cancel what is on its way.
    bool (*tick)(void *context);
};

// Runs until `next` has no more and everything is answered, or until `tick` stops it; cases that
// are cancelled then are answered CANCELLED. Every case that `next` gave is answered once.
// RESOURCE_EXHAUSTED, with no case taken, when memory is short.
enum status flight_run(const struct flight *flight) MUST_CHECK;

#endif
