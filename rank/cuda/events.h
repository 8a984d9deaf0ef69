// SPDX-License-Identifier: Apache-2.0
// Events on streams, created on first use and reused by the next case.
#ifndef CPATTN_RANK_CUDA_EVENTS_H
#define CPATTN_RANK_CUDA_EVENTS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

struct events {
    bool timed;
    bool captured; // records go into a graph, which records the events each time it runs
    cudaEvent_t *list;
    int count, capacity; // used by the current case; created
};

void events_init(struct events *e, bool timed);
void events_fini(struct events *e);

// Makes all events available again.
void events_reset(struct events *e);

// Records the next event on the stream. *index is its number.
cudaError_t events_record(struct events *e, cudaStream_t stream, int *index);

// Nanoseconds between two events that were reached; of timed events.
cudaError_t events_between_ns(const struct events *e, int from, int to, uint64_t *ns);

#endif
