// SPDX-License-Identifier: Apache-2.0
// Stand-ins for the CUDA runtime and NCCL on the host, in which every call is done when it returns.
// Ranks are threads that have a device each; streams of a rank are all the same. NCCL's calls move
// nothing: they are counted.
#ifndef CPATTN_TESTS_CUDA_PROMPT_CUDA_H
#define CPATTN_TESTS_CUDA_PROMPT_CUDA_H

#include <stddef.h>

#include "common/limits.h"

// What a test sets before its ranks begin, and what it finds behind them.
struct prompt_device {
    size_t total_bytes, taken_bytes;
    size_t leaving_bytes; // of taken_bytes, those that are freed at the third refusal
    int refusals;
    float peer_ms, nccl_ms; // what the first two timings take, and all later ones
    int communicators, open_communicators;
    int channels[3];  // of the first communicators; 0: as NCCL chooses
    size_t beside[3]; // bytes that were taken when they were opened
    int collected_by; // number of the communicator of the last collective, from 1 on; 0: none
};
extern struct prompt_device prompt_devices[WORLD_SIZE_MAX];

// Devices of this size, without memory in use.
void prompt_reset(size_t total_bytes);

// The rank of this thread.
void prompt_enter(int rank);

#endif
