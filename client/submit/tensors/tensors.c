// SPDX-License-Identifier: Apache-2.0
#include "client/submit/tensors/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_TENSORS_MAX (2 * WHOLE_TENSORS)

// ---- memory -------------------------------------------------------------------------------------

static bool make(const struct cp_case *c, enum whole_tensor tensor, void **memory)
{
    struct whole_shape shape;
    if (!whole_shape(c, tensor, &shape))
        return true;
    *memory = calloc((size_t)whole_bytes(c, tensor) + 1, 1);
    return *memory != NULL;
}

enum status tensors_make(struct tensors *t, const struct cp_case *c, int kinds, struct error *error)
{
    bool good = true;
    *t = (struct tensors){.at = {.given = {NULL}}};
    for (int i = 0; i < WHOLE_TENSORS && good; i++) {
        enum whole_tensor tensor = (enum whole_tensor)i;
        bool input = i < WHOLE_INPUTS;
        if (kinds & (input ? TENSORS_INPUTS : TENSORS_RESULTS))
            good = make(c, tensor, &t->at.wanted[i]);
        // The daemon returns figures of dbias, and no expected elements.
        if (good && !input && tensor != WHOLE_DBIAS && (kinds & TENSORS_EXPECTED))
            good = make(c, tensor, &t->at.expected[i]);
    }
    if (good)
        return STATUS_OK;
    tensors_fini(t);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the tensors");
}

void tensors_fini(struct tensors *t)
{
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        if (i < WHOLE_INPUTS)
            free((void *)(uintptr_t)t->at.given[i]);
        free(t->at.wanted[i]);
        free(t->at.expected[i]);
    }
    *t = (struct tensors){.at = {.given = {NULL}}};
}

static float bf16_read(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static float fp16_read(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent > 0 ? ldexpf((float)(fraction + 1024), exponent - 25)
                                 : ldexpf((float)fraction, -24);
    return bits >> 15 ? -value : value;
}

float tensors_element(const struct cp_case *c, enum whole_tensor tensor, const void *data,
                      int64_t index)
{
    struct whole_shape shape;
    float value;
    uint16_t bits;
    if (!whole_shape(c, tensor, &shape))
        return 0;
    if (shape.dtype == DTYPE_FP32) {
        memcpy(&value, (const char *)data + index * 4, sizeof(value));
        return value;
    }
    memcpy(&bits, (const char *)data + index * 2, sizeof(bits));
    return shape.dtype == DTYPE_BF16 ? bf16_read(bits) : fp16_read(bits);
}

int64_t tensors_nonfinite(const struct cp_case *c, enum whole_tensor tensor, const void *data)
{
    struct whole_shape shape;
    int64_t bad = 0;
    if (!whole_shape(c, tensor, &shape))
        return 0;
    int64_t count = whole_bytes(c, tensor) / whole_element_bytes(shape.dtype);
    for (int64_t i = 0; i < count; i++)
        bad += !isfinite(tensors_element(c, tensor, data, i));
    return bad;
}

// ---- the case of a file -------------------------------------------------------------------------

static const char *dtype_name(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? "BF16" : dtype == DTYPE_FP16 ? "F16" : "F32";
}

static enum status lacks(const char *name, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "there is no tensor \"%s\"; expected are q, k, v, and do for gradients", name);
}

static enum status dims_check(const struct safetensors_tensor *t, const struct cp_case *c,
                              struct error *error)
{
    int dims = c->format == FORMAT_THD ? 3 : 4;
    char text[SAFETENSORS_TEXT_MAX];
    if (t->dims != dims)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s is %s; in %s it has %d dimensions (--format)", t->name,
                         safetensors_describe(t, text),
                         case_choice_name(case_format_choices, (int)c->format), dims);
    for (int i = 0; i < dims; i++)
        if (t->shape[i] > INT32_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %s, which is too large",
                             t->name, safetensors_describe(t, text));
    return STATUS_OK;
}

