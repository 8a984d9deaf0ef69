// SPDX-License-Identifier: Apache-2.0
#include "proto/attend.h"

#include <string.h>

#include "proto/cpattn.pb-c.h"

#define NAME_MAX_BYTES 16

// ---- reading ------------------------------------------------------------------------------------

// Writes the name with '?' for unprintable characters, cut to NAME_MAX_BYTES.
static const char *name_show(const ProtobufCBinaryData *name, char text[NAME_MAX_BYTES + 1])
{
    size_t length = name->len < NAME_MAX_BYTES ? name->len : NAME_MAX_BYTES;
    for (size_t i = 0; i < length; i++)
        text[i] = name->data[i] >= ' ' && name->data[i] <= '~' ? (char)name->data[i] : '?';
    text[length] = '\0';
    return text;
}

static bool tensor_find(const ProtobufCBinaryData *name, int count, enum whole_tensor *tensor)
{
    for (int i = 0; i < count; i++) {
        const char *known = whole_name((enum whole_tensor)i);
        if (name->len == strlen(known) && memcmp(name->data, known, name->len) == 0) {
            *tensor = (enum whole_tensor)i;
            return true;
        }
    }
    return false;
}

static enum status shape_check(const struct cp_case *c, const char *list, enum whole_tensor tensor,
                               const Cpattn__V1__TensorPlace *message, struct error *error)
{
    char theirs[WHOLE_SHAPE_TEXT_MAX], ours[WHOLE_SHAPE_TEXT_MAX];
    struct whole_shape shape, given = {.dims = 0};
    if (!whole_shape(c, tensor, &shape))
        return error_set(error, STATUS_INVALID_ARGUMENT, "attend.%s: the case has no %s", list,
                         whole_name(tensor));
    if (message->n_shape > WHOLE_DIMS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "attend.%s: %s has %zu dimensions; accepted are %d", list,
                         whole_name(tensor), message->n_shape, shape.dims);
    given.dims = (int)message->n_shape;
    given.dtype = (enum case_dtype)message->dtype;
    bool same = given.dims == shape.dims && given.dtype == shape.dtype;
    for (int i = 0; i < given.dims; i++) {
        given.size[i] = message->shape[i];
        same = same && given.size[i] == shape.size[i];
    }
    if (same)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "attend.%s: %s is %s; accepted is %s", list,
                     whole_name(tensor), whole_shape_text(&given, theirs),
                     whole_shape_text(&shape, ours));
}

// Decodes one list, which may name the first `count` tensors of enum whole_tensor.
static enum status list_decode(const struct cp_case *c, const char *list,
                               Cpattn__V1__TensorPlace *const *tensors, size_t entries, int count,
                               int64_t *offsets, struct error *error)
{
    char shown[NAME_MAX_BYTES + 1];
    if (entries > (size_t)count)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "attend.%s has %zu tensors; accepted are up to %d", list, entries, count);
    for (size_t i = 0; i < entries; i++) {
        enum whole_tensor tensor;
        enum status status = map_refuse_unknown(&tensors[i]->base, "attend", error);
        if (status != STATUS_OK)
            return status;
        if (!tensor_find(&tensors[i]->name, count, &tensor))
            return error_set(error, STATUS_INVALID_ARGUMENT, "attend.%s: there is no tensor '%s'",
                             list, name_show(&tensors[i]->name, shown));
        if (offsets[tensor] != PLACE_NONE)
            return error_set(error, STATUS_INVALID_ARGUMENT, "attend.%s: %s comes twice", list,
                             whole_name(tensor));
        if (tensors[i]->offset < 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "attend.%s: the offset of %s is %lld; accepted is 0 and more", list,
                             whole_name(tensor), (long long)tensors[i]->offset);
        status = shape_check(c, list, tensor, tensors[i], error);
        if (status != STATUS_OK)
            return status;
        offsets[tensor] = tensors[i]->offset;
    }
    return STATUS_OK;
}

enum status attend_decode(const struct cp_case *c, const ProtobufCMessage *attend,
                          struct whole_places *places, struct error *error)
{
    const Cpattn__V1__Attend *a = (const Cpattn__V1__Attend *)attend;
    places_init(places);
    enum status status = map_refuse_unknown(&a->base, "attend", error);
    if (status == STATUS_OK)
        status = list_decode(c, "given", a->given, a->n_given, WHOLE_INPUTS, places->given, error);
    if (status == STATUS_OK)
        status =
            list_decode(c, "wanted", a->wanted, a->n_wanted, WHOLE_TENSORS, places->wanted, error);
    if (status == STATUS_OK)
        status = list_decode(c, "expected", a->expected, a->n_expected, WHOLE_TENSORS,
                             places->expected, error);
    if (status == STATUS_OK && a->n_given + a->n_wanted + a->n_expected == 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "attend names no tensor; accepted are inputs that are given, and what "
                           "is wanted");
    return status;
}

// ---- writing ------------------------------------------------------------------------------------

static Cpattn__V1__TensorPlace *tensor_encode(const struct cp_case *c, enum whole_tensor tensor,
                                              int64_t offset, struct scratch *scratch)
{
    const char *name = whole_name(tensor);
    struct whole_shape shape = {.dims = 0};
    Cpattn__V1__TensorPlace *message = scratch_alloc(scratch, sizeof(*message));
    int64_t *sizes = scratch_alloc(scratch, WHOLE_DIMS_MAX * sizeof(*sizes));
    uint8_t *text = scratch_alloc(scratch, strlen(name));
    if (!message || !sizes || !text)
        return NULL;
    cpattn__v1__tensor_place__init(message);
    if (whole_shape(c, tensor, &shape))
        memcpy(sizes, shape.size, sizeof(shape.size));
    memcpy(text, name, strlen(name));
    message->name = (ProtobufCBinaryData){.len = strlen(name), .data = text};
    message->dtype = (Cpattn__V1__Dtype)shape.dtype;
    message->n_shape = (size_t)shape.dims;
    message->shape = sizes;
    message->offset = offset;
    return message;
}

static enum status list_encode(const struct cp_case *c, const int64_t *offsets, int count,
                               Cpattn__V1__TensorPlace ***list, size_t *entries,
                               struct scratch *scratch, struct error *error)
{
    *entries = 0;
    *list = scratch_alloc(scratch, (size_t)count * sizeof(**list));
    for (int i = 0; *list && i < count; i++) {
        if (offsets[i] == PLACE_NONE)
            continue;
        Cpattn__V1__TensorPlace *message =
            tensor_encode(c, (enum whole_tensor)i, offsets[i], scratch);
        if (!message)
            return scratch_refusal(scratch, "a message", error);
        (*list)[(*entries)++] = message;
    }
    return *list ? STATUS_OK : scratch_refusal(scratch, "a message", error);
}

enum status attend_encode(const struct cp_case *c, const struct whole_places *places,
                          ProtobufCMessage *attend, struct scratch *scratch, struct error *error)
{
    Cpattn__V1__Attend *a = (Cpattn__V1__Attend *)attend;
    enum status status =
        list_encode(c, places->given, WHOLE_INPUTS, &a->given, &a->n_given, scratch, error);
    if (status == STATUS_OK)
        status =
            list_encode(c, places->wanted, WHOLE_TENSORS, &a->wanted, &a->n_wanted, scratch, error);
    if (status == STATUS_OK)
        status = list_encode(c, places->expected, WHOLE_TENSORS, &a->expected, &a->n_expected,
                             scratch, error);
    return status;
}
