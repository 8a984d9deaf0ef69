// SPDX-License-Identifier: Apache-2.0
// Swaps of messages of the device (judge/cuda/verification.h) over NCCL, concurrent with the work
// of a queue.
#ifndef CPATTN_RANK_CUDA_SWAP_NCCL_H
#define CPATTN_RANK_CUDA_SWAP_NCCL_H

#include "judge/cuda/verification.h"
#include "transport/nccl.h"

struct swap_nccl {
    struct cuda_queue *queue;
    struct transport *transport; // transport_nccl_create()'s, on a separate stream
};

// Uses `s`, which must outlive it.
struct swap_cuda swap_nccl(struct swap_nccl *s);

#endif
