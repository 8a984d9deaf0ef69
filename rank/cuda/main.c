// SPDX-License-Identifier: Apache-2.0
// cpattn-rank-cuda: a rank on a GPU. With --probe alone it lists the devices that it could use.
#include <string.h>

#include "rank/cuda/engine.h"
#include "rank/cuda/probe.h"
#include "rank/process.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return probe_run();
    return process_main(argc, argv, &engine_cuda);
}
