// SPDX-License-Identifier: Apache-2.0
#include "plan/kind.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/members.h"

const struct job_kind *job_kind_find(const char *name)
{
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        if (strcmp((*kind)->name, name) == 0)
            return *kind;
    return NULL;
}

void job_spec_of_case(struct job_spec *spec, const struct cp_case *c)
{
    spec->kind = &job_kind_attention;
    spec->attention = *c;
}

// ---- field by field -----------------------------------------------------------------------------

static bool is_case(const struct job_kind *kind)
{
    return kind == &job_kind_attention;
}

const struct case_field *job_kind_fields(const struct job_kind *kind)
{
    return is_case(kind) ? case_fields() : kind->fields;
}

const struct case_field *job_kind_field(const struct job_kind *kind, const char *name)
{
    return is_case(kind) ? case_field_find(name) : members_find(kind->fields, name);
}

const struct case_pair *job_kind_pair(const struct job_kind *kind, const char *name)
{
    return is_case(kind) ? case_pair_find(name) : NULL;
}

void job_spec_init(struct job_spec *spec, const struct job_kind *kind)
{
    spec->kind = kind;
    if (is_case(kind)) {
        case_init(&spec->attention);
        return;
    }
    memset(spec->bytes, 0, sizeof spec->bytes);
    kind->init(spec->bytes);
}

static enum status refuse_field(const struct job_kind *kind, const char *name, struct error *error);

enum status job_spec_set(struct job_spec *spec, const char *name, const char *value,
                         struct error *error)
{
    if (is_case(spec->kind))
        return case_set(&spec->attention, name, value, error);
    const struct case_field *field = members_find(spec->kind->fields, name);
    return field ? members_set(spec->bytes, field, value, error)
                 : refuse_field(spec->kind, name, error);
}

int job_spec_get(const struct job_spec *spec, const struct case_field *field, char *text,
                 size_t size)
{
    return is_case(spec->kind) ? case_get(&spec->attention, field, text, size)
                               : members_get(spec->bytes, field, text, size);
}

enum status job_spec_finish(struct job_spec *spec, struct error *error)
{
    const struct job_kind *kind = spec->kind;
    if (kind->finish)
        kind->finish(spec->bytes);
    enum status status =
        is_case(kind) ? STATUS_OK : members_check(spec->bytes, kind->fields, error);
    return status == STATUS_OK ? kind->check(spec->bytes, error) : status;
}

size_t job_spec_bytes(const struct job_spec *spec)
{
    return is_case(spec->kind) ? case_bytes(&spec->attention) : spec->kind->spec_bytes;
}

// ---- from text ----------------------------------------------------------------------------------

// "attention" has its own message, which must be used for it.
static enum status refuse_kind(const char *name, struct error *error)
{
    char known[ERROR_TEXT_MAX / 2] = "";
    size_t used = 0;
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        if ((*kind)->fields && used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     (*kind)->name);
    return error_set(error, STATUS_INVALID_ARGUMENT, "kind is '%s'; accepted is %s", name,
                     used ? known : "none but a case of attention, in a message of its own");
}

static enum status refuse_field(const struct job_kind *kind, const char *name, struct error *error)
{
    char whole[KIND_NAME_MAX + 16];
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (const struct case_field *field = kind->fields; field->name; field++)
        nearest_offer(&nearest, field->name);
    snprintf(whole, sizeof whole, "a job '%s'", kind->name);
    return members_refuse_name(whole, name, &nearest, error);
}

static bool is_given_before(const struct job_text *text, int index)
{
    for (int i = 0; i < index; i++)
        if (members_name_is(text->fields[i].name, text->fields[index].name))
            return true;
    return false;
}

static enum status field_parse(struct job_spec *spec, const struct job_text *text, int index,
                               struct error *error)
{
    const struct job_field *given = &text->fields[index];
    const struct case_field *field = members_find(spec->kind->fields, given->name);
    if (!field)
        return refuse_field(spec->kind, given->name, error);
    if (is_given_before(text, index))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is given twice; accepted is once",
                         field->name);
    return members_set(spec->bytes, field, given->value, error);
}

