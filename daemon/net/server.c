// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/list.h"
#include "common/log.h"
#include "daemon/net/accept.h"
#include "daemon/net/listener.h"
#include "daemon/net/log_quota.h"
#include "daemon/net/peer.h"
#include "daemon/net/shakes.h"
#include "daemon/net/subjects.h"
#include "daemon/net/turns.h"

// Upper bounds of the requests delivered in a round of the loop and in a turn of one connection. A
// request takes about ten microseconds. The third bounds the connections accepted in a round.
#define ROUND_REQUESTS 64
#define TURN_REQUESTS  8
#define ROUND_ACCEPTS  64
// Pause of accepting when the system has no descriptor or memory left. New clients wait in the
// kernel's queue.
#define ACCEPT_PAUSE_S 0.25
// If the previous tick is longer ago, this tick closes no connection for a time limit: the daemon
// itself has not run.
#define TICK_LATE_NS   NS_PER_S
// How long a connection with CONNECTION_STRIKES_MAX refusals stays open after the last one.
#define STRUCK_STAY_NS (200 * NS_PER_MS)
// Upper bound of log lines per second about clients, so that hostile clients cannot flood the log.
#define LOG_LINES_MAX  10

struct exchange {
    struct list link; // on the connection's or the server's list
    struct server *server;
    struct connection *connection; // NULL: it is closed
    uint8_t header_bytes;
    uint8_t header[FRAME_HEADER_MAX];
};

struct server {
    struct ev_loop *loop;
    struct server_handler handler;
    struct listener listener;
    struct tls *tls; // for future network connections; NULL: no TLS
    struct subjects subjects;
    int requests_max, clients_max, user_clients_max;
    uint64_t client_timeout_ns;
    ev_io accepting, port_accepting; // unix socket and network port; fd -1: no port
    ev_timer accept_again;
    ev_check round; // runs after all other watchers of a round of the loop
    ev_idle awake;  // keeps the loop running while a connection waits for a turn
    struct list connections;
    struct turns turns;
    struct shakes shakes;
    struct list orphans; // exchanges whose connection is closed
    int connection_count;
    uint32_t last_client;
    int held;         // exchanges that are not ended
    size_t out_total; // memory of unwritten replies of all connections
    uint64_t ticked_ns;
    struct log_quota lines;          // log lines about connections
    void (*finished)(void *context); // NULL: not set, or already called
    void *finished_context;
    bool finishing;
};

// ---- turns -------------------------------------------------------------------------------------

static void turn_ask(struct server *s, struct connection *c)
{
    enum turn_class class = !peer_is_remote(&c->peer) ? TURN_UNIX
                            : c->secured              ? TURN_NETWORK
                                                      : TURN_HANDSHAKE;
    if (list_empty(&c->turn))
        turns_ask(&s->turns, class, peer_key(&c->peer), &c->turn);
}

// True if the connection has too many refusals for its token; it is not read any more.
static bool connection_is_out(const struct connection *c)
{
    return c->strikes >= CONNECTION_STRIKES_MAX;
}

// True if the connection may be read. A connection that is ending is read even at its limits, so
// that its end is noticed.
static bool connection_may_ask(const struct server *s, const struct connection *c)
{
    bool within = s->held < s->requests_max && c->held < CONNECTION_REQUESTS_MAX &&
                  c->out_bytes < CONNECTION_OUT_PAUSE;
    return !s->finishing && !connection_is_out(c) && (within || c->ended || c->hung_up);
}

static void connection_pause(struct connection *c)
{
    c->paused = true;
    ev_io_stop(c->loop, &c->readable);
}

static void connection_resume(struct server *s, struct connection *c)
{
    if (!c->paused)
        return;
    c->paused = false;
    c->in_ns = clock_now_ns();
    ev_io_start(s->loop, &c->readable);
    turn_ask(s, c);
    ev_idle_start(s->loop, &s->awake);
}

// Resumes reading a paused connection if its limits permit.
static void connection_eased(struct server *s, struct connection *c)
{
    if (c->paused && connection_may_ask(s, c))
        connection_resume(s, c);
}

// ---- exchanges ---------------------------------------------------------------------------------

static void exchange_end(struct exchange *x)
{
    struct server *s = x->server;
    struct connection *c = x->connection;
    bool full = s->held >= s->requests_max;
    list_remove(&x->link);
    s->held--;
    if (c) {
        c->held--;
        connection_eased(s, c);
    }
    free(x);
    if (!full)
        return;
    LIST_FOREACH (node, &s->connections)
        connection_eased(s, LIST_ENTRY(node, struct connection, all));
}

void server_drop(struct exchange *x)
{
    exchange_end(x);
}

