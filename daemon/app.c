// SPDX-License-Identifier: Apache-2.0
#include "daemon/app.h"

#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/plural.h"
#include "config.h"
#include "daemon/app_hosts.h"
#include "daemon/machine/backend.h"
#include "daemon/machine/host.h"
#include "daemon/machine/providers.h"
#include "daemon/net/deposits.h"
#include "daemon/net/http.h"
#include "daemon/net/port.h"
#include "daemon/net/server.h"
#include "daemon/notify.h"
#include "daemon/reload.h"
#include "daemon/service/core_config.h"
#include "daemon/service/service.h"

#define TICK_NS              (100 * NS_PER_MS)
#define TICKS_SURVEY         10
#define LAG_WARN_NS          (250 * NS_PER_MS)
// Together with STOP_MAX_NS and the 2 s of crews_destroy() below 30 s, after which service managers
// kill.
#define DRAIN_MAX_NS         (25 * NS_PER_S)
// Time limit of a stop. The ranks have got SIGKILL; the daemon exits even if some are not reaped.
#define STOP_MAX_NS          (2 * NS_PER_S)
// Default start timeout of a pool, from its first process to its last READY. On the CPU a rank
// starts in milliseconds, many ranks on a loaded machine in some seconds. The first contact with
// the GPU driver of a large machine takes seconds.
#define START_TIMEOUT_CPU_NS (10 * NS_PER_S)
#define START_TIMEOUT_GPU_NS (30 * NS_PER_S)
// Time limit to load and open a provider, which may initialize a driver.
#define PROVIDER_LIMIT_MS    30000
// Open requests that are not queued cases, in addition to queue-max.
#define REQUESTS_SPARE       (256 + ATTACHED_MAX + WATCHERS_MAX)
// Descriptors in addition to those of clients and ranks: logs, epoll, the listening socket and its
// lock.
#define DESCRIPTORS_OWN      32

struct app {
    struct ev_loop *loop;
    struct settings config;
    struct backend backend;
    struct notify notify;
    struct port port;
    struct app_hosts hosts; // the other hosts
    struct server *server;
    struct service *service;
    struct deposits *deposits;
    struct http *http; // NULL: no metrics
    ev_timer tick;
    ev_signal term, interrupt, hangup;
    struct loop_lag lag;
    uint64_t ticks, ticked_ns, ticked_cpu_ns;
    uint64_t fed_ns;            // last message to the watchdog
    uint64_t drain_ns, stop_ns; // when drain and stop began; 0: not yet
    bool drained;
    int exit_status;
    struct reload *reload;
};

// ---- the end -----------------------------------------------------------------------------------

static void on_finished(void *context)
{
    struct app *s = context;
    ev_break(s->loop, EVBREAK_ALL);
}

// All cases are answered and all ranks reaped. Some replies may not be written yet.
static void on_drained(void *context)
{
    struct app *s = context;
    s->drained = true;
    server_finish(s->server, on_finished, s);
}

static void drain(struct app *s, const char *reason)
{
    if (s->drain_ns)
        return;
    s->drain_ns = clock_now_ns();
    log_notice("drain reason=%s", reason);
    notify_send(&s->notify, "STOPPING=1\nSTATUS=draining: %s", reason);
    service_drain(s->service);
}

static void stop(struct app *s, const char *reason)
{
    if (s->stop_ns)
        return;
    s->stop_ns = clock_now_ns();
    log_warning("stop reason=%s", reason);
    s->exit_status = EXIT_FAILURE;
    service_stop(s->service);
}

static void drain_watch(struct app *s, uint64_t now_ns)
{
    if (s->drain_ns && !s->drained && now_ns > s->drain_ns + DRAIN_MAX_NS)
        stop(s, "drain_timeout");
    if (s->stop_ns && now_ns > s->stop_ns + STOP_MAX_NS) {
        log_error("exit reason=%s", s->drained ? "replies_not_read" : "ranks_cannot_be_killed");
        ev_break(s->loop, EVBREAK_ALL);
    }
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)loop;
    (void)events;
    struct app *s = watcher->data;
    const char *name = sigabbrev_np(watcher->signum);
    if (s->drain_ns)
        stop(s, name);
    else
        drain(s, name);
}

