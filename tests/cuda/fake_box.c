// SPDX-License-Identifier: Apache-2.0
// cudaMemcpy2DAsync() and cudaMemcpy3DAsync() of the simulated runtime.
#include <string.h>

#include "tests/cuda/fake_stream.h"

struct box_call {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, to_slice, from_slice; // bytes between rows; between slices
    struct cudaExtent extent;
};

static void box_run(void *arguments)
{
    struct box_call *c = arguments;
    for (size_t z = 0; z < c->extent.depth; z++)
        for (size_t y = 0; y < c->extent.height; y++)
            memcpy(c->to + z * c->to_slice + y * c->to_pitch,
                   c->from + z * c->from_slice + y * c->from_pitch, c->extent.width);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    struct box_call call = {.to = dst,
                            .from = src,
                            .to_pitch = dpitch,
                            .from_pitch = spitch,
                            .extent = {width, height, 1}};
    (void)kind;
    fake_insist(width <= dpitch && width <= spitch, "rows are not longer than their pitch");
    fake_push(stream, box_run, &call, sizeof(call));
    return cudaSuccess;
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    struct box_call call = {.to = p->dstPtr.ptr,
                            .from = p->srcPtr.ptr,
                            .to_pitch = p->dstPtr.pitch,
                            .from_pitch = p->srcPtr.pitch,
                            .to_slice = p->dstPtr.pitch * p->dstPtr.ysize,
                            .from_slice = p->srcPtr.pitch * p->srcPtr.ysize,
                            .extent = p->extent};
    fake_insist(p->extent.width <= p->dstPtr.pitch && p->extent.width <= p->srcPtr.pitch &&
                    p->extent.height <= p->dstPtr.ysize && p->extent.height <= p->srcPtr.ysize,
                "boxes are in their slices");
    fake_push(stream, box_run, &call, sizeof(call));
    return cudaSuccess;
}
