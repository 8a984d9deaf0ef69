// SPDX-License-Identifier: Apache-2.0
// Elements of results that lie on the device, for a diagnosis.
#ifndef CPATTN_RANK_CUDA_RESULTS_READ_H
#define CPATTN_RANK_CUDA_RESULTS_READ_H

#include "judge/evidence.h"

// Its context is a struct evidence_host whose results are device memory that nothing is written to
// any more. Waits for the copy.
evidence_read results_read_device;

#endif