// ---- settings ----------------------------------------------------------------------------------

// The default share of one user in a limit: half of it, rounded up.
static int half(int limit)
{
    return limit - limit / 2;
}

static struct service_limits limits_of(const struct app *s, const struct settings *c)
{
    int share = c->user_queue_max ? c->user_queue_max : half(c->queue_max);
    return (struct service_limits){
        .user_queue_max = share < c->queue_max ? share : c->queue_max,
        .user = {.running_max = c->user_running_max,
                 .time_ns = c->user_time_ns,
                 .window_ns = c->user_window_ns},
        .timeout_max_ns = c->timeout_max_ns,
        .allowed = c->allowed,
        .administrators = c->administrators,
        .subjects = c->listen.subjects,
        .token = s->port.token,
        .idle_timeout_ns = c->idle_timeout_ns,
        .memory_bytes_max = c->memory_bytes ? c->memory_bytes : s->backend.memory_bytes,
    };
}

// Warns if cases on the CPU are granted more memory than the machine has. The setting applies
// nevertheless; the kernel kills ranks when the memory is used up.
static void memory_look(const struct app *s, int64_t granted)
{
    int64_t most = host_memory_most();
    if (s->backend.gpu_count == 0 && s->config.hosts.others.count == 0 && granted > most)
        log_warning("memory granted_bytes=%" PRId64 " there_are_bytes=%" PRId64
                    " action=ranks_may_be_killed",
                    granted, most);
}

static void reload_refused(const struct app *s, const struct error *error)
{
    struct error told = {.status = error->status};
    log_error("reload error=%s action=kept_as_it_was",
              log_quote(&(struct log_quoted){0}, error->text));
    error_set(&told, error->status, "%s; the daemon keeps its settings", error->text);
    service_reloaded(s->service, &told, RELOAD_BEGUN);
}

// Reads the files of all ports again, and then applies them; ports whose addresses change keep
// what they have. A failure changes nothing.
static enum status ports_renew(struct app *s, const struct settings *config, struct error *error)
{
    struct port port = {.fd = -1}, agents = {.fd = -1};
    bool same_port = strcmp(s->config.listen.text, config->listen.text) == 0;
    bool same_agents = strcmp(s->config.hosts.listen_text, config->hosts.listen_text) == 0;
    enum status status = STATUS_OK;
    if (same_port)
        status = port_reread(&config->listen, &port, error);
    if (status == STATUS_OK && same_agents)
        status = app_hosts_reread(&s->hosts, config, &agents, error);
    if (status != STATUS_OK) {
        port_fini(&port);
        return status;
    }
    if (same_port)
        port_renew(&s->port, &port);
    if (same_agents)
        app_hosts_renew(&s->hosts, &agents);
    server_set_tls(s->server, s->port.tls);
    return STATUS_OK;
}

static void settings_apply(struct app *s, const struct settings *read)
{
    struct settings config = *read;
    struct error error;
    const char *names[SETTINGS_FIXED];
    int fixed = settings_fixed_differences(&s->config, &config, names);
    if (ports_renew(s, &config, &error) != STATUS_OK) {
        reload_refused(s, &error);
        return;
    }
    for (int i = 0; i < fixed; i++)
        log_warning("reload setting=%s action=left_until_restart", names[i]);
    config.queue_max = s->config.queue_max;
    const struct service_limits limits = limits_of(s, &config);
    service_limit(s->service, &limits);
    memory_look(s, limits.memory_bytes_max);
    log_notice("reloaded user_queue_max=%d user_running_max=%d user_device_time_ms=%" PRIu64
               " user_window_ms=%" PRIu64 " timeout_max_ms=%" PRIu64
               " users_allowed=%d subjects_allowed=%d administrators=%d idle_timeout_ms=%" PRIu64
               " memory_bytes=%" PRId64,
               limits.user_queue_max, limits.user.running_max, limits.user.time_ns / NS_PER_MS,
               limits.user.window_ns / NS_PER_MS, limits.timeout_max_ns / NS_PER_MS,
               limits.allowed.count, limits.subjects.count, limits.administrators.count,
               limits.idle_timeout_ns / NS_PER_MS, limits.memory_bytes_max);
    log_init(config.log_level);
    service_reloaded(s->service, NULL, fixed > 0 ? RELOAD_NEEDS_RESTART : RELOAD_APPLIED);
}

