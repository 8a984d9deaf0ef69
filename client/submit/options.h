// SPDX-License-Identifier: Apache-2.0
// Options of the subcommands: those that every field of a case gives, and argp with better words
// for an option that does not exist.
#ifndef CPATTN_CLIENT_SUBMIT_OPTIONS_H
#define CPATTN_CLIENT_SUBMIT_OPTIONS_H

#include <argp.h>

#include "plan/case.h"

#define OPTIONS_FIELDS_MAX 64
#define OPTIONS_HELP_MAX   256

// Options made of the fields: "--world-size=N"; "--world_size" is taken, too. A child parser that
// sets fields of `c`.
struct options_fields {
    struct argp argp;
    struct cp_case *c; // borrowed
    struct argp_option options[2 * OPTIONS_FIELDS_MAX + 2];
    char names[OPTIONS_FIELDS_MAX][64];
    char help[OPTIONS_FIELDS_MAX][OPTIONS_HELP_MAX];
};

// Fills the struct; the parser's input is the struct itself.
void options_fields_init(struct options_fields *fields, struct cp_case *c);

// Parses a command line. Without an option of that name, with a value that is refused, or with an
// argument too many or too few: complains and returns COMMAND_USAGE. --help and --usage print and
// end the process.
int options_parse(const struct argp *argp, int argc, char **argv, void *input);

// For parsers: a time within [1 ns, TIMEOUT_MAX_NS], or a count; complain and return EINVAL
// otherwise.
error_t options_duration(const char *name, const char *value, uint64_t *ns);
error_t options_count(const char *name, const char *value, int min, int max, int *count);

// For parsers: complains that the subcommand takes no argument, and returns EINVAL.
error_t options_no_argument(const struct argp_state *state, const char *argument);

#endif
