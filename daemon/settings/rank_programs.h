// SPDX-License-Identifier: Apache-2.0
// Paths of the rank programs.
#ifndef CPATTN_DAEMON_SETTINGS_RANK_PROGRAMS_H
#define CPATTN_DAEMON_SETTINGS_RANK_PROGRAMS_H

#include "common/status.h"

// Fills in the paths, of PATH_MAX bytes each, that are "". Which of the two is needed is known when
// the devices are; FAILED_PRECONDITION: that of the CPU backend, which is always there, cannot be
// executed.
enum status rank_programs_find(char *cpu, char *cuda, struct error *error) MUST_CHECK;

#endif
