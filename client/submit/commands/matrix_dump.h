// SPDX-License-Identifier: Apache-2.0
// The tensors of the cases of a matrix that have failed.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_DUMP_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_DUMP_H

#include "client/submit/commands/dump.h"
#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"

// More of them fill a disk and are looked at by nobody.
#define MATRIX_DUMPS_MAX 20

// Runs those that failed once more, one after the other, and writes their tensors and pictures:
// dump_fail(), under their ids. Ends with an interrupt.
void matrix_dump_fails(struct cpattn_client *client, const struct matrix_list *list,
                       const struct outcome *outcomes, const char *directory);

#endif
