// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other over a control transport before they exchange otherwise. All ranks
// call these in the same order, with nothing under way; errors are the transport's.
#ifndef CPATTN_TRANSPORT_AGREE_H
#define CPATTN_TRANSPORT_AGREE_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/transport.h"

// An exchange, brought to its end.
enum status agree_swap(struct transport *control, const struct message *messages, int count,
                       struct error *error) MUST_CHECK;

// Tells `bytes` to every peer and learns as many of each: theirs[world_size * bytes].
enum status agree_share(struct transport *control, const void *mine, char *theirs, size_t bytes,
                        struct error *error) MUST_CHECK;

// Whether all ranks say true; *all is set only then.
enum status agree_all(struct transport *control, bool mine, bool *all,
                      struct error *error) MUST_CHECK;

#endif
