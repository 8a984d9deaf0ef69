// SPDX-License-Identifier: Apache-2.0
// Small exchanges between devices by a kernel: one launch replaces copies, stream memory operations
// and events. In a graph such a kernel costs the host nothing.
//
// The kernel occupies multiprocessors while it waits for its peers, so no two ranks may share a
// device. It counts exchanges in device memory. Captured and other exchanges therefore use the same
// counters, which only grow.
#ifndef CPATTN_TRANSPORT_PEER_DIRECT_H
#define CPATTN_TRANSPORT_PEER_DIRECT_H

#include "transport/peer_exchange.h"

// Kernels make the exchanges of a plan if no rank sends more than this in its largest exchange.
// Above this limit the kernels slow down concurrent attention by more than they save. The limit is
// higher in a graph, where they save more.
#define PEER_DIRECT_BYTES          ((size_t)3 << 20)
#define PEER_DIRECT_CAPTURED_BYTES ((size_t)16 << 20)

// Enqueues an exchange of checked messages; traffic[world_size] has their total size by peer.
cudaError_t peer_direct_put(struct peer_transport *p, const struct message *messages, int count,
                            const struct traffic *traffic);

#endif
