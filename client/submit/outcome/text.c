// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

void text_append_word(char *text, size_t size, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+,/";
    if (word[0] && !word[strspn(word, plain)]) {
        text_append(text, size, "%s", word);
        return;
    }
    text_append(text, size, "'");
    for (; *word; word++)
        text_append(text, size, *word == '\'' ? "'\\''" : "%c", *word);
    text_append(text, size, "'");
}

const char *text_base_name(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return name;
}
