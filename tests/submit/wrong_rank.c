// SPDX-License-Identifier: Apache-2.0
// A rank that computes wrongly: dV of the last key head gets nothing. All else is that of
// cpattn-rank.
#include "common/mutation.h"
#include "rank/process.h"

int main(int argc, char **argv)
{
    mutation_active = MUTATION_HEAD_GROUP_LOST;
    return process_main(argc, argv, &engine_cpu);
}
