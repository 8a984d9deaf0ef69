// SPDX-License-Identifier: Apache-2.0
// A list of subjects of certificates, as a setting names them.
#ifndef CPATTN_DAEMON_SETTINGS_SUBJECT_LIST_H
#define CPATTN_DAEMON_SETTINGS_SUBJECT_LIST_H

#include <stdbool.h>

#define SUBJECT_LIST_MAX 64
// A subject as RFC 2253 writes it, "CN=alice,O=Lab", in printable ASCII, with its NUL.
#define SUBJECT_TEXT_MAX 128

struct subject_list {
    int count; // 0..SUBJECT_LIST_MAX
    char subjects[SUBJECT_LIST_MAX][SUBJECT_TEXT_MAX];
};

// Reads subjects with semicolons between them; one that belongs to a subject has a backslash before
// it, as RFC 2253 has it. False when one is empty, too long, not of printable ASCII or of no
// attribute, or when there are too many; the list is untouched then.
bool subject_list_parse(const char *text, struct subject_list *list);

bool subject_list_has(const struct subject_list *list, const char *subject);

#endif
