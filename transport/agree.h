// SPDX-License-Identifier: Apache-2.0
// Agreements between ranks over a control transport. All ranks call these functions in the same
// order, without an exchange in progress; errors are the transport's.
#ifndef CPATTN_TRANSPORT_AGREE_H
#define CPATTN_TRANSPORT_AGREE_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/transport.h"

// Runs an exchange and waits until it is complete.
enum status agree_swap(struct transport *control, const struct message *messages, int count,
                       struct error *error) MUST_CHECK;

// All-gather of `bytes` bytes: theirs[rank * bytes] gets the bytes of each rank, the own included.
enum status agree_share(struct transport *control, const void *mine, char *theirs, size_t bytes,
                        struct error *error) MUST_CHECK;

// Sets *all to true if all ranks pass true.
enum status agree_all(struct transport *control, bool mine, bool *all,
                      struct error *error) MUST_CHECK;

#endif
