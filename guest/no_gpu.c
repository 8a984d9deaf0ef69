// SPDX-License-Identifier: Apache-2.0
// The part of the library that is loaded without CUDA.
#include "guest/state.h"

const struct engine_kind *const engine_guest_gpu = NULL;

int guest_device(void)
{
    return -1;
}
