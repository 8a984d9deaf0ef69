// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/deposits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/deposit.h"
#include "common/list.h"
#include "common/log.h"
#include "daemon/net/acceptor.h"
#include "daemon/net/listener.h"

// Time limit in seconds from the connection to its datagram, and again from the datagram to the
// request.
#define PATIENCE_S  10.
#define SOCKET_MODE 0660
// Upper bound of a segment in bytes; a sum of a few segments stays far below 2^63.
#define SEGMENT_MAX (INT64_C(1) << 46)

// A connection. Once `filled`, it is a deposit.
struct deposit {
    struct list node;
    struct deposits *deposits;
    struct peer peer;
    int fd;
    ev_io readable;
    ev_timer late;
    bool filled;
    struct request_id id;
    struct segments segments;
};

struct deposits {
    struct ev_loop *loop;
    struct deposits_handler handler;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; // "": it does not listen
    int fd;
    struct acceptor acceptor;
    struct list list;           // of struct deposit
    int count;                  // connections on the list, filled or not
    int taken;                  // deposits that requests have taken over and not released
    uid_t takers[DEPOSITS_MAX]; // [taken]: their users
    int most;                   // upper bound of filled deposits + taken
};

static const struct segments no_segments = {.given_fd = -1, .wanted_fd = -1};

static void segments_close(struct segments *s)
{
    if (s->given_fd >= 0)
        close(s->given_fd);
    if (s->wanted_fd >= 0)
        close(s->wanted_fd);
    *s = no_segments;
}

static void deposit_end(struct deposit *p)
{
    struct deposits *d = p->deposits;
    ev_io_stop(d->loop, &p->readable);
    ev_timer_stop(d->loop, &p->late);
    list_remove(&p->node);
    d->count--;
    segments_close(&p->segments);
    close(p->fd);
    free(p);
}

// ---- checks of a descriptor ---------------------------------------------------------------------

static const char *const kind_names[] = {"memory of inputs", "memory for what is wanted"};

// Checks the seals. This is the first check of a descriptor: for anything but a memfd the kernel
// refuses F_GET_SEALS without asking a file system, which could block.
static enum status seals_check(int fd, bool wanted, struct error *error)
{
    const char *name = kind_names[wanted];
    int seals = fcntl(fd, F_GET_SEALS), needed = F_SEAL_SHRINK | F_SEAL_GROW;
    if (seals < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s is no memfd; accepted is one of memfd_create()", name);
    if (!wanted)
        needed |= F_SEAL_WRITE;
    if ((seals & needed) != needed)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s is not sealed against %s; accepted is a memfd with the seals "
                         "F_SEAL_SHRINK, F_SEAL_GROW%s",
                         name,
                         !(seals & F_SEAL_SHRINK) ? "shrinking"
                         : !(seals & F_SEAL_GROW) ? "growing"
                                                  : "writing",
                         wanted ? "" : " and F_SEAL_WRITE");
    if (wanted && ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) ||
                   (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s cannot be written; accepted is a descriptor for reading and "
                         "writing without the seal F_SEAL_WRITE",
                         name);
    return STATUS_OK;
}

static enum status memory_check(int fd, bool wanted, int64_t *bytes, struct error *error)
{
    const char *name = kind_names[wanted];
    struct statfs system;
    struct stat stat;
    enum status status = seals_check(fd, wanted, error);
    if (status != STATUS_OK)
        return status;
    if (fstatfs(fd, &system) != 0 || fstat(fd, &stat) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the %s cannot be looked at: %s", name,
                         strerror(errno));
    // Huge pages may run out, and a process that touches a missing page is killed.
    if (system.f_type != TMPFS_MAGIC)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s is of huge pages; accepted is a memfd of usual ones", name);
    if (stat.st_size <= 0 || stat.st_size > SEGMENT_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s has %lld bytes; accepted are 1 to %lld", name,
                         (long long)stat.st_size, (long long)SEGMENT_MAX);
    if (!wanted && stat.st_blocks * INT64_C(512) < stat.st_size)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the %s has holes; accepted is one that was written from its first byte "
                         "to its last",
                         name);
    *bytes = stat.st_size;
    return STATUS_OK;
}

