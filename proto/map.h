// SPDX-License-Identifier: Apache-2.0
// Copies between generated messages and plain structs, driven by tables. A table lists each field
// once, by its name in the message, and serves both directions.
#ifndef CPATTN_PROTO_MAP_H
#define CPATTN_PROTO_MAP_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/scratch.h"

// Types of a field, in the message and in the struct.
enum map_kind {
    MAP_INT,   // int64, sint64      | int32_t or int64_t within min..max
    MAP_UINT,  // uint64, fixed64    | uint32_t or uint64_t
    MAP_REAL,  // double             | double, NaN and infinity included
    MAP_BOOL,  // bool               | bool
    MAP_ENUM,  // enum               | int within min..max; the message has the value plus `shift`,
               //                      so that its 0 can mean "unspecified", which is refused
    MAP_CHAR,  // int64              | char, printable
    MAP_TEXT,  // bytes              | char[size], printable ASCII and a final NUL
    MAP_LINES, // bytes              | the same with line feeds and tabs
    MAP_LIST,  // repeated int64     | int32_t[], each within min..max; only for map_decode_list()
               //                      and map_encode_list(), which take the array as an argument
};

struct map_field {
    const char *name; // NULL ends a table
    enum map_kind kind;
    int shift;           // MAP_ENUM
    size_t offset, size; // of the struct member, in bytes
    int64_t min, max;    // MAP_INT, MAP_ENUM: of the member; MAP_LIST: of an entry
};

// Path of a message, such as "result.ranks[3].figures[1]"; for error messages.
struct map_path {
    const struct map_path *parent; // NULL: the outermost
    const char *name;
    int index; // -1: not in a list
};

#define MAP_PATH_MAX 128
// Writes "a.b[1].field"; `field` may be NULL. Returns `text`.
const char *map_path_text(const struct map_path *path, const char *field, char text[MAP_PATH_MAX]);

// False if the field is unset and unset differs from zero. True for all other fields.
bool map_given(const ProtobufCMessage *message, const char *name);

// True if a number, bool or enum of the message is 0 or not sent, or if there is no such field.
bool map_is_zero(const ProtobufCMessage *message, const char *name);

// Copies one field, or all fields of a table, out of a message. INVALID_ARGUMENT: the error names
// the field, its value and the accepted values; earlier fields are already copied.
enum status map_decode_field(const ProtobufCMessage *message, const struct map_field *field,
                             const struct map_path *path, void *record,
                             struct error *error) MUST_CHECK;
enum status map_decode(const ProtobufCMessage *message, const struct map_field *fields,
                       const struct map_path *path, void *record, struct error *error) MUST_CHECK;

// Copies one field, or all fields of a table, into a message. Values are not checked. Unprintable
// characters become '?', because decoding refuses them. RESOURCE_EXHAUSTED: out of scratch memory.
enum status map_encode_field(ProtobufCMessage *message, const struct map_field *field,
                             const void *record, struct scratch *scratch,
                             struct error *error) MUST_CHECK;
enum status map_encode(ProtobufCMessage *message, const struct map_field *fields,
                       const void *record, struct scratch *scratch, struct error *error) MUST_CHECK;

// Copies a list of numbers (repeated int64 | int32_t[]) out of a message. INVALID_ARGUMENT for more
// than count_max entries, or for an entry outside min..max; nothing is copied then.
enum status map_decode_list(const ProtobufCMessage *message, const struct map_field *field,
                            const struct map_path *path, int32_t *values, int32_t count_max,
                            int32_t *count, struct error *error) MUST_CHECK;
// Copies a list into a message.
enum status map_encode_list(ProtobufCMessage *message, const struct map_field *field,
                            const int32_t *values, int32_t count, struct scratch *scratch,
                            struct error *error) MUST_CHECK;

// UNIMPLEMENTED if the message has an unknown field, which could change the meaning of a case.
// `name` is the message's name in the error text.
enum status map_refuse_unknown(const ProtobufCMessage *message, const char *name,
                               struct error *error) MUST_CHECK;

#endif
