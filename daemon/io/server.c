// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/server.h"

#include <inttypes.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/transport/ipc/ipc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/list.h"
#include "common/log.h"
#include "daemon/io/clients.h"
#include "daemon/io/clock.h"
#include "daemon/io/listener.h"

// Contexts kept receiving beyond those that hold a request.
#define SPARE_CONTEXTS   16
// Contexts beyond `requests_max`: receiving, or busy with replies.
#define EXTRA_CONTEXTS   256
#define REPLY_TIMEOUT_MS 5000
// A reply that takes longer while contexts are rare costs its client the connection.
#define REPLY_SLOW_NS    (250 * NS_PER_MS)
// nng_close() of this age can hang; a process that ends must end.
#define CLOSE_TIMEOUT_S  5

enum exchange_state { EXCHANGE_RECEIVING, EXCHANGE_HELD, EXCHANGE_SENDING, EXCHANGE_CLOSED };

struct exchange {
    struct list done; // on server->done once its operation finished
    struct server *server;
    nng_ctx context;
    nng_aio *aio;
    enum exchange_state state;
    nng_pipe client;
    uint64_t sent_ns;
};

struct server {
    struct ev_loop *loop;
    struct server_handler handler;
    nng_socket socket;
    bool open;
    struct listener listener;
    struct clients clients;
    atomic_uint own_connections;
    ev_async wake;

    pthread_mutex_t lock; // of `done` alone; never held while calling nng
    struct list done;

    struct exchange **exchanges; // owned; never fewer than before
    int exchanges_count, exchanges_max;
    int receiving;
    uint64_t last_reply_ns;
};

// ---- on nng's threads --------------------------------------------------------------------------

static void on_finished(void *arg)
{
    struct exchange *x = arg;
    struct server *s = x->server;
    pthread_mutex_lock(&s->lock);
    list_push_back(&s->done, &x->done);
    pthread_mutex_unlock(&s->lock);
    ev_async_send(s->loop, &s->wake);
}

static bool pipe_is_own(nng_pipe pipe)
{
    uint64_t pid;
    return nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_PID, &pid) == 0 && pid == (uint64_t)getpid();
}

static void connected_log(nng_pipe pipe)
{
    uint64_t pid = 0, uid = 0;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_PID, &pid);
    nng_pipe_get_uint64(pipe, NNG_OPT_IPC_PEER_UID, &uid);
    log_debug("client_connected client=%d pid=%" PRIu64 " uid=%" PRIu64, nng_pipe_id(pipe), pid,
              uid);
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct server *s = arg;
    uint32_t id = (uint32_t)nng_pipe_id(pipe);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        bool own = pipe_is_own(pipe);
        if (own)
            atomic_fetch_add(&s->own_connections, 1);
        if (!clients_add(&s->clients, id, nng_listener_id(nng_pipe_listener(pipe)), own))
            nng_pipe_close(pipe);
        else if (!own)
            connected_log(pipe);
    } else if (clients_mark_gone(&s->clients, id)) {
        ev_async_send(s->loop, &s->wake);
    }
}

// ---- contexts ----------------------------------------------------------------------------------

