// SPDX-License-Identifier: Apache-2.0
// Runs the verification of a daemon's ranks on one device. Each rank is a thread.
#ifndef CPATTN_TESTS_CUDA_VERIFY_WORKERS_H
#define CPATTN_TESTS_CUDA_VERIFY_WORKERS_H

#include "tests/cuda/verify_sample.h"

// Call before the first and after the last sample_judge().
void workers_open(void);
void workers_close(void);

// Copies the results of all ranks to the device and judges them there; fills the ranks' reports.
void sample_judge(struct sample *s);

#endif
