// SPDX-License-Identifier: Apache-2.0
// Replaces guest/gpu.c in the library without CUDA.
#include "guest/state.h"

const struct engine_kind *const engine_guest_gpu = NULL;

int guest_device(void)
{
    return -1;
}
