// SPDX-License-Identifier: Apache-2.0
// The times of a plan on a device, from timed events. In a graph the times of the compute stream
// are stamps, and if exchanges can write stamps, all times are.
#ifndef CPATTN_RANK_CUDA_TIMELINE_H
#define CPATTN_RANK_CUDA_TIMELINE_H

#include "common/report.h"
#include "plan/plan.h"
#include "rank/cuda/events.h"
#include "rank/cuda/stamps.h"

// A point is a moment on a stream, as an int: the index of a timed event (0 or more), or a stamp
// (less than POINT_NONE).
enum { POINT_NONE = -1 };

// From the later of the points `from` and `after` to the point `to`.
struct interval {
    int from, after, to;
};

struct intervals {
    struct interval *list; // room for one more than the operations of the plan
    int count;
};

struct timeline {
    bool off;     // points are not recorded, and there are no times
    bool stamped; // in a graph: all points are stamps
    struct events events;
    struct stamps stamps; // in a graph: of the compute stream, and of exchanges if `stamped`
    struct intervals exchanges, exposed;
    struct intervals ops; // with operation_times: the plan's first OP_TIMES_MAX operations
    int interval_max;
    uint64_t begin_ns;                  // host clock just before `begin` was recorded
    int begin;                          // point at the start; an event unless all are stamps
    int begin_stamp;                    // in a graph: index of the stamp at the start
    int forward_end[PLAN_STREAMS], end; // points
};

void timeline_init(struct timeline *t);
void timeline_fini(struct timeline *t);

// Resets events and stamps for a plan with this number of operations; false: memory is short.
bool timeline_reset(struct timeline *t, int op_count);

// Records the first point on the compute stream.
cudaError_t timeline_begin(struct timeline *t, cudaStream_t compute);

// Takes a stamp as *point. Returns the device address to which the caller must have the time
// written; 0: no stamp is left.
uint64_t timeline_stamp(struct timeline *t, int *point);

// Records a point on a stream. In a graph points of the compute stream are stamps; others are
// events.
cudaError_t timeline_record(struct timeline *t, enum plan_stream which, cudaStream_t stream,
                            int *point);

// Fills forward, backward, exchange and exposed times, after the device has finished.
cudaError_t timeline_read(const struct timeline *t, struct timings *timings);

// Fills the times of the recorded operations, after the device has finished.
cudaError_t timeline_read_ops(const struct timeline *t, struct op_times *times);

#endif
