// SPDX-License-Identifier: Apache-2.0
// The files that are installed with the programs.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_INSTALLED_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_INSTALLED_H

#include <limits.h>

// The path of a matrix file: `name` itself where there is such a file or a slash is in it, else
// that of the installed file of this name, in ../share/cpattnd from the folder of the program or
// where it was to be installed; `name` where there is none either. Returns `name` or `path`.
const char *installed_find(const char *name, char path[PATH_MAX]);

// For a file that installed_find() does not find: " here, in FOLDER or in FOLDER", where it looked;
// "" where `name` has a slash. Returns `text`.
#define INSTALLED_WHERE_MAX (2 * PATH_MAX + 64)
const char *installed_where(const char *name, char text[INSTALLED_WHERE_MAX]);

#endif
