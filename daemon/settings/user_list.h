// SPDX-License-Identifier: Apache-2.0
// A list of users, from a setting.
#ifndef CPATTN_DAEMON_SETTINGS_USER_LIST_H
#define CPATTN_DAEMON_SETTINGS_USER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#define USER_LIST_MAX 64

struct user_list {
    int count; // 0..USER_LIST_MAX
    uint32_t users[USER_LIST_MAX];
};

// Parses user names of this machine and user numbers, with commas between them. Returns false and
// leaves the list unchanged for any other text, and for too many users.
bool user_list_parse(const char *text, struct user_list *list);

bool user_list_has(const struct user_list *list, uint32_t user);

#endif
