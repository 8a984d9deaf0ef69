// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/user_list.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64

static bool user_parse(const char *name, uint32_t *user)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(name, &end, 10);
    if (name[0] >= '0' && name[0] <= '9' && !*end) {
        *user = (uint32_t)number;
        return errno == 0 && number < UINT32_MAX; // UINT32_MAX is (uid_t)-1, which no user has
    }
    const struct passwd *entry = getpwnam(name);
    if (entry)
        *user = entry->pw_uid;
    return entry != NULL;
}

bool user_list_parse(const char *text, struct user_list *list)
{
    struct user_list read = {0};
    for (;;) {
        char name[NAME_MAX_BYTES];
        size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof(name) || read.count == USER_LIST_MAX)
            return false;
        memcpy(name, text, length);
        name[length] = '\0';
        if (!user_parse(name, &read.users[read.count++]))
            return false;
        if (!text[length])
            break;
        text += length + 1;
    }
    *list = read;
    return true;
}

bool user_list_has(const struct user_list *list, uint32_t user)
{
    for (int i = 0; i < list->count; i++) {
        if (list->users[i] == user)
            return true;
    }
    return false;
}
