// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/subject_list.h"

#include <stddef.h>
#include <string.h>

// Length of the first subject in the text.
static size_t subject_length(const char *text)
{
    size_t length = 0;
    for (; text[length] && text[length] != ';'; length++)
        if (text[length] == '\\' && text[length + 1])
            length++;
    return length;
}

static bool subject_take(const char *text, size_t length, char subject[SUBJECT_TEXT_MAX])
{
    for (; length > 0 && *text == ' '; length--)
        text++;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length >= SUBJECT_TEXT_MAX || !memchr(text, '=', length))
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(subject, text, length);
    subject[length] = '\0';
    return true;
}

bool subject_list_parse(const char *text, struct subject_list *list)
{
    struct subject_list read = {0};
    for (;;) {
        size_t length = subject_length(text);
        if (read.count == SUBJECT_LIST_MAX ||
            !subject_take(text, length, read.subjects[read.count++]))
            return false;
        if (!text[length])
            break;
        text += length + 1;
    }
    *list = read;
    return true;
}

bool subject_list_has(const struct subject_list *list, const char *subject)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->subjects[i], subject) == 0)
            return true;
    return false;
}