static void exchange_receive(struct exchange *x)
{
    x->state = EXCHANGE_RECEIVING;
    x->server->receiving++;
    nng_aio_set_timeout(x->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(x->context, x->aio);
}

// What a finished operation leaves with us: a request that came, a reply that did not go.
static void message_free(struct exchange *x)
{
    bool failed = nng_aio_result(x->aio) != 0;
    if (!list_empty(&x->done) && failed == (x->state == EXCHANGE_SENDING))
        nng_msg_free(nng_aio_get_msg(x->aio));
}

// Its operation must have been stopped.
static void exchange_destroy(struct exchange *x)
{
    if (!x)
        return;
    if (x->aio)
        message_free(x);
    nng_aio_free(x->aio);
    free(x);
}

static struct exchange *exchange_create(struct server *s)
{
    struct exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->server = s;
    x->state = EXCHANGE_CLOSED;
    list_init(&x->done);
    if (nng_aio_alloc(&x->aio, on_finished, x) != 0 || nng_ctx_open(&x->context, s->socket) != 0) {
        exchange_destroy(x);
        return NULL;
    }
    return x;
}

// Opens contexts until enough receive; false when not a single one does.
static bool contexts_replenish(struct server *s)
{
    while (s->receiving < SPARE_CONTEXTS && s->exchanges_count < s->exchanges_max) {
        struct exchange *x = exchange_create(s);
        if (!x)
            break;
        s->exchanges[s->exchanges_count++] = x;
        exchange_receive(x);
    }
    return s->receiving > 0;
}

static void exchange_received(struct exchange *x)
{
    struct server *s = x->server;
    s->receiving--;
    int result = nng_aio_result(x->aio);
    if (result == NNG_ECLOSED) {
        x->state = EXCHANGE_CLOSED;
        return;
    }
    if (result != 0) {
        exchange_receive(x);
        return;
    }
    nng_msg *message = nng_aio_get_msg(x->aio);
    x->client = nng_msg_get_pipe(message);
    x->state = EXCHANGE_HELD;
    uint32_t client = (uint32_t)nng_pipe_id(x->client);
    contexts_replenish(s);
    if (clients_known(&s->clients, client))
        s->handler.request(s->handler.context, x, client, nng_msg_body(message),
                           nng_msg_len(message));
    else
        server_drop(x);
    nng_msg_free(message);
}

static void exchange_sent(struct exchange *x)
{
    if (nng_aio_result(x->aio) != 0)
        nng_msg_free(nng_aio_get_msg(x->aio));
    exchange_receive(x);
}

void server_drop(struct exchange *x)
{
    exchange_receive(x);
}

void server_reply(struct exchange *x, const void *data, size_t size)
{
    nng_msg *message;
    if (nng_msg_alloc(&message, 0) != 0) {
        server_drop(x);
        return;
    }
    if (nng_msg_append(message, data, size) != 0) {
        nng_msg_free(message);
        server_drop(x);
        return;
    }
    x->state = EXCHANGE_SENDING;
    x->sent_ns = x->server->last_reply_ns = clock_now_ns();
    nng_aio_set_timeout(x->aio, REPLY_TIMEOUT_MS);
    nng_aio_set_msg(x->aio, message);
    nng_ctx_send(x->context, x->aio);
}

// ---- the loop's side ---------------------------------------------------------------------------

static void batch_take(struct server *s, struct list *batch)
{
    list_init(batch);
    pthread_mutex_lock(&s->lock);
    if (!list_empty(&s->done)) {
        *batch = s->done;
        batch->next->prev = batch;
        batch->prev->next = batch;
        list_init(&s->done);
    }
    pthread_mutex_unlock(&s->lock);
}

// Sends coalesce, so each wake-up drains what is there; what comes meanwhile wakes the loop again,
// so that a flood of requests cannot keep it from its other work.
static void on_wake(struct ev_loop *loop, ev_async *watcher, int events)
{
    (void)loop;
    (void)events;
    struct server *s = watcher->data;
    struct list batch;
    batch_take(s, &batch);
    for (struct list *node; (node = list_pop_front(&batch));) {
        struct exchange *x = LIST_ENTRY(node, struct exchange, done);
        if (x->state == EXCHANGE_RECEIVING)
            exchange_received(x);
        else if (x->state == EXCHANGE_SENDING)
            exchange_sent(x);
    }
    // After the requests: a request of a connection that is gone already was dropped above, one
    // that came before its end is known to the handler now.
    for (uint32_t client; clients_take_gone(&s->clients, &client);)
        s->handler.client_gone(s->handler.context, client);
}

void server_tick(struct server *s, uint64_t now_ns)
{
    if (contexts_replenish(s))
        return;
    for (int i = 0; i < s->exchanges_count; i++) {
        struct exchange *x = s->exchanges[i];
        if (x->state == EXCHANGE_SENDING && now_ns > x->sent_ns + REPLY_SLOW_NS) {
            log_warning("client_slow client=%d", nng_pipe_id(x->client));
            nng_pipe_close(x->client);
            return;
        }
    }
}

unsigned server_own_connections(const struct server *s)
{
    return atomic_load(&s->own_connections);
}

static int clients_served(void *context, int listener)
{
    struct server *s = context;
    return clients_of_listener(&s->clients, listener);
}

enum status server_reopen(struct server *s, struct error *error)
{
    enum status status = listener_reopen(&s->listener, clients_count(&s->clients), error);
    if (status == STATUS_OK)
        listener_reclaim(&s->listener, clients_served, s);
    return status;
}

// A server that cannot receive leaves bytes unread itself.
void server_sweep(struct server *s)
{
    listener_reclaim(&s->listener, clients_served, s);
    if (s->listener.count <= 1 || s->receiving == 0)
        return;
    int disconnected = listener_sweep(&s->listener);
    if (disconnected > 0)
        log_warning("listener_orphans disconnected=%d", disconnected);
}

uint64_t server_last_reply_ns(const struct server *s)
{
    return s->last_reply_ns;
}

// ---- life --------------------------------------------------------------------------------------

static enum status socket_open(struct server *s, struct error *error)
{
    int result = nng_rep0_open(&s->socket);
    s->open = result == 0;
    // The library's own default is no limit: a peer could announce a message of any size.
    if (result == 0)
        result = nng_socket_set_size(s->socket, NNG_OPT_RECVMAXSZ, REQUEST_BYTES_MAX);
    for (int event = NNG_PIPE_EV_ADD_PRE; result == 0 && event < NNG_PIPE_EV_NUM; event++) {
        if (event != NNG_PIPE_EV_ADD_POST)
            result = nng_pipe_notify(s->socket, (nng_pipe_ev)event, on_pipe, s);
    }
    if (result != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "cannot open the reply socket: %s",
                         nng_strerror(result));
    return STATUS_OK;
}

static enum status server_start(struct server *s, const char *path, struct error *error)
{
    enum status status = listener_init(&s->listener, path, error);
    if (status == STATUS_OK)
        status = socket_open(s, error);
    if (status == STATUS_OK && (!s->exchanges || !contexts_replenish(s)))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the server");
    if (status == STATUS_OK)
        status = listener_open(&s->listener, s->socket, error);
    return status;
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
    pthread_mutex_init(&s->lock, NULL);
    list_init(&s->done);
    clients_init(&s->clients, config->clients_max);
    s->exchanges_max = config->requests_max + EXTRA_CONTEXTS;
    s->exchanges = calloc((size_t)s->exchanges_max, sizeof(*s->exchanges));
    ev_async_init(&s->wake, on_wake);
    s->wake.data = s;
    ev_async_start(loop, &s->wake);
    enum status status = server_start(s, config->path, error);
    if (status != STATUS_OK) {
        server_destroy(s);
        return status;
    }
    *server = s;
    return STATUS_OK;
}

void server_destroy(struct server *s)
{
    if (!s)
        return;
    alarm(CLOSE_TIMEOUT_S);
    if (s->open)
        nng_close(s->socket);
    // First stop all, since one that finishes links itself to the others; then free.
    for (int i = 0; i < s->exchanges_count; i++)
        nng_aio_stop(s->exchanges[i]->aio);
    for (int i = 0; i < s->exchanges_count; i++)
        exchange_destroy(s->exchanges[i]);
    alarm(0);
    ev_async_stop(s->loop, &s->wake);
    listener_fini(&s->listener);
    clients_fini(&s->clients);
    pthread_mutex_destroy(&s->lock);
    free(s->exchanges);
    free(s);
}
