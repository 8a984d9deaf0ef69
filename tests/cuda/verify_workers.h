// SPDX-License-Identifier: Apache-2.0
// The verification of a daemon's ranks on the device: each rank is a thread; they share the device.
#ifndef CPATTN_TESTS_CUDA_VERIFY_WORKERS_H
#define CPATTN_TESTS_CUDA_VERIFY_WORKERS_H

#include "tests/cuda/verify_sample.h"

// Before the first and after the last sample.
void workers_open(void);
void workers_close(void);

// Copies the results of all ranks to the device and judges them there; fills the ranks' reports.
void sample_judge(struct sample *s);

#endif
