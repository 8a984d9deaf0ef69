// SPDX-License-Identifier: Apache-2.0
// cpattn-rank: a rank on the CPU. With --probe-provider NAME it reports whether that provider can
// be used.
#include <string.h>

#include "kernels/backend.h"
#include "rank/process.h"
#include "rank/provider_probe.h"

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], PROVIDER_PROBE_OPTION) == 0)
        return provider_probe(argv[2], &backend_cpu);
    return process_main(argc, argv, &engine_cpu);
}
