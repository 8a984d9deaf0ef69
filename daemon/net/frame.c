// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/frame.h"

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

// Returns the length of a header including its last word; 0: the header does not end.
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
    };
    return FRAME_WHOLE;
}

size_t frame_lead_bytes(enum framing framing)
{
    return framing == FRAMING_IPC ? FRAME_LEAD_MAX : sizeof(uint64_t);
}

enum frame_result frame_read(enum framing framing, const uint8_t *data, size_t size,
                             struct frame *frame, const char **fault)
{
    uint64_t length;
    size_t lead = frame_lead_bytes(framing);
    if (framing == FRAMING_IPC && size > 0 && data[0] != TYPE_MESSAGE)
        return broken("its frame is of no known type", fault);
    if (size < lead)
        return FRAME_PARTIAL;
    memcpy(&length, data + lead - sizeof(length), sizeof(length));
    length = be64toh(length);
    if (length > FRAME_HEADER_MAX + REQUEST_BYTES_MAX)
        return broken("its request is too long", fault);
    if (length > size - lead)
        return FRAME_PARTIAL;
    enum frame_result result = content_read(data + lead, (size_t)length, frame, fault);
    if (result == FRAME_WHOLE)
        frame->bytes = lead + (size_t)length;
    return result;
}

size_t frame_lead_write(enum framing framing, uint8_t lead[FRAME_LEAD_MAX], uint64_t size)
{
    const uint64_t length = htobe64(size);
    size_t bytes = frame_lead_bytes(framing);
    lead[0] = TYPE_MESSAGE;
    memcpy(lead + bytes - sizeof(length), &length, sizeof(length));
    return bytes;
}
