// SPDX-License-Identifier: Apache-2.0
// Texts of bounded size.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_TEXT_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_TEXT_H

#include <stddef.h>

// Appends like snprintf to a text in an array of `size`; what does not fit is cut.
void text_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Appends a text as one word of a POSIX shell.
void text_append_word(char *text, size_t size, const char *word);

// Writes the name of a file without its folder and without its extension. Returns `name`.
const char *text_base_name(const char *path, char *name, size_t size);

#endif