// Breaks a connection, which frees its unwritten replies at once. Its next turn closes it and logs
// the fault.
static void connection_condemn(struct server *s, struct connection *c, const char *fault)
{
    connection_break(c);
    c->fault = fault;
    turn_ask(s, c);
    ev_idle_start(s->loop, &s->awake);
}

static void output_bound(struct server *s, struct connection *c)
{
    if (c->fault)
        connection_condemn(s, c, c->fault);
    if (c->out_bytes > CONNECTION_OUT_MAX)
        connection_condemn(s, c, "it does not read its replies");
    while (s->out_total > SERVER_OUT_MAX) {
        struct connection *most = c;
        LIST_FOREACH (node, &s->connections) {
            struct connection *other = LIST_ENTRY(node, struct connection, all);
            if (other->out_bytes > most->out_bytes)
                most = other;
        }
        connection_condemn(s, most, "it does not read its replies, and memory for them is short");
    }
}

void server_reply(struct exchange *x, const void *data, size_t size)
{
    struct connection *c = x->connection;
    if (c && !c->broken) {
        connection_send(c, x->header, x->header_bytes, data, size);
        output_bound(x->server, c);
    }
    exchange_end(x);
}

void server_strike(struct exchange *x)
{
    struct connection *c = x->connection;
    char who[PEER_TEXT_MAX];
    if (!c)
        return;
    c->strikes++;
    c->struck_ns = clock_now_ns();
    if (log_quota_take(&x->server->lines))
        log_warning("client_unauthenticated client=%u %s times=%d", c->peer.client,
                    peer_describe(&c->peer, who), c->strikes);
}

// Returns false if memory is short.
static bool exchange_begin(struct server *s, struct connection *c, const struct frame *frame)
{
    struct exchange *x = malloc(sizeof(*x));
    if (!x)
        return false;
    x->server = s;
    x->connection = c;
    x->header_bytes = (uint8_t)frame->header_bytes;
    memcpy(x->header, frame->header, frame->header_bytes);
    list_init(&x->link);
    list_push_back(&c->exchanges, &x->link);
    c->held++;
    s->held++;
    s->handler.request(s->handler.context, x, &c->peer, frame->body, frame->body_bytes);
    return true;
}

// ---- connections -------------------------------------------------------------------------------

static void finish_check(struct server *s)
{
    if (!s->finished || s->out_total > 0)
        return;
    void (*finished)(void *) = s->finished;
    s->finished = NULL;
    finished(s->finished_context);
}

// The handshake is over or given up. Resumes a connection whose handshake waits for the place.
static void handshake_end(struct server *s, struct connection *c)
{
    struct connection *next = shakes_end(&s->shakes, c);
    if (next)
        connection_resume(s, next);
}

static void connection_close(struct server *s, struct connection *c)
{
    const struct peer peer = c->peer;
    handshake_end(s, c);
    char who[PEER_TEXT_MAX];
    if (c->fault && log_quota_take(&s->lines))
        log_info("client_dropped client=%u %s reason=%s", peer.client, peer_describe(&peer, who),
                 log_quote(&(struct log_quoted){0}, c->fault));
    LIST_FOREACH (node, &c->exchanges) {
        list_remove(node);
        list_push_back(&s->orphans, node);
        LIST_ENTRY(node, struct exchange, link)->connection = NULL;
    }
    s->connection_count--;
    connection_destroy(c);
    s->handler.client_gone(s->handler.context, peer.client);
    finish_check(s);
}

// Counts the connections of the peer's user. For a network client without a certificate subject, or
// before its handshake, counts all network connections.
static int user_connections(const struct server *s, const struct peer *peer)
{
    int count = 0;
    LIST_FOREACH (node, &s->connections) {
        const struct peer *other = &LIST_ENTRY(node, struct connection, all)->peer;
        count += other->uid == peer->uid || (!peer_is_known(peer) && peer_is_remote(other));
    }
    return count;
}

// Call when the handshake is over. The subject of a client's certificate becomes its user, which
// may have half of the connections that all network clients may have together.
static void connection_name(struct server *s, struct connection *c)
{
    if (!c->peer.subject[0])
        return;
    c->peer.uid = subjects_uid(&s->subjects, c->peer.subject, PEER_REMOTE_UID);
    if (peer_is_known(&c->peer) && user_connections(s, &c->peer) > (s->user_clients_max + 1) / 2)
        c->fault = "the subject of its certificate has too many connections";
}

// Reads the next frame of a connection, and notices the end of its handshake.
static enum connection_input connection_take(struct server *s, struct connection *c,
                                             struct frame *frame)
{
    bool secured = c->secured;
    enum connection_input input = c->fault ? CONNECTION_OVER : connection_next(c, frame);
    if (!secured && c->secured)
        connection_name(s, c);
    return c->fault ? CONNECTION_OVER : input;
}

