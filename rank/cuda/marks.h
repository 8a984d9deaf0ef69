// SPDX-License-Identifier: Apache-2.0
// Progress marks: one number per stream in host memory, which the device writes after an operation,
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
    uint32_t *host;     // [PLAN_STREAMS] marks, padded; NULL: unsupported, no mark is written
    CUdeviceptr device; // the same memory
    stream_words_run *run;
};

// For the current device.
enum status marks_init(struct marks *m, struct error *error) MUST_CHECK;
void marks_fini(struct marks *m);

// Sets all marks to 0. Call before the streams start.
void marks_reset(struct marks *m);

// Enqueues a write of `value` to the stream's mark: by a kernel (by_kernel), or by a stream memory
// operation.
void marks_put(const struct marks *m, enum plan_stream which, cudaStream_t stream, uint32_t value,
               bool by_kernel);

// Device address of a mark; 0: marks are not written.
uint64_t marks_place(const struct marks *m, enum plan_stream which);

uint32_t marks_get(const struct marks *m, enum plan_stream which);

#endif
