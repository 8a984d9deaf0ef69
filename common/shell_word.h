// SPDX-License-Identifier: Apache-2.0
#ifndef CPATTN_COMMON_SHELL_WORD_H
#define CPATTN_COMMON_SHELL_WORD_H

#include <stddef.h>

// Writes a text as one word of a POSIX shell, in quotes where it needs them. Cuts what does not fit
// and adds a NUL, as snprintf does; returns the whole length. `text` may be NULL if size is 0.
size_t shell_word(const char *word, char *text, size_t size);

#endif
