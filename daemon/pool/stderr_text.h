// SPDX-License-Identifier: Apache-2.0
// The stderr output of a rank. A ring keeps the newest bytes for answers; lines go to the daemon's
// log, up to a rate.
#ifndef CPATTN_DAEMON_POOL_STDERR_TEXT_H
#define CPATTN_DAEMON_POOL_STDERR_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "common/bytering.h"

// Maximum bytes of one rank per second in the log. The ring keeps the newest STDERR_RING_BYTES at
// any rate.
#define STDERR_LOG_BYTES_PER_S 4096
#define STDERR_LINE_MAX        512

struct stderr_text {
    struct bytering ring;
    int rank, world_size;
    uint32_t generation;
    char line[STDERR_LINE_MAX];
    size_t line_bytes;
    uint64_t second_ns;                    // when the current second of the rate limit began
    size_t logged_bytes, suppressed_bytes; // in that second
};

// RESOURCE_EXHAUSTED.
enum status stderr_text_init(struct stderr_text *t, int rank, int world_size, uint32_t generation,
                             struct error *error) MUST_CHECK;

void stderr_text_add(struct stderr_text *t, const void *data, size_t size);

// Call at the end of the output: logs the last line without its newline. The ring stays readable.
void stderr_text_end(struct stderr_text *t);

// Frees the ring. Accepts a zeroed struct.
void stderr_text_fini(struct stderr_text *t);

#endif
