// SPDX-License-Identifier: Apache-2.0
// The exchange between devices by NCCL. Messages are in device memory.
//
// The transport is asynchronous: start() enqueues an exchange on a stream and waits only until NCCL
// has accepted it. Several exchanges may be in progress; they run one after the other. Work that
// writes a message's memory before the exchange, or reads it afterwards, must be ordered by that
// stream. progress() tells whether the stream has completed all exchanges. There are no tags: a
// message for another step is not detected.
#ifndef CPATTN_TRANSPORT_NCCL_H
#define CPATTN_TRANSPORT_NCCL_H

#include <cuda_runtime_api.h>

#include "transport/transport.h"

// Connects the ranks of `control`, each with the current device of its process. A first exchange
// between every two ranks makes NCCL open its connections. At most `channels` channels connect two
// ranks, and each takes time to connect; 0: NCCL chooses. All ranks must call it. `control` (no
// exchange in progress) carries NCCL's id; it and `stream` are borrowed for the life of the
// transport. A world of one rank does not use NCCL. INTERNAL with NCCL's message; errors of
// `control` are returned.
enum status transport_nccl_create(struct transport *control, cudaStream_t stream, int channels,
                                  struct transport **t, struct error *error) MUST_CHECK;

// A collective of the library among all ranks of the transport, which make the same call. Elements
// are counted as in NCCL.
enum nccl_operation {
    NCCL_ALL_REDUCE = 1,
    NCCL_ALL_GATHER,
    NCCL_REDUCE_SCATTER,
    NCCL_BROADCAST,
    NCCL_REDUCE
};
enum nccl_element { NCCL_FP32 = 1, NCCL_FP16, NCCL_BF16, NCCL_INT32, NCCL_INT64, NCCL_UINT8 };
enum nccl_reduction { NCCL_SUM = 1, NCCL_PROD, NCCL_MIN, NCCL_MAX, NCCL_AVG };
struct nccl_call {
    enum nccl_operation operation;
    enum nccl_element element;
    enum nccl_reduction reduction; // for operations that reduce
    const void *send;
    void *receive;
    size_t count;
    int root; // of broadcast and reduce
};

// Enqueues the call on the stream, as start() does with an exchange. In a world of one rank it
// copies `send` to `receive`, without NCCL.
enum status transport_nccl_call(struct transport *t, const struct nccl_call *call,
                                struct error *error) MUST_CHECK;

// The stream of exchanges.
cudaStream_t transport_nccl_stream(const struct transport *t);

#endif
