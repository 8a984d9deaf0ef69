// SPDX-License-Identifier: Apache-2.0
// The secret that a daemon shares with its network clients: a line of printable ASCII in a file.
#ifndef CPATTN_COMMON_TOKEN_H
#define CPATTN_COMMON_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/limits.h"
#include "common/status.h"

struct token {
    char text[TOKEN_BYTES_MAX + 1]; // at least TOKEN_BYTES_MIN characters, then zeros; "": none
};

// True if these bytes are a valid token.
bool token_is_valid(const void *data, size_t size);

// Copies valid token bytes into *token.
void token_set(struct token *token, const void *data, size_t size);

// Reads a token from a file, with or without a final newline. PERMISSION_DENIED: users other than
// the file's owner and group can read or write it; INVALID_ARGUMENT: the file holds no valid token,
// or cannot be read. No message contains the contents.
enum status token_read(const char *path, struct token *token, struct error *error) MUST_CHECK;

// Compares two tokens in constant time; an empty token never matches.
bool token_equal(const struct token *a, const struct token *b);

// Overwrites the token in memory.
void token_wipe(struct token *token);

#endif
