// SPDX-License-Identifier: Apache-2.0
#include "daemon/app_hosts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

static void own_name(char name[HOST_NAME_BYTES])
{
    if (gethostname(name, HOST_NAME_BYTES - 1) != 0 || !host_name_ok(name))
        snprintf(name, HOST_NAME_BYTES, "daemon");
    name[HOST_NAME_BYTES - 1] = '\0';
}

void app_hosts_list(const struct settings *settings, const struct backend *backend,
                    struct service_config *service)
{
    const struct host_list *others = &settings->hosts.others;
    service->host_count = 1 + others->count;
    own_name(service->hosts[0].name);
    service->hosts[0].device_count = backend->device_count;
    for (int i = 0; i < others->count; i++) {
        struct service_host *host = &service->hosts[1 + i];
        memcpy(host->name, others->list[i].name, sizeof(host->name));
        host->device_count = others->list[i].device_count;
    }
}

static void on_lost(void *context, int host, const struct error *error)
{
    (void)error;
    service_host_lost(context, host);
}

static void on_back(void *context, int host)
{
    service_host_back(context, host);
}

static bool is_numeric(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

// Settings of the port for agents: its own address and token file, the daemon's certificate. The
// caller frees them; NULL: memory is short.
static struct listen_config *listen_of(const struct settings *settings)
{
    struct listen_config *listen = calloc(1, sizeof(*listen));
    if (!listen)
        return NULL;
    *listen = settings->listen;
    memcpy(listen->text, settings->hosts.listen_text, sizeof(listen->text));
    memcpy(listen->token_file, settings->hosts.token_file, sizeof(listen->token_file));
    listen->url = settings->hosts.listen;
    return listen;
}

enum status app_hosts_reread(const struct app_hosts *h, const struct settings *settings,
                             struct port *read, struct error *error)
{
    *read = (struct port){.fd = -1};
    if (!h->nodes)
        return STATUS_OK;
    struct listen_config *listen = listen_of(settings);
    enum status status =
        listen ? port_reread(listen, read, error)
               : error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for other hosts");
    free(listen);
    return status;
}

void app_hosts_renew(struct app_hosts *h, struct port *read)
{
    port_renew(&h->port, read);
    if (h->nodes)
        nodes_set_access(h->nodes, &h->port.token, h->port.tls);
}

enum status app_hosts_open(struct app_hosts *h, struct ev_loop *loop,
                           const struct settings *settings, const struct backend *backend,
                           struct service *service, struct error *error)
{
    const struct hosts_config *c = &settings->hosts;
    if (c->others.count == 0)
        return STATUS_OK;
    struct listen_config *listen = listen_of(settings);
    struct service_config *list = calloc(1, sizeof(*list));
    struct nodes_config *config = calloc(1, sizeof(*config));
    enum status status = STATUS_OK;
    if (!listen || !list || !config)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for other hosts");
    if (status == STATUS_OK)
        status = port_open(listen, &h->port, error);
    if (status == STATUS_OK) {
        app_hosts_list(settings, backend, list);
        config->count = list->host_count;
        for (int i = 0; i < list->host_count; i++) {
            memcpy(config->hosts[i].name, list->hosts[i].name, sizeof(config->hosts[i].name));
            config->hosts[i].device_count = list->hosts[i].device_count;
        }
        config->backend = backend->name;
        config->fd = h->port.fd;
        config->token = h->port.token;
        config->tls = h->port.tls;
        config->mesh_address = is_numeric(c->listen.host) ? c->listen.host : NULL;
        config->mesh_port = c->mesh_port;
        const struct nodes_handler handler = {service, on_lost, on_back};
        status = nodes_create(loop, config, &handler, &h->nodes, error);
        token_wipe(&config->token);
    }
    if (status == STATUS_OK) {
        nodes_join(h->nodes, service_crews(service));
        log_notice("agents url=%s hosts=%d tls=%s", c->listen_text, c->others.count,
                   h->port.tls ? "yes" : "no");
    }
    free(listen);
    free(list);
    free(config);
    return status;
}

void app_hosts_fini(struct app_hosts *h)
{
    nodes_destroy(h->nodes);
    port_fini(&h->port);
    h->nodes = NULL;
}
