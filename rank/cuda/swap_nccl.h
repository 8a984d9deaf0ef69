// SPDX-License-Identifier: Apache-2.0
// Exchanges the judge's messages (struct swap_cuda) over NCCL, concurrently with the work of a
// queue.
#ifndef CPATTN_RANK_CUDA_SWAP_NCCL_H
#define CPATTN_RANK_CUDA_SWAP_NCCL_H

#include "judge/cuda/verification.h"
#include "transport/nccl.h"

struct swap_nccl {
    struct cuda_queue *queue;
    struct transport *transport; // of transport_nccl_create(), on a stream other than the queue's
};

// Uses `s`, which must outlive it.
struct swap_cuda swap_nccl(struct swap_nccl *s);

#endif
