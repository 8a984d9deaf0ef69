// SPDX-License-Identifier: Apache-2.0
// Dumps of the failed cases of a matrix.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_DUMP_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_DUMP_H

#include "client/submit/commands/dump.h"
#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"

// Maximum number of dumped cases: more could fill a disk.
#define MATRIX_DUMPS_MAX 20

// Runs the failed cases again, one after the other, and writes their tensors and pictures under
// their ids (dump_fail()). An interrupt ends this. `timeout_ns` is the time limit of each case,
// with its wait; the daemon's longest limit if it grants less; 0: the default.
void matrix_dump_fails(struct cpattn_client *client, const struct matrix_list *list,
                       const struct outcome *outcomes, uint64_t timeout_ns, const char *directory);

#endif
