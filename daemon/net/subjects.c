// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/subjects.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void subjects_fini(struct subjects *subjects)
{
    free(subjects->texts);
    *subjects = (struct subjects){0};
}

static bool grow(struct subjects *s)
{
    int room = s->room > 0 ? 2 * s->room : 16;
    void *texts =
        s->room < SUBJECTS_MAX ? realloc(s->texts, (size_t)room * sizeof(*s->texts)) : NULL;
    if (!texts)
        return false;
    s->texts = texts;
    s->room = room;
    return true;
}

uid_t subjects_uid(struct subjects *s, const char *text, uid_t others)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->texts[i], text) == 0)
            return SUBJECT_UID_FIRST + (uid_t)i;
    if (s->count == s->room && !grow(s))
        return others;
    snprintf(s->texts[s->count], sizeof(s->texts[0]), "%s", text);
    return SUBJECT_UID_FIRST + (uid_t)s->count++;
}