// Serves one turn. Returns the number of delivered requests.
static int connection_serve(struct server *s, struct connection *c)
{
    struct frame frame;
    for (int taken = 0; taken < TURN_REQUESTS; taken++) {
        if (!c->fault && !connection_may_ask(s, c)) {
            connection_pause(c);
            return taken;
        }
        enum connection_input input = connection_take(s, c, &frame);
        if (c->secured && c->shaking)
            handshake_end(s, c);
        if (input == CONNECTION_NOTHING)
            return taken;
        if (input == CONNECTION_FRAME && exchange_begin(s, c, &frame))
            continue;
        connection_close(s, c);
        return taken;
    }
    turn_ask(s, c);
    return TURN_REQUESTS;
}

static void on_round(struct ev_loop *loop, ev_check *watcher, int events)
{
    (void)events;
    struct server *s = watcher->data;
    int taken = 0;
    bool shaken = false;
    for (struct list *node; taken < ROUND_REQUESTS && (node = turns_next(&s->turns, !shaken));) {
        struct connection *c = LIST_ENTRY(node, struct connection, turn);
        if (!c->secured && !c->fault && !c->hung_up && !shakes_begin(&s->shakes, c)) {
            connection_pause(c);
            continue;
        }
        shaken = shaken || !c->secured;
        taken += 1 + connection_serve(s, c);
    }
    if (turns_empty(&s->turns))
        ev_idle_stop(loop, &s->awake);
    else
        ev_idle_start(loop, &s->awake);
}

static void on_awake(struct ev_loop *loop, ev_idle *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct connection *c = watcher->data;
    turn_ask(c->server, c);
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct connection *c = watcher->data;
    struct server *s = c->server;
    connection_flush(c);
    connection_eased(s, c);
    finish_check(s);
}

// ---- new connections ---------------------------------------------------------------------------

static uint32_t client_number(struct server *s)
{
    for (;;) {
        bool taken = ++s->last_client == 0;
        LIST_FOREACH (node, &s->connections)
            taken |= LIST_ENTRY(node, struct connection, all)->peer.client == s->last_client;
        if (!taken)
            return s->last_client;
    }
}

static void connection_add(struct server *s, int fd, const struct peer *peer)
{
    bool remote = peer_is_remote(peer);
    struct connection *c = connection_create(s->loop, fd, remote ? FRAMING_TCP : FRAMING_IPC,
                                             remote ? s->tls : NULL, &s->out_total);
    char who[PEER_TEXT_MAX];
    if (!c)
        return;
    c->server = s;
    c->peer = *peer;
    c->peer.client = client_number(s);
    log_debug("client_connected client=%u %s", c->peer.client, peer_describe(peer, who));
    list_push_back(&s->connections, &c->all);
    s->connection_count++;
    ev_io_init(&c->readable, on_readable, fd, EV_READ);
    ev_io_init(&c->writable, on_writable, fd, EV_WRITE);
    c->readable.data = c->writable.data = c;
    ev_io_start(s->loop, &c->readable);
    turn_ask(s, c);
}

static void connection_admit(struct server *s, int fd, const struct peer *peer)
{
    int of_user = user_connections(s, peer);
    char who[PEER_TEXT_MAX];
    if (s->connection_count < s->clients_max && of_user < s->user_clients_max) {
        connection_add(s, fd, peer);
        return;
    }
    if (log_quota_take(&s->lines))
        log_warning("client_refused %s connections=%d limit=%d of_user=%d limit=%d",
                    peer_describe(peer, who), s->connection_count, s->clients_max, of_user,
                    s->user_clients_max);
    close(fd);
}

static void accept_start(struct server *s)
{
    ev_io_start(s->loop, &s->accepting);
    if (s->port_accepting.fd >= 0)
        ev_io_start(s->loop, &s->port_accepting);
}

static void accept_stop(struct server *s)
{
    ev_io_stop(s->loop, &s->accepting);
    ev_io_stop(s->loop, &s->port_accepting);
}

static void accept_pause(struct server *s)
{
    if (log_quota_take(&s->lines))
        log_warning("accept error=\"%s\" connections=%d", strerror(errno), s->connection_count);
    accept_stop(s);
    ev_timer_set(&s->accept_again, ACCEPT_PAUSE_S, 0.);
    ev_timer_start(s->loop, &s->accept_again);
}

// Accepts one waiting connection. 0: accepted, or closed at once; -1 with errno: none was accepted.
static int connection_accept(struct server *s, bool remote)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    struct peer peer;
    int fd = accept4(remote ? s->port_accepting.fd : s->accepting.fd, (struct sockaddr *)&address,
                     &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    if (remote) {
        accept_options_set(fd);
        peer_remote(&address, &peer);
    } else if (!peer_local(fd, &peer)) {
        close(fd);
        return 0;
    }
    connection_admit(s, fd, &peer);
    return 0;
}

