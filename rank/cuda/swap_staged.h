// SPDX-License-Identifier: Apache-2.0
// Exchanges the judge's messages (struct swap_cuda) over sockets, staged in host memory, for ranks
// without NCCL. start() waits for the device and for the peers.
#ifndef CPATTN_RANK_CUDA_SWAP_STAGED_H
#define CPATTN_RANK_CUDA_SWAP_STAGED_H

#include "judge/cuda/verification.h"
#include "rank/swap.h"

struct swap_staged {
    struct cuda_queue *queue;
    struct transport_swap over; // the sockets; no exchange in progress
};

// Uses `s`, which must outlive it.
struct swap_cuda swap_staged(struct swap_staged *s);

#endif
