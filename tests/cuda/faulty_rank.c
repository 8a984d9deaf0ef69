// SPDX-License-Identifier: Apache-2.0
// cpattn-rank-cuda with fault injection (tests/cuda/faulty.h), for cpattnd's --cuda-rank-program.
#include <string.h>

#include "rank/cuda/probe.h"
#include "rank/process.h"
#include "tests/cuda/faulty.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return probe_run();
    return process_main(argc, argv, &engine_faulty);
}
