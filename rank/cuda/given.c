// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/given.h"

#include <stdlib.h>

#include "rank/inputs.h"
#include "rank/judge_host.h"

// ---- inputs ----

static void tensor_fill(const struct job *j, enum input_tensor tensor, enum shard_side side,
                        void *data)
{
    inputs_fill(j->c, tensor, j->rank, j->spans[side], j->span_count[side], data);
}

static void buffer_fill(const struct job *j, enum buffer_role role, char *data)
{
    switch (role) {
    case BUFFER_INPUT_Q:
        tensor_fill(j, INPUT_Q, SIDE_Q, data);
        return;
    case BUFFER_INPUT_KV:
        tensor_fill(j, INPUT_K, SIDE_KV, data);
        tensor_fill(j, INPUT_V, SIDE_KV, data + job_key_bytes(j));
        return;
    case BUFFER_INPUT_DO:
        tensor_fill(j, INPUT_DO, SIDE_Q, data);
        return;
    case BUFFER_INPUT_SINK:
        inputs_fill_sink(j->c, (float *)(void *)data);
        return;
    case BUFFER_INPUT_BIAS:
        inputs_fill_bias(j->c, j->rank, j->spans_of_others, data);
        return;
    default:
        return;
    }
}

cudaError_t given_fill(const struct job *j, cudaStream_t stream)
{
    static const enum buffer_role roles[] = {BUFFER_INPUT_Q, BUFFER_INPUT_KV, BUFFER_INPUT_DO,
                                             BUFFER_INPUT_SINK, BUFFER_INPUT_BIAS};
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles) && result == cudaSuccess; i++) {
        int64_t bytes;
        void *device = job_buffer(j, roles[i], &bytes);
        char *host = device && bytes > 0 ? calloc((size_t)bytes, 1) : NULL;
        if (!device || bytes == 0)
            continue;
        if (!host)
            return cudaErrorMemoryAllocation;
        buffer_fill(j, roles[i], host);
        result = cudaMemcpyAsync(device, host, (size_t)bytes, cudaMemcpyHostToDevice, stream);
        if (result == cudaSuccess)
            result = cudaStreamSynchronize(stream);
        free(host);
    }
    return result;
}

// ---- results ----

enum status given_reserve(const struct job *j, size_t *host_bytes, struct error *error)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < j->plan->buffer_count && status == STATUS_OK; i++)
        for (int output = 0; output < JOB_OUTPUTS && status == STATUS_OK; output++)
            if (j->plan->buffers[i].role == job_outputs[output])
                status = arena_add(host_bytes, j->plan->buffers[i].bytes, 1, error);
    return status == STATUS_OK ? job_judge_reserve(j, host_bytes, error) : status;
}

// A copy of a buffer in the job's arena; NULL where the plan has none.
static enum status copy_back(const struct job *j, enum buffer_role role, const void **copy,
                             struct error *error)
{
    int64_t bytes;
    const void *device = job_buffer(j, role, &bytes);
    *copy = NULL;
    if (!device)
        return STATUS_OK;
    void *host = arena_take(j->arena, bytes, 1);
    *copy = host;
    if (bytes == 0 ||
        cudaMemcpy(host, device, (size_t)bytes, cudaMemcpyDeviceToHost) == cudaSuccess)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL, "results cannot be read from the device");
}

enum status given_judge(struct job *j, struct error *error)
{
    const void *copies[JOB_OUTPUTS];
    enum status status = STATUS_OK;
    for (int i = 0; i < JOB_OUTPUTS && status == STATUS_OK; i++)
        status = copy_back(j, job_outputs[i], &copies[i], error);
    if (status != STATUS_OK)
        return status;
    // In the order of job_outputs.
    const char *dkv = copies[3];
    const struct rank_results results = {
        .out = copies[0],
        .lse = copies[1],
        .dq = copies[2],
        .dk = dkv,
        .dv = dkv ? dkv + job_key_bytes(j) : NULL,
        .dsink = copies[4],
        .dbias = copies[5],
        .max_logit = copies[6],
    };
    return job_judge(j, &results, error);
}
