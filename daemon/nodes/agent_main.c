// SPDX-License-Identifier: Apache-2.0
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/standard_fds.h"
#include "daemon/machine/host.h"
#include "daemon/net/tls.h"
#include "daemon/nodes/agent.h"
#include "daemon/nodes/agent_settings.h"

enum { EXIT_USAGE = 64 };

static int complain(const struct error *error, int status)
{
    fprintf(stderr, "cpattn-agent: %s\n", error->text);
    return status;
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)watcher;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static int serve(const struct agent_config *config, struct error *error)
{
    struct ev_loop *loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    ev_signal term, interrupt;
    struct agent *agent;
    if (!loop) {
        error_set(error, STATUS_UNAVAILABLE, "no event loop");
        return complain(error, EXIT_FAILURE);
    }
    if (agent_create(loop, config, &agent, error) != STATUS_OK) {
        ev_loop_destroy(loop);
        return complain(error, EXIT_FAILURE);
    }
    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_init(&interrupt, on_signal, SIGINT);
    ev_signal_start(loop, &term);
    ev_signal_start(loop, &interrupt);
    log_notice("ready host=%s daemon=%s devices=%d", config->name, config->daemon_text,
               config->backend->device_count);
    ev_run(loop, 0);
    agent_destroy(agent);
    ev_loop_destroy(loop);
    log_notice("exit status=%d", EXIT_SUCCESS);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct agent_settings settings;
    static struct backend backend;
    static struct agent_config config;
    struct error error;
    int descriptors;
    standard_fds_fill();
    if (agent_settings_read(&settings, argc, argv, &error) != STATUS_OK)
        return complain(&error, EXIT_USAGE);
    log_init(settings.host.log_level);
    if (host_prepare_process(&descriptors, &error) != STATUS_OK)
        return complain(&error, EXIT_FAILURE);
    config.daemon = settings.daemon;
    config.backend = &backend;
    config.mesh_address = settings.mesh_address[0] ? settings.mesh_address : NULL;
    config.mesh_port = settings.mesh_port;
    config.token_file = settings.token_file;
    config.tls_files =
        (struct tls_connect_files){settings.tls_ca, settings.tls_certificate, settings.tls_key};
    snprintf(config.daemon_text, sizeof(config.daemon_text), "%s", settings.daemon_text);
    snprintf(config.name, sizeof(config.name), "%s", settings.name);
    if (token_read(settings.token_file, &config.token, &error) != STATUS_OK ||
        (settings.daemon.tls &&
         tls_connect_create(&config.tls_files, &config.tls, &error) != STATUS_OK) ||
        backend_choose(&settings.host, &backend, &error) != STATUS_OK)
        return complain(&error, EXIT_FAILURE);
    int status = serve(&config, &error);
    tls_release(config.tls);
    return status;
}
