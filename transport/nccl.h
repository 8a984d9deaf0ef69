// SPDX-License-Identifier: Apache-2.0
// The exchange between devices: messages name device memory, NCCL moves them.
//
// Unlike other transports it is asynchronous. start() enqueues an exchange on a stream and waits
// only for NCCL's acceptance. Several exchanges may be under way; they run one after the other.
// Work that writes a message's memory before, or reads it later, must be ordered by that stream.
// progress() tells whether the stream has completed all of them. There are no tags: a message for
// another step is not detected.
#ifndef CPATTN_TRANSPORT_NCCL_H
#define CPATTN_TRANSPORT_NCCL_H

#include <cuda_runtime_api.h>

#include "transport/transport.h"

// Connects the ranks of `control`, each with the device that is current in its process, and passes
// a first exchange between every two, so that later ones find their connections made. All ranks
// must call it. `control` (nothing under way) carries NCCL's id; it and `stream` are borrowed for
// the life of the transport. A world of one rank needs no NCCL and has none. INTERNAL with NCCL's
// sentence; errors of `control` are passed on.
enum status transport_nccl_create(struct transport *control, cudaStream_t stream,
                                  struct transport **t, struct error *error) MUST_CHECK;

// The stream that exchanges go to.
cudaStream_t transport_nccl_stream(const struct transport *t);

#endif
