// SPDX-License-Identifier: Apache-2.0
// The kernel that makes an exchange (transport/peer_direct.h): it copies into the memory of the
// peers, and raises and awaits counters there and here.
#ifndef CPATTN_TRANSPORT_PEER_KERNEL_H
#define CPATTN_TRANSPORT_PEER_KERNEL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_KERNEL_RANKS  8
#define PEER_KERNEL_COPIES 32 // of one launch

// Counters of one rank, by peer. They begin at 0 and only grow.
struct kernel_counters {
    // Raised by the peer: number of exchanges whose bytes from it have arrived, and of those whose
    // destinations at it are free.
    uint32_t arrived[PEER_KERNEL_RANKS], ready[PEER_KERNEL_RANKS];
    // Of this rank alone: number of exchanges in which it has sent to the peer, and received.
    uint32_t sent[PEER_KERNEL_RANKS], received[PEER_KERNEL_RANKS];
    uint32_t blocks; // of the launch that is running: those that have copied
};

// `blocks` blocks of `rows` pieces of `bytes` bytes, all at least 1, with steps in bytes. There are
// fewer than 2^31 bytes.
struct kernel_copy {
    const char *from;
    char *to;
    uint32_t bytes, rows, blocks;
    int32_t peer; // into its memory
    int64_t from_stride, to_stride, from_block, to_block;
};

// An exchange, or one of several launches that make one together.
struct kernel_exchange {
    struct kernel_counters *own, *theirs[PEER_KERNEL_RANKS];
    int32_t rank;
    uint32_t sends, receives; // bit p: to rank p, from it
    bool first, last;         // of the launches of the exchange
    int32_t copy_count;
    struct kernel_copy copies[PEER_KERNEL_COPIES];
    // Written when all bytes have arrived; NULL: not.
    uint32_t *mark, mark_value;
    uint64_t *time; // the device's clock in nanoseconds
};

// Enqueues a launch.
cudaError_t peer_kernel_put(const struct kernel_exchange *x, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
