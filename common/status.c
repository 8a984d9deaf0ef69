// SPDX-License-Identifier: Apache-2.0
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct status_entry {
    const char *name;
    const char *text;
};

static const struct status_entry status_table[STATUS_COUNT] = {
#define STATUS_ENTRY(name, number, text) [number] = {#name, text},
    STATUS_LIST(STATUS_ENTRY)
#undef STATUS_ENTRY
};

static const struct status_entry *status_entry(enum status status)
{
    unsigned int number = (unsigned int)status;
    return &status_table[number < STATUS_COUNT ? number : STATUS_UNKNOWN];
}

const char *status_text(enum status status)
{
    return status_entry(status)->text;
}

const char *status_name(enum status status)
{
    return status_entry(status)->name;
}

// Formats into `text`. Dots at the end show that the text was cut.
__attribute__((format(printf, 2, 0))) static void text_format(char text[ERROR_TEXT_MAX],
                                                              const char *format, va_list arguments)
{
    int length = vsnprintf(text, ERROR_TEXT_MAX, format, arguments);
    if (length < 0)
        text[0] = '\0';
    else if (length >= ERROR_TEXT_MAX)
        memcpy(text + ERROR_TEXT_MAX - 4, "...", 4);
}

#undef error_set // the macro is for callers only
enum status error_set(struct error *error, enum status status, const char *format, ...)
{
    if (!error)
        return status;
    // The arguments may point into the old text.
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    text_format(text, format, arguments);
    va_end(arguments);
    memcpy(error->text, text, strlen(text) + 1);
    error->status = status;
    return status;
}

enum status error_prefix(struct error *error, const char *format, ...)
{
    if (!error)
        return STATUS_UNKNOWN;
    char prefix[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    text_format(prefix, format, arguments);
    va_end(arguments);
    return error_set(error, error->status, "%s: %s", prefix, error->text);
}
