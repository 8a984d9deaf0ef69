// SPDX-License-Identifier: Apache-2.0
// Progress marks of streams: numbers in host memory that the device writes between two operations,
// so that the host can read the progress without waiting.
#ifndef CPATTN_RANK_CUDA_MARKS_H
#define CPATTN_RANK_CUDA_MARKS_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#include "common/status.h"
#include "plan/plan.h"
#include "transport/stream_words.h"

struct marks {
    uint32_t
        *host; // [PLAN_STREAMS]; NULL: the driver does not support it, and marks are not written
    CUdeviceptr device;
    stream_words_run *run;
};

// For the current device.
enum status marks_init(struct marks *m, struct error *error) MUST_CHECK;
void marks_fini(struct marks *m);

// Before the streams start: all marks are 0.
void marks_reset(struct marks *m);

// The mark becomes `value` when the stream gets there. `by_kernel`: a kernel writes it.
void marks_put(const struct marks *m, enum plan_stream which, cudaStream_t stream, uint32_t value,
               bool by_kernel);

// The device's address of a mark; 0: marks are not written.
uint64_t marks_place(const struct marks *m, enum plan_stream which);

uint32_t marks_get(const struct marks *m, enum plan_stream which);

#endif
