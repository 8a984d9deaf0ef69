// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/json_line.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 48

// For a message: cut, with unprintable characters replaced.
static void printable(char *text, size_t max)
{
    size_t length = strlen(text);
    for (char *c = text; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    if (length > max)
        memcpy(text + max - 3, "...", 4);
}

enum status json_line_read(const char *line, size_t length, json_t **object, struct error *error)
{
    json_error_t why;
    json_t *read = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(read)) {
        *object = read;
        return STATUS_OK;
    }
    json_decref(read);
    if (!read && json_error_code(&why) == json_error_out_of_memory)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory");
    if (read)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a list; accepted is an object of JSON");
    printable(why.text, sizeof(why.text) - 1);
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s, at byte %d; accepted is an object of JSON", why.text, why.position);
}

enum status json_line_texts(const json_t *object, const char *const *names, struct error *error)
{
    for (; *names; names++) {
        const json_t *value = json_object_get(object, *names);
        if (value && !json_is_string(value))
            return json_line_refuse(*names, value, "a text", error);
    }
    return STATUS_OK;
}

enum status json_line_refuse(const char *name, const json_t *value, const char *accepted,
                             struct error *error)
{
    if (!value)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is missing; accepted is %s", name,
                         accepted);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    if (text)
        printable(text, VALUE_MAX);
    enum status status = error_set(error, STATUS_INVALID_ARGUMENT, "%s is %s; accepted is %s", name,
                                   text ? text : "another", accepted);
    free(text);
    return status;
}
