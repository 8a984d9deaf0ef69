// SPDX-License-Identifier: Apache-2.0
// The choice between copy engines and NCCL for the exchanges of plans, by timing both when a pool
// starts.
#ifndef CPATTN_RANK_CUDA_CHOICE_H
#define CPATTN_RANK_CUDA_CHOICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "transport/transport.h"

// Bytes that every rank sends to the next one in a timed exchange. Between ranks that share a
// device NCCL uses sockets, which take milliseconds for this.
#define CHOICE_BYTES ((size_t)2 << 20)

// Duration of an exchange on the slowest rank, in nanoseconds. The same on all ranks.
struct choice {
    uint64_t peer_ns, nccl_ns; // 0: not timed
};

// Times exchanges by both transports, which enqueue on `stream`, and waits for them. All ranks call
// it, without an exchange in progress. If a rank lacks memory, nothing is timed.
enum status choice_time(struct transport *control, struct transport *peer, struct transport *nccl,
                        cudaStream_t stream, struct choice *choice, struct error *error) MUST_CHECK;

// True if NCCL is to carry the exchanges. The times are those of idle devices. Concurrently with
// attention, NCCL's kernels wait for multiprocessors and occupy some of them; copy engines do not.
// So NCCL must be more than twice as fast.
static inline bool choice_is_nccl(const struct choice *c)
{
    return c->nccl_ns > 0 && c->nccl_ns < c->peer_ns / 2;
}

// Describes the choice: "copy engines (2 MiB in 21 us, NCCL in 46 us)".
void choice_describe(const struct choice *c, char *text, size_t size);

#endif
