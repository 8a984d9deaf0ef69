// SPDX-License-Identifier: Apache-2.0
// Settings for network clients: the address, and how clients authenticate.
#ifndef CPATTN_DAEMON_SETTINGS_LISTEN_H
#define CPATTN_DAEMON_SETTINGS_LISTEN_H

#include <limits.h>
#include <stdbool.h>

#include "common/net_url.h"
#include "common/status.h"
#include "daemon/settings/subject_list.h"

struct listen_config {
    char text[NET_URL_TEXT_MAX]; // as given; "": nowhere
    struct net_url url;
    // Paths; "": not given.
    char token_file[PATH_MAX];
    char tls_certificate[PATH_MAX], tls_key[PATH_MAX], tls_clients[PATH_MAX];
    bool tls_13;                  // TLS 1.3 only
    struct subject_list subjects; // subjects that are served; empty: all
};

// Parses the URL to listen on. Returns false and changes nothing if the text is not a URL.
bool listen_parse(struct listen_config *listen, const char *text);

// Checks the combination of settings: network clients must authenticate. INVALID_ARGUMENT names the
// missing setting. `agents`: the URL of agents-listen if it has TLS, which uses the same
// certificate; else NULL.
enum status listen_check(const struct listen_config *listen, const char *agents,
                         struct error *error) MUST_CHECK;

#endif
