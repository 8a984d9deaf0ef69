// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/shell.h"

#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/log.h"
#include "config.h"
#include "daemon/io/clock.h"
#include "daemon/io/host.h"
#include "daemon/io/notify.h"
#include "daemon/io/probe.h"
#include "daemon/io/server.h"
#include "daemon/io/service.h"

#define TICK_NS         (100 * NS_PER_MS)
#define TICKS_PROBE     5 // between probes
#define TICKS_SURVEY    10
#define LAG_STARVE_NS   (50 * NS_PER_MS)
#define LAG_WARN_NS     (250 * NS_PER_MS)
// Together with the stop below, less than the 30 s that service managers wait before they kill.
#define DRAIN_MAX_NS    (27 * NS_PER_S)
// After a stop the ranks have had SIGKILL; who is still there then cannot be helped.
#define STOP_MAX_NS     (2 * NS_PER_S)
// How long a reply may need from "sent" to written; see server_last_reply_ns().
#define LINGER_NS       (200 * NS_PER_MS)
// Descriptors beside clients and ranks: logs, epoll, listeners, the library's own.
#define DESCRIPTORS_OWN 128

enum { EXIT_RESTART = 75 };

struct shell {
    struct ev_loop *loop;
    struct config config;
    struct notify notify;
    struct probe probe;
    struct server *server;
    struct service *service;
    ev_timer tick, linger;
    ev_signal term, interrupt, hangup;
    uint64_t ticks, ticked_ns;
    bool starved;               // a tick since the last probe came late
    uint64_t served_ns, fed_ns; // last probe that was answered, last word to the watchdog
    enum probe_result probe_last;
    bool ready;
    uint64_t drain_ns, stop_ns; // when these began; 0: not yet
    int exit_status;
};

// ---- the end -----------------------------------------------------------------------------------

static void on_linger(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)watcher;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

// Everything is answered and reaped. The last replies may still be on their way into the sockets.
static void on_drained(void *context)
{
    struct shell *s = context;
    uint64_t age_ns = clock_now_ns() - server_last_reply_ns(s->server);
    double wait = age_ns < LINGER_NS ? (double)(LINGER_NS - age_ns) / (double)NS_PER_S : 0.;
    ev_now_update(s->loop);
    ev_timer_set(&s->linger, wait, 0.);
    ev_timer_start(s->loop, &s->linger);
}

static void drain(struct shell *s, const char *reason)
{
    if (s->drain_ns)
        return;
    s->drain_ns = clock_now_ns();
    log_notice("drain reason=%s", reason);
    notify_send(&s->notify, "STOPPING=1\nSTATUS=draining: %s", reason);
    service_drain(s->service);
}

static void stop(struct shell *s, const char *reason)
{
    if (s->stop_ns)
        return;
    s->stop_ns = clock_now_ns();
    log_warning("stop reason=%s", reason);
    s->exit_status = EXIT_FAILURE;
    service_stop(s->service);
}

static void drain_watch(struct shell *s, uint64_t now_ns)
{
    if (s->drain_ns && now_ns - s->drain_ns > DRAIN_MAX_NS)
        stop(s, "drain_timeout");
    if (s->stop_ns && now_ns - s->stop_ns > STOP_MAX_NS) {
        log_error("exit reason=ranks_cannot_be_killed");
        ev_break(s->loop, EVBREAK_ALL);
    }
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)loop;
    (void)events;
    struct shell *s = watcher->data;
    const char *name = sigabbrev_np(watcher->signum);
    if (s->drain_ns)
        stop(s, name);
    else
        drain(s, name);
}

// ---- the probe ---------------------------------------------------------------------------------

static void on_served(struct shell *s)
{
    s->served_ns = clock_now_ns();
    if (s->ready)
        return;
    s->ready = true;
    log_notice("ready socket=%s devices=%d version=%s", s->config.socket, s->config.devices,
               PACKAGE_VERSION);
    notify_send(&s->notify, "READY=1\nSTATUS=serving on %s", s->config.socket);
}

static void on_unserved(struct shell *s)
{
    struct error error;
    if (server_reopen(s->server, &error) == STATUS_OK) {
        log_warning("listener_dead action=listened_anew socket=%s", s->config.socket);
        return;
    }
    log_error("listener_dead error=%s", log_quote(&(struct log_quoted){0}, error.text));
    s->exit_status = EXIT_RESTART;
    drain(s, "listener_dead");
}

static unsigned let_in(void *context)
{
    const struct shell *s = context;
    return server_own_connections(s->server);
}

static void on_probe(void *context, enum probe_result result)
{
    struct shell *s = context;
    if (result == PROBE_SERVED)
        on_served(s);
    else if (result == PROBE_UNSERVED)
        on_unserved(s);
    else if (result != s->probe_last)
        log_warning("probe result=%s", result == PROBE_UNABLE ? "no_descriptor" : "unanswered");
    s->probe_last = result;
}

static enum status probe_prepare(struct shell *s, struct error *error)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_STATUS};
    void *data;
    size_t size;
    if (getrandom(request.id.bytes, sizeof(request.id.bytes), 0) < 0)
        return error_set(error, STATUS_UNAVAILABLE, "the kernel gives no random bytes");
    enum status status = wire_encode_request(&request, &data, &size, error);
    if (status != STATUS_OK)
        return status;
    const struct probe_handler handler = {s, let_in, on_probe};
    status = probe_init(&s->probe, s->loop, s->config.socket, data, size, &handler, error);
    free(data);
    return status;
}

