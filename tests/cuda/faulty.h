// SPDX-License-Identifier: Apache-2.0
// The engine of a rank on a GPU with a fault that the case's model asks for, "FAULT" or
// "FAULT-RANK": of that rank, or of the last one.
//     astray   a kernel reads where there is no memory
//     asleep   the rank does not take part: its peers wait in an exchange
//     wedged   a kernel does not end
//     greedy   the device has no memory left
//     killed   the process ends by SIGKILL
//     stopped  the process is stopped by a signal
#ifndef CPATTN_TESTS_CUDA_FAULTY_H
#define CPATTN_TESTS_CUDA_FAULTY_H

#include "rank/engine.h"

extern const struct engine_kind engine_faulty;

#endif
