// SPDX-License-Identifier: Apache-2.0
// The command line of cpattn-submit matrix.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OPTIONS_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OPTIONS_H

#include "client/submit/commands/flight.h"
#include "client/submit/matrix/matrix_list.h"

#define MATRIX_CHOICES_MAX 64 // of --set, and of --filter

// Paths are NULL where they are not given.
struct matrix_options {
    const char *file, *junit, *dump_fails, *save, *resume, *last_failed, *markdown;
    const char *sets[MATRIX_CHOICES_MAX], *filters[MATRIX_CHOICES_MAX];
    const char *sockets[FLIGHT_CLIENTS_MAX]; // of the daemons; one NULL: the default
    int socket_count;                        // at least 1
    struct matrix_choice choice;             // points into this struct; the caller sets last_failed
    uint64_t timeout_ns, patience_ns, shuffle_seed;
    int jobs, repeat, retry;
    int durations; // of how many cases; 0: none
    bool list, excluded, fail_fast, json, verbose, shuffle;
};

// Reads the command line, with every default. COMMAND_PASS, or COMMAND_USAGE after a complaint.
// `o` must not move afterwards.
int matrix_options_parse(int argc, char **argv, struct matrix_options *o);

#endif
