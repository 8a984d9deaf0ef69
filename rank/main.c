// SPDX-License-Identifier: Apache-2.0
// cpattn-rank: a rank on the CPU.
#include "rank/process.h"

int main(int argc, char **argv)
{
    return process_main(argc, argv, &engine_cpu);
}