enum status job_spec_parse(struct job_spec *spec, const struct job_text *text, struct error *error)
{
    const struct job_kind *kind = job_kind_find(text->kind);
    if (!kind || !kind->fields)
        return refuse_kind(text->kind, error);
    job_spec_init(spec, kind);
    enum status status = STATUS_OK;
    for (int i = 0; i < text->field_count && status == STATUS_OK; i++)
        status = field_parse(spec, text, i, error);
    return status == STATUS_OK ? job_spec_finish(spec, error) : status;
}

// ---- properties of a spec -----------------------------------------------------------------------

struct job_needs job_spec_needs(const struct job_spec *spec)
{
    struct job_needs needs = {.implementation = "", .provider = ""};
    spec->kind->needs(spec->bytes, &needs);
    return needs;
}

int job_dtype_bytes(enum job_dtype dtype)
{
    static const int bytes[JOB_DTYPES] = {[JOB_BF16] = 2,  [JOB_FP16] = 2,  [JOB_FP32] = 4,
                                          [JOB_INT32] = 4, [JOB_INT64] = 8, [JOB_UINT8] = 1};
    return bytes[dtype];
}

int64_t job_tensor_bytes(const struct job_tensor *tensor)
{
    int64_t bytes = job_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->dims; i++)
        bytes *= tensor->shape[i];
    return bytes;
}

int job_tensor_find(const struct job_kind *kind, const void *spec, int rank, const char *name,
                    struct job_tensor *tensor)
{
    for (int i = 0; i < kind->tensor_count; i++)
        if (kind->tensor(spec, rank, i, tensor) && strcmp(tensor->name, name) == 0)
            return i;
    return -1;
}

enum status job_spec_memory(const struct job_spec *spec, int64_t *rank_bytes, struct error *error)
{
    return spec->kind->memory(spec->bytes, rank_bytes, error);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3); // FNV-1a
    } while (*text++);
    return hash;
}

uint64_t job_spec_hash(const struct job_spec *spec)
{
    const struct job_kind *kind = spec->kind;
    if (kind->hash)
        return kind->hash(spec->bytes);
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), kind->name);
    for (const struct case_field *field = kind->fields; field->name; field++) {
        char text[JOB_FIELD_VALUE_MAX];
        members_get(spec->bytes, field, text, sizeof text);
        hash = hash_text(hash, text);
    }
    return hash;
}

// A text of bounded size under construction.
struct line {
    char *text;
    size_t size;
    int length; // including what did not fit, as with snprintf
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *format,
                                                           ...)
{
    bool room = (size_t)line->length < line->size;
    va_list arguments;
    va_start(arguments, format);
    line->length += vsnprintf(room ? line->text + line->length : NULL,
                              room ? line->size - (size_t)line->length : 0, format, arguments);
    va_end(arguments);
}

// Fills *usual with the defaults of a job with the same argument as `spec`: derived members may
// depend on the argument.
static void usual_init(struct job_spec *usual, const struct job_spec *spec)
{
    const char *argument = spec->kind->argument;
    const struct case_field *field = argument ? members_find(spec->kind->fields, argument) : NULL;
    char value[JOB_FIELD_VALUE_MAX];
    job_spec_init(usual, spec->kind);
    if (field) {
        members_get(spec->bytes, field, value, sizeof value);
        (void)!members_set(usual->bytes, field, value, NULL);
    }
    if (spec->kind->finish)
        spec->kind->finish(usual->bytes);
}

