// SPDX-License-Identifier: Apache-2.0
// Swaps of messages of the device (judge/cuda/verification.h) over the sockets between ranks, by
// way of the host's memory. They wait for the device and for the peers; for who has no NCCL.
#ifndef CPATTN_RANK_CUDA_SWAP_STAGED_H
#define CPATTN_RANK_CUDA_SWAP_STAGED_H

#include "judge/cuda/verification.h"
#include "rank/swap.h"

struct swap_staged {
    struct cuda_queue *queue;
    struct transport_swap over; // nothing under way
};

// Runs over `s`, which outlives it.
struct swap_cuda swap_staged(struct swap_staged *s);

#endif
