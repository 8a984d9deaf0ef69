// SPDX-License-Identifier: Apache-2.0
// Where a run of a matrix goes: the table, the record, the JUnit report, the summary in Markdown.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OUTPUTS_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_OUTPUTS_H

#include "client/submit/commands/matrix_run.h"
#include "client/submit/write/plain_file.h"

// Zeros are outputs that go nowhere.
struct matrix_outputs {
    FILE *save, *markdown; // NULL: not asked for
    struct whole_file junit;
    struct cpattn_description *daemon; // NULL: not known
};

// Opens the files, before hours of cases and not after them. `resumed` is what --resume goes on
// with, or NULL. COMMAND_USAGE after a complaint; matrix_outputs_close() in any case.
int matrix_outputs_open(struct matrix_outputs *outputs, const struct matrix_options *options,
                        const struct record *resumed);

// Asks the daemon what it is, for the report.
void matrix_outputs_describe(struct matrix_outputs *outputs, struct cpattn_client *client);

// Prints and writes the reports of a run that is over. The exit status, after a complaint where it
// is not 0.
int matrix_outputs_write(struct matrix_outputs *outputs, const struct matrix_run *run,
                         const struct matrix *matrix);

// Closes what is open; a JUnit report that was not written leaves an earlier one as it is.
int matrix_outputs_close(struct matrix_outputs *outputs, const struct matrix_options *options);

#endif