// The longest length in a list; -1: the list is empty.
static int64_t longest(const struct cp_case *c, enum case_list list)
{
    int32_t count;
    int64_t most = -1;
    const int32_t *values = case_list(c, list, &count);
    for (int32_t i = 0; i < count; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

// Packed tokens are one sequence unless lengths are given.
static void lengths_take(const struct safetensors_tensor *q, const struct safetensors_tensor *k,
                         struct cp_case *c)
{
    int32_t count;
    bool thd = c->format == FORMAT_THD, sbhd = c->format == FORMAT_SBHD;
    (void)case_list(c, LIST_LENGTHS_Q, &count);
    if (thd && count > 0) {
        int64_t keys = longest(c, LIST_LENGTHS_KV);
        c->batch = count;
        c->seqlen_q = longest(c, LIST_LENGTHS_Q);
        c->seqlen_kv = keys < 0 ? c->seqlen_q : keys;
        return;
    }
    c->batch = thd ? 1 : (int32_t)q->shape[sbhd ? 1 : 0];
    c->seqlen_q = q->shape[thd || sbhd ? 0 : 1];
    c->seqlen_kv = k->shape[thd || sbhd ? 0 : 1];
}

static enum status dtype_take(const struct safetensors_tensor *q, struct cp_case *c,
                              struct error *error)
{
    char text[SAFETENSORS_TEXT_MAX];
    for (const struct case_choice *choice = case_dtype_choices; choice->name; choice++) {
        if (strcmp(q->dtype, dtype_name((enum case_dtype)choice->value)) == 0) {
            c->dtype = (enum case_dtype)choice->value;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID_ARGUMENT, "q is %s; accepted are BF16, F16 and F32",
                     safetensors_describe(q, text));
}

enum status tensors_describe(const struct safetensors *file, struct cp_case *c, struct error *error)
{
    const struct safetensors_tensor *found[3];
    static const char *const names[] = {"q", "k", "v"};
    enum status status = STATUS_OK;
    for (int i = 0; i < 3 && status == STATUS_OK; i++) {
        found[i] = safetensors_find(file, names[i]);
        status = found[i] ? dims_check(found[i], c, error) : lacks(names[i], error);
    }
    if (status == STATUS_OK)
        status = dtype_take(found[0], c, error);
    if (status != STATUS_OK)
        return status;
    int heads = c->format == FORMAT_THD ? 1 : 2;
    lengths_take(found[0], found[1], c);
    c->heads = (int32_t)found[0]->shape[heads];
    c->kv_heads = (int32_t)found[1]->shape[heads];
    c->head_dim_qk = (int32_t)found[0]->shape[heads + 1];
    c->head_dim_v = (int32_t)found[2]->shape[heads + 1];
    c->training = safetensors_find(file, "do") != NULL;
    return case_check(c, error);
}

// ---- reading and writing ------------------------------------------------------------------------

enum status tensors_check(const struct safetensors_tensor *found, const struct cp_case *c,
                          enum whole_tensor tensor, struct error *error)
{
    struct whole_shape shape;
    char theirs[SAFETENSORS_TEXT_MAX], ours[WHOLE_SHAPE_TEXT_MAX];
    if (!whole_shape(c, tensor, &shape))
        return error_set(error, STATUS_INVALID_ARGUMENT, "the case has no tensor \"%s\"",
                         whole_name(tensor));
    bool same = found->dims == shape.dims && strcmp(found->dtype, dtype_name(shape.dtype)) == 0;
    for (int i = 0; same && i < shape.dims; i++)
        same = found->shape[i] == shape.size[i];
    if (same)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is %s; the case has %s",
                     whole_name(tensor), safetensors_describe(found, theirs),
                     whole_shape_text(&shape, ours));
}

static enum status input_load(const struct safetensors *file, const struct cp_case *c,
                              enum whole_tensor tensor, const void **given, struct error *error)
{
    const struct safetensors_tensor *found = safetensors_find(file, whole_name(tensor));
    struct whole_shape shape;
    void *memory = NULL;
    if (!whole_shape(c, tensor, &shape))
        return STATUS_OK;
    if (!found)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "there is no tensor \"%s\", which the case has as an input",
                         whole_name(tensor));
    enum status status = tensors_check(found, c, tensor, error);
    if (status == STATUS_OK && !make(c, tensor, &memory))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the tensors");
    if (status == STATUS_OK)
        status = safetensors_read(file, found, memory, error);
    *given = memory;
    return status;
}

enum status tensors_load(const struct safetensors *file, const struct cp_case *c, struct tensors *t,
                         struct error *error)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < WHOLE_INPUTS && status == STATUS_OK; i++)
        status = input_load(file, c, (enum whole_tensor)i, &t->at.given[i], error);
    return status;
}

static void entry_add(struct safetensors_tensor *entries, int *count, char *name,
                      const struct cp_case *c, enum whole_tensor tensor, const void *data)
{
    struct whole_shape shape;
    if (!data || !whole_shape(c, tensor, &shape))
        return;
    struct safetensors_tensor *e = &entries[(*count)++];
    *e = (struct safetensors_tensor){.name = name,
                                     .dtype = dtype_name(shape.dtype),
                                     .element_bytes = whole_element_bytes(shape.dtype),
                                     .dims = shape.dims,
                                     .data = data};
    memcpy(e->shape, shape.size, sizeof(shape.size));
}

enum status tensors_save(const char *path, const struct cp_case *c, const struct tensors *t,
                         struct error *error)
{
    struct safetensors_tensor entries[FILE_TENSORS_MAX];
    char names[FILE_TENSORS_MAX][32];
    int count = 0;
    char *command = malloc(CASE_COMMAND_MAX);
    if (!command)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for %s", path);
    case_command(c, command, CASE_COMMAND_MAX);
    const char *const metadata[] = {"format", "pt", "case", command, NULL};
    for (int i = 0; i < WHOLE_TENSORS; i++) {
        enum whole_tensor tensor = (enum whole_tensor)i;
        snprintf(names[2 * i], sizeof(names[0]), "%s", whole_name(tensor));
        snprintf(names[2 * i + 1], sizeof(names[0]), "expected.%s", whole_name(tensor));
        entry_add(entries, &count, names[2 * i], c, tensor, t->at.wanted[i]);
        entry_add(entries, &count, names[2 * i + 1], c, tensor, t->at.expected[i]);
    }
    enum status status = safetensors_write(path, entries, count, metadata, error);
    free(command);
    return status;
}
