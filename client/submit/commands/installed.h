// SPDX-License-Identifier: Apache-2.0
// The files that are installed with the programs.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_INSTALLED_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_INSTALLED_H

#include <limits.h>

// Finds a matrix file. Returns `name` if such a file exists or `name` has a slash; else, in `path`,
// the installed file of this name (in ../share/cpattnd beside the folder of the program, or in the
// configured folder); else `name`.
const char *installed_find(const char *name, char path[PATH_MAX]);

// Writes where installed_find() has looked: " here, in FOLDER or in FOLDER"; "" if `name` has a
// slash. Returns `text`.
#define INSTALLED_WHERE_MAX (2 * PATH_MAX + 64)
const char *installed_where(const char *name, char text[INSTALLED_WHERE_MAX]);

#endif
