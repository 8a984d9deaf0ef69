// SPDX-License-Identifier: Apache-2.0
// cpattn-rank with a fault: dV of the last key head is zero.
#include "common/mutation.h"
#include "rank/process.h"

int main(int argc, char **argv)
{
    mutation_active = MUTATION_HEAD_GROUP_LOST;
    return process_main(argc, argv, &engine_cpu);
}
