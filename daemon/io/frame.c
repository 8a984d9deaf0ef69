// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/frame.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#define TYPE_MESSAGE 1
#define WORD_BYTES   4
#define LAST_WORD    0x80 // in the first byte of a header's last word

const uint8_t frame_greeting[FRAME_GREETING_BYTES] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};

static enum frame_result broken(const char *what, const char **fault)
{
    *fault = what;
    return FRAME_BROKEN;
}

enum frame_result frame_greeting_read(const uint8_t *data, size_t size, const char **fault)
{
    static const uint8_t expected[FRAME_GREETING_BYTES] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    size_t here = size < sizeof(expected) ? size : sizeof(expected);
    if (memcmp(data, expected, here) != 0)
        return broken("its greeting is not that of a request socket", fault);
    return here < sizeof(expected) ? FRAME_PARTIAL : FRAME_WHOLE;
}

// The bytes of a header with its last word; 0 when there is no end to it.
static size_t header_measure(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + WORD_BYTES <= size && at < FRAME_HEADER_MAX; at += WORD_BYTES) {
        if (data[at] & LAST_WORD)
            return at + WORD_BYTES;
    }
    return 0;
}

static enum frame_result content_read(const uint8_t *content, size_t size, struct frame *frame,
                                      const char **fault)
{
    size_t header_bytes = header_measure(content, size);
    if (header_bytes == 0)
        return broken("the header of its request does not end", fault);
    if (size - header_bytes > REQUEST_BYTES_MAX)
        return broken("its request is too long", fault);
    *frame = (struct frame){
        .header = content,
        .header_bytes = header_bytes,
        .body = content + header_bytes,
        .body_bytes = size - header_bytes,
        .bytes = FRAME_LEAD_BYTES + size,
    };
    return FRAME_WHOLE;
}

enum frame_result frame_read(const uint8_t *data, size_t size, struct frame *frame,
                             const char **fault)
{
    uint64_t length;
    if (size > 0 && data[0] != TYPE_MESSAGE)
        return broken("its frame is of no known type", fault);
    if (size < FRAME_LEAD_BYTES)
        return FRAME_PARTIAL;
    memcpy(&length, data + 1, sizeof(length));
    length = be64toh(length);
    if (length > FRAME_HEADER_MAX + REQUEST_BYTES_MAX)
        return broken("its request is too long", fault);
    if (length > size - FRAME_LEAD_BYTES)
        return FRAME_PARTIAL;
    return content_read(data + FRAME_LEAD_BYTES, (size_t)length, frame, fault);
}

void frame_lead_write(uint8_t lead[FRAME_LEAD_BYTES], uint64_t size)
{
    const uint64_t length = htobe64(size);
    lead[0] = TYPE_MESSAGE;
    memcpy(lead + 1, &length, sizeof(length));
}
