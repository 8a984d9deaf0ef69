// SPDX-License-Identifier: Apache-2.0
// Asks a daemon whether it accepts cases, in a thread of its own: a daemon that hangs delays only
// its own cases.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_ASK_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_ASK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client/cpattn.h"

enum ask_answer {
    ASK_NONE,    // not asked, or not answered yet
    ASK_ACCEPTS, // also if the daemon refuses this user: it then tells each case why
    ASK_REFUSES, // it drains, or there is no daemon
    ASK_SILENT,  // no answer in time
};

// Begins as zeros with `client` set.
struct ask {
    struct cpattn_client *client; // borrowed
    pthread_t thread;
    bool under_way;
    atomic_int answer; // enum ask_answer
};

// Asks. No effect while a question is under way.
void ask_begin(struct ask *ask);

// Returns the answer, once. Does not wait.
enum ask_answer ask_take(struct ask *ask);

// Waits for the answer of a question that is under way, and drops it.
void ask_fini(struct ask *ask);

#endif