static void on_read(void *context, const struct settings *settings, const struct error *error)
{
    struct app *s = context;
    if (s->drain_ns)
        return;
    if (settings)
        settings_apply(s, settings);
    else
        reload_refused(s, error);
    notify_send(&s->notify, "READY=1");
}

// Begins a reload. The notification contains the monotonic time, which the service manager needs to
// order its messages.
static enum status reload_ordered(void *context, bool *follows, struct error *error)
{
    struct app *s = context;
    if (s->drain_ns)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the daemon is draining; its next start reads the settings");
    notify_send(&s->notify, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / 1000);
    *follows = reload_begin(s->reload, &s->config);
    return STATUS_OK;
}

static void on_hangup(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)loop;
    (void)events;
    struct error draining;
    bool follows;
    (void)reload_ordered(watcher->data, &follows, &draining);
}

// ---- time --------------------------------------------------------------------------------------

static void ready_tell(const struct app *s)
{
    if (s->port.fd >= 0)
        log_notice("listening url=%s token=%s tls=%s client_certificates=%s", s->config.listen.text,
                   s->port.token.text[0] ? "yes" : "no", s->port.tls ? "yes" : "no",
                   s->config.listen.tls_clients[0] ? "yes" : "no");
    if (s->http)
        log_notice("metrics url=http://%s/metrics", s->config.metrics.text);
    log_notice("ready socket=%s devices=%d version=%s",
               log_quote(&(struct log_quoted){0}, s->config.socket), s->backend.device_count,
               PACKAGE_VERSION);
    notify_send(&s->notify, "READY=1\nSTATUS=serving on %s", s->config.socket);
}

// The event loop feeds the watchdog of the service manager, which thus notices a blocked loop.
static void watchdog_feed(struct app *s, uint64_t now_ns)
{
    if (s->notify.watchdog_ns == 0 || now_ns < s->fed_ns + s->notify.watchdog_ns / 4)
        return;
    s->fed_ns = now_ns;
    notify_send(&s->notify, "WATCHDOG=1");
}

static void survey(struct app *s)
{
    int queued, running, pools;
    service_tick(s->service);
    service_counts(s->service, &queued, &running, &pools);
    if (!s->drain_ns)
        notify_send(&s->notify, "STATUS=%d pool%s up, %d case%s running, %d queued", pools,
                    plural(pools), running, plural(running), queued);
}

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct app *s = watcher->data;
    uint64_t now_ns = clock_now_ns(), gap_ns = now_ns - s->ticked_ns;
    uint64_t cpu_ns = clock_thread_cpu_ns();
    if (gap_ns > TICK_NS + LAG_WARN_NS)
        log_warning("loop_lag ms=%" PRIu64 " cpu_ms=%" PRIu64, (gap_ns - TICK_NS) / NS_PER_MS,
                    (cpu_ns - s->ticked_cpu_ns) / NS_PER_MS);
    s->ticked_ns = now_ns;
    s->ticked_cpu_ns = cpu_ns;
    if (s->ticks == 0)
        ready_tell(s);
    if (s->ticks % TICKS_SURVEY == 0)
        survey(s);
    s->ticks++;
    server_tick(s->server, now_ns);
    http_tick(s->http);
    watchdog_feed(s, now_ns);
    drain_watch(s, now_ns);
}

// ---- metrics -----------------------------------------------------------------------------------

