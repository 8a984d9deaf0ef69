// SPDX-License-Identifier: Apache-2.0
// Stubs of the CUDA runtime and NCCL on the host. Every call is synchronous. Ranks are threads with
// a device each. All streams of a rank are the same. NCCL calls move no data: the stubs only record
// which communicators are opened and used.
#ifndef CPATTN_TESTS_CUDA_PROMPT_CUDA_H
#define CPATTN_TESTS_CUDA_PROMPT_CUDA_H

#include <stddef.h>

#include "common/limits.h"

// The device of one rank. A test sets fields before its ranks start and reads them after they end.
struct prompt_device {
    size_t total_bytes, taken_bytes; // size of the memory; bytes in use
    size_t leaving_bytes;            // part of taken_bytes that is freed at the third refusal
    int refusals;                    // failed calls of cudaMalloc()
    // Results of cudaEventElapsedTime(): of the first two calls after prompt_enter(), and of all
    // later ones.
    float peer_ms, nccl_ms;
    int communicators, open_communicators; // opened so far; still open
    int channels[3];                       // of the first communicators; 0: as NCCL chooses
    size_t beside[3];                      // taken_bytes when each of them was opened
    int collected_by; // number of the communicator that was used last, from 1 on; 0: none
};
extern struct prompt_device prompt_devices[WORLD_SIZE_MAX]; // by rank

// Resets all devices. Each has total_bytes of memory, none of it in use.
void prompt_reset(size_t total_bytes);

// Makes the calling thread the thread of this rank.
void prompt_enter(int rank);

#endif
