// SPDX-License-Identifier: Apache-2.0
// The wire format of SP request sockets (nng's REQ) on a byte stream, seen from the replying side:
// a greeting each way, then frames. Parses bytes in memory and returns views into them; does no
// input or output.
//
// A frame is a type byte (not over TCP), the length of the rest as 8 bytes, a header of 4-byte
// words, and the body; numbers are big-endian. The header is a list of hops followed by the number
// of the request. The number is the first word with its top bit set and ends the header. The reply
// repeats the header.
#ifndef CPATTN_DAEMON_NET_FRAME_H
#define CPATTN_DAEMON_NET_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"

#define FRAME_GREETING_BYTES 8

// Upper bound of the hops between a client and the daemon (devices that forward requests), as in
// nng.
#define FRAME_HOPS_MAX   15
#define FRAME_HEADER_MAX (4 * (FRAME_HOPS_MAX + 1))
#define FRAME_LEAD_MAX   9 // type and length
#define FRAME_BYTES_MAX  (FRAME_LEAD_MAX + FRAME_HEADER_MAX + REQUEST_BYTES_MAX)

// How a frame begins.
enum framing {
    FRAMING_IPC, // a type byte, and the length
    FRAMING_TCP, // the length
};

enum frame_result {
    FRAME_PARTIAL, // valid so far, but incomplete
    FRAME_WHOLE,
    FRAME_BROKEN, // cannot become valid
};

// Views into the bytes that were read.
struct frame {
    const uint8_t *header, *body;
    size_t header_bytes, body_bytes; // 4..FRAME_HEADER_MAX, 0..REQUEST_BYTES_MAX
    size_t bytes;                    // length of the frame in the stream
};

// The greeting of the replying side.
extern const uint8_t frame_greeting[FRAME_GREETING_BYTES];

// Checks that the stream begins with the greeting of a REQ socket. With FRAME_BROKEN `fault` is
// half a sentence that names the mistake.
enum frame_result frame_greeting_read(const uint8_t *data, size_t size, const char **fault);

// Reads the frame at the beginning of `data`. Bytes that cannot become a frame of at most
// FRAME_BYTES_MAX are broken as soon as this is known.
enum frame_result frame_read(enum framing framing, const uint8_t *data, size_t size,
                             struct frame *frame, const char **fault);

// Number of bytes before header and body: 9 or 8.
size_t frame_lead_bytes(enum framing framing);

// Writes the bytes that go before `size` bytes of header and body. Returns frame_lead_bytes().
size_t frame_lead_write(enum framing framing, uint8_t lead[FRAME_LEAD_MAX], uint64_t size);

#endif