static bool on_page(void *context, const char *path, struct http_page *page)
{
    struct app *s = context;
    if (strcmp(path, "/healthz") == 0) {
        page->text = strdup("ok\n");
        return true;
    }
    if (strcmp(path, "/metrics") == 0) {
        page->text = service_metrics(s->service);
        page->type = "text/plain; version=0.0.4; charset=utf-8";
        return true;
    }
    if (strcmp(path, "/readyz") != 0)
        return false;
    const char *obstacle = service_obstacle(s->service);
    if (asprintf(&page->text, "%s\n", obstacle ? obstacle : "ready") < 0)
        page->text = NULL;
    page->code = obstacle ? 503 : 200;
    return true;
}

static enum status metrics_serve(struct app *s, struct error *error)
{
    const struct http_handler handler = {s, on_page};
    if (!s->config.metrics.text[0])
        return STATUS_OK;
    return http_create(s->loop, &s->config.metrics, &handler, &s->http, error);
}

// ---- life --------------------------------------------------------------------------------------

static void signal_watch(struct app *s, ev_signal *watcher, int number,
                         void (*handler)(struct ev_loop *, ev_signal *, int))
{
    ev_signal_init(watcher, handler, number);
    watcher->data = s;
    ev_signal_start(s->loop, watcher);
}

static void watchers_start(struct app *s)
{
    struct sigaction hangup;
    ev_timer_init(&s->tick, on_tick, 0., (double)TICK_NS / NS_PER_S);
    s->tick.data = s;
    s->ticked_ns = clock_now_ns();
    s->ticked_cpu_ns = clock_thread_cpu_ns();
    ev_timer_start(s->loop, &s->tick);
    loop_lag_start(&s->lag, s->loop);
    signal_watch(s, &s->term, SIGTERM, on_signal);
    signal_watch(s, &s->interrupt, SIGINT, on_signal);
    // If SIGHUP is ignored, as under nohup, it stays ignored: the daemon must survive its terminal.
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        signal_watch(s, &s->hangup, SIGHUP, on_hangup);
}

static int clients_max(int descriptors)
{
    int share = (descriptors - DESCRIPTORS_OWN) / 4;
    return share > CLIENTS_MAX ? CLIENTS_MAX : share < 1 ? 1 : share;
}

static uint64_t start_timeout(const struct app *s)
{
    if (s->config.start_timeout_ns > 0)
        return s->config.start_timeout_ns;
    return s->backend.gpu_count > 0 ? START_TIMEOUT_GPU_NS : START_TIMEOUT_CPU_NS;
}

static int world_size_max(const struct service_config *service)
{
    int ranks = 0;
    for (int i = 0; i < service->host_count; i++)
        ranks += service->hosts[i].device_count * service->ranks_per_device;
    return ranks < WORLD_SIZE_MAX ? ranks : WORLD_SIZE_MAX;
}

// The speed of this host's devices and of those of the other hosts.
static struct device_rates rates_of(const struct service_config *service)
{
    struct device_rates rates = time_bounds_rates(&service->description, host_cores());
    for (int i = 1; i < service->host_count; i++)
        time_bounds_add_host(&rates, service->hosts[i].device_count);
    return rates;
}

