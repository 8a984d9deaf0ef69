// SPDX-License-Identifier: Apache-2.0
// Settings for ranks on other hosts: the hosts, and the address for their agents.
#ifndef CPATTN_DAEMON_SETTINGS_HOST_LIST_H
#define CPATTN_DAEMON_SETTINGS_HOST_LIST_H

#include <limits.h>
#include <stdbool.h>

#include "common/limits.h"
#include "common/net_url.h"
#include "common/status.h"

#define OTHER_HOSTS_MAX (HOSTS_MAX - 1)

struct host_list {
    int count; // 0..OTHER_HOSTS_MAX
    struct {
        char name[HOST_NAME_BYTES];
        int device_count; // 1..DEVICES_MAX
    } list[OTHER_HOSTS_MAX];
};

struct hosts_config {
    struct host_list others;
    char listen_text[NET_URL_TEXT_MAX]; // where agents connect; "": nowhere
    struct net_url listen;
    char token_file[PATH_MAX]; // "": not given
    int mesh_port;             // 0: any free port
};

// Parses "node2=8,node3=8": names of letters, digits, -, _ and ., each once, with the number of
// their devices. False: the text is not such a list; nothing is changed.
bool host_list_parse(const char *text, struct host_list *list);
bool host_list_same(const struct host_list *a, const struct host_list *b);

// True if the name is valid in such a list.
bool host_name_ok(const char *name);

// Parses an address in NET_URL_SYNTAX. False: the text is not one; nothing is changed.
bool agents_listen_parse(struct hosts_config *hosts, const char *text);

// Checks the combination of settings; INVALID_ARGUMENT names the setting that is missing or not
// possible. `providers`: the settings have providers.
enum status hosts_check(const struct hosts_config *hosts, bool providers,
                        struct error *error) MUST_CHECK;

#endif
