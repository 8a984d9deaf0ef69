// SPDX-License-Identifier: Apache-2.0
// Output files of commands: written beside their path and renamed when complete, so that nobody
// sees a part of one. Devices, pipes and links are written directly.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_PLAIN_FILE_H

#include <stdbool.h>
#include <stdio.h>

// True if a new file may replace the one at the path: a regular file, or none. False for a link,
// since /dev/stdout is one and may lead to a file.
bool plain_file(const char *path);

// True if both paths are the same, or lead to the same regular file, which need not exist yet:
// writing one would destroy the other.
bool plain_file_is_same(const char *a, const char *b);

// A file that is being written. It appears under its path when it is complete; until then an
// earlier file remains. Anything but a plain file is written directly.
struct whole_file {
    FILE *out;
    const char *path; // borrowed
    char *temporary;  // owned; beside `path`; NULL: `path` itself is written
};

// Returns false if the file cannot be written; errno says why.
bool whole_file_open(struct whole_file *file, const char *path);

// Returns false if the file could not be written now; errno says why. Changes nothing, and does not
// open a device, a pipe or a link.
bool whole_file_possible(const char *path);

// Closes the file and renames it if it is `complete`. Returns false if it is not or if that fails;
// errno says why. Leaves nothing behind.
bool whole_file_commit(struct whole_file *file, bool complete);

// Discards an incomplete file; an earlier one remains. No effect after whole_file_commit().
void whole_file_abandon(struct whole_file *file);

#endif
