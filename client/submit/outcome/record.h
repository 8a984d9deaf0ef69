// SPDX-License-Identifier: Apache-2.0
// The record of a matrix run: a file with a line of JSON per answer, as written by --save and
// --json. If an id has several lines, the last one counts.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_RECORD_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_RECORD_H

#include <stdint.h>

#include "client/submit/outcome/outcome.h"

struct record_entry {
    char *id;
    char *command;          // the case as a command line that reproduces it
    char digest[17];        // of the results, in hexadecimal; "" where there are none
    struct outcome outcome; // without detail
    bool met;               // false after record_load(); callers may mark the entry
};

struct record {
    struct record_entry *entries; // sorted by id, one for each
    int count;
    int64_t bytes; // of the complete lines
    bool cut;      // an incomplete line follows them, as a killed run may leave it
};

// A file with more lines is refused: no matrix has so many cases.
#define RECORD_LINES_MAX 1000000

// Reads a record. Lines without "id" and "outcome", those with a negative "of_limit", and those
// with a member of another type are refused: INVALID_ARGUMENT with the file, the number of the line
// and the member; a last line without a newline is ignored. NOT_FOUND: there is no such file;
// INTERNAL: it cannot be read.
enum status record_load(const char *path, struct record **record, struct error *error) MUST_CHECK;
void record_destroy(struct record *record); // accepts NULL

// Returns NULL if there is no answer for this id.
struct record_entry *record_find(const struct record *record, const char *id);

// True if the case failed, could not be run, or had a wrong result before a pass.
bool record_entry_failed(const struct record_entry *entry);

#endif
