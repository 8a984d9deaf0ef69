// SPDX-License-Identifier: Apache-2.0
// The files that a command line names.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_FILES_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_FILES_H

#include <stdbool.h>

struct files_entry {
    const char *option; // "--out"; or what the file is: "the matrix"
    const char *path;   // NULL: not given
    bool written;
};

// Complains if an output file has no name, is named '-', which other programs take for standard
// output, or is another file of the command line, which would be lost. The files of the connection
// (command_access) count, too. To be called before anything runs. The list ends with an entry
// without an option. Returns the exit status.
int files_check(const struct files_entry *files);

#endif
