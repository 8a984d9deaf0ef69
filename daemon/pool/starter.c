// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/process/spawn.h"

// Time limit from the creation of the starter to its first byte.
#define COME_UP_MS 2000

// Number of ticks without an answer after which the starter is lost. Counts ticks and not time:
// after daemon and starter were stopped together, only one tick has passed.
#define TICK_S        1.
#define SILENCE_TICKS 3

#define ENDED "has ended"

// Descriptors of a request: /dev/null, stderr, channel, progress, and a socket for each other rank.
#define FDS_OWN 4
#define FDS_MAX (FDS_OWN + WORLD_SIZE_MAX - 1)

struct answer {
    struct starter_order order;
    pid_t pid;
    struct error error;
};

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

struct starter {
    struct ev_loop *loop;
    struct starter_config config;
    pid_t pid; // 0: there is none
    int fd;
    int orders; // unanswered requests
    int silent; // ticks without an answer
    ev_io watcher;
    ev_timer tick; // runs while there are unanswered requests
};

// ---- the process -------------------------------------------------------------------------------

// The starter is a copy of the daemon with all descriptors closed. It uses direct system calls, for
// the reason given in daemon/process/spawn.c. Its signals stay blocked, and it is killed when the
// daemon ends.

#define SOCKET_FD 0

static _Noreturn void process_end(void)
{
    for (;;)
        syscall(SYS_exit_group, 0);
}

// Places the socket and occupies all numbers below SPAWN_FD_MIN, so that received descriptors get
// higher numbers. Closes the daemon's descriptors.
static bool descriptors_prepare(int fd)
{
    long taken = SOCKET_FD;
    if (syscall(SYS_dup2, fd, SOCKET_FD) < 0 || syscall(SYS_close_range, 1, ~0U, 0) != 0)
        return false;
    while (taken >= 0 && taken < SPAWN_FD_MIN - 1)
        taken = syscall(SYS_fcntl, SOCKET_FD, F_DUPFD_CLOEXEC, 0);
    return taken >= 0;
}

// Waits for a request. Returns the number of received descriptors; -1: the daemon has ended.
static int order_take(struct starter_order *order, int fds[FDS_MAX])
{
    union control control;
    struct iovec part = {order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    if (syscall(SYS_recvmsg, SOCKET_FD, &message, MSG_CMSG_CLOEXEC) != (long)sizeof(*order))
        return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t bytes = header->cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(header), bytes);
    return (int)(bytes / sizeof(int));
}

static void order_carry_out(const struct starter_config *c, pid_t daemon, const int *fds,
                            struct answer *answer)
{
    const struct starter_order *o = &answer->order;
    const struct guest *guest =
        o->implementation > 0 ? &c->guests->list[o->implementation - 1] : NULL;
    char *words[GUEST_WORDS_MAX + 1];
    int mesh[WORLD_SIZE_MAX];
    for (int peer = 0, next = FDS_OWN; peer < o->world_size; peer++)
        mesh[peer] = peer == o->rank ? -1 : fds[next++];
    if (guest)
        guest_words(guest, words);
    const struct spawn spawn = {
        .program = c->program,
        .words = guest ? words : NULL,
        .environment = guest ? c->guest_environment : c->environment,
        .confinement = guest ? c->guest_confinement : c->confinement,
        .parent = daemon,
        .rank = o->rank,
        .world_size = o->world_size,
        .generation = o->generation,
        .device = o->device,
        .null_fd = fds[0],
        .stderr_fd = fds[1],
        .channel_fd = fds[2],
        .progress_fd = fds[3],
        .mesh = mesh,
    };
    answer->error.status = spawn_rank(&spawn, &answer->pid, &answer->error);
}

static _Noreturn void process_run(const struct starter_config *c, pid_t daemon, int fd)
{
    int fds[FDS_MAX], count;
    struct answer answer = {{0}, 0, {0}};
    syscall(SYS_prctl, PR_SET_NAME, STARTER_NAME, 0, 0, 0);
    if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
        syscall(SYS_getppid) != daemon || !descriptors_prepare(fd) ||
        syscall(SYS_write, SOCKET_FD, "", 1) != 1)
        process_end();
    while ((count = order_take(&answer.order, fds)) >= 0) {
        answer.pid = 0;
        answer.error.status = STATUS_OK;
        if (count == FDS_OWN + answer.order.world_size - 1)
            order_carry_out(c, daemon, fds, &answer);
        else
            error_set(&answer.error, STATUS_RESOURCE_EXHAUSTED,
                      "rank %d of %d is not started: the starter has no descriptors for it",
                      answer.order.rank, answer.order.world_size);
        // Answers before closing the descriptors: other ranks notice when the sockets of a failed
        // rank close, and the daemon must learn of the failure first.
        if (syscall(SYS_write, SOCKET_FD, &answer, sizeof(answer)) != (long)sizeof(answer))
            break;
        for (int i = 0; i < count; i++)
            syscall(SYS_close, fds[i]);
    }
    process_end();
}

// ---- the daemon's side -------------------------------------------------------------------------

static void process_drop(struct starter *s)
{
    if (s->fd >= 0) {
        ev_io_stop(s->loop, &s->watcher);
        close(s->fd);
    }
    ev_timer_stop(s->loop, &s->tick);
    s->fd = -1;
    s->orders = 0;
    if (s->pid == 0)
        return;
    kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
}

