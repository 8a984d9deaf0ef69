// SPDX-License-Identifier: Apache-2.0
// Where the results of a command go: a file that is written beside its name and then takes its
// place, so that nobody sees a part of it; or a device, a pipe or a link, which is written to.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H

#include <stdbool.h>
#include <stdio.h>

// Whether a new file may take the place of what is at the path: a regular file, or nothing. Not of
// a link: /dev/stdout is one, and may lead to a file.
bool plain_file(const char *path);

// A file on its way, which appears under its name when it is complete, so that nobody reads half of
// one and an earlier one stays until then. What is no plain file is written as it is.
struct whole_file {
    FILE *out;
    const char *path; // borrowed
    char *temporary;  // owned; beside `path`; NULL: `path` itself is written
};

// False where the file cannot be written; errno says why.
bool whole_file_open(struct whole_file *file, const char *path);

// Ends the file and, where it is complete, puts it in its place. False where it is not, or could
// not be put there; errno says why. Nothing is left behind.
bool whole_file_commit(struct whole_file *file, bool complete);

// Ends a file that is not complete; an earlier one stays. Nothing where it is ended already.
void whole_file_abandon(struct whole_file *file);

#endif
