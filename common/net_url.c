// SPDX-License-Identifier: Apache-2.0
#include "common/net_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Advances *text past `beginning`. False, and no change, if *text does not begin with it.
static bool taken(const char **text, const char *beginning)
{
    size_t length = strlen(beginning);
    bool fits = strncmp(*text, beginning, length) == 0;
    *text += fits ? length : 0;
    return fits;
}

// Reads "NAME" or "[ADDRESS]" and advances *text past it.
static bool host_take(const char **text, char host[NET_URL_HOST_MAX])
{
    bool bracket = taken(text, "[");
    size_t length = strcspn(*text, bracket ? "]" : ":");
    if (length == 0 || length >= NET_URL_HOST_MAX || strcspn(*text, "/@ []%?#") < length)
        return false;
    memcpy(host, *text, length);
    host[length] = '\0';
    *text += length;
    return !bracket || taken(text, "]");
}

bool net_url_parse(const char *text, struct net_url *url)
{
    struct net_url read = {.tls = taken(&text, "tls+")};
    if (!taken(&text, "tcp://") || !host_take(&text, read.host) || !taken(&text, ":"))
        return false;
    size_t digits = strspn(text, "0123456789");
    int port = digits > 0 && digits <= 5 && !text[digits] ? atoi(text) : 0;
    if (port < 1 || port > 65535)
        return false;
    snprintf(read.port, sizeof(read.port), "%d", port);
    *url = read;
    return true;
}

bool net_url_is_meant(const char *text)
{
    return strstr(text, "://") != NULL;
}
