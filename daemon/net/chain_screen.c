// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/chain_screen.h"

#define RECORD_HEADER_BYTES  5
#define RECORD_HANDSHAKE     22
#define RECORD_CHANGE_CIPHER 20
#define MESSAGE_HEADER_BYTES 4
#define MESSAGE_CERTIFICATE  11
#define LENGTH_BYTES         3

// One byte of the header: the type, two of the version, two of the length.
static void header_byte(struct chain_screen *s, uint8_t byte)
{
    if (s->record_at == 0)
        s->record_type = byte;
    s->record_left = s->record_at < 3 ? 0 : s->record_left << 8 | byte;
    s->record_at++;
}

// One byte of a handshake message, which may begin in one record and end in another.
static bool message_byte(struct chain_screen *s, uint8_t byte)
{
    uint32_t at = s->message_at++;
    if (at == 0) {
        s->message_type = byte;
        s->message_bytes = s->list_bytes = s->first_bytes = 0;
    } else if (at < MESSAGE_HEADER_BYTES) {
        s->message_bytes = s->message_bytes << 8 | byte;
    } else if (at < MESSAGE_HEADER_BYTES + LENGTH_BYTES) {
        s->list_bytes = s->list_bytes << 8 | byte;
    } else if (at < MESSAGE_HEADER_BYTES + 2 * LENGTH_BYTES) {
        s->first_bytes = s->first_bytes << 8 | byte;
    }
    bool begun = at == MESSAGE_HEADER_BYTES + 2 * LENGTH_BYTES - 1;
    if (s->message_at >= MESSAGE_HEADER_BYTES &&
        s->message_at == MESSAGE_HEADER_BYTES + s->message_bytes)
        s->message_at = 0;
    return !begun || s->message_type != MESSAGE_CERTIFICATE ||
           s->first_bytes + LENGTH_BYTES >= s->list_bytes;
}

bool chain_screen_pass(struct chain_screen *s, const uint8_t *data, size_t size)
{
    bool good = true;
    for (size_t i = 0; i < size && good && !s->over; i++) {
        if (s->record_at < RECORD_HEADER_BYTES) {
            header_byte(s, data[i]);
        } else {
            s->record_left--;
            if (s->record_type == RECORD_HANDSHAKE)
                good = message_byte(s, data[i]);
        }
        bool ended = s->record_at == RECORD_HEADER_BYTES && s->record_left == 0;
        s->over = ended && s->record_type == RECORD_CHANGE_CIPHER;
        if (ended)
            s->record_at = 0;
    }
    return good;
}
