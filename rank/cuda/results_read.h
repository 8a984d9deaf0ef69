// SPDX-License-Identifier: Apache-2.0
// Reads elements of results in device memory, for a diagnosis.
#ifndef CPATTN_RANK_CUDA_RESULTS_READ_H
#define CPATTN_RANK_CUDA_RESULTS_READ_H

#include "judge/evidence.h"

// `context` is a struct evidence_host whose results are complete, in device memory. Waits for the
// copy.
evidence_read results_read_device;

#endif