// ---- a datagram ---------------------------------------------------------------------------------

struct datagram {
    struct deposit_request request;
    ssize_t bytes;
    int fds[DEPOSIT_FDS_MAX + 1];
    int count;
    bool cut; // the message or its descriptors did not fit and were truncated
};

static void fds_close(struct datagram *g)
{
    for (int i = 0; i < g->count; i++)
        close(g->fds[i]);
    g->count = 0;
}

static void fds_collect(struct msghdr *message, struct datagram *g)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(fd));
            if (g->count < DEPOSIT_FDS_MAX + 1)
                g->fds[g->count++] = fd;
            else
                close(fd);
        }
    }
}

// Receives a datagram with its descriptors, which the caller closes. False: there is none, or the
// client is gone (`bytes` is then 0).
static bool datagram_receive(int fd, struct datagram *g)
{
    union {
        char bytes[CMSG_SPACE((DEPOSIT_FDS_MAX + 1) * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {&g->request, sizeof(g->request)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *g = (struct datagram){.count = 0};
    do
        g->bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (g->bytes < 0 && errno == EINTR);
    if (g->bytes < 0)
        return false;
    fds_collect(&message, g);
    g->cut = message.msg_flags & (MSG_CTRUNC | MSG_TRUNC);
    return g->bytes > 0 || g->count > 0;
}

static enum status datagram_check(const struct datagram *g, struct error *error)
{
    const struct deposit_request *r = &g->request;
    uint32_t kinds = r->kinds;
    if (g->bytes != (ssize_t)sizeof(*r) || r->magic != DEPOSIT_MAGIC)
        return error_set(error, STATUS_INVALID_ARGUMENT, "this is no message of this socket");
    if (r->version != DEPOSIT_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the client speaks version %u of this socket's protocol, this daemon "
                         "version %d",
                         r->version, DEPOSIT_VERSION);
    if (kinds == 0 || kinds > (DEPOSIT_GIVEN | DEPOSIT_WANTED))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "kinds is %u; accepted are 1 (inputs), 2 (what is wanted) and 3 (both)",
                         kinds);
    int expected = __builtin_popcount(kinds);
    if (g->count != expected || g->cut)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%d%s descriptors came; accepted are %d",
                         g->count, g->cut ? " or more" : "", expected);
    return STATUS_OK;
}

// Checks a datagram and moves its descriptors to `segments`; on failure closes them.
static enum status segments_make(struct datagram *g, struct segments *segments, struct error *error)
{
    *segments = no_segments;
    enum status status = datagram_check(g, error);
    bool given = g->request.kinds & DEPOSIT_GIVEN, wanted = g->request.kinds & DEPOSIT_WANTED;
    if (status == STATUS_OK && given)
        status = memory_check(g->fds[0], false, &segments->given_bytes, error);
    if (status == STATUS_OK && wanted)
        status = memory_check(g->fds[given], true, &segments->wanted_bytes, error);
    if (status != STATUS_OK) {
        fds_close(g);
        *segments = no_segments;
        return status;
    }
    segments->given_fd = given ? g->fds[0] : -1;
    segments->wanted_fd = wanted ? g->fds[given] : -1;
    return STATUS_OK;
}

static bool reply(const struct deposit *p, const struct error *error)
{
    struct deposit_reply message = {.status = (uint32_t)error->status};
    if (error->status != STATUS_OK)
        snprintf(message.text, sizeof(message.text), "%s", error->text);
    return send(p->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof(message);
}

static struct deposit *find(const struct deposits *d, const struct request_id *id, uid_t uid)
{
    LIST_FOREACH (node, &d->list) {
        struct deposit *p = LIST_ENTRY(node, struct deposit, node);
        if (p->filled && p->peer.uid == uid && memcmp(&p->id, id, sizeof(*id)) == 0)
            return p;
    }
    return NULL;
}

// Counts the connections of a user; with `filled` only its deposits.
static int count_of_user(const struct deposits *d, uid_t uid, bool filled)
{
    int count = 0;
    LIST_FOREACH (node, &d->list) {
        const struct deposit *p = LIST_ENTRY(node, struct deposit, node);
        count += p->peer.uid == uid && (p->filled || !filled);
    }
    return count;
}

static int count_filled(const struct deposits *d)
{
    int count = 0;
    LIST_FOREACH (node, &d->list)
        count += LIST_ENTRY(node, struct deposit, node)->filled;
    return count;
}

// Index of a taken deposit of the user, at most d->taken: there is none.
static int taken_find(const struct deposits *d, uid_t uid)
{
    int i = 0;
    while (i < d->taken && d->takers[i] != uid)
        i++;
    return i;
}

static enum status room_check(const struct deposits *d, uid_t uid, struct error *error)
{
    int of_user = count_of_user(d, uid, true);
    for (int i = 0; i < d->taken; i++)
        of_user += d->takers[i] == uid;
    if (count_filled(d) + d->taken < d->most && of_user < (d->most + 1) / 2)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "too many clients hand in tensors at this time; try again when their requests "
                     "are answered");
}

static enum status fill(struct deposit *p, struct datagram *g, struct error *error)
{
    struct deposits *d = p->deposits;
    struct segments segments;
    struct request_id id;
    enum status status = segments_make(g, &segments, error);
    if (status != STATUS_OK)
        return status;
    memcpy(id.bytes, g->request.id, sizeof(id.bytes));
    if (p->filled || find(d, &id, p->peer.uid))
        status = error_set(error, STATUS_ALREADY_EXISTS,
                           "memory for this request, or over this connection, was handed in "
                           "before");
    else
        status = d->handler.check(d->handler.context, &p->peer, error);
    if (status == STATUS_OK)
        status = room_check(d, p->peer.uid, error);
    if (status != STATUS_OK) {
        segments_close(&segments);
        return status;
    }
    p->filled = true;
    p->id = id;
    p->segments = segments;
    return STATUS_OK;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    struct deposit *p = watcher->data;
    struct datagram g;
    struct error error = {.status = STATUS_OK};
    char who[PEER_TEXT_MAX];
    if (!datagram_receive(p->fd, &g)) {
        if (g.bytes == 0 || errno != EAGAIN)
            deposit_end(p);
        return;
    }
    enum status status = fill(p, &g, &error);
    if (status != STATUS_OK)
        log_info("deposit_refused %s reason=%s", peer_describe(&p->peer, who),
                 log_quote(&(struct log_quoted){0}, error.text));
    if (!reply(p, &error) || status != STATUS_OK)
        deposit_end(p);
    else
        ev_timer_again(loop, &p->late);
}

static void on_late(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    deposit_end(watcher->data);
}

// ---- connections --------------------------------------------------------------------------------

static void deposit_begin(struct deposits *d, int fd)
{
    struct deposit *p = calloc(1, sizeof(*p));
    // Connections above the limit of deposits are kept so that their datagrams get an answer; only
    // those above twice the limit, or the limit for one user, are closed without one.
    if (!p || !peer_local(fd, &p->peer) || d->count >= 2 * d->most ||
        count_of_user(d, p->peer.uid, false) >= d->most) {
        free(p);
        close(fd);
        return;
    }
    p->deposits = d;
    p->fd = fd;
    p->segments = no_segments;
    list_init(&p->node);
    list_push_back(&d->list, &p->node);
    d->count++;
    ev_io_init(&p->readable, on_readable, fd, EV_READ);
    ev_timer_init(&p->late, on_late, PATIENCE_S, PATIENCE_S);
    p->readable.data = p->late.data = p;
    ev_io_start(d->loop, &p->readable);
    ev_timer_start(d->loop, &p->late);
}

static void on_accepted(void *context, int fd, const struct sockaddr_storage *from, socklen_t size)
{
    (void)from;
    (void)size;
    deposit_begin(context, fd);
}

static enum status listen_at(struct deposits *d, struct error *error)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, d->path, sizeof(d->path));
    enum status status = listener_leftover_remove(d->path, error);
    if (status != STATUS_OK) {
        d->path[0] = '\0'; // deposits_destroy() must not remove it
        return status;
    }
    d->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0777 & ~SOCKET_MODE);
    bool bound = d->fd >= 0 && bind(d->fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    umask(mask);
    if (bound && listen(d->fd, DEPOSITS_MAX) == 0)
        return STATUS_OK;
    error_set(error, STATUS_UNAVAILABLE, "cannot listen on %s: %s", d->path, strerror(errno));
    if (!bound)
        d->path[0] = '\0'; // deposits_destroy() must not remove it
    return STATUS_UNAVAILABLE;
}

