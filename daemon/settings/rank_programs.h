// SPDX-License-Identifier: Apache-2.0
// Paths of the rank programs.
#ifndef CPATTN_DAEMON_SETTINGS_RANK_PROGRAMS_H
#define CPATTN_DAEMON_SETTINGS_RANK_PROGRAMS_H

#include "common/status.h"

// Fills in the paths that are ""; both have PATH_MAX bytes. FAILED_PRECONDITION: the program of the
// CPU backend cannot be executed. The CUDA program is checked when the backend is selected.
enum status rank_programs_find(char *cpu, char *cuda, struct error *error) MUST_CHECK;

#endif
