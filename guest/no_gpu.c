// SPDX-License-Identifier: Apache-2.0
// A library without the CUDA engine.
#include "guest/state.h"

const struct engine_kind *const engine_guest_gpu = NULL;