enum status deposits_create(struct ev_loop *loop, const char *socket, int descriptors,
                            const struct deposits_handler *handler, struct deposits **deposits,
                            struct error *error)
{
    struct deposits *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for clients' tensors");
    d->loop = loop;
    d->handler = *handler;
    d->fd = -1;
    d->most = descriptors / DEPOSITS_DESCRIPTORS;
    d->most = d->most < 1 ? 1 : d->most > DEPOSITS_MAX ? DEPOSITS_MAX : d->most;
    list_init(&d->list);
    if (strlen(socket) + strlen(DEPOSIT_SUFFIX) >= sizeof(d->path)) {
        log_warning("deposits socket=%s action=none reason=too_long",
                    log_quote(&(struct log_quoted){0}, socket));
        *deposits = d;
        return STATUS_OK;
    }
    snprintf(d->path, sizeof(d->path), "%s%s", socket, DEPOSIT_SUFFIX);
    enum status status = listen_at(d, error);
    if (status != STATUS_OK) {
        deposits_destroy(d);
        return status;
    }
    acceptor_start(&d->acceptor, loop, "tensors", d->fd, on_accepted, d);
    *deposits = d;
    return STATUS_OK;
}

void deposits_destroy(struct deposits *d)
{
    if (!d)
        return;
    LIST_FOREACH (node, &d->list)
        deposit_end(LIST_ENTRY(node, struct deposit, node));
    acceptor_stop(&d->acceptor);
    if (d->fd >= 0)
        close(d->fd);
    if (d->path[0])
        unlink(d->path);
    free(d);
}

