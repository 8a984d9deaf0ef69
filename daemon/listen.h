// SPDX-License-Identifier: Apache-2.0
// What the settings say about clients over a network: where they come in, and how they show that
// they may.
#ifndef CPATTN_DAEMON_LISTEN_H
#define CPATTN_DAEMON_LISTEN_H

#include <limits.h>
#include <stdbool.h>

#include "common/status.h"

#define LISTEN_HOST_MAX 254 // a name of the longest kind, with its NUL
#define LISTEN_URL_MAX  (LISTEN_HOST_MAX + 24)

struct listen_config {
    char url[LISTEN_URL_MAX]; // as given; "": nowhere
    bool tls;
    char host[LISTEN_HOST_MAX]; // a name or an address, without brackets
    char port[8];               // "1".."65535"
    // Paths; "": not given.
    char token_file[PATH_MAX];
    char tls_certificate[PATH_MAX], tls_key[PATH_MAX], tls_clients[PATH_MAX];
};

#define LISTEN_SYNTAX                                                                              \
    "tcp://HOST:PORT or tls+tcp://HOST:PORT, with a port from 1 to 65535 and an IPv6 address in "  \
    "brackets"

// Reads a URL; false when the text is none, and nothing is changed then.
bool listen_parse(struct listen_config *listen, const char *text);

// Whether the settings fit together: nobody may come in who has shown nothing. INVALID_ARGUMENT
// with what is missing.
enum status listen_check(const struct listen_config *listen, struct error *error) MUST_CHECK;

#endif
