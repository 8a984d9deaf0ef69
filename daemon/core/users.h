// SPDX-License-Identifier: Apache-2.0
// How many jobs each user has, so that nobody takes the whole queue. Holds those users only that
// have any. Nothing is allocated after init.
#ifndef CPATTN_DAEMON_CORE_USERS_H
#define CPATTN_DAEMON_CORE_USERS_H

#include <stdbool.h>
#include <stdint.h>

struct users {
    struct users_entry {
        uint32_t user;
        int jobs; // 0: the entry is free
    } * entries;
    uint32_t mask; // entries - 1
};

// For at most `jobs` jobs at once. False when memory is short; users_fini() takes that state and a
// zeroed one.
bool users_init(struct users *u, int jobs);
void users_fini(struct users *u);

int users_jobs(const struct users *u, uint32_t user);

// One job more, one less; of one less there must be one.
void users_add(struct users *u, uint32_t user);
void users_remove(struct users *u, uint32_t user);

#endif
