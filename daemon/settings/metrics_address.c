// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/metrics_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/settings/values.h"

static bool host_read(const char *host, uint16_t port, struct metrics_address *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->socket;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->socket;
    if (strcmp(host, "[::1]") == 0) {
        *v6 = (struct sockaddr_in6){
            .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        address->length = sizeof(*v6);
        return true;
    }
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    address->length = sizeof(*v4);
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    return inet_pton(AF_INET, host, &v4->sin_addr) == 1 && ntohl(v4->sin_addr.s_addr) >> 24 == 127;
}

bool metrics_address_parse(struct metrics_address *address, const char *text)
{
    struct metrics_address read = {.length = 0};
    const char *colon = strrchr(text, ':');
    char host[sizeof(read.text)];
    int64_t port;
    if (!colon || strlen(text) >= sizeof(read.text) || !integer_parse(colon + 1, 1, 65535, &port))
        return false;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    snprintf(read.text, sizeof(read.text), "%s", text);
    if (!host_read(host, (uint16_t)port, &read))
        return false;
    *address = read;
    return true;
}
