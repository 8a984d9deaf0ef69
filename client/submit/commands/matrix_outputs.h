// SPDX-License-Identifier: Apache-2.0
// The outputs of a matrix run: table, record, JUnit report, summary in Markdown.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OUTPUTS_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OUTPUTS_H

#include "client/submit/commands/matrix_run.h"
#include "client/submit/write/plain_file.h"

// A zeroed struct has no outputs.
struct matrix_outputs {
    FILE *save, *markdown; // NULL: not asked for
    struct whole_file junit;
    struct cpattn_description *daemon; // NULL: not known
};

// Opens the files: after the daemons have answered, so that a run that cannot begin loses no
// earlier record, and before the first case, so that a wrong path is found early. `resumed`: the
// record of --resume, or NULL. COMMAND_USAGE after a complaint; call matrix_outputs_close() in any
// case.
int matrix_outputs_open(struct matrix_outputs *outputs, const struct matrix_options *options,
                        const struct record *resumed);

// Asks the daemon for its description, for the report.
void matrix_outputs_describe(struct matrix_outputs *outputs, struct cpattn_client *client);

// Prints the tables of a finished run, unless the answers are printed as JSON.
void matrix_outputs_print(const struct matrix_run *run);

// Writes the reports of a finished run. Returns the exit status, after a complaint if it is not 0.
int matrix_outputs_write(struct matrix_outputs *outputs, const struct matrix_run *run,
                         const struct matrix *matrix);

// Closes the files. If the JUnit report was not written, an earlier one remains.
int matrix_outputs_close(struct matrix_outputs *outputs, const struct matrix_options *options);

#endif
