// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/results_read.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

bool results_read_device(void *context, enum report_tensor tensor, int64_t first, int64_t count,
                         float *values)
{
    const struct evidence_host *on_device = context;
    size_t bytes;
    const void *source = evidence_place(on_device, tensor, first, count, &bytes);
    void *copy = source ? malloc(bytes) : NULL;
    bool read = copy && cudaMemcpy(copy, source, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    if (read)
        evidence_convert(on_device->c, tensor, copy, count, values);
    free(copy);
    return read;
}
