// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/mesh_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/list.h"
#include "common/log.h"
#include "daemon/net/acceptor.h"
#include "daemon/net/log_quota.h"

#define HELLO_MAGIC         UINT32_C(0x43504d53) // "CPMS"
// Byte that the listening side answers to a valid hello.
#define ACCEPTED            'y'
// Log lines per second about connections that do not belong to a rank.
#define STRANGERS_LINES_MAX 10

// First bytes of a connection, from the connecting side.
struct hello {
    uint32_t magic, generation;
    uint16_t from, to; // ranks of the connecting side and of the listening side
    uint8_t key[NODE_KEY_BYTES];
};

// A pool whose ranks are being connected.
struct meeting {
    struct list node;
    struct node_start start;
    int sockets_missing; // pairs of a rank here and a rank elsewhere without a socket
};

// A connection that is not handed to a rank yet: its hello or the answer is missing.
struct call {
    struct mesh_port *port;
    struct list node;
    int fd;
    ev_io watcher;
    ev_timer late;
    struct meeting *meeting; // outgoing: the pool; NULL: an incoming connection
    struct hello hello;
    size_t got; // received bytes of the hello
    bool sent;  // outgoing: the hello is sent
};

struct mesh_port {
    struct ev_loop *loop;
    struct mesh_handler handler;
    int fd, number;
    struct acceptor acceptor;
    struct list meetings, dialled, strangers; // dialled, strangers: outgoing and incoming calls
    int stranger_count;
    struct log_quota lines; // about strangers
};

// ---- outgoing connections ----------------------------------------------------------------------

static struct call *call_create(struct mesh_port *p, int fd, struct meeting *meeting,
                                void (*on_io)(struct ev_loop *, ev_io *, int), int events,
                                void (*on_late)(struct ev_loop *, ev_timer *, int))
{
    struct call *c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return NULL;
    }
    c->port = p;
    c->fd = fd;
    c->meeting = meeting;
    ev_io_init(&c->watcher, on_io, fd, events);
    ev_timer_init(&c->late, on_late, MESH_STRANGER_S, 0.);
    c->watcher.data = c->late.data = c;
    ev_io_start(p->loop, &c->watcher);
    ev_timer_start(p->loop, &c->late);
    list_init(&c->node);
    list_push_back(meeting ? &p->dialled : &p->strangers, &c->node);
    p->stranger_count += !meeting;
    return c;
}

// Frees the call and returns its descriptor.
static int call_take(struct call *c)
{
    int fd = c->fd;
    ev_io_stop(c->port->loop, &c->watcher);
    ev_timer_stop(c->port->loop, &c->late);
    c->port->stranger_count -= !c->meeting;
    list_remove(&c->node);
    free(c);
    return fd;
}

static void call_drop(struct call *c)
{
    close(call_take(c));
}

// ---- pools -------------------------------------------------------------------------------------

static struct meeting *meeting_find(struct mesh_port *p, uint32_t generation)
{
    LIST_FOREACH (node, &p->meetings) {
        struct meeting *m = LIST_ENTRY(node, struct meeting, node);
        if (m->start.at.generation == generation)
            return m;
    }
    return NULL;
}

static struct call *call_find(struct mesh_port *p, const struct meeting *m)
{
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): call_take() unlinks it.
    LIST_FOREACH (node, &p->dialled) {
        struct call *c = LIST_ENTRY(node, struct call, node);
        if (c->meeting == m)
            return c;
    }
    return NULL;
}

static void meeting_drop(struct mesh_port *p, struct meeting *m)
{
    struct call *c;
    while ((c = call_find(p, m)))
        call_drop(c);
    list_remove(&m->node);
    free(m);
}

void mesh_port_part(struct mesh_port *p, uint32_t generation)
{
    struct meeting *m = meeting_find(p, generation);
    if (m)
        meeting_drop(p, m);
}

static void meeting_fail(struct mesh_port *p, struct meeting *m, const struct error *error)
{
    int pool = m->start.at.pool;
    uint32_t generation = m->start.at.generation;
    meeting_drop(p, m);
    p->handler.failed(p->handler.context, pool, generation, error);
}

static void connected(struct mesh_port *p, struct meeting *m, int rank, int peer, int fd)
{
    int pool = m->start.at.pool;
    uint32_t generation = m->start.at.generation;
    if (--m->sockets_missing == 0)
        meeting_drop(p, m);
    p->handler.connected(p->handler.context, pool, generation, rank, peer, fd);
}

// ---- incoming connections ----------------------------------------------------------------------

