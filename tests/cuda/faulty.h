// SPDX-License-Identifier: Apache-2.0
// The CUDA engine with fault injection. The case's model names the fault: "FAULT" injects it in the
// last rank, "FAULT-RANK" in rank number RANK.
//     astray   dO points to an unmapped address, which a kernel reads
//     asleep   the rank runs only the first half of its plan, then sleeps: its peers wait in an
//              exchange
//     killed   as asleep, but the process ends by SIGKILL
//     stopped  as asleep, but the process is stopped by SIGSTOP
//     wedged   kernels block the rank's stream for 120 s
//     greedy   the device has no free memory when the case is admitted
//     doubled  dK of a bf16 case is twice the correct dK
#ifndef CPATTN_TESTS_CUDA_FAULTY_H
#define CPATTN_TESTS_CUDA_FAULTY_H

#include "rank/engine.h"

extern const struct engine_kind engine_faulty;

#endif