static void on_accepting(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct server *s = watcher->data;
    for (int i = 0; i < ROUND_ACCEPTS; i++) {
        if (connection_accept(s, watcher == &s->port_accepting) == 0)
            continue;
        if (errno == EAGAIN)
            return;
        if (!accept_error_is_theirs()) {
            accept_pause(s);
            return;
        }
    }
}

static void on_accept_again(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    accept_start(watcher->data);
}

// ---- life --------------------------------------------------------------------------------------

// True if a connection with too many refusals can be closed: STRUCK_STAY_NS after the last one,
// because some clients lose a reply if the connection ends right after it.
static bool connection_is_done(const struct connection *c, uint64_t now_ns)
{
    return connection_is_out(c) && list_empty(&c->out) && now_ns > c->struck_ns + STRUCK_STAY_NS;
}

void server_tick(struct server *s, uint64_t now_ns)
{
    bool late = now_ns > s->ticked_ns + TICK_LATE_NS;
    s->ticked_ns = now_ns;
    LIST_FOREACH (node, &s->connections) {
        struct connection *c = LIST_ENTRY(node, struct connection, all);
        if (c->paused && !s->finishing && connection_hung_up(c)) {
            c->hung_up = true;
            connection_resume(s, c);
        }
        const char *fault = late ? NULL : connection_overdue(c, now_ns, s->client_timeout_ns);
        if (connection_is_done(c, now_ns))
            fault = "it has not presented the token of this daemon";
        if (fault) {
            c->fault = fault;
            connection_close(s, c);
        }
    }
}

void server_finish(struct server *s, void (*done)(void *context), void *context)
{
    s->finishing = true;
    s->finished = done;
    s->finished_context = context;
    accept_stop(s);
    ev_timer_stop(s->loop, &s->accept_again);
    finish_check(s);
}

void server_set_tls(struct server *s, struct tls *tls)
{
    tls_release(s->tls);
    s->tls = tls ? tls_hold(tls) : NULL;
}

static void watchers_start(struct server *s, int port_fd)
{
    ev_io_init(&s->accepting, on_accepting, s->listener.fd, EV_READ);
    ev_io_init(&s->port_accepting, on_accepting, port_fd, EV_READ);
    ev_init(&s->accept_again, on_accept_again);
    ev_check_init(&s->round, on_round);
    ev_set_priority(&s->round, EV_MINPRI);
    ev_idle_init(&s->awake, on_awake);
    s->accepting.data = s->port_accepting.data = s->accept_again.data = s->round.data = s;
    accept_start(s);
    ev_check_start(s->loop, &s->round);
}

static void watchers_stop(struct server *s)
{
    accept_stop(s);
    ev_timer_stop(s->loop, &s->accept_again);
    ev_check_stop(s->loop, &s->round);
    ev_idle_stop(s->loop, &s->awake);
}

enum status server_create(struct ev_loop *loop, const struct server_config *config,
                          const struct server_handler *handler, struct server **server,
                          struct error *error)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the server");
    s->loop = loop;
    s->handler = *handler;
    s->requests_max = config->requests_max;
    s->clients_max = config->clients_max;
    s->user_clients_max = config->user_clients_max;
    s->client_timeout_ns = config->client_timeout_ns;
    s->ticked_ns = clock_now_ns();
    s->lines.lines_max = LOG_LINES_MAX;
    list_init(&s->connections);
    turns_init(&s->turns);
    shakes_init(&s->shakes);
    list_init(&s->orphans);
    enum status status = listener_init(&s->listener, config->path, error);
    if (status == STATUS_OK)
        status = listener_open(&s->listener, error);
    if (status != STATUS_OK) {
        server_destroy(s);
        return status;
    }
    if (config->port)
        server_set_tls(s, config->port->tls);
    watchers_start(s, config->port ? config->port->fd : -1);
    *server = s;
    return STATUS_OK;
}

static void exchanges_free(struct list *exchanges)
{
    for (struct list *node; (node = list_pop_front(exchanges));)
        free(LIST_ENTRY(node, struct exchange, link));
}

void server_destroy(struct server *s)
{
    if (!s)
        return;
    watchers_stop(s);
    for (struct list *node; (node = list_first(&s->connections));) {
        struct connection *c = LIST_ENTRY(node, struct connection, all);
        exchanges_free(&c->exchanges);
        connection_destroy(c);
    }
    exchanges_free(&s->orphans);
    listener_fini(&s->listener);
    tls_release(s->tls);
    subjects_fini(&s->subjects);
    free(s);
}
