// SPDX-License-Identifier: Apache-2.0
// The other hosts of a daemon: listens for their agents and connects the agents to the service.
#ifndef CPATTN_DAEMON_APP_HOSTS_H
#define CPATTN_DAEMON_APP_HOSTS_H

#include <ev.h>

#include "daemon/machine/backend.h"
#include "daemon/net/port.h"
#include "daemon/nodes/nodes.h"
#include "daemon/service/service.h"
#include "daemon/settings/settings.h"

struct app_hosts {
    struct port port;    // of agents
    struct nodes *nodes; // NULL: there are no other hosts
};

// Fills in the hosts of `service`: this host first, then the others of the settings.
void app_hosts_list(const struct settings *settings, const struct backend *backend,
                    struct service_config *service);

// Listens for agents if the settings have other hosts. On failure app_hosts_fini() cleans up.
enum status app_hosts_open(struct app_hosts *h, struct ev_loop *loop,
                           const struct settings *settings, const struct backend *backend,
                           struct service *service, struct error *error) MUST_CHECK;

// port_reread() for the port of agents. Without other hosts reads nothing.
enum status app_hosts_reread(const struct app_hosts *h, const struct settings *settings,
                             struct port *read, struct error *error) MUST_CHECK;

// Applies the files of app_hosts_reread() to future connections of agents. `read` is then
// empty.
void app_hosts_renew(struct app_hosts *h, struct port *read);

// Call after the service is destroyed. Accepts a struct whose port has fd -1.
void app_hosts_fini(struct app_hosts *h);

#endif
