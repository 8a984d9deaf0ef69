// SPDX-License-Identifier: Apache-2.0
// A pool of CUDA events, which are created on first use and reused by the next case.
#ifndef CPATTN_RANK_CUDA_EVENTS_H
#define CPATTN_RANK_CUDA_EVENTS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

struct events {
    bool timed;    // the events have times
    bool captured; // records are captured in a graph, which records the events on each launch
    cudaEvent_t *list;
    int count, capacity; // events used by the current case; events created
};

void events_init(struct events *e, bool timed);
void events_fini(struct events *e);

// Makes all events available again.
void events_reset(struct events *e);

// Records the next event on the stream. *index: its index in the list.
cudaError_t events_record(struct events *e, cudaStream_t stream, int *index);

// Nanoseconds between two completed events of a timed list.
cudaError_t events_between_ns(const struct events *e, int from, int to, uint64_t *ns);

#endif