// True if a field differs from its default. Fills `value`.
static bool is_special(const struct job_spec *spec, const struct case_field *field,
                       char value[JOB_FIELD_VALUE_MAX])
{
    struct job_spec usual;
    char usual_value[JOB_FIELD_VALUE_MAX];
    usual_init(&usual, spec);
    members_get(spec->bytes, field, value, JOB_FIELD_VALUE_MAX);
    members_get(usual.bytes, field, usual_value, sizeof usual_value);
    return strcmp(value, usual_value) != 0;
}

const char *job_spec_vain(const struct job_spec *spec, const char *field)
{
    return spec->kind->vain ? spec->kind->vain(spec->bytes, field) : NULL;
}

static bool is_argument(const struct job_spec *spec, const struct case_field *field)
{
    return spec->kind->argument && strcmp(field->name, spec->kind->argument) == 0;
}

// Describes a job as "sum w4 count=100".
static int fields_describe(const struct job_spec *spec, char *text, size_t size)
{
    struct line line = {.text = text, .size = size};
    char value[JOB_FIELD_VALUE_MAX];
    line_add(&line, "%s", spec->kind->name);
    for (const struct case_field *field = spec->kind->fields; field->name; field++) {
        bool special = is_special(spec, field, value);
        if (is_argument(spec, field))
            line_add(&line, " %s", value);
        else if (strcmp(field->name, "world_size") == 0)
            line_add(&line, " w%s", value);
        else if (special)
            line_add(&line, " %s=%s", field->name, value);
    }
    return line.length;
}

int job_spec_describe(const struct job_spec *spec, char *text, size_t size)
{
    return spec->kind->describe ? spec->kind->describe(spec->bytes, text, size)
                                : fields_describe(spec, text, size);
}

int job_spec_command(const struct job_spec *spec, char *text, size_t size)
{
    struct line line = {.text = text, .size = size};
    char value[JOB_FIELD_VALUE_MAX], name[JOB_FIELD_NAME_MAX];
    if (spec->kind == &job_kind_attention)
        return case_command(&spec->attention, text, size);
    line_add(&line, "cpattn-submit %s", spec->kind->name);
    for (const struct case_field *field = spec->kind->fields; field->name; field++) {
        bool special = is_special(spec, field, value) && !job_spec_vain(spec, field->name);
        snprintf(name, sizeof name, "%s", field->name);
        for (char *c = name; *c; c++)
            *c = *c == '_' ? '-' : *c;
        if (is_argument(spec, field))
            line_add(&line, " %s", value);
        else if (special)
            line_add(&line, " --%s %s", name, value);
    }
    return line.length;
}

// ---- frames -------------------------------------------------------------------------------------

uint32_t job_frame_fill(struct job_frame *frame, const struct job_spec *spec)
{
    size_t bytes = job_spec_bytes(spec);
    memset(frame, 0, offsetof(struct job_frame, spec));
    memcpy(frame->kind, spec->kind->name, strlen(spec->kind->name));
    memcpy(frame->spec, spec->bytes, bytes);
    return (uint32_t)(offsetof(struct job_frame, spec) + bytes);
}

enum status job_frame_load(const void *data, size_t size, struct job_spec *spec,
                           struct error *error)
{
    const struct job_frame *frame = data;
    if (size < offsetof(struct job_frame, spec) || !memchr(frame->kind, '\0', sizeof frame->kind))
        return error_set(error, STATUS_DATA_LOSS, "%zu bytes are no job", size);
    size -= offsetof(struct job_frame, spec);
    spec->kind = job_kind_find(frame->kind);
    if (!spec->kind)
        return error_set(error, STATUS_DATA_LOSS, "a job is of a kind that is not known here");
    if (spec->kind == &job_kind_attention)
        return case_load(&spec->attention, frame->spec, size, error);
    if (size != spec->kind->spec_bytes)
        return error_set(error, STATUS_DATA_LOSS, "a job '%s' has %zu bytes instead of %zu",
                         spec->kind->name, size, spec->kind->spec_bytes);
    memcpy(spec->bytes, frame->spec, size);
    return STATUS_OK;
}