static enum status parts_create(struct app *s, int descriptors, struct error *error)
{
    const struct settings *c = &s->config;
    const struct backend *b = &s->backend;
    int clients = clients_max(descriptors);
    const struct service_limits limits = limits_of(s, c);
    struct service_config service = {
        .rank_program = b->program,
        .guests = &c->guests,
        .confinement = b->confinement,
        .start_timeout_ns = start_timeout(s),
        .kill_timeout_ns = c->kill_timeout_ns,
        .lag = &s->lag,
        .ranks_per_device = b->ranks_per_device,
        .spares = b->spares,
        .idle_timeout_ns = c->idle_timeout_ns,
        .user_queue_max = limits.user_queue_max,
        .user = limits.user,
        .allowed = limits.allowed,
        .administrators = limits.administrators,
        .subjects = limits.subjects,
        .token = limits.token,
        .descriptors_max = descriptors - DESCRIPTORS_OWN - clients,
        .description = {.version = PACKAGE_VERSION,
                        .devices = b->device_count,
                        .gpu_count = b->gpu_count,
                        .memory_bytes_max = limits.memory_bytes_max,
                        .queue_max = c->queue_max},
    };
    memory_look(s, limits.memory_bytes_max);
    app_hosts_list(c, b, &service);
    service.description.world_size_max = world_size_max(&service);
    description_set_timeouts(&service.description, limits.timeout_max_ns);
    memcpy(service.description.backend, b->name, sizeof(b->name));
    memcpy(service.description.gpus, b->gpus, sizeof(b->gpus));
    enum status status =
        providers_try(&c->providers, b, PROVIDER_LIMIT_MS, &service.description, error);
    if (status != STATUS_OK)
        return status;
    service.description.guest_count = c->guests.count;
    for (int i = 0; i < c->guests.count; i++) {
        struct wire_guest *guest = &service.description.guests[i];
        memcpy(guest->name, c->guests.list[i].name, sizeof(guest->name));
        guest->world_sizes = c->guests.list[i].world_sizes;
        memcpy(guest->supports, c->guests.list[i].supports, sizeof(guest->supports));
    }
    service.rates = rates_of(&service);
    status = service_create(s->loop, &service, on_drained, s, &s->service, error);
    if (status != STATUS_OK)
        return status;
    status = app_hosts_open(&s->hosts, s->loop, c, b, s->service, error);
    if (status != STATUS_OK)
        return status;
    const struct server_port port = {s->port.fd, s->port.tls};
    const struct server_config server = {.path = c->socket,
                                         .requests_max = c->queue_max + REQUESTS_SPARE,
                                         .clients_max = clients,
                                         .user_clients_max = half(clients),
                                         .client_timeout_ns = c->client_timeout_ns,
                                         .port = s->port.fd >= 0 ? &port : NULL};
    service_on_reload(s->service, reload_ordered);
    const struct server_handler handler = service_handler(s->service);
    status = server_create(s->loop, &server, &handler, &s->server, error);
    if (status != STATUS_OK)
        return status;
    const struct deposits_handler deposits = {s->service, service_check_peer};
    status = deposits_create(s->loop, c->socket, descriptors, &deposits, &s->deposits, error);
    service_set_deposits(s->service, s->deposits);
    return status == STATUS_OK ? metrics_serve(s, error) : status;
}

enum status app_create(const struct settings *config, struct app **app, struct error *error)
{
    int descriptors;
    if (host_prepare_process(&descriptors, error) != STATUS_OK)
        return error->status;
    struct app *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the daemon");
    s->config = *config;
    s->port.fd = s->hosts.port.fd = -1;
    notify_init(&s->notify);
    s->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    enum status status = STATUS_OK;
    if (!s->loop)
        status = error_set(error, STATUS_UNAVAILABLE, "no event loop");
    else if (!provider_list_export(&s->config.providers))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the daemon");
    if (status == STATUS_OK)
        status = backend_choose(&s->config, &s->backend, error);
    if (status == STATUS_OK)
        status = port_open(&s->config.listen, &s->port, error);
    if (status == STATUS_OK)
        status = reload_create(s->loop, on_read, s, &s->reload, error);
    if (status == STATUS_OK)
        status = parts_create(s, descriptors, error);
    if (status != STATUS_OK) {
        app_destroy(s);
        return status;
    }
    watchers_start(s);
    *app = s;
    return STATUS_OK;
}

int app_run(struct app *app)
{
    ev_run(app->loop, 0);
    log_notice("exit status=%d", app->exit_status);
    return app->exit_status;
}

void app_destroy(struct app *app)
{
    if (!app)
        return;
    reload_destroy(app->reload);
    http_destroy(app->http);
    deposits_destroy(app->deposits);
    server_destroy(app->server);
    service_destroy(app->service);
    app_hosts_fini(&app->hosts);
    port_fini(&app->port);
    notify_fini(&app->notify);
    if (app->loop)
        ev_loop_destroy(app->loop);
    free(app);
}
