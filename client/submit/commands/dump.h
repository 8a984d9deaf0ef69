// SPDX-License-Identifier: Apache-2.0
// Files with the tensors of a case: inputs, expected and computed results.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_DUMP_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_DUMP_H

#include <stdio.h>

#include "client/cpattn.h"
#include "plan/case.h"

struct tensors;

// Runs a request with tensors and waits for its answer, like command_run(). Fills `t` if the status
// is OK.
enum cpattn_status dump_run(struct cpattn_client *client, const struct cp_case *c,
                            const struct tensors *t, uint64_t timeout_ns,
                            struct cpattn_result **result, struct cpattn_error *error);

// Help of --dump-fails.
#define DUMP_FAILS_HELP                                                                            \
    "run a case that fails once more and write its tensors and a picture of the errors here"

// Complains if files cannot be made in the directory of --dump-fails; to be called before a case
// runs. NULL: the option is not given. Returns the exit status.
int dump_check(const char *directory);

// Runs a case once more and writes DIRECTORY/NAME.safetensors with all its tensors, and
// DIRECTORY/NAME.svg with a picture of the errors; creates the directory if there is none. NAME is
// the id with '~' for '/', and with the code of any other special character, as "%20"; a name of
// more than 200 bytes is cut and ends with a hash of the id. Prints to stderr the names of the
// files, or the error. True if everything was written.
bool dump_fail(struct cpattn_client *client, const struct cp_case *c, uint64_t timeout_ns,
               const char *directory, const char *id);

// Writes the picture of the errors of tensors that have results and expected results, if `path` is
// not NULL, and prints the map of the worst tensor to `out`, if that is not NULL.
enum status dump_picture(const struct cp_case *c, const struct tensors *t, const char *path,
                         FILE *out, struct error *error) MUST_CHECK;

#endif
