// SPDX-License-Identifier: Apache-2.0
// Settings of the agent, from the options of its command.
#ifndef CPATTN_DAEMON_NODES_AGENT_SETTINGS_H
#define CPATTN_DAEMON_NODES_AGENT_SETTINGS_H

#include <limits.h>

#include "common/limits.h"
#include "common/net_url.h"
#include "common/status.h"
#include "daemon/settings/settings.h"

struct agent_settings {
    char daemon_text[NET_URL_TEXT_MAX];
    struct net_url daemon;
    char name[HOST_NAME_BYTES];
    char token_file[PATH_MAX];
    char tls_ca[PATH_MAX], tls_certificate[PATH_MAX], tls_key[PATH_MAX]; // "": not given
    char mesh_address[64]; // "": the address that the daemon sees
    int mesh_port;         // 0: any
    struct settings host;  // the settings of a daemon for its own host: backend, devices, ranks
};

// Parses the command line. Handles --help and --version. Like argp, ends the process with status 64
// and a message if an option is wrong. INVALID_ARGUMENT, FAILED_PRECONDITION: an option is missing
// or cannot be used.
enum status agent_settings_read(struct agent_settings *settings, int argc, char **argv,
                                struct error *error) MUST_CHECK;

#endif