static void process_lose(struct starter *s, const char *reason)
{
    log_error("starter_lost pid=%d orders=%d reason=%s", (int)s->pid, s->orders,
              log_quote(&(struct log_quoted){0}, reason));
    process_drop(s);
}

// Waits for the starter's first byte. Before that it may still have the daemon's descriptors open.
static bool came_up(int fd)
{
    char byte;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    int count;
    while ((count = poll(&readable, 1, COME_UP_MS)) < 0 && errno == EINTR)
        ;
    return count == 1 && read(fd, &byte, 1) == 1;
}

// Creates the process with all signals blocked, so that it never runs the daemon's handlers.
static pid_t process_make(const struct starter_config *config, int fd)
{
    sigset_t all, old;
    pid_t daemon = getpid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    int error = errno;
    if (pid == 0)
        process_run(config, daemon, fd);
    sigprocmask(SIG_SETMASK, &old, NULL);
    errno = error;
    return pid;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events);

static enum status process_begin(struct starter *s, struct error *error)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no socket for the starter of ranks: %s",
                         strerror(errno));
    s->fd = ends[0];
    ev_io_init(&s->watcher, on_readable, s->fd, EV_READ);
    ev_set_priority(&s->watcher, EV_MAXPRI); // handled before the messages of other ranks
    s->watcher.data = s;
    pid_t pid = process_make(&s->config, ends[1]);
    int number = errno;
    close(ends[1]);
    s->pid = pid > 0 ? pid : 0;
    if (pid > 0 && came_up(s->fd)) {
        ev_io_start(s->loop, &s->watcher);
        return STATUS_OK;
    }
    process_drop(s);
    if (pid < 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "cannot make a process for the starter of ranks: %s", strerror(number));
    return error_set(error, STATUS_UNAVAILABLE, "the starter of ranks did not start");
}

static void lose(struct starter *s, const char *reason)
{
    struct error error;
    process_lose(s, reason);
    error_set(&error, STATUS_UNAVAILABLE, "the process that starts ranks %s", reason);
    s->config.handler.lost(s->config.handler.context, &error);
}

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct starter *s = watcher->data;
    if (++s->silent == SILENCE_TICKS)
        lose(s, "does not answer");
}

// Begins to count ticks without an answer anew, if an answer is due.
static void silence_begin(struct starter *s)
{
    s->silent = 0;
    if (s->orders > 0)
        ev_timer_again(s->loop, &s->tick);
    else
        ev_timer_stop(s->loop, &s->tick);
}

// Handles an answer. The starter writes it at once, so one read gets all of it.
static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct starter *s = watcher->data;
    struct answer answer;
    ssize_t got = recv(s->fd, &answer, sizeof(answer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got != (ssize_t)sizeof(answer)) {
        lose(s, ENDED);
        return;
    }
    s->orders--;
    silence_begin(s);
    s->config.handler.started(s->config.handler.context, &answer.order, answer.pid, &answer.error);
}

static ssize_t order_send(const struct starter *s, const struct starter_order *order,
                          const struct starter_fds *fds)
{
    union control control = {.bytes = {0}};
    int list[FDS_MAX] = {fds->null_fd, fds->stderr_fd, fds->channel_fd, fds->progress_fd};
    int count = FDS_OWN;
    for (int peer = 0; peer < order->world_size; peer++)
        if (peer != order->rank)
            list[count++] = fds->mesh[peer];
    size_t bytes = (size_t)count * sizeof(int);
    struct iovec part = {(void *)(uintptr_t)order, sizeof(*order)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(header), list, bytes);
    return sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// True if the starter died while it had no requests, and this request is the first to notice.
static bool order_meets_the_dead(const struct starter *s, ssize_t sent)
{
    return sent < 0 && errno == EPIPE && s->orders == 0;
}

enum status starter_order(struct starter *s, const struct starter_order *order,
                          const struct starter_fds *fds, struct error *error)
{
    enum status status = s->pid == 0 ? process_begin(s, error) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    ssize_t sent = order_send(s, order, fds);
    if (order_meets_the_dead(s, sent)) {
        process_lose(s, ENDED);
        status = process_begin(s, error);
        if (status != STATUS_OK)
            return status;
        sent = order_send(s, order, fds);
    }
    if (sent != (ssize_t)sizeof(*order))
        return error_set(error, STATUS_UNAVAILABLE, "the starter of ranks takes no order: %s",
                         strerror(errno));
    if (s->orders++ == 0)
        silence_begin(s);
    return STATUS_OK;
}

bool starter_is_busy(const struct starter *s)
{
    return s->orders > 0;
}

pid_t starter_pid(const struct starter *s)
{
    return s->pid;
}

enum status starter_create(struct ev_loop *loop, const struct starter_config *config,
                           struct starter **starter, struct error *error)
{
    struct starter *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the starter of ranks");
    s->loop = loop;
    s->config = *config;
    s->fd = -1;
    ev_timer_init(&s->tick, on_tick, 0., TICK_S);
    s->tick.data = s;
    enum status status = process_begin(s, error);
    if (status != STATUS_OK) {
        free(s);
        return status;
    }
    *starter = s;
    return STATUS_OK;
}

void starter_destroy(struct starter *s)
{
    if (!s)
        return;
    process_drop(s);
    free(s);
}
