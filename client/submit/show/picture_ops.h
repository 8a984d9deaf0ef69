// SPDX-License-Identifier: Apache-2.0
// What happens in the lanes of a timeline: operations, waits, idle times and messages. Pure except
// for the stream.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_PICTURE_OPS_H
#define CPATTN_CLIENT_SUBMIT_SHOW_PICTURE_OPS_H

#include "client/submit/show/picture.h"

// The operations of a rank, and arrows between its lanes where one starts as another ends.
void picture_ops(const struct picture *p, const struct plan *plan);

// The times in which a stream of a rank waits: bars or, with `labels`, the texts on them.
void picture_idles(const struct picture *p, const struct plan *plan, bool labels);

// A frame around each operation of the row's ranks that is on the critical path.
void picture_critical(const struct picture *p, int row);

// Arrows for what a rank sends to others.
void picture_messages(const struct picture *p, const struct plan *plan);

#endif
