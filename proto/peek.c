// SPDX-License-Identifier: Apache-2.0
// Reads the two fields of a request that are needed before it is decoded. Walks over the outermost
// fields in place, without allocating, and skips the contents of other fields.
#include <string.h>

#include "proto/wire.h"

#define FIELD_ID    2 // field numbers of proto/cpattn.proto, which never change
#define FIELD_TOKEN 5

enum wire_type { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };

struct cursor {
    const uint8_t *at, *end;
};

static bool varint_read(struct cursor *c, uint64_t *value)
{
    uint64_t read = 0;
    for (unsigned shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        read |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = read;
            return true;
        }
    }
    return false;
}

static bool skip(struct cursor *c, uint64_t bytes)
{
    bool there = bytes <= (uint64_t)(c->end - c->at);
    if (there)
        c->at += bytes;
    return there;
}

// Reads the next field: its tag, and its bytes if it has type WIRE_BYTES. False: malformed.
static bool field_read(struct cursor *c, uint64_t *tag, const uint8_t **data, size_t *size)
{
    uint64_t value = 0;
    if (!varint_read(c, tag))
        return false;
    switch (*tag & 7) {
    case WIRE_VARINT:
        return varint_read(c, &value);
    case WIRE_64_BITS:
        return skip(c, 8);
    case WIRE_32_BITS:
        return skip(c, 4);
    case WIRE_BYTES:
        if (!varint_read(c, &value))
            return false;
        *data = c->at;
        *size = (size_t)value;
        return skip(c, value);
    default:
        return false;
    }
}

static uint64_t tag_of_bytes(uint64_t field)
{
    return field << 3 | WIRE_BYTES;
}

void wire_peek_request(const void *data, size_t size, struct request_id *id, struct token *token)
{
    struct cursor cursor = {data, size > 0 ? (const uint8_t *)data + size : data};
    const uint8_t *bytes = NULL;
    size_t count = 0;
    uint64_t tag;
    memset(id, 0, sizeof(*id));
    token_wipe(token);
    while (cursor.at < cursor.end && field_read(&cursor, &tag, &bytes, &count)) {
        if (tag == tag_of_bytes(FIELD_ID) && count == sizeof(id->bytes))
            memcpy(id->bytes, bytes, count);
        if (tag != tag_of_bytes(FIELD_TOKEN))
            continue;
        token_wipe(token);
        if (token_is_valid(bytes, count))
            token_set(token, bytes, count);
    }
}
