// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/timeline.h"

#include <stdlib.h>

void timeline_init(struct timeline *t)
{
    *t = (struct timeline){.interval_max = 0};
    events_init(&t->events, true);
    stamps_init(&t->stamps);
}

void timeline_fini(struct timeline *t)
{
    events_fini(&t->events);
    stamps_fini(&t->stamps);
    free(t->exchanges.list);
    free(t->exposed.list);
    free(t->ops.list);
    timeline_init(t);
}

// Maximum number of stamps per operation: before its wait, after its wait, its end, and the end of
// a phase.
#define STAMPS 4

bool timeline_reset(struct timeline *t, int op_count)
{
    events_reset(&t->events);
    t->exchanges.count = t->exposed.count = t->ops.count = 0;
    if (t->events.captured && stamps_reset(&t->stamps, STAMPS * (op_count + 1)) != cudaSuccess)
        return false;
    if (op_count + 1 <= t->interval_max)
        return true;
    free(t->exchanges.list);
    free(t->exposed.list);
    free(t->ops.list);
    t->exchanges.list = calloc((size_t)op_count + 1, sizeof(struct interval));
    t->exposed.list = calloc((size_t)op_count + 1, sizeof(struct interval));
    t->ops.list = calloc((size_t)op_count + 1, sizeof(struct interval));
    t->interval_max = t->exchanges.list && t->exposed.list && t->ops.list ? op_count + 1 : 0;
    return t->interval_max > 0;
}

// ---- points ----

// The point of a stamp, and the stamp of a point (the function is its own inverse).
static int point_of_stamp(int stamp)
{
    return POINT_NONE - 1 - stamp;
}

cudaError_t timeline_begin(struct timeline *t, cudaStream_t compute)
{
    if (t->off)
        return cudaSuccess;
    cudaError_t result = cudaSuccess;
    if (t->events.captured)
        result = stamps_put(&t->stamps, compute, &t->begin_stamp);
    t->begin = point_of_stamp(t->begin_stamp);
    if (result == cudaSuccess && !t->stamped)
        result = events_record(&t->events, compute, &t->begin);
    return result;
}

uint64_t timeline_stamp(struct timeline *t, int *point)
{
    int stamp;
    uint64_t *place = stamps_take(&t->stamps, &stamp);
    if (place)
        *point = point_of_stamp(stamp);
    return (uint64_t)(uintptr_t)place;
}

cudaError_t timeline_record(struct timeline *t, enum plan_stream which, cudaStream_t stream,
                            int *point)
{
    int stamp;
    *point = 0;
    if (t->off)
        return cudaSuccess;
    if (!t->events.captured || which == STREAM_COMM)
        return events_record(&t->events, stream, point);
    cudaError_t result = stamps_put(&t->stamps, stream, &stamp);
    if (result == cudaSuccess)
        *point = point_of_stamp(stamp);
    return result;
}

// Nanoseconds from the start of the plan to a point.
static cudaError_t point_ns(const struct timeline *t, int point, uint64_t *ns)
{
    if (point == POINT_NONE)
        return cudaErrorInvalidValue;
    if (point >= 0)
        return events_between_ns(&t->events, t->begin, point, ns);
    *ns = stamps_between_ns(&t->stamps, t->begin_stamp, point_of_stamp(point));
    return cudaSuccess;
}

// ---- times ----

static cudaError_t interval_ns(const struct timeline *t, const struct interval *i,
                               uint64_t *start_ns, uint64_t *end_ns)
{
    uint64_t after_ns = 0;
    cudaError_t result = point_ns(t, i->from, start_ns);
    if (result == cudaSuccess)
        result = point_ns(t, i->after, &after_ns);
    if (result == cudaSuccess)
        result = point_ns(t, i->to, end_ns);
    *start_ns = after_ns > *start_ns ? after_ns : *start_ns;
    *end_ns = *end_ns > *start_ns ? *end_ns : *start_ns;
    return result;
}

static cudaError_t intervals_sum(const struct timeline *t, const struct intervals *intervals,
                                 uint64_t *sum_ns)
{
    cudaError_t result = cudaSuccess;
    *sum_ns = 0;
    for (int i = 0; i < intervals->count && result == cudaSuccess; i++) {
        uint64_t start_ns = 0, end_ns = 0;
        result = interval_ns(t, &intervals->list[i], &start_ns, &end_ns);
        *sum_ns += end_ns - start_ns;
    }
    return result;
}

cudaError_t timeline_read(const struct timeline *t, struct timings *timings)
{
    uint64_t forward_ns = 0, total_ns = 0;
    cudaError_t result = point_ns(t, t->end, &total_ns);
    for (int stream = 0; stream < PLAN_STREAMS && result == cudaSuccess; stream++) {
        uint64_t ns = 0;
        result = point_ns(t, t->forward_end[stream], &ns);
        forward_ns = ns > forward_ns ? ns : forward_ns;
    }
    if (result == cudaSuccess)
        result = intervals_sum(t, &t->exchanges, &timings->exchange_ns);
    if (result == cudaSuccess)
        result = intervals_sum(t, &t->exposed, &timings->exposed_ns);
    timings->forward_ns = forward_ns;
    timings->backward_ns = total_ns > forward_ns ? total_ns - forward_ns : 0;
    return result;
}

cudaError_t timeline_read_ops(const struct timeline *t, struct op_times *times)
{
    cudaError_t result = cudaSuccess;
    times->begin_ns = t->begin_ns;
    for (int i = 0; i < t->ops.count && result == cudaSuccess; i++)
        result = interval_ns(t, &t->ops.list[i], &times->list[i].start_ns, &times->list[i].end_ns);
    times->count = result == cudaSuccess ? t->ops.count : 0;
    return result;
}
