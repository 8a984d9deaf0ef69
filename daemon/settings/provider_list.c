// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/provider_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

static struct provider_entry *entry_find(struct provider_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0)
            return &list->entries[i];
    return NULL;
}

// Stores the absolute path, because ranks may have another working directory. Refuses line breaks,
// which would end the entry in the environment.
static bool file_set(char file[PATH_MAX], const char *text)
{
    char folder[PATH_MAX] = "";
    if (!text[0] || strchr(text, '\n') || (text[0] != '/' && !getcwd(folder, sizeof(folder))))
        return false;
    int length = snprintf(file, PATH_MAX, "%s%s%s", folder, text[0] == '/' ? "" : "/", text);
    return length < PATH_MAX;
}

bool provider_list_add(struct provider_list *list, const char *text)
{
    struct provider_entry entry = {.name = ""};
    size_t length = strcspn(text, "=");
    if (length == 0 || length >= sizeof(entry.name) || text[length] != '=' ||
        strspn(text, NAME_CHARACTERS) != length || !file_set(entry.file, text + length + 1))
        return false;
    memcpy(entry.name, text, length);
    struct provider_entry *place = entry_find(list, entry.name);
    if (!place && list->count == PROVIDERS_MAX)
        return false;
    if (!place)
        place = &list->entries[list->count++];
    *place = entry;
    return true;
}

bool provider_list_has(const struct provider_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0)
            return true;
    return false;
}

bool provider_list_same(const struct provider_list *a, const struct provider_list *b)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = strcmp(a->entries[i].name, b->entries[i].name) == 0 &&
               strcmp(a->entries[i].file, b->entries[i].file) == 0;
    return same;
}

bool provider_list_export(const struct provider_list *list)
{
    size_t size = 1, used = 0;
    for (int i = 0; i < list->count; i++)
        size += strlen(list->entries[i].name) + strlen(list->entries[i].file) + 2;
    char *text = calloc(1, size);
    if (!text)
        return false;
    for (int i = 0; i < list->count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s=%s\n", list->entries[i].name,
                                 list->entries[i].file);
    bool set = setenv("CPATTN_PROVIDERS", text, 1) == 0;
    free(text);
    return set;
}
