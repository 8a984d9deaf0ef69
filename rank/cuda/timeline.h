// SPDX-License-Identifier: Apache-2.0
// The times of a plan on a device, from timed events; in a graph, times of the compute stream are
// from stamps, and so are all if the exchanges write stamps.
#ifndef CPATTN_RANK_CUDA_TIMELINE_H
#define CPATTN_RANK_CUDA_TIMELINE_H

#include "common/report.h"
#include "plan/plan.h"
#include "rank/cuda/events.h"
#include "rank/cuda/stamps.h"

// A moment on a stream: the number of a timed event, or of a stamp.
enum { POINT_NONE = -1 };

// Begins at the later of `from` and `after`.
struct interval {
    int from, after, to;
};

struct intervals {
    struct interval *list; // one entry for each operation of the plan, and one more
    int count;
};

struct timeline {
    bool off;     // points are not recorded, and there are no times
    bool stamped; // in a graph: all points are stamps
    struct events events;
    struct stamps stamps; // of the compute stream in a graph
    struct intervals exchanges, exposed;
    struct intervals
        ops; // of the plan's first operations, up to OP_TIMES_MAX, with operation_times
    int interval_max;
    uint64_t begin_ns;                  // the host's clock just before `begin` was recorded
    int begin;                          // a point; an event unless all are stamps
    int begin_stamp;                    // the same moment in a graph
    int forward_end[PLAN_STREAMS], end; // points
};

void timeline_init(struct timeline *t);
void timeline_fini(struct timeline *t);

// Resets events and stamps for a plan with this number of operations; false: memory is short.
bool timeline_reset(struct timeline *t, int op_count);

// Records the first point on the compute stream.
cudaError_t timeline_begin(struct timeline *t, cudaStream_t compute);

// Makes the next point a stamp. Returns the device's address of the time that it needs; 0: none.
uint64_t timeline_stamp(struct timeline *t, int *point);

// Records a point. In a graph those of the compute stream are stamps, the others events.
cudaError_t timeline_record(struct timeline *t, enum plan_stream which, cudaStream_t stream,
                            int *point);

// Fills forward, backward, exchange and exposed times, after the device has finished.
cudaError_t timeline_read(const struct timeline *t, struct timings *timings);

// Fills the times of the recorded operations, after the device has finished.
cudaError_t timeline_read_ops(const struct timeline *t, struct op_times *times);

#endif
