// SPDX-License-Identifier: Apache-2.0
// The times of a plan on a device, from timed events.
#ifndef CPATTN_RANK_CUDA_TIMELINE_H
#define CPATTN_RANK_CUDA_TIMELINE_H

#include "common/report.h"
#include "plan/plan.h"
#include "rank/cuda/events.h"

// Two timed events.
struct event_pair {
    int from, to;
};

struct event_pairs {
    struct event_pair *list; // one entry for each operation of the plan, and one more
    int count;
};

struct timeline {
    struct events events;
    struct event_pairs exchanges, exposed;
    struct event_pairs
        ops; // of the plan's first operations, up to OP_TIMES_MAX, with operation_times
    int pair_max;
    uint64_t begin_ns;                         // the host's clock just before `begin` was recorded
    int begin, forward_end[PLAN_STREAMS], end; // events
};

void timeline_init(struct timeline *t);
void timeline_fini(struct timeline *t);

// Resets the events for a plan with this number of operations; false: memory is short.
bool timeline_reset(struct timeline *t, int op_count);

// Fills forward, backward, exchange and exposed times, after the device has finished.
cudaError_t timeline_read(const struct timeline *t, struct timings *timings);

// Fills the times of the recorded operations, after the device has finished.
cudaError_t timeline_read_ops(const struct timeline *t, struct op_times *times);

#endif
