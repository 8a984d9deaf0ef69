// SPDX-License-Identifier: Apache-2.0
// A short label for an operation of a plan.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_OP_LABEL_H
#define CPATTN_CLIENT_SUBMIT_SHOW_OP_LABEL_H

#include "plan/plan.h"

#define OP_LABEL_MAX      192
#define OP_LABEL_ROOM_MAX 3

// Writes a label such as "13 attend slot0, 172 GFLOP". `room`, from 0 to OP_LABEL_ROOM_MAX, is its
// level of detail; 0: the operation's number alone.
void op_label(const struct plan *plan, const struct op *op, int room, char text[OP_LABEL_MAX]);

#endif
