// SPDX-License-Identifier: Apache-2.0
// Swaps of messages of the device (judge/cuda/verification.h) over the sockets between ranks,
// through host memory, for ranks without NCCL. They wait for the device and for the peers.
#ifndef CPATTN_RANK_CUDA_SWAP_STAGED_H
#define CPATTN_RANK_CUDA_SWAP_STAGED_H

#include "judge/cuda/verification.h"
#include "rank/swap.h"

struct swap_staged {
    struct cuda_queue *queue;
    struct transport_swap over; // no exchange in progress
};

// Uses `s`, which must outlive it.
struct swap_cuda swap_staged(struct swap_staged *s);

#endif
