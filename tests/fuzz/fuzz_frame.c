// SPDX-License-Identifier: Apache-2.0
// Any bytes of a client on a unix socket and over TCP. The first byte tells how the rest is split.
// The result must not depend on the split. Frames are within their bounds and inside the stream.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/frame.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void frame_require(enum framing framing, const struct frame *frame, const uint8_t *data,
                          size_t size)
{
    size_t lead = frame_lead_bytes(framing);
    require(frame->bytes <= size && frame->bytes <= FRAME_BYTES_MAX);
    require(frame->header == data + lead);
    require(frame->header_bytes >= 4 && frame->header_bytes <= FRAME_HEADER_MAX);
    require(frame->header_bytes % 4 == 0 && (frame->header[frame->header_bytes - 4] & 0x80));
    require(frame->body == frame->header + frame->header_bytes);
    require(frame->body_bytes <= REQUEST_BYTES_MAX);
    require(frame->bytes == lead + frame->header_bytes + frame->body_bytes);
}

// The state of a stream that is read in pieces.
struct reader {
    enum framing framing;
    bool greeted, broken;
    size_t at;
    unsigned frames;
};

static void read_on(struct reader *r, const uint8_t *data, size_t size)
{
    const char *fault = NULL;
    enum frame_result result = FRAME_WHOLE;
    while (!r->broken && result == FRAME_WHOLE) {
        struct frame frame;
        result = r->greeted ? frame_read(r->framing, data + r->at, size - r->at, &frame, &fault)
                            : frame_greeting_read(data + r->at, size - r->at, &fault);
        require((result == FRAME_BROKEN) == (fault != NULL));
        r->broken = result == FRAME_BROKEN;
        if (result != FRAME_WHOLE)
            break;
        if (r->greeted)
            frame_require(r->framing, &frame, data + r->at, size - r->at);
        r->frames += r->greeted;
        r->at += r->greeted ? frame.bytes : FRAME_GREETING_BYTES;
        r->greeted = true;
    }
    // The stored bytes of a partial frame are bounded.
    require(r->broken || size - r->at < FRAME_BYTES_MAX);
}

// Returns true if the stream has a greeting and whole frames only.
static bool stream_check(enum framing framing, const uint8_t *data, size_t size, size_t piece)
{
    struct reader whole = {.framing = framing}, pieces = {.framing = framing};
    read_on(&whole, data, size);
    for (size_t end = piece < size ? piece : size;; end = size - end < piece ? size : end + piece) {
        read_on(&pieces, data, end);
        if (end == size)
            break;
    }
    require(whole.greeted == pieces.greeted && whole.broken == pieces.broken);
    require(whole.at == pieces.at && whole.frames == pieces.frames);
    return !whole.broken && whole.frames > 0 && whole.at == size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepted = false;
    if (size < 2)
        return 0;
    bool ipc = stream_check(FRAMING_IPC, data + 1, size - 1, (size_t)data[0] + 1);
    bool tcp = stream_check(FRAMING_TCP, data + 1, size - 1, (size_t)data[0] + 1);
    fuzz_accepted = ipc || tcp;
    return 0;
}
