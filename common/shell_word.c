// SPDX-License-Identifier: Apache-2.0
#include "common/shell_word.h"

#include <stdbool.h>
#include <string.h>

struct line {
    char *text;
    size_t size, length;
};

static void add(struct line *line, const char *part, size_t count)
{
    for (size_t i = 0; i < count; i++, line->length++)
        if (line->length + 1 < line->size)
            line->text[line->length] = part[i];
}

size_t shell_word(const char *word, char *text, size_t size)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+,/";
    static const char quote[] = "'\\''"; // ends the quotes, adds one, and begins them again
    struct line line = {text, size, 0};
    bool quoted = !word[0] || word[strspn(word, plain)];
    add(&line, "'", quoted);
    for (; *word; word++)
        if (*word == '\'')
            add(&line, quote, sizeof(quote) - 1);
        else
            add(&line, word, 1);
    add(&line, "'", quoted);
    if (size > 0)
        text[line.length < size ? line.length : size - 1] = '\0';
    return line.length;
}
