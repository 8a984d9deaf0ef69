// SPDX-License-Identifier: Apache-2.0
// Guests: foreign programs that a case may select as its ranks. Their commands come only from the
// settings; a client sends a name.
#ifndef CPATTN_DAEMON_SETTINGS_GUESTS_H
#define CPATTN_DAEMON_SETTINGS_GUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define GUEST_COMMAND_MAX  4096
#define GUEST_WORDS_MAX    64
#define GUEST_SUPPORTS_MAX 256

struct guest {
    char name[IMPLEMENTATION_NAME_MAX]; // letters, digits, '_', '-' and '.'
    // The words of the command, each with its NUL. The first is the path of a program once
    // guests_find_programs() has been called.
    char command[GUEST_COMMAND_MAX];
    size_t command_bytes;
    uint64_t world_sizes;              // bit w - 1: it supports world size w
    uint64_t start_timeout_ns;         // start timeout of its pools
    char supports[GUEST_SUPPORTS_MAX]; // text for users: what it supports; may be ""
};

struct guests {
    int count; // 0..GUESTS_MAX
    struct guest list[GUESTS_MAX];
};

// True if both have the same guests in the same order, with the same commands and limits.
bool guests_same(const struct guests *a, const struct guests *b);

// Adds the guest "NAME=COMMAND", or replaces the guest of that name. The command is split into
// words and expanded like a shell does, without command substitution. INVALID_ARGUMENT says what is
// accepted.
enum status guests_add_text(struct guests *guests, const char *text,
                            struct error *error) MUST_CHECK;

// Adds the guests of a map in the settings file: NAME: {command: WORDS, world-sizes: LIST,
// start-timeout: TIME, supports: TEXT}; only the command is required. Borrows `node`.
struct yaml_node;
enum status guests_add_map(struct guests *guests, const struct yaml_node *node,
                           struct error *error) MUST_CHECK;

// Finds the program of each guest, in PATH if its name has no '/'. FAILED_PRECONDITION names a
// guest whose program cannot be executed.
enum status guests_find_programs(struct guests *guests, struct error *error) MUST_CHECK;

// Name of an implementation: 0 is "cpattn", i is the guest i - 1.
const char *guests_name(const struct guests *guests, int implementation);

// Lists the words of a guest's command, NULL-terminated. The words point into `guest`.
void guest_words(const struct guest *guest, char *words[GUEST_WORDS_MAX + 1]);

#endif