// ---- time --------------------------------------------------------------------------------------

// Fed by the loop, and only while clients are served: a watchdog that a thread feeds proves
// nothing.
static void watchdog_feed(struct shell *s, uint64_t now_ns)
{
    if (s->notify.watchdog_ns == 0 || now_ns - s->fed_ns < s->notify.watchdog_ns / 4 ||
        now_ns - s->served_ns > s->notify.watchdog_ns)
        return;
    s->fed_ns = now_ns;
    notify_send(&s->notify, "WATCHDOG=1");
}

// On a machine that starves us, what looks like a dead connection may be a slow one.
static void probe_again(struct shell *s)
{
    probe_start(&s->probe);
    if (!s->starved)
        server_sweep(s->server);
    s->starved = false;
}

static void survey(struct shell *s)
{
    int queued, running, pools;
    service_tick(s->service);
    service_counts(s->service, &queued, &running, &pools);
    if (!s->drain_ns && s->ready)
        notify_send(&s->notify, "STATUS=%d pools up, %d cases running, %d queued", pools, running,
                    queued);
}

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct shell *s = watcher->data;
    uint64_t now_ns = clock_now_ns(), gap_ns = now_ns - s->ticked_ns;
    if (gap_ns > TICK_NS + LAG_WARN_NS)
        log_warning("loop_lag ms=%" PRIu64, (gap_ns - TICK_NS) / NS_PER_MS);
    if (gap_ns > TICK_NS + LAG_STARVE_NS)
        s->starved = true;
    s->ticked_ns = now_ns;
    if (s->ticks % TICKS_PROBE == 0)
        probe_again(s);
    if (s->ticks % TICKS_SURVEY == 0)
        survey(s);
    s->ticks++;
    server_tick(s->server, now_ns);
    watchdog_feed(s, now_ns);
    drain_watch(s, now_ns);
}

// ---- life --------------------------------------------------------------------------------------

static void signal_watch(struct shell *s, ev_signal *watcher, int number)
{
    ev_signal_init(watcher, on_signal, number);
    watcher->data = s;
    ev_signal_start(s->loop, watcher);
}

static void watchers_start(struct shell *s)
{
    struct sigaction hangup;
    ev_timer_init(&s->tick, on_tick, 0., (double)TICK_NS / NS_PER_S);
    ev_init(&s->linger, on_linger);
    s->tick.data = s->linger.data = s;
    s->ticked_ns = s->served_ns = clock_now_ns();
    ev_timer_start(s->loop, &s->tick);
    signal_watch(s, &s->term, SIGTERM);
    signal_watch(s, &s->interrupt, SIGINT);
    // Who starts the daemon with nohup wants it to outlive the terminal.
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        signal_watch(s, &s->hangup, SIGHUP);
}

static int clients_max(int descriptors)
{
    int share = (descriptors - DESCRIPTORS_OWN) / 4;
    return share > CLIENTS_MAX ? CLIENTS_MAX : share < 1 ? 1 : share;
}

static enum status parts_create(struct shell *s, int descriptors, struct error *error)
{
    const struct config *c = &s->config;
    int clients = clients_max(descriptors);
    struct service_config service = {
        .rank_program = c->rank_program,
        .idle_timeout_ns = c->idle_timeout_ns,
        .descriptors_max = descriptors - DESCRIPTORS_OWN - clients,
        .description = {.version = PACKAGE_VERSION,
                        .devices = c->devices,
                        .world_size_max = WORLD_SIZE_MAX,
                        .memory_bytes_max = c->memory_bytes,
                        .timeout_default_ns = TIMEOUT_DEFAULT_NS,
                        .timeout_max_ns = TIMEOUT_MAX_NS,
                        .queue_max = c->queue_max},
    };
    snprintf(service.description.backend, sizeof(service.description.backend), "%s", c->backend);
    enum status status = service_create(s->loop, &service, on_drained, s, &s->service, error);
    if (status != STATUS_OK)
        return status;
    const struct server_config server = {c->socket, c->queue_max, clients};
    const struct server_handler handler = service_handler(s->service);
    status = server_create(s->loop, &server, &handler, &s->server, error);
    return status == STATUS_OK ? probe_prepare(s, error) : status;
}

enum status shell_create(const struct config *config, struct shell **shell, struct error *error)
{
    int descriptors = host_prepare_process();
    struct shell *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the daemon");
    s->config = *config;
    if (s->config.devices == 0)
        s->config.devices = host_cores();
    if (s->config.memory_bytes == 0)
        s->config.memory_bytes = host_memory_available() / 2;
    notify_init(&s->notify);
    s->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    enum status status = s->loop ? parts_create(s, descriptors, error)
                                 : error_set(error, STATUS_UNAVAILABLE, "no event loop");
    if (status != STATUS_OK) {
        shell_destroy(s);
        return status;
    }
    watchers_start(s);
    *shell = s;
    return STATUS_OK;
}

int shell_run(struct shell *s)
{
    ev_run(s->loop, 0);
    log_notice("exit status=%d", s->exit_status);
    return s->exit_status;
}

void shell_destroy(struct shell *s)
{
    if (!s)
        return;
    probe_fini(&s->probe);
    server_destroy(s->server);
    service_destroy(s->service);
    notify_fini(&s->notify);
    if (s->loop)
        ev_loop_destroy(s->loop);
    free(s);
}
