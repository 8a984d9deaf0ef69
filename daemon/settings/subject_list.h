// SPDX-License-Identifier: Apache-2.0
// A list of subjects of certificates, from a setting.
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

// Parses subjects with semicolons between them; a semicolon inside a subject has a backslash before
// it, as in RFC 2253. Returns false and leaves the list unchanged if a subject is empty, too long,
// not printable ASCII or without an attribute, or if there are too many.
bool subject_list_parse(const char *text, struct subject_list *list);

bool subject_list_has(const struct subject_list *list, const char *subject);

#endif
