// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/given.h"

#include <stdlib.h>

#include "judge/source.h"
#include "rank/inputs.h"

// ---- inputs of the computation ----

static bool is_given(const struct job *j, enum whole_tensor tensor)
{
    return j->c->source && j->c->source->tensors[tensor];
}

bool given_has(const struct job *j, enum buffer_role role)
{
    switch (role) {
    case BUFFER_INPUT_Q:
        return is_given(j, WHOLE_Q);
    case BUFFER_INPUT_KV:
        return is_given(j, WHOLE_K) || is_given(j, WHOLE_V);
    case BUFFER_INPUT_DO:
        return is_given(j, WHOLE_DO);
    case BUFFER_INPUT_SINK:
        return is_given(j, WHOLE_SINK);
    case BUFFER_INPUT_BIAS:
        return is_given(j, WHOLE_BIAS);
    default:
        return false;
    }
}

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

// Copies to the device and waits.
static cudaError_t copy(void *device, const void *host, int64_t bytes, cudaStream_t stream)
{
    cudaError_t result =
        cudaMemcpyAsync(device, host, (size_t)bytes, cudaMemcpyHostToDevice, stream);
    return result == cudaSuccess ? cudaStreamSynchronize(stream) : result;
}

cudaError_t given_fill(const struct job *j, cudaStream_t stream)
{
    static const enum buffer_role roles[] = {BUFFER_INPUT_Q, BUFFER_INPUT_KV, BUFFER_INPUT_DO,
                                             BUFFER_INPUT_SINK, BUFFER_INPUT_BIAS};
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles) && result == cudaSuccess; i++) {
        int64_t bytes;
        void *device = job_buffer(j, roles[i], &bytes);
        if (!device || bytes == 0 || !given_has(j, roles[i]))
            continue;
        char *host = calloc((size_t)bytes, 1);
        if (!host)
            return cudaErrorMemoryAllocation;
        buffer_fill(j, roles[i], host);
        result = copy(device, host, bytes, stream);
        free(host);
    }
    return result;
}

// ---- inputs of the judge -----

// Bytes of a whole tensor; 0: the tensor is not given.
static int64_t whole_given(const struct job *j, int tensor)
{
    return is_given(j, (enum whole_tensor)tensor)
               ? whole_bytes(j->c->source->c, (enum whole_tensor)tensor)
               : 0;
}

enum status given_reserve(const struct job *j, size_t *device_bytes, struct error *error)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < VERIFY_CUDA_GIVEN && status == STATUS_OK; i++)
        if (j->c->verify != VERIFY_OFF && whole_given(j, i) > 0)
            status = device_arena_add(device_bytes, whole_given(j, i), 1, error);
    return status;
}

cudaError_t given_push(const struct job *j, struct device_arena *arena, cudaStream_t stream,
                       const void *whole[VERIFY_CUDA_GIVEN])
{
    cudaError_t result = cudaSuccess;
    for (int i = 0; i < VERIFY_CUDA_GIVEN; i++) {
        int64_t bytes = whole_given(j, i);
        whole[i] = NULL;
        if (j->c->verify == VERIFY_OFF || bytes == 0 || result != cudaSuccess)
            continue;
        void *device = device_arena_take(arena, bytes, 1);
        result = copy(device, j->c->source->tensors[i], bytes, stream);
        whole[i] = device;
    }
    return result;
}
