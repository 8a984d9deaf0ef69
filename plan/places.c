// SPDX-License-Identifier: Apache-2.0
#include "plan/places.h"

#include <inttypes.h>

void places_init(struct whole_places *p)
{
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        if (i < WHOLE_INPUTS)
            p->given[i] = PLACE_NONE;
        p->wanted[i] = p->expected[i] = PLACE_NONE;
    }
}

bool places_have_given(const struct whole_places *p)
{
    bool have = false;
    for (int i = 0; i < WHOLE_INPUTS; i++)
        have |= p->given[i] != PLACE_NONE;
    return have;
}

bool places_have_wanted(const struct whole_places *p)
{
    bool have = false;
    for (int i = 0; i < WHOLE_TENSORS; i++)
        have |= p->wanted[i] != PLACE_NONE || p->expected[i] != PLACE_NONE;
    return have;
}

// ---- laying out ----

static void place(const struct cp_case *c, enum whole_tensor tensor, int64_t *offset,
                  int64_t *bytes)
{
    int64_t size = whole_bytes(c, tensor);
    if (*offset == PLACE_NONE)
        return;
    *offset = *bytes;
    *bytes += (size + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
}

void places_lay_out(const struct cp_case *c, struct whole_places *p, int64_t *given_bytes,
                    int64_t *wanted_bytes)
{
    *given_bytes = *wanted_bytes = 0;
    for (int i = 0; i < WHOLE_INPUTS; i++)
        place(c, (enum whole_tensor)i, &p->given[i], given_bytes);
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        place(c, (enum whole_tensor)i, &p->wanted[i], wanted_bytes);
        place(c, (enum whole_tensor)i, &p->expected[i], wanted_bytes);
    }
    // A segment exists even if all its tensors are empty.
    if (places_have_given(p) && *given_bytes == 0)
        *given_bytes = PLACE_ALIGNMENT;
    if (places_have_wanted(p) && *wanted_bytes == 0)
        *wanted_bytes = PLACE_ALIGNMENT;
}

// ---- checking ----

// Checks one list of places; offsets[i] is the place of tensor i.
static enum status list_check(const struct cp_case *c, const char *list, const int64_t *offsets,
                              int count, int64_t segment, struct error *error)
{
    for (int i = 0; i < count; i++) {
        enum whole_tensor tensor = (enum whole_tensor)i;
        struct whole_shape shape;
        if (offsets[i] == PLACE_NONE)
            continue;
        if (!whole_shape(c, tensor, &shape))
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s %s: the case has no such tensor",
                             list, whole_name(tensor));
        int64_t bytes = whole_bytes(c, tensor);
        if (offsets[i] < 0 || offsets[i] % 4 != 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s %s lies at byte %" PRId64 "; accepted are multiples of 4", list,
                             whole_name(tensor), offsets[i]);
        if (bytes > segment || offsets[i] > segment - bytes)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s %s has %" PRId64 " bytes from byte %" PRId64
                             " on, its memory has %" PRId64,
                             list, whole_name(tensor), bytes, offsets[i], segment);
    }
    return STATUS_OK;
}

// Refuses expected tensors that are inputs, and dbias, which is only judged.
static enum status expected_check(const struct whole_places *p, struct error *error)
{
    for (int i = 0; i < WHOLE_INPUTS; i++)
        if (p->expected[i] != PLACE_NONE)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "expected %s: it is an input; accepted are results",
                             whole_name((enum whole_tensor)i));
    if (p->expected[WHOLE_DBIAS] != PLACE_NONE)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "expected dbias: it is not delivered, only judged");
    return STATUS_OK;
}

enum status places_check(const struct cp_case *c, const struct whole_places *p, int64_t given_bytes,
                         int64_t wanted_bytes, struct error *error)
{
    enum status status = expected_check(p, error);
    if (status == STATUS_OK)
        status = list_check(c, "given", p->given, WHOLE_INPUTS, given_bytes, error);
    if (status == STATUS_OK)
        status = list_check(c, "wanted", p->wanted, WHOLE_TENSORS, wanted_bytes, error);
    if (status == STATUS_OK)
        status = list_check(c, "expected", p->expected, WHOLE_TENSORS, wanted_bytes, error);
    return status;
}
