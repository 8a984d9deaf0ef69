// SPDX-License-Identifier: Apache-2.0
// One daemon for each test of a program, as a checked fixture of Check.
#ifndef CPATTN_TESTS_DAEMON_DAEMON_SCENE_H
#define CPATTN_TESTS_DAEMON_DAEMON_SCENE_H

#include "tests/daemon/daemon_fixture.h"

extern struct daemon d;

// Creates its folder; the test starts the daemon itself.
void daemon_setup(void);
void daemon_teardown(void);

// Starts it with its default settings. At the end it must stop with exit status 0.
void daemon_setup_started(void);
void daemon_teardown_stopped(void);

// The path of tests/daemon/odd_rank, for --rank-program.
const char *daemon_odd_rank(void);

#endif
