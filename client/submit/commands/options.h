// SPDX-License-Identifier: Apache-2.0
// Options of the subcommands: an option for each field of a case, and argp with better messages for
// unknown options.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_OPTIONS_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/submit/commands/sweep.h"
#include "plan/kind.h"

#define OPTIONS_FIELDS_MAX 64
#define OPTIONS_HELP_MAX   256

// Options for fields: "--world-size=N" and "--world_size=N". A child parser that sets fields of
// `c`, or of `spec`.
struct options_fields {
    struct argp argp;
    struct cp_case *c;     // borrowed; NULL: of another kind of job
    struct job_spec *spec; // borrowed; of that
    bool sweeps;           // a value with commas is several
    struct sweep sweep;    // sweep_fini()
    struct argp_option options[2 * OPTIONS_FIELDS_MAX + 2];
    char names[OPTIONS_FIELDS_MAX][64];
    char help[OPTIONS_FIELDS_MAX][OPTIONS_HELP_MAX];
};

// Fills the struct; the parser's input is the struct itself.
void options_fields_init(struct options_fields *fields, struct cp_case *c);

// The same for a job of another kind, with the defaults in its spec.
void options_spec_init(struct options_fields *fields, struct job_spec *spec);

// Options of requests to the daemon.
struct options_asking {
    const char *socket;
    uint64_t timeout_ns;
    uint64_t patience_ns; // with ranks that cannot be started
    bool json;
};

// Connects for cases that run one by one and are cancelled when the command ends; see
// command_connect().
struct cpattn_client *options_connect(const struct options_asking *asking, int *exit_status);

// A command about one case, or about the several of a sweep.
struct options_case {
    struct cp_case c; // of a sweep: without the fields of the sweep, see options_point()
    bool sweeps;      // whether options of the case may have several values; the caller's
    struct options_asking asking;
    struct options_fields fields;
    // Of options_parse_case().
    void *own;
    bool asks;
};

// Parses a command line of the options in `own` (its help text, and a parser with `input` for its
// input), those of the fields and, where it `asks`, those of struct options_asking; then checks the
// case, or each of a sweep. The exit status; after a complaint where that is not COMMAND_PASS.
int options_parse_case(struct options_case *o, const struct argp *own, void *input, bool asks,
                       int argc, char **argv);

// A command about one job of another kind than attention.
struct options_job {
    struct job_spec spec; // of the caller's kind; of a sweep: as in struct options_case
    bool sweeps;          // the caller's
    struct options_asking asking;
    struct options_fields fields;
    void *own; // of options_parse_job()
};

// The same for a job. An argument without a name sets the field that the kind declares for it;
// further ones are refused.
int options_parse_job(struct options_job *o, const struct job_kind *kind, const struct argp *own,
                      void *input, int argc, char **argv);

// The job of a point of the sweep, below sweep_points(&o->fields.sweep).
void options_point(const struct options_case *o, int point, struct job_spec *spec);
void options_job_point(const struct options_job *o, int point, struct job_spec *spec);

// Parses a command line. Without an option of that name, with a value that is refused, or with an
// argument too many or too few: complains and returns COMMAND_USAGE. --help and --usage print and
// end the process.
int options_parse(const struct argp *argp, int argc, char **argv, void *input);

// The same, then connects for requests without a case to *socket, which the parser may set. NULL
// after an error message, with the exit status in *exit_status.
struct cpattn_client *options_query(const struct argp *argp, int argc, char **argv, void *input,
                                    const char *const *socket, int *exit_status);

// For parsers: a time within [1 ns, TIMEOUT_MAX_NS], or a count; complain and return EINVAL
// otherwise.
error_t options_duration(const char *name, const char *value, uint64_t *ns);
error_t options_count(const char *name, const char *value, int min, int max, int *count);

// For parsers: complains that the subcommand takes no argument, and returns EINVAL.
error_t options_no_argument(const struct argp_state *state, const char *argument);

#endif
