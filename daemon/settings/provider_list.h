// SPDX-License-Identifier: Apache-2.0
// The providers of attention kernels in the daemon's settings.
#ifndef CPATTN_DAEMON_SETTINGS_PROVIDER_LIST_H
#define CPATTN_DAEMON_SETTINGS_PROVIDER_LIST_H

#include <limits.h>
#include <stdbool.h>

#include "common/limits.h"

struct provider_entry {
    char name[PROVIDER_NAME_MAX];
    char file[PATH_MAX]; // absolute
};
struct provider_list {
    int count;
    struct provider_entry entries[PROVIDERS_MAX];
};

// Adds the provider "NAME=FILE"; for a known name replaces the file. Returns false for any other
// text, and for more than PROVIDERS_MAX providers.
bool provider_list_add(struct provider_list *list, const char *text);

bool provider_list_has(const struct provider_list *list, const char *name);
bool provider_list_same(const struct provider_list *a, const struct provider_list *b);

// Puts the list into the environment variable CPATTN_PROVIDERS, which ranks inherit and read
// (rank/providers.h). Returns false if memory is short.
bool provider_list_export(const struct provider_list *list);

#endif
