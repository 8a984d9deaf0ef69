// SPDX-License-Identifier: Apache-2.0
// The engine of a rank on a GPU with a fault that the case's model asks for, "FAULT" or
// "FAULT-RANK": of that rank, or of the last one.
//     astray   a kernel reads where there is no memory
//     asleep   the rank starts no more than half of its plan: its peers wait in an exchange
//     killed   the same, and then the process ends by SIGKILL
//     stopped  the same, and then the process is stopped by a signal
//     wedged   a kernel does not end
//     greedy   the device has no memory left
//     doubled  dk of a bf16 case is twice what it should be
#ifndef CPATTN_TESTS_CUDA_FAULTY_H
#define CPATTN_TESTS_CUDA_FAULTY_H

#include "rank/engine.h"

extern const struct engine_kind engine_faulty;

#endif
