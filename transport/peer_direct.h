// SPDX-License-Identifier: Apache-2.0
// Small exchanges between devices, each made by one kernel: a launch in place of copies, groups of
// words and events. In a graph such a kernel costs the host nothing.
//
// The kernel waits for its peers on a multiprocessor, so no two ranks may share a device. It counts
// exchanges on the device: captured exchanges and others raise the same counters, which only grow.
#ifndef CPATTN_TRANSPORT_PEER_DIRECT_H
#define CPATTN_TRANSPORT_PEER_DIRECT_H

#include "transport/peer_exchange.h"

// Up to these bytes sent by a rank, in the largest exchange of a plan, kernels make its exchanges.
// Above that they take more from the attention beside them than they save; in a graph they save
// more.
#define PEER_DIRECT_BYTES          ((size_t)3 << 20)
#define PEER_DIRECT_CAPTURED_BYTES ((size_t)16 << 20)

// Enqueues an exchange whose messages have been checked; traffic[world_size] sums them up.
cudaError_t peer_direct_put(struct peer_transport *p, const struct message *messages, int count,
                            const struct traffic *traffic);

#endif