static bool keys_equal(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;
    for (int i = 0; i < NODE_KEY_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

// True if the hello has the key of the pool and names a rank here and a rank of a higher host.
static bool hello_fits(const struct meeting *m, const struct hello *h)
{
    const struct node_start *s = &m->start;
    return keys_equal(h->key, s->key) && h->from < s->world_size && h->to < s->world_size &&
           s->hosts[h->to] == s->host && s->hosts[h->from] > s->host;
}

// Handles a complete hello: hands the connection to its rank, or drops it. If the pool is not known
// yet, the connection stays until the pool is, or until its time limit.
static void stranger_look(struct call *c)
{
    struct mesh_port *p = c->port;
    const struct hello hello = c->hello;
    const char answer = ACCEPTED;
    struct meeting *m = meeting_find(p, hello.generation);
    if (hello.magic == HELLO_MAGIC && !m)
        return;
    if (hello.magic != HELLO_MAGIC || !hello_fits(m, &hello) ||
        send(c->fd, &answer, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        if (log_quota_take(&p->lines))
            log_warning("mesh_stranger generation=%u from=%d to=%d action=dropped",
                        hello.generation, hello.from, hello.to);
        call_drop(c);
        return;
    }
    connected(p, m, hello.to, hello.from, call_take(c));
}

static void on_stranger(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    struct call *c = watcher->data;
    ssize_t got = recv(c->fd, (char *)&c->hello + c->got, sizeof(c->hello) - c->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        call_drop(c);
        return;
    }
    c->got += (size_t)got;
    if (c->got < sizeof(c->hello))
        return;
    ev_io_stop(loop, &c->watcher); // the other side waits for the answer
    stranger_look(c);
}

static void on_stranger_late(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    call_drop(watcher->data);
}

static void on_accepted(void *context, int fd, const struct sockaddr_storage *from, socklen_t size)
{
    (void)from;
    (void)size;
    struct mesh_port *p = context;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (p->stranger_count >= MESH_STRANGERS_MAX)
        call_drop(LIST_ENTRY(list_first(&p->strangers), struct call, node));
    (void)call_create(p, fd, NULL, on_stranger, EV_READ, on_stranger_late);
}

// ---- connecting --------------------------------------------------------------------------------

static void dial_fail(struct call *c, int number)
{
    const struct node_start *s = &c->meeting->start;
    int host = s->hosts[c->hello.to];
    struct error error;
    error_set(&error, STATUS_UNAVAILABLE, "no connection from rank %d to rank %d at %s port %u: %s",
              c->hello.from, c->hello.to,
              s->meet[host].address[0] ? s->meet[host].address : "the daemon's host",
              s->meet[host].port, strerror(number));
    meeting_fail(c->port, c->meeting, &error);
}

static void on_dialled(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    struct call *c = watcher->data;
    int number = 0;
    socklen_t size = sizeof(number);
    char answer = 0;
    if (!c->sent) {
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &number, &size) != 0 || number != 0 ||
            send(c->fd, &c->hello, sizeof(c->hello), MSG_DONTWAIT | MSG_NOSIGNAL) !=
                (ssize_t)sizeof(c->hello)) {
            dial_fail(c, number ? number : errno);
            return;
        }
        c->sent = true;
        ev_io_stop(loop, &c->watcher);
        ev_io_set(&c->watcher, c->fd, EV_READ);
        ev_io_start(loop, &c->watcher);
        return;
    }
    ssize_t got = recv(c->fd, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got != 1 || answer != ACCEPTED) {
        dial_fail(c, got < 0 ? errno : ECONNREFUSED);
        return;
    }
    struct mesh_port *p = c->port;
    struct meeting *m = c->meeting;
    const struct hello hello = c->hello;
    connected(p, m, hello.from, hello.to, call_take(c));
}

static void on_dial_late(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    dial_fail(watcher->data, ETIMEDOUT);
}

static bool address_of(const struct node_start *s, int host, const struct sockaddr_storage *daemon,
                       struct sockaddr_storage *address, socklen_t *size)
{
    const char *text = s->meet[host].address;
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof(*address));
    if (!text[0] && daemon)
        *address = *daemon;
    else if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        address->ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
        address->ss_family = AF_INET6;
    else
        return false;
    if (address->ss_family == AF_INET)
        v4->sin_port = htons((uint16_t)s->meet[host].port);
    else
        v6->sin6_port = htons((uint16_t)s->meet[host].port);
    *size = address->ss_family == AF_INET ? sizeof(*v4) : sizeof(*v6);
    return true;
}

