// SPDX-License-Identifier: Apache-2.0
// The main function that every Check program shares.
#ifndef CPATTN_TESTS_SUPPORT_RUNNER_H
#define CPATTN_TESTS_SUPPORT_RUNNER_H

#include <check.h>

// Runs and frees the suite, with the output format of the environment; returns the exit status for
// main(). Processes that tests leave behind are killed; each fails the program with a message that
// names its command.
int runner_run(Suite *suite);

// A path below the source tree: runner_source(path, sizeof(path), "tests/fuzz/corpus/x"). Works
// from any build directory under `make check`, and from the top of the source tree without it.
const char *runner_source(char *path, size_t size, const char *relative);

// The same below the build tree.
const char *runner_build(char *path, size_t size, const char *relative);

#endif
