// SPDX-License-Identifier: Apache-2.0
// A transport between threads that share a device. It replaces NCCL. All threads of the world call
// start() for each exchange, which is complete when start() returns.
#ifndef CPATTN_TESTS_CUDA_LOCAL_TRANSPORT_H
#define CPATTN_TESTS_CUDA_LOCAL_TRANSPORT_H

#include <pthread.h>

#include "common/limits.h"
#include "transport/nccl.h"

// Shared by the threads of one world. During an exchange it has the message list of each rank.
struct local_meeting {
    pthread_barrier_t barrier;
    const struct message *messages[WORLD_SIZE_MAX];
    int counts[WORLD_SIZE_MAX];
};
void local_meeting_init(struct local_meeting *m, int world_size);
void local_meeting_fini(struct local_meeting *m);

// The transport of one thread. The caller creates, sets and destroys `stream`.
struct local_transport {
    struct transport base;
    struct local_meeting *meeting;
    cudaStream_t stream;
};
void local_transport_init(struct local_transport *t, struct local_meeting *meeting, int rank,
                          int world_size);

#endif
