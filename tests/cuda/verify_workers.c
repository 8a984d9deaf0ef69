// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/verify_workers.h"

#include <pthread.h>
#include <stdlib.h>

#include "judge/cuda/verify.h"
#include "rank/cuda/swap_nccl.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/local_transport.h"

struct worker {
    struct rank *rank;
    pthread_t thread;
    struct local_transport local;
    struct attention_backend *backend;
    struct device_arena device;
    struct arena host;
};
static struct local_meeting meeting;
static struct worker workers[SAMPLE_WORLD_MAX];

static struct rank_results results_of(void *const *tensors)
{
    return (struct rank_results){.out = tensors[OUT],
                                 .dq = tensors[DQ],
                                 .dk = tensors[DK],
                                 .dv = tensors[DV],
                                 .lse = tensors[LSE],
                                 .dsink = tensors[DSINK],
                                 .max_logit = tensors[MAX_LOGIT],
                                 .dbias = tensors[DBIAS]};
}

static void judge_cuda(struct worker *w)
{
    struct rank *rank = w->rank;
    const struct cp_case *c = &rank->sample->c;
    size_t host_bytes = 0, device_bytes = 0;
    struct error error;
    void *tensors[TENSORS];
    cudaEvent_t events[2];
    struct verify_cuda *x;
    struct swap_nccl swap = {attention_cuda_queue(w->backend), &w->local.base};
    sample_check(verify_cuda_reserve(c, rank->number, &host_bytes, &device_bytes, &error), &error);
    for (int i = 0; i < TENSORS; i++)
        sample_check(device_arena_add(&device_bytes, (int64_t)rank->bytes[i], 1, &error), &error);
    sample_check(arena_reserve(&w->host, host_bytes, &error), &error);
    sample_check(device_arena_reserve(&w->device, device_bytes, &error), &error);
    cudaStream_t stream = attention_cuda_stream(w->backend);
    CUDA(cudaMemsetAsync(w->device.base, 0xff, w->device.capacity, stream));
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = device_arena_take(&w->device, (int64_t)rank->bytes[i], 1);
        if (rank->host[i])
            CUDA(cudaMemcpyAsync(tensors[i], rank->host[i], rank->bytes[i], cudaMemcpyHostToDevice,
                                 stream));
        else
            tensors[i] = NULL;
    }
    CUDA(cudaEventCreate(&events[0]));
    CUDA(cudaEventCreate(&events[1]));
    struct verification_cuda v = {
        .c = c,
        .rank = rank->number,
        .spans = {rank->spans[0], rank->spans[1]},
        .span_count = {rank->span_count[0], rank->span_count[1]},
        .results = results_of(tensors),
        .queue = attention_cuda_queue(w->backend),
        .host = &w->host,
        .device = &w->device,
        .swap = swap_nccl(&swap),
    };
    sample_check(verify_cuda_start(&v, events[0], events[1], &x, &error), &error);
    sample_check(attention_cuda_finish(w->backend, &error), &error);
    verify_cuda_finish(x, &rank->report);
    CUDA(cudaEventDestroy(events[0]));
    CUDA(cudaEventDestroy(events[1]));
}

static void *work(void *argument)
{
    judge_cuda(argument);
    return NULL;
}

void sample_judge(struct sample *s)
{
    int world_size = s->c.world_size;
    local_meeting_init(&meeting, world_size);
    for (int r = 0; r < world_size; r++) {
        struct worker *w = &workers[r];
        w->rank = &s->ranks[r];
        local_transport_init(&w->local, &meeting, r, world_size);
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            abort();
    }
    for (int r = 0; r < world_size; r++)
        pthread_join(workers[r].thread, NULL);
    local_meeting_fini(&meeting);
}

void workers_open(void)
{
    struct error error;
    for (int i = 0; i < SAMPLE_WORLD_MAX; i++) {
        struct worker *w = &workers[i];
        arena_init(&w->host);
        device_arena_init(&w->device, (size_t)1 << 30);
        sample_check(backend_cuda.create(&w->backend, &error), &error);
        CUDA(cudaStreamCreateWithFlags(&w->local.stream, cudaStreamNonBlocking));
    }
}

void workers_close(void)
{
    for (int i = 0; i < SAMPLE_WORLD_MAX; i++) {
        backend_cuda.destroy(workers[i].backend);
        CUDA(cudaStreamDestroy(workers[i].local.stream));
        arena_fini(&workers[i].host);
        device_arena_fini(&workers[i].device);
    }
}
