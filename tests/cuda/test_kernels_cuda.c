// SPDX-License-Identifier: Apache-2.0
// The CUDA backend and what else runs on the device, against the CPU.
#include "tests/cuda/harness.h"
#include "tests/cuda/tests.h"

static const struct harness_test tests[] = {
#define TEST_ENTRY(name) {#name, name},
    TEST_LIST(TEST_ENTRY)
#undef TEST_ENTRY
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
