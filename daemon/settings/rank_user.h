// SPDX-License-Identifier: Apache-2.0
// The user of ranks, if it is not the daemon's own.
#ifndef CPATTN_DAEMON_SETTINGS_RANK_USER_H
#define CPATTN_DAEMON_SETTINGS_RANK_USER_H

#include <stdbool.h>
#include <sys/types.h>

#define RANK_GROUPS_MAX 64

struct rank_user {
    bool set;
    uid_t uid; // never root
    gid_t gid;
    int group_count; // length of `groups`, the user's supplementary groups
    gid_t groups[RANK_GROUPS_MAX];
};

// Parses a name or a number. A user of this machine gets its group and supplementary groups; an
// unused number gets only the group of that number. Returns false and leaves `user` unchanged for
// anything else, for root, and for a user in too many groups.
bool rank_user_parse(const char *text, struct rank_user *user);

bool rank_user_same(const struct rank_user *a, const struct rank_user *b);

#endif
