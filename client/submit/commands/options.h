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

// What the help of a field says of its default.
struct options_usual {
    const char *field;
    const char *text; // NULL: the field is not in the help
};

// Options for fields: "--world-size=N" and "--world_size=N". A child parser that sets fields of `c`
// or `spec`.
struct options_fields {
    struct argp argp;
    struct cp_case *c;     // borrowed; NULL: `spec` is set
    struct job_spec *spec; // borrowed; a job of another kind
    bool sweeps;           // commas separate several values
    struct sweep sweep;    // sweep_fini()
    uint64_t given;        // bits by index in `names`: the fields that the command line sets
    struct argp_option options[2 * OPTIONS_FIELDS_MAX + 2];
    char names[OPTIONS_FIELDS_MAX][64];
    char help[OPTIONS_FIELDS_MAX][OPTIONS_HELP_MAX];
};

// Fills the struct; the parser's input is the struct itself. `other`: the defaults that the command
// does not take from case_init(), ended by an entry without a field; NULL: none.
void options_fields_init(struct options_fields *fields, struct cp_case *c,
                         const struct options_usual *other);

// The same for a job of another kind, with the defaults in its spec.
void options_spec_init(struct options_fields *fields, struct job_spec *spec);

// True if the command line that was parsed has the option of a field: its name with hyphens.
bool options_given(const struct options_fields *fields, const char *name);

// Options of requests to the daemon.
struct options_asking {
    const char *socket;
    uint64_t timeout_ns;
    uint64_t patience_ns; // how long a case waits for ranks that cannot be started
    bool json;
    const char *given; // the first of these options that the command line has; or NULL
};

// Connects for cases that run one by one and are cancelled when the command ends; see
// command_connect().
struct cpattn_client *options_connect(const struct options_asking *asking, int *exit_status);

// A command about one case, or about the cases of a sweep.
struct options_case {
    struct cp_case c; // without the fields of a sweep: options_point()
    bool sweeps;      // set by the caller: options of the case may have several values
    const struct options_usual *usual; // set by the caller: of options_fields_init()
    struct options_asking asking;
    struct options_fields fields;
    // Set by options_parse_case().
    void *own;
    bool asks;
};

// Parses a command line with the options of `own` (whose parser gets `input`, and whose help text
// is used), of the fields of a case and, if `asks`, of struct options_asking. Then checks the case,
// or each case of a sweep. Returns the exit status, after a complaint if it is not COMMAND_PASS.
int options_parse_case(struct options_case *o, const struct argp *own, void *input, bool asks,
                       int argc, char **argv);

// A command about one job of another kind than attention.
struct options_job {
    struct job_spec spec; // without the fields of a sweep: options_job_point()
    bool sweeps;          // set by the caller, as in struct options_case
    struct options_asking asking;
    struct options_fields fields;
    void *own; // set by options_parse_job()
};

// The same for a job, with struct options_asking. The first argument that is no option sets the
// field that the kind declares for it (kind->argument); further arguments are refused.
int options_parse_job(struct options_job *o, const struct job_kind *kind, const struct argp *own,
                      void *input, int argc, char **argv);

// Writes the job of a point of the sweep, 0..sweep_points(&o->fields.sweep)-1.
void options_point(const struct options_case *o, int point, struct job_spec *spec);
void options_job_point(const struct options_job *o, int point, struct job_spec *spec);

// Parses a command line. Complains and returns COMMAND_USAGE for an unknown option, a refused
// value, or a missing or superfluous argument. --help and --usage print and end the process, with
// the status of DATA_LOSS if the output could not be written.
int options_parse(const struct argp *argp, int argc, char **argv, void *input);

// Parses likewise, then connects to *socket, which the parser may set, for requests without a case.
// NULL after an error message, with the exit status in *exit_status.
struct cpattn_client *options_query(const struct argp *argp, int argc, char **argv, void *input,
                                    const char *const *socket, int *exit_status);

// An option without effect beside others.
struct options_vain {
    bool given;
    const char *option; // without its hyphens
    const char *why;    // "does not go with --json, which ..."
};

// Of a guest.
#define NO_PLAN "a guest has no plan"

// Complains about the first of the options that is given. The list ends with an entry without an
// option. Returns the exit status.
int options_vain_check(const struct options_vain *list);

// For parsers: read a time of 1 ns to TIMEOUT_MAX_NS, or a count of `min` to `max`; complain and
// return EINVAL for another value.
error_t options_duration(const char *name, const char *value, uint64_t *ns);
error_t options_count(const char *name, const char *value, int min, int max, int *count);

// For parsers: complains that the subcommand takes no argument, and returns EINVAL.
error_t options_no_argument(const struct argp_state *state, const char *argument);

#endif
