// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/events.h"

#include <stdlib.h>

void events_init(struct events *e, bool timed)
{
    *e = (struct events){.timed = timed};
}

void events_fini(struct events *e)
{
    for (int i = 0; i < e->capacity; i++)
        (void)cudaEventDestroy(e->list[i]);
    free(e->list);
    events_init(e, e->timed);
}

void events_reset(struct events *e)
{
    e->count = 0;
}

static cudaError_t event_make(struct events *e)
{
    cudaEvent_t *list = reallocarray(e->list, (size_t)e->capacity + 1, sizeof(*list));
    if (!list)
        return cudaErrorMemoryAllocation;
    e->list = list;
    cudaError_t result = cudaEventCreateWithFlags(
        &list[e->capacity], e->timed ? cudaEventDefault : cudaEventDisableTiming);
    e->capacity += result == cudaSuccess;
    return result;
}

cudaError_t events_record(struct events *e, cudaStream_t stream, int *index)
{
    cudaError_t result = e->count < e->capacity ? cudaSuccess : event_make(e);
    if (result == cudaSuccess && e->captured)
        result = cudaEventRecordWithFlags(e->list[e->count], stream, cudaEventRecordExternal);
    else if (result == cudaSuccess)
        result = cudaEventRecord(e->list[e->count], stream);
    if (result == cudaSuccess)
        *index = e->count++;
    return result;
}

cudaError_t events_between_ns(const struct events *e, int from, int to, uint64_t *ns)
{
    float ms = 0;
    cudaError_t result = cudaEventElapsedTime(&ms, e->list[from], e->list[to]);
    *ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return result;
}
