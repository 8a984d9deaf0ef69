// SPDX-License-Identifier: Apache-2.0
// A byte ring that keeps the last bytes of an endless stream, such as the stderr of a process.
// Memory is bounded by the capacity; nothing is allocated after bytering_init(). Not thread-safe.
#ifndef CPATTN_COMMON_BYTERING_H
#define CPATTN_COMMON_BYTERING_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct bytering {
    uint8_t *bytes; // owned
    size_t capacity;
    uint64_t total; // bytes ever written; the next one lands at total % capacity
};

// Creates an empty ring of `capacity` bytes (at least 1). RESOURCE_EXHAUSTED: out of memory.
enum status bytering_init(struct bytering *ring, size_t capacity) MUST_CHECK;

// Frees the ring; accepts a zeroed or already finished one.
void bytering_fini(struct bytering *ring);

// Empties the ring.
void bytering_clear(struct bytering *ring);

// Appends bytes; they replace the oldest ones if the ring is full.
void bytering_write(struct bytering *ring, const void *data, size_t length);

// Number of stored bytes: min(total, capacity).
size_t bytering_kept(const struct bytering *ring);

// Writes the newest bytes as a string of at most `size` - 1 characters (size at least 1) and
// returns its length. The text is safe to print and to send: printable ASCII, newlines and tabs
// stay, every other byte becomes '?'.
size_t bytering_tail(const struct bytering *ring, char *text, size_t size);

#endif
