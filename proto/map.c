// SPDX-License-Identifier: Apache-2.0
#include "proto/map.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *map_path_text(const struct map_path *path, const char *field, char text[MAP_PATH_MAX])
{
    const struct map_path *chain[8];
    size_t depth = 0, used = 0;
    for (; path && depth < sizeof chain / sizeof chain[0]; path = path->parent)
        chain[depth++] = path;
    text[0] = '\0';
    while (depth > 0 && used < MAP_PATH_MAX) {
        const struct map_path *step = chain[--depth];
        const char *dot = used > 0 ? "." : "";
        int length = step->index < 0
                         ? snprintf(text + used, MAP_PATH_MAX - used, "%s%s", dot, step->name)
                         : snprintf(text + used, MAP_PATH_MAX - used, "%s%s[%d]", dot, step->name,
                                    step->index);
        used += (size_t)length;
    }
    if (field && used < MAP_PATH_MAX)
        snprintf(text + used, MAP_PATH_MAX - used, "%s%s", used > 0 ? "." : "", field);
    return text;
}

static const ProtobufCFieldDescriptor *descriptor_of(const ProtobufCMessage *message,
                                                     const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
}

// Returns the case member of the field's oneof: it holds the number of the field, or 0 if the field
// is unset. A field in which unset differs from zero is alone in a oneof. NULL: no oneof.
static uint32_t *oneof_member(const ProtobufCMessage *message,
                              const ProtobufCFieldDescriptor *field)
{
    if (!field || !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return NULL;
    return (uint32_t *)((char *)message + field->quantifier_offset);
}

bool map_given(const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = descriptor_of(message, name);
    const uint32_t *member = oneof_member(message, field);
    return !member || *member == field->id;
}

bool map_is_zero(const ProtobufCMessage *message, const char *name)
{
    static const char zero[sizeof(int64_t)];
    const ProtobufCFieldDescriptor *field = descriptor_of(message, name);
    bool narrow =
        field && (field->type == PROTOBUF_C_TYPE_ENUM || field->type == PROTOBUF_C_TYPE_BOOL);
    return !field || memcmp((const char *)message + field->offset, zero,
                            narrow ? sizeof(int32_t) : sizeof(int64_t)) == 0;
}

static enum status no_such_field(const ProtobufCMessage *message, const char *name,
                                 struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "message %s has no field %s",
                     message->descriptor->name, name);
}

// ---- reading ------------------------------------------------------------------------------------

static enum status refuse_range(const struct map_field *field, const struct map_path *path,
                                int64_t value, struct error *error)
{
    char text[MAP_PATH_MAX];
    long long min = field->min + field->shift, max = field->max + field->shift;
    map_path_text(path, field->name, text);
    if (field->kind == MAP_ENUM && value == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is not specified", text);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %lld; accepted is %lld to %lld", text,
                     (long long)value, min, max);
}

static enum status decode_int(const void *member, const struct map_field *field,
                              const struct map_path *path, char *target, struct error *error)
{
    int64_t value;
    memcpy(&value, member, sizeof value);
    if (value < field->min || value > field->max)
        return refuse_range(field, path, value, error);
    int32_t narrow = (int32_t)value;
    if (field->size == sizeof narrow)
        memcpy(target, &narrow, sizeof narrow);
    else
        memcpy(target, &value, sizeof value);
    return STATUS_OK;
}

static enum status decode_uint(const void *member, const struct map_field *field,
                               const struct map_path *path, char *target, struct error *error)
{
    uint64_t value;
    memcpy(&value, member, sizeof value);
    uint32_t narrow = (uint32_t)value;
    if (field->size == sizeof value) {
        memcpy(target, &value, sizeof value);
        return STATUS_OK;
    }
    if (narrow != value) {
        char text[MAP_PATH_MAX];
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %llu; accepted is 0 to %u",
                         map_path_text(path, field->name, text), (unsigned long long)value,
                         UINT32_MAX);
    }
    memcpy(target, &narrow, sizeof narrow);
    return STATUS_OK;
}

static enum status decode_enum(const void *member, const struct map_field *field,
                               const struct map_path *path, char *target, struct error *error)
{
    int32_t value;
    memcpy(&value, member, sizeof value);
    if (value < field->min + field->shift || value > field->max + field->shift)
        return refuse_range(field, path, value, error);
    value -= field->shift;
    memcpy(target, &value, sizeof value);
    return STATUS_OK;
}