// Begins to connect rank `from` to rank `to`. False: failed; *number is the errno.
static bool dial(struct mesh_port *p, struct meeting *m, int from, int to,
                 const struct sockaddr_storage *daemon, int *number)
{
    struct sockaddr_storage address;
    socklen_t size;
    const int on = 1;
    *number = EINVAL;
    if (!address_of(&m->start, m->start.hosts[to], daemon, &address, &size))
        return false;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *number = errno;
    if (fd < 0)
        return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (struct sockaddr *)&address, size) != 0 && errno != EINPROGRESS) {
        *number = errno;
        close(fd);
        return false;
    }
    struct call *c = call_create(p, fd, m, on_dialled, EV_WRITE, on_dial_late);
    *number = ENOMEM;
    if (!c)
        return false;
    c->hello = (struct hello){.magic = HELLO_MAGIC,
                              .generation = m->start.at.generation,
                              .from = (uint16_t)from,
                              .to = (uint16_t)to};
    memcpy(c->hello.key, m->start.key, NODE_KEY_BYTES);
    return true;
}

// Begins to connect each rank of this host to the ranks of lower hosts. False: the meeting has
// failed and is freed.
static bool all_dial(struct mesh_port *p, struct meeting *m, const struct sockaddr_storage *daemon)
{
    const struct node_start *s = &m->start;
    struct error error;
    int number;
    for (int from = 0; from < s->world_size; from++)
        for (int to = 0; to < s->world_size; to++)
            if (s->hosts[from] == s->host && s->hosts[to] < s->host &&
                !dial(p, m, from, to, daemon, &number)) {
                error_set(&error, STATUS_UNAVAILABLE, "cannot connect rank %d to rank %d: %s", from,
                          to, strerror(number));
                meeting_fail(p, m, &error);
                return false;
            }
    return true;
}

void mesh_port_meet(struct mesh_port *p, const struct node_start *start,
                    const struct sockaddr_storage *daemon)
{
    struct error error;
    struct meeting *m = calloc(1, sizeof(*m));
    int here = 0;
    if (!m) {
        error_set(&error, STATUS_RESOURCE_EXHAUSTED, "no memory to connect ranks");
        p->handler.failed(p->handler.context, start->at.pool, start->at.generation, &error);
        return;
    }
    m->start = *start;
    for (int rank = 0; rank < start->world_size; rank++)
        here += start->hosts[rank] == start->host;
    m->sockets_missing = here * (start->world_size - here);
    list_init(&m->node);
    list_push_back(&p->meetings, &m->node);
    if (m->sockets_missing == 0) {
        meeting_drop(p, m);
        return;
    }
    if (!all_dial(p, m, daemon))
        return;
    uint32_t generation = start->at.generation;
    LIST_FOREACH (node, &p->strangers) {
        struct call *c = LIST_ENTRY(node, struct call, node);
        if (c->got == sizeof(c->hello) && c->hello.generation == generation)
            stranger_look(c);
    }
}

// ---- life --------------------------------------------------------------------------------------

static int listen_on(const struct addrinfo *a)
{
    const int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int number = errno;
    close(fd);
    errno = number;
    return -1;
}

static int number_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname() has filled it.
    return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                              : ((struct sockaddr_in6 *)&address)->sin6_port);
}

enum status mesh_port_create(struct ev_loop *loop, const char *address, int port,
                             const struct mesh_handler *handler, struct mesh_port **created,
                             struct error *error)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[12];
    int fd = -1;
    snprintf(service, sizeof(service), "%d", port);
    int result = getaddrinfo(address, service, &hints, &list);
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = listen_on(a);
    int number = errno;
    if (list)
        freeaddrinfo(list);
    struct mesh_port *p = fd >= 0 ? calloc(1, sizeof(*p)) : NULL;
    if (!p) {
        if (fd >= 0)
            close(fd);
        return error_set(
            error, STATUS_UNAVAILABLE, "cannot listen for connections of ranks on %s port %d: %s",
            address ? address : "*", port, result ? gai_strerror(result) : strerror(number));
    }
    p->lines.lines_max = STRANGERS_LINES_MAX;
    p->loop = loop;
    p->handler = *handler;
    p->fd = fd;
    p->number = number_of(fd);
    list_init(&p->meetings);
    list_init(&p->dialled);
    list_init(&p->strangers);
    acceptor_start(&p->acceptor, loop, "ranks", fd, on_accepted, p);
    *created = p;
    return STATUS_OK;
}

int mesh_port_number(const struct mesh_port *p)
{
    return p->number;
}

void mesh_port_destroy(struct mesh_port *p)
{
    if (!p)
        return;
    while (!list_empty(&p->meetings))
        meeting_drop(p, LIST_ENTRY(list_first(&p->meetings), struct meeting, node));
    while (!list_empty(&p->strangers))
        call_drop(LIST_ENTRY(list_first(&p->strangers), struct call, node));
    acceptor_stop(&p->acceptor);
    close(p->fd);
    free(p);
}
