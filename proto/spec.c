// SPDX-License-Identifier: Apache-2.0
#include "proto/spec.h"

#include <string.h>

#include "proto/cpattn.pb-c.h"
#include "proto/schema.h"

static const struct map_path path = {.name = "case", .index = -1};

// True for `verify`, which is two fields of the message: on or off, and the extent.
static bool is_verify(const struct case_field *field)
{
    return field->offset == offsetof(struct cp_case, verify);
}

static enum status decode_verify(const Cpattn__V1__Case *spec, struct cp_case *c,
                                 struct error *error)
{
    static const enum case_verify of_extent[] = {
        [CPATTN__V1__EXTENT__EXTENT_UNSPECIFIED] = VERIFY_AUTO,
        [CPATTN__V1__EXTENT__EXTENT_AUTO] = VERIFY_AUTO,
        [CPATTN__V1__EXTENT__EXTENT_FULL] = VERIFY_FULL,
    };
    int extent = (int)spec->verify_extent;
    if (extent < 0 || extent > CPATTN__V1__EXTENT__EXTENT_FULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "case.verify_extent is '%d'; accepted is auto or full", extent);
    if (extent != CPATTN__V1__EXTENT__EXTENT_UNSPECIFIED && !spec->verify)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "case.verify_extent is given and case.verify is false; accepted is one of "
                         "the two");
    c->verify = spec->verify ? of_extent[extent] : VERIFY_OFF;
    return STATUS_OK;
}

// Sends the extent only if it is FULL. A daemon that does not know the field refuses it; without
// the field, every daemon verifies as with AUTO.
static void encode_verify(const struct cp_case *c, Cpattn__V1__Case *spec)
{
    spec->verify = c->verify != VERIFY_OFF;
    if (c->verify == VERIFY_FULL)
        spec->verify_extent = CPATTN__V1__EXTENT__EXTENT_FULL;
}

// ---- reading ------------------------------------------------------------------------------------

// True if the field was not sent. In fields for which zero is invalid, zero counts as not sent.
static bool is_missing(const ProtobufCMessage *spec, const struct map_field *map)
{
    bool zero_is_none = map->kind == MAP_ENUM || (map->kind == MAP_INT && map->min > 0);
    return !map_given(spec, map->name) || (zero_is_none && map_is_zero(spec, map->name));
}

// True if a missing field gets the default of case_init(). With a causal mask this includes
// window_right, because the window ends at the diagonal whatever its value.
static bool is_usual_when_missing(const struct case_field *field, const struct cp_case *c)
{
    static const char *const names[] = {"a2a_size", "pad_multiple", "softmax", "bias"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(field->name, names[i]) == 0)
            return true;
    return strcmp(field->name, "window_right") == 0 && case_is_causal(c);
}

static enum status decode_missing(const struct case_field *field, struct cp_case *c,
                                  struct error *error)
{
    struct cp_case usual;
    char accepted[CASE_ACCEPTED_MAX];
    if (is_usual_when_missing(field, c)) {
        case_init(&usual);
        memcpy((char *)c + field->offset, (char *)&usual + field->offset, field->size);
        return STATUS_OK;
    }
    case_accepted(field, accepted, sizeof accepted);
    return error_set(error, STATUS_INVALID_ARGUMENT, "case.%s is missing (%s); accepted is %s",
                     field->name, field->help, accepted);
}

static enum status decode_scalar(const ProtobufCMessage *spec, const struct case_field *field,
                                 struct cp_case *c, struct error *error)
{
    struct map_field map = schema_case_field(field);
    if (is_missing(spec, &map))
        return decode_missing(field, c, error);
    return map_decode_field(spec, &map, &path, c, error);
}

static enum status decode_list(const ProtobufCMessage *spec, const struct case_field *field,
                               struct cp_case *c, struct error *error)
{
    struct map_field map = schema_case_field(field);
    int32_t values[SEQUENCES_MAX], count;
    enum status status = map_decode_list(spec, &map, &path, values, SEQUENCES_MAX, &count, error);
    if (status == STATUS_OK)
        case_list_set(c, field->list, values, count);
    return status;
}

static enum status decode_field(const ProtobufCMessage *spec, const struct case_field *field,
                                struct cp_case *c, struct error *error)
{
    if (is_verify(field))
        return decode_verify((const Cpattn__V1__Case *)spec, c, error);
    if (field->kind == FIELD_LIST)
        return decode_list(spec, field, c, error);
    return decode_scalar(spec, field, c, error);
}

enum status spec_decode(const ProtobufCMessage *spec, struct cp_case *c, struct error *error)
{
    enum status status = map_refuse_unknown(spec, "case", error);
    memset(c, 0, sizeof *c);
    for (const struct case_field *field = case_fields(); field->name && status == STATUS_OK;
         field++)
        status = decode_field(spec, field, c, error);
    if (status != STATUS_OK)
        return status;
    status = case_check(c, error); // its error text begins with the name of the field
    return status == STATUS_OK || !error ? status
                                         : error_set(error, status, "case.%s", error->text);
}

// ---- writing ------------------------------------------------------------------------------------

static enum status encode_field(const struct cp_case *c, const struct case_field *field,
                                ProtobufCMessage *spec, struct scratch *scratch,
                                struct error *error)
{
    struct map_field map = schema_case_field(field);
    if (is_verify(field)) {
        encode_verify(c, (Cpattn__V1__Case *)spec);
        return STATUS_OK;
    }
    if (field->kind != FIELD_LIST)
        return map_encode_field(spec, &map, c, scratch, error);
    int32_t count;
    const int32_t *values = case_list(c, field->list, &count);
    return map_encode_list(spec, &map, values, count, scratch, error);
}

enum status spec_encode(const struct cp_case *c, ProtobufCMessage *spec, struct scratch *scratch,
                        struct error *error)
{
    enum status status = STATUS_OK;
    if (!case_lists_fit(c))
        return error_set(error, STATUS_INTERNAL, "a case has a list longer than allowed");
    for (const struct case_field *field = case_fields(); field->name && status == STATUS_OK;
         field++)
        status = encode_field(c, field, spec, scratch, error);
    return status;
}