static bool printable(char c, enum map_kind kind)
{
    return (c >= ' ' && c <= '~') || (kind == MAP_LINES && (c == '\n' || c == '\t'));
}

static enum status decode_char(const void *member, const struct map_field *field,
                               const struct map_path *path, char *target, struct error *error)
{
    int64_t value;
    char text[MAP_PATH_MAX];
    memcpy(&value, member, sizeof value);
    if (value < ' ' || value > '~')
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %lld; accepted is 32 to 126",
                         map_path_text(path, field->name, text), (long long)value);
    *target = (char)value;
    return STATUS_OK;
}

static enum status decode_text(const void *member, const struct map_field *field,
                               const struct map_path *path, char *target, struct error *error)
{
    ProtobufCBinaryData value;
    char text[MAP_PATH_MAX];
    memcpy(&value, member, sizeof value);
    if (value.len >= field->size)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has %zu characters; accepted are up to %zu",
                         map_path_text(path, field->name, text), value.len, field->size - 1);
    for (size_t i = 0; i < value.len; i++)
        if (!printable((char)value.data[i], field->kind))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s has the byte 0x%02x at %zu; accepted is printable ASCII",
                             map_path_text(path, field->name, text), value.data[i], i);
    if (value.len > 0)
        memcpy(target, value.data, value.len);
    target[value.len] = '\0';
    return STATUS_OK;
}

enum status map_decode_field(const ProtobufCMessage *message, const struct map_field *field,
                             const struct map_path *path, void *record, struct error *error)
{
    const ProtobufCFieldDescriptor *found = descriptor_of(message, field->name);
    char *target = (char *)record + field->offset;
    protobuf_c_boolean truth;
    if (!found)
        return no_such_field(message, field->name, error);
    const char *member = (const char *)message + found->offset;
    switch (field->kind) {
    case MAP_INT:
        return decode_int(member, field, path, target, error);
    case MAP_UINT:
        return decode_uint(member, field, path, target, error);
    case MAP_REAL:
        memcpy(target, member, sizeof(double));
        return STATUS_OK;
    case MAP_BOOL:
        memcpy(&truth, member, sizeof truth);
        *(bool *)target = truth != 0;
        return STATUS_OK;
    case MAP_ENUM:
        return decode_enum(member, field, path, target, error);
    case MAP_CHAR:
        return decode_char(member, field, path, target, error);
    case MAP_TEXT:
    case MAP_LINES:
        return decode_text(member, field, path, target, error);
    case MAP_LIST:
        break;
    }
    return no_such_field(message, field->name, error);
}

enum status map_decode(const ProtobufCMessage *message, const struct map_field *fields,
                       const struct map_path *path, void *record, struct error *error)
{
    enum status status = STATUS_OK;
    for (; fields->name && status == STATUS_OK; fields++)
        status = map_decode_field(message, fields, path, record, error);
    return status;
}

enum status map_refuse_unknown(const ProtobufCMessage *message, const char *name,
                               struct error *error)
{
    if (message->n_unknown_fields == 0)
        return STATUS_OK;
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "%s has a field number %u that this daemon does not know; the client is newer",
                     name, message->unknown_fields[0].tag);
}

// Returns the descriptor of a repeated int64, which a message stores as a count and a pointer to
// the entries. NULL: there is no such field.
static const ProtobufCFieldDescriptor *list_descriptor(const ProtobufCMessage *message,
                                                       const char *name)
{
    const ProtobufCFieldDescriptor *field = descriptor_of(message, name);
    bool list =
        field && field->label == PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_INT64;
    return list ? field : NULL;
}

static enum status refuse_entry(const struct map_field *field, const struct map_path *path,
                                size_t index, int64_t value, struct error *error)
{
    char text[MAP_PATH_MAX];
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s[%zu] is %lld; accepted is %lld to %lld",
                     map_path_text(path, field->name, text), index, (long long)value,
                     (long long)field->min, (long long)field->max);
}

