// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/timeline.h"

#include <stdlib.h>

void timeline_init(struct timeline *t)
{
    *t = (struct timeline){.pair_max = 0};
    events_init(&t->events, true);
}

void timeline_fini(struct timeline *t)
{
    events_fini(&t->events);
    free(t->exchanges.list);
    free(t->exposed.list);
    free(t->ops.list);
    timeline_init(t);
}

bool timeline_reset(struct timeline *t, int op_count)
{
    events_reset(&t->events);
    t->exchanges.count = t->exposed.count = t->ops.count = 0;
    if (op_count + 1 <= t->pair_max)
        return true;
    free(t->exchanges.list);
    free(t->exposed.list);
    free(t->ops.list);
    t->exchanges.list = calloc((size_t)op_count + 1, sizeof(struct event_pair));
    t->exposed.list = calloc((size_t)op_count + 1, sizeof(struct event_pair));
    t->ops.list = calloc((size_t)op_count + 1, sizeof(struct event_pair));
    t->pair_max = t->exchanges.list && t->exposed.list && t->ops.list ? op_count + 1 : 0;
    return t->pair_max > 0;
}

static cudaError_t pairs_sum(const struct timeline *t, const struct event_pairs *pairs,
                             uint64_t *sum_ns)
{
    cudaError_t result = cudaSuccess;
    *sum_ns = 0;
    for (int i = 0; i < pairs->count && result == cudaSuccess; i++) {
        uint64_t ns = 0;
        result = events_between_ns(&t->events, pairs->list[i].from, pairs->list[i].to, &ns);
        *sum_ns += ns;
    }
    return result;
}

cudaError_t timeline_read(const struct timeline *t, struct timings *timings)
{
    uint64_t forward_ns = 0, total_ns = 0;
    cudaError_t result = events_between_ns(&t->events, t->begin, t->end, &total_ns);
    for (int stream = 0; stream < PLAN_STREAMS && result == cudaSuccess; stream++) {
        uint64_t ns = 0;
        result = events_between_ns(&t->events, t->begin, t->forward_end[stream], &ns);
        forward_ns = ns > forward_ns ? ns : forward_ns;
    }
    if (result == cudaSuccess)
        result = pairs_sum(t, &t->exchanges, &timings->exchange_ns);
    if (result == cudaSuccess)
        result = pairs_sum(t, &t->exposed, &timings->exposed_ns);
    timings->forward_ns = forward_ns;
    timings->backward_ns = total_ns > forward_ns ? total_ns - forward_ns : 0;
    return result;
}

cudaError_t timeline_read_ops(const struct timeline *t, struct op_times *times)
{
    cudaError_t result = cudaSuccess;
    times->begin_ns = t->begin_ns;
    for (int i = 0; i < t->ops.count && result == cudaSuccess; i++) {
        struct op_time *time = &times->list[i];
        uint64_t length_ns = 0;
        result = events_between_ns(&t->events, t->begin, t->ops.list[i].from, &time->start_ns);
        if (result == cudaSuccess)
            result =
                events_between_ns(&t->events, t->ops.list[i].from, t->ops.list[i].to, &length_ns);
        time->end_ns = time->start_ns + length_ns;
    }
    times->count = result == cudaSuccess ? t->ops.count : 0;
    return result;
}
