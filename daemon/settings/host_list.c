// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/host_list.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/settings/values.h"

bool host_name_ok(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < HOST_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
               length;
}

static bool entry_add(struct host_list *list, char *entry)
{
    char *equals = strchr(entry, '=');
    int64_t devices;
    if (!equals || list->count == OTHER_HOSTS_MAX ||
        !integer_parse(equals + 1, 1, DEVICES_MAX, &devices))
        return false;
    *equals = '\0';
    if (!host_name_ok(entry))
        return false;
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->list[i].name, entry) == 0)
            return false;
    strcpy(list->list[list->count].name, entry);
    list->list[list->count++].device_count = (int)devices;
    return true;
}

bool host_list_parse(const char *text, struct host_list *list)
{
    struct host_list read = {0};
    char *copy = strdup(text), *rest = copy;
    bool good = copy != NULL;
    while (good && rest)
        good = entry_add(&read, strsep(&rest, ","));
    free(copy);
    if (good)
        *list = read;
    return good;
}

bool host_list_same(const struct host_list *a, const struct host_list *b)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++)
        same = strcmp(a->list[i].name, b->list[i].name) == 0 &&
               a->list[i].device_count == b->list[i].device_count;
    return same;
}

bool agents_listen_parse(struct hosts_config *hosts, const char *text)
{
    struct net_url url;
    if (strlen(text) >= sizeof(hosts->listen_text) || !net_url_parse(text, &url))
        return false;
    strcpy(hosts->listen_text, text);
    hosts->listen = url;
    return true;
}

enum status hosts_check(const struct hosts_config *h, bool providers, struct error *error)
{
    bool some = h->others.count > 0;
    if (some && !h->listen_text[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "hosts: name the address that their agents reach with agents-listen");
    if (some && !h->token_file[0])
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "hosts: everyone who reaches %s could be an agent; name the file with "
                         "their token with agents-token-file",
                         h->listen_text);
    if (some && providers)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "hosts: a daemon with further hosts cannot have providers, because ranks "
                         "on those have no way to get them; remove provider or hosts");
    if (!some && (h->listen_text[0] || h->token_file[0] || h->mesh_port != 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: there are agents only with hosts; name them with hosts",
                         h->listen_text[0]  ? "agents-listen"
                         : h->token_file[0] ? "agents-token-file"
                                            : "mesh-port");
    return STATUS_OK;
}
