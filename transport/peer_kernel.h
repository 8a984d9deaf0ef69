// SPDX-License-Identifier: Apache-2.0
// The kernel that makes an exchange (transport/peer_direct.h): it copies into the memory of the
// peers, raises counters there, and awaits counters of its own rank.
#ifndef CPATTN_TRANSPORT_PEER_KERNEL_H
#define CPATTN_TRANSPORT_PEER_KERNEL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_KERNEL_RANKS  8
#define PEER_KERNEL_COPIES 32 // per launch

// Counters of one rank, by peer. They begin at 0 and only grow.
struct kernel_counters {
    // Raised by the peer: number of exchanges whose bytes from the peer have arrived, and number of
    // exchanges whose destinations at the peer are free.
    uint32_t arrived[PEER_KERNEL_RANKS], ready[PEER_KERNEL_RANKS];
    // Private to this rank: number of exchanges in which it has sent to, and received from, the
    // peer.
    uint32_t sent[PEER_KERNEL_RANKS], received[PEER_KERNEL_RANKS];
    uint32_t blocks; // thread blocks of the running launch that have finished their copies
};

// A strided copy: `blocks` blocks of `rows` pieces of `bytes` bytes, all at least 1. Fewer than
// 2^31 bytes in total.
struct kernel_copy {
    const char *from;
    char *to;
    uint32_t bytes, rows, blocks;
    int32_t peer; // rank whose memory has `to`
    // Distances in bytes: of the pieces of a block, and of the blocks.
    int64_t from_stride, to_stride, from_block, to_block;
};

// One launch of the kernel. An exchange with many copies takes several launches.
struct kernel_exchange {
    struct kernel_counters *own, *theirs[PEER_KERNEL_RANKS];
    int32_t rank;
    uint32_t sends, receives; // bit p: the exchange has bytes to, or from, rank p
    bool first, last;         // first or last launch of the exchange
    int32_t copy_count;
    struct kernel_copy copies[PEER_KERNEL_COPIES];
    // Written when all bytes have arrived; NULL: nothing is written.
    uint32_t *mark, mark_value; // *mark = mark_value
    uint64_t *time;             // the device's clock in nanoseconds
};

// Enqueues a launch.
cudaError_t peer_kernel_put(const struct kernel_exchange *x, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
