// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/shell_word.h"

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
    size_t used = strlen(text);
    shell_word(word, text + used, size - used);
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