// ---- requests -----------------------------------------------------------------------------------

enum status deposits_check(const struct deposits *d, const struct peer *peer,
                           const struct wire_request *request, int64_t *bytes, struct error *error)
{
    if (peer_is_remote(peer))
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "tensors travel as shared memory, which no network carries; submit them "
                         "on the daemon's machine, through its unix socket");
    const struct deposit *p = find(d, &request->id, peer->uid);
    if (!p)
        return error_set(error, STATUS_NOT_FOUND,
                         "the request has tensors, and no memory was handed in for it, or its "
                         "connection to %s has ended",
                         d->path[0] ? d->path
                                    : "the socket for descriptors, whose path is too long,");
    const struct segments *s = &p->segments;
    if (places_have_given(&request->places) != (s->given_fd >= 0) ||
        places_have_wanted(&request->places) != (s->wanted_fd >= 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the memory handed in is not that of the tensors: %s for inputs, %s for "
                         "what is wanted",
                         s->given_fd >= 0 ? "some" : "none", s->wanted_fd >= 0 ? "some" : "none");
    *bytes = s->given_bytes + s->wanted_bytes;
    return places_check(&request->run, &request->places, s->given_bytes, s->wanted_bytes, error);
}

struct segments deposits_take(struct deposits *d, const struct peer *peer,
                              const struct wire_request *request)
{
    struct deposit *p = find(d, &request->id, peer->uid);
    if (!p)
        return no_segments;
    struct segments taken = p->segments;
    p->segments = no_segments;
    taken.uid = d->takers[d->taken++] = p->peer.uid;
    deposit_end(p);
    return taken;
}

void deposits_release(struct deposits *d, struct segments *segments)
{
    int i = taken_find(d, segments->uid);
    if ((segments->given_fd >= 0 || segments->wanted_fd >= 0) && i < d->taken)
        d->takers[i] = d->takers[--d->taken];
    segments_close(segments);
}
