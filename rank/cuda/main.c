// SPDX-License-Identifier: Apache-2.0
// cpattn-rank-cuda: a rank on a GPU. With --probe alone it lists the usable devices. With
// --probe-provider NAME [DEVICE] it reports whether that provider can be used.
#include <string.h>

#include "rank/cuda/engine.h"
#include "rank/cuda/probe.h"
#include "rank/process.h"
#include "rank/provider_probe.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return probe_run();
    if (argc >= 3 && strcmp(argv[1], PROVIDER_PROBE_OPTION) == 0)
        return probe_provider(argv[2], argc > 3 ? argv[3] : "0");
    return process_main(argc, argv, &engine_cuda);
}
