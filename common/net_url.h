// SPDX-License-Identifier: Apache-2.0
// Network addresses of a daemon: tcp://HOST:PORT, or tls+tcp://HOST:PORT.
#ifndef CPATTN_COMMON_NET_URL_H
#define CPATTN_COMMON_NET_URL_H

#include <stdbool.h>

#define NET_URL_HOST_MAX 254 // the longest DNS name, with its NUL
#define NET_URL_TEXT_MAX (NET_URL_HOST_MAX + 24)

struct net_url {
    bool tls;
    char host[NET_URL_HOST_MAX]; // a name or an address, without brackets
    char port[8];                // "1".."65535"
};

#define NET_URL_SYNTAX                                                                             \
    "tcp://HOST:PORT or tls+tcp://HOST:PORT, with a port from 1 to 65535 and an IPv6 address in "  \
    "brackets"

// Parses an address of less than NET_URL_TEXT_MAX characters. Returns false and changes nothing if
// the text is no such address.
bool net_url_parse(const char *text, struct net_url *url);

// True if the text is meant as an address, well formed or not: it contains "://", which no path
// needs.
bool net_url_is_meant(const char *text);

#endif
