// SPDX-License-Identifier: Apache-2.0
// The secret that daemon and clients share where they meet over a network: a line of printable
// ASCII in a file.
#ifndef CPATTN_COMMON_TOKEN_H
#define CPATTN_COMMON_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/limits.h"
#include "common/status.h"

struct token {
    char text[TOKEN_BYTES_MAX + 1]; // TOKEN_BYTES_MIN and more characters, zeros behind; "": none
};

// Whether these bytes can be a token.
bool token_is_valid(const void *data, size_t size);

// Fills in a token of bytes that can be one.
void token_set(struct token *token, const void *data, size_t size);

// Reads a file that holds a token, a newline behind it or not. PERMISSION_DENIED: others than its
// owner and group can read it; INVALID_ARGUMENT: it holds something else, or cannot be read. No
// sentence tells what it holds.
enum status token_read(const char *path, struct token *token, struct error *error) MUST_CHECK;

// Whether the two are the same and not "". Takes the same time whatever they are.
bool token_equal(const struct token *a, const struct token *b);

// Leaves nothing of it in memory.
void token_wipe(struct token *token);

#endif
