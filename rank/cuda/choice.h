// SPDX-License-Identifier: Apache-2.0
// The choice between copy engines and NCCL for the exchanges of plans, by timing both when a pool
// starts.
#ifndef CPATTN_RANK_CUDA_CHOICE_H
#define CPATTN_RANK_CUDA_CHOICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "transport/transport.h"

// What every rank sends to the next one. For ranks that share a device NCCL uses sockets, which
// take milliseconds for this.
#define CHOICE_BYTES ((size_t)2 << 20)

// Nanoseconds of an exchange on the slowest rank. All ranks have the same figures.
struct choice {
    uint64_t peer_ns, nccl_ns; // 0: not timed
};

// Times exchanges by both transports, which enqueue on `stream`. All ranks call it, without an
// exchange in progress. If the memory is short, nothing is timed.
enum status choice_time(struct transport *control, struct transport *peer, struct transport *nccl,
                        cudaStream_t stream, struct choice *choice, struct error *error) MUST_CHECK;

// The times are those of idle devices. Beside attention NCCL's kernels wait for multiprocessors and
// take some from it, and copy engines do not. So NCCL must be more than twice as fast.
static inline bool choice_is_nccl(const struct choice *c)
{
    return c->nccl_ns > 0 && c->nccl_ns < c->peer_ns / 2;
}

// "copy engines (2 MiB in 21 us, NCCL in 46 us)"
void choice_describe(const struct choice *c, char *text, size_t size);

#endif
