// SPDX-License-Identifier: Apache-2.0
// A transport between threads that share a device, in place of NCCL: an exchange is complete
// when start() returns.
#ifndef CPATTN_TESTS_CUDA_LOCAL_TRANSPORT_H
#define CPATTN_TESTS_CUDA_LOCAL_TRANSPORT_H

#include <pthread.h>

#include "common/limits.h"
#include "transport/nccl.h"

// The shared state of the threads of a world.
struct local_meeting {
    pthread_barrier_t barrier;
    const struct message *messages[WORLD_SIZE_MAX];
    int counts[WORLD_SIZE_MAX];
};
void local_meeting_init(struct local_meeting *m, int world_size);
void local_meeting_fini(struct local_meeting *m);

// One for each thread; the stream is the caller's.
struct local_transport {
    struct transport base;
    struct local_meeting *meeting;
    cudaStream_t stream;
};
void local_transport_init(struct local_transport *t, struct local_meeting *meeting, int rank,
                          int world_size);

#endif
