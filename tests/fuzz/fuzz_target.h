// SPDX-License-Identifier: Apache-2.0
// What a fuzz target tells the replay of its corpus.
#ifndef CPATTN_TESTS_FUZZ_FUZZ_TARGET_H
#define CPATTN_TESTS_FUZZ_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True after a call if the whole input was valid, false if it was refused. Each target defines it.
extern bool fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
