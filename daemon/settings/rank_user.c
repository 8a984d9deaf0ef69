// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/rank_user.h"

#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "daemon/settings/user_list.h"

bool rank_user_parse(const char *text, struct rank_user *user)
{
    struct rank_user read = {.set = true};
    struct user_list one;
    if (!user_list_parse(text, &one) || one.count != 1 || one.users[0] == 0)
        return false;
    read.uid = one.users[0];
    read.gid = one.users[0];
    const struct passwd *entry = getpwuid(read.uid);
    if (entry) {
        read.gid = entry->pw_gid;
        read.group_count = RANK_GROUPS_MAX;
        if (getgrouplist(entry->pw_name, entry->pw_gid, read.groups, &read.group_count) < 0)
            return false;
    }
    *user = read;
    return true;
}

bool rank_user_same(const struct rank_user *a, const struct rank_user *b)
{
    return a->set == b->set && a->uid == b->uid && a->gid == b->gid &&
           a->group_count == b->group_count &&
           memcmp(a->groups, b->groups, (size_t)a->group_count * sizeof(*a->groups)) == 0;
}
