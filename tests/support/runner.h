// SPDX-License-Identifier: Apache-2.0
// The common main function of Check programs.
#ifndef CPATTN_TESTS_SUPPORT_RUNNER_H
#define CPATTN_TESTS_SUPPORT_RUNNER_H

#include <check.h>

// Runs and frees the suite, with the output format of the environment. Returns the exit status for
// main(). A suite without tests fails. A process that a test leaves behind has 2 s to end; then it
// is killed, and the program fails with a message that names the process.
int runner_run(Suite *suite);

// Says in the output that these tests are not run, and why.
void runner_skip(const char *tests, const char *why);

// A path below the source tree: runner_source(path, sizeof(path), "tests/fuzz/corpus/x"). Works
// from any build directory under `make check`, and from the top of the source tree without it.
const char *runner_source(char *path, size_t size, const char *relative);

// The same below the build tree.
const char *runner_build(char *path, size_t size, const char *relative);

#endif