enum status map_decode_list(const ProtobufCMessage *message, const struct map_field *field,
                            const struct map_path *path, int32_t *values, int32_t count_max,
                            int32_t *count, struct error *error)
{
    const ProtobufCFieldDescriptor *list = list_descriptor(message, field->name);
    size_t entries;
    const int64_t *sent;
    char text[MAP_PATH_MAX];
    if (!list)
        return no_such_field(message, field->name, error);
    memcpy(&entries, (const char *)message + list->quantifier_offset, sizeof entries);
    memcpy(&sent, (const char *)message + list->offset, sizeof sent);
    if (entries > (size_t)count_max)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has %zu entries; accepted are up to %d",
                         map_path_text(path, field->name, text), entries, count_max);
    for (size_t i = 0; i < entries; i++)
        if (sent[i] < field->min || sent[i] > field->max)
            return refuse_entry(field, path, i, sent[i], error);
    for (size_t i = 0; i < entries; i++)
        values[i] = (int32_t)sent[i];
    *count = (int32_t)entries;
    return STATUS_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static void encode_int(void *member, const struct map_field *field, const char *source)
{
    int64_t value;
    int32_t narrow;
    if (field->size == sizeof narrow) {
        memcpy(&narrow, source, sizeof narrow);
        value = narrow;
    } else {
        memcpy(&value, source, sizeof value);
    }
    memcpy(member, &value, sizeof value);
}

static void encode_uint(void *member, const struct map_field *field, const char *source)
{
    uint64_t value;
    uint32_t narrow;
    if (field->size == sizeof narrow) {
        memcpy(&narrow, source, sizeof narrow);
        value = narrow;
    } else {
        memcpy(&value, source, sizeof value);
    }
    memcpy(member, &value, sizeof value);
}

static void encode_enum(void *member, const struct map_field *field, const char *source)
{
    int32_t value;
    memcpy(&value, source, sizeof value);
    value += field->shift;
    memcpy(member, &value, sizeof value);
}

static void encode_char(void *member, const char *source)
{
    int64_t value = printable(*source, MAP_CHAR) ? *source : '?';
    memcpy(member, &value, sizeof value);
}

static enum status encode_text(void *member, const struct map_field *field, const char *source,
                               struct scratch *scratch, struct error *error)
{
    ProtobufCBinaryData value = {.len = strnlen(source, field->size - 1)};
    value.data = scratch_alloc(scratch, value.len);
    if (!value.data)
        return scratch_refusal(scratch, "a message", error);
    for (size_t i = 0; i < value.len; i++)
        value.data[i] = (uint8_t)(printable(source[i], field->kind) ? source[i] : '?');
    memcpy(member, &value, sizeof value);
    return STATUS_OK;
}

enum status map_encode_field(ProtobufCMessage *message, const struct map_field *field,
                             const void *record, struct scratch *scratch, struct error *error)
{
    const ProtobufCFieldDescriptor *found = descriptor_of(message, field->name);
    uint32_t *given = oneof_member(message, found);
    const char *source = (const char *)record + field->offset;
    protobuf_c_boolean truth;
    if (!found)
        return no_such_field(message, field->name, error);
    char *member = (char *)message + found->offset;
    if (given)
        *given = found->id;
    switch (field->kind) {
    case MAP_INT:
        encode_int(member, field, source);
        return STATUS_OK;
    case MAP_UINT:
        encode_uint(member, field, source);
        return STATUS_OK;
    case MAP_REAL:
        memcpy(member, source, sizeof(double));
        return STATUS_OK;
    case MAP_BOOL:
        truth = *(const bool *)source;
        memcpy(member, &truth, sizeof truth);
        return STATUS_OK;
    case MAP_ENUM:
        encode_enum(member, field, source);
        return STATUS_OK;
    case MAP_CHAR:
        encode_char(member, source);
        return STATUS_OK;
    case MAP_TEXT:
    case MAP_LINES:
        return encode_text(member, field, source, scratch, error);
    case MAP_LIST:
        break;
    }
    return no_such_field(message, field->name, error);
}

enum status map_encode(ProtobufCMessage *message, const struct map_field *fields,
                       const void *record, struct scratch *scratch, struct error *error)
{
    enum status status = STATUS_OK;
    for (; fields->name && status == STATUS_OK; fields++)
        status = map_encode_field(message, fields, record, scratch, error);
    return status;
}

enum status map_encode_list(ProtobufCMessage *message, const struct map_field *field,
                            const int32_t *values, int32_t count, struct scratch *scratch,
                            struct error *error)
{
    const ProtobufCFieldDescriptor *list = list_descriptor(message, field->name);
    size_t entries = (size_t)count;
    if (!list)
        return no_such_field(message, field->name, error);
    int64_t *sent = scratch_alloc(scratch, entries * sizeof *sent);
    if (!sent)
        return scratch_refusal(scratch, "a message", error);
    for (size_t i = 0; i < entries; i++)
        sent[i] = values[i];
    memcpy((char *)message + list->quantifier_offset, &entries, sizeof entries);
    memcpy((char *)message + list->offset, &sent, sizeof sent);
    return STATUS_OK;
}
