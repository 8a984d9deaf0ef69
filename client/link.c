// SPDX-License-Identifier: Apache-2.0
// What nng 1.5 needs of its user shapes this file:
// - A request is never sent twice: the resend time is infinite, set before anything is dialled, and
// a
//   link that went down does not dial again.
// - A dial is never broken off, since that can end the daemon's listener for good. It runs in a
// thread of
//   its own; when its time is over the caller goes on, and the thread closes the socket once the
//   dial has ended (nng gives up a handshake after 10 s).
// - A receive is posted only when its send is complete; the other order can crash.
// - A close can wait for ever: when a connection ends while a message is half read, nng loses the
// read
//   and its reaper waits for it. The end of a link therefore runs in a thread of its own and is
//   waited for only so long.
// - Nothing is started on a context, an operation or a dialer while the socket is being closed, and
//   nothing is aborted while it is being started: the end of a link waits for every start under
//   way, stops all operations, and closes the socket last.
#include "client/link.h"

#include <errno.h>
#include <limits.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/list.h"

// What nng counts of a reply beside the reply: the number it pairs request and reply by.
#define REPLY_HEADER_BYTES 4
// Exchanges at once. Far above what a client asks for, below what a daemon admits.
#define SLOTS_MAX          (2 * JOBS_MAX)
#define DIAL_RETRY_NS      10000000   // while the daemon's backlog is full
#define END_WAIT_NS        1000000000 // far longer than an end takes that comes at all

// An exchange: a context of the socket, used again and again.
struct slot {
    struct list node;  // on link->idle or link->busy
    struct list place; // on link->slots
    struct link *link;
    nng_ctx context;
    nng_aio *aio;
    bool receiving;
    uint64_t deadline_ns;
    link_done *done; // NULL: answered
    void *arg;
};

struct link {
    pthread_mutex_t mutex; // over everything below; never held while `done` is called
    pthread_cond_t changed;
    int holders;
    char path[LINK_PATH_MAX];
    uint64_t until_ns;
    bool dialled;
    int dial_result;
    bool opened; // `socket` is one
    nng_socket socket;
    nng_dialer dialer;
    bool up, down; // a pipe came; it went, which may be told first
    struct list idle, busy, slots;
    int slot_count;
    int starting; // calls into nng under way that the end has to wait for
    bool ending;  // no more of those
    bool ended;
};

// nng lives in threads, which a fork does not carry along: in a child of a process that used it,
// any call ends the process. The pid of the first user, for all links of the process.
static atomic_int first_user;

bool link_allowed(void)
{
    int nobody = 0, self = (int)getpid();
    return atomic_compare_exchange_strong(&first_user, &nobody, self) || nobody == self;
}

uint64_t link_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static nng_duration milliseconds_until(uint64_t deadline_ns)
{
    uint64_t now = link_now_ns();
    uint64_t left = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 1;
    return left < INT_MAX ? (nng_duration)left : INT_MAX;
}

// ---- answers ------------------------------------------------------------------------------------

// Takes the callback off the slot, so that it is called once. With the lock held.
static link_done *slot_take(struct slot *slot, void **arg)
{
    link_done *done = slot->done;
    slot->done = NULL;
    *arg = slot->arg;
    return done;
}

static void answer_reply(nng_msg *message, link_done *done, void *arg)
{
    size_t size = nng_msg_len(message);
    void *data = malloc(size + 1); // never 0
    if (!data) {
        done(arg, STATUS_RESOURCE_EXHAUSTED, "memory is short for the reply", NULL, 0);
        return;
    }
    memcpy(data, nng_msg_body(message), size);
    done(arg, STATUS_OK, "", data, size);
}

static void answer_failure(const struct link *link, int result, link_done *done, void *arg)
{
    char text[ERROR_TEXT_MAX];
    enum status status = STATUS_INTERNAL;
    if (result == NNG_ETIMEDOUT) {
        status = STATUS_DEADLINE_EXCEEDED;
        snprintf(text, sizeof text, "the daemon at %s did not answer in time", link->path);
    } else if (result == NNG_ECONNRESET || result == NNG_ECLOSED || result == NNG_ECANCELED) {
        status = STATUS_UNAVAILABLE;
        snprintf(text, sizeof text,
                 "the connection to the daemon at %s was lost before the answer came", link->path);
    } else if (result == NNG_ENOMEM) {
        status = STATUS_RESOURCE_EXHAUSTED;
        snprintf(text, sizeof text, "memory is short for the request");
    } else {
        snprintf(text, sizeof text, "talking to the daemon at %s: %s", link->path,
                 nng_strerror(result));
    }
    done(arg, status, text, NULL, 0);
}

// Asks to start something in nng; false when the link is ending.
static bool start_begin(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    bool begins = !link->ending;
    link->starting += begins;
    pthread_mutex_unlock(&link->mutex);
    return begins;
}

static void start_end(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->starting--;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
}

// The send of a slot is complete: now its answer may be waited for. False when the link is ending.
static bool slot_receive(struct slot *slot)
{
    struct link *link = slot->link;
    if (!start_begin(link))
        return false;
    slot->receiving = true;
    nng_aio_set_timeout(slot->aio, milliseconds_until(slot->deadline_ns));
    nng_ctx_recv(slot->context, slot->aio);
    start_end(link);
    return true;
}

// With the lock held.
static void link_mark_down(struct link *link)
{
    link->up = false;
    link->down = true;
}

// nng is done with what it was asked for.
static void slot_progress(void *arg)
{
    struct slot *slot = arg;
    struct link *link = slot->link;
    int result = nng_aio_result(slot->aio);
    bool sent = !slot->receiving && result == 0, answered = slot->receiving && result == 0;
    if (sent && slot_receive(slot))
        return;
    if (sent)
        result = NNG_ECLOSED;
    // The reply, or the request that could not be sent; nothing otherwise.
    nng_msg *message = answered || (!slot->receiving && !sent) ? nng_aio_get_msg(slot->aio) : NULL;
    nng_aio_set_msg(slot->aio, NULL);
    void *done_arg;
    pthread_mutex_lock(&link->mutex);
    if (result == NNG_ECONNRESET || result == NNG_ECLOSED)
        link_mark_down(link); // whoever asks again at once shall not be sent here
    link_done *done = slot_take(slot, &done_arg);
    list_remove(&slot->node);
    list_push_back(&link->idle, &slot->node);
    pthread_mutex_unlock(&link->mutex); // from here on the slot may be another exchange's
    if (done && answered)
        answer_reply(message, done, done_arg);
    else if (done)
        answer_failure(link, result, done, done_arg);
    nng_msg_free(message);
}

// The callback of the first slot that waits for one. With the lock held.
static link_done *busy_take(struct link *link, void **arg)
{
    LIST_FOREACH (node, &link->busy) {
        link_done *done = slot_take(LIST_ENTRY(node, struct slot, node), arg);
        if (done)
            return done;
    }
    return NULL;
}

// Answers whatever still waits. What nng says about it later is dropped.
static void link_answer_all(struct link *link)
{
    link_done *done;
    do {
        void *arg;
        pthread_mutex_lock(&link->mutex);
        done = busy_take(link, &arg);
        pthread_mutex_unlock(&link->mutex);
        if (done)
            answer_failure(link, NNG_ECONNRESET, done, arg);
    } while (done);
}

// ---- the connection -----------------------------------------------------------------------------

static void pipe_added(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    (void)pipe;
    (void)event;
    pthread_mutex_lock(&link->mutex);
    link->up = !link->down;
    pthread_mutex_unlock(&link->mutex);
}

// The dialer is closed with its pipe, since it would dial again by itself.
static void pipe_removed(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    (void)pipe;
    (void)event;
    pthread_mutex_lock(&link->mutex);
    link_mark_down(link);
    pthread_mutex_unlock(&link->mutex);
    link_answer_all(link);
    if (!start_begin(link))
        return;
    nng_dialer_close(link->dialer);
    start_end(link);
}

static int socket_open(struct link *link)
{
    char url[sizeof "ipc://" + LINK_PATH_MAX];
    snprintf(url, sizeof url, "ipc://%s", link->path);
    int result = nng_req0_open(&link->socket);
    if (result != 0)
        return result;
    link->opened = true;
    result = nng_socket_set_ms(link->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (result == 0)
        result = nng_socket_set_size(link->socket, NNG_OPT_RECVMAXSZ,
                                     REPLY_BYTES_MAX + REPLY_HEADER_BYTES);
    if (result == 0)
        result = nng_pipe_notify(link->socket, NNG_PIPE_EV_ADD_POST, pipe_added, link);
    if (result == 0)
        result = nng_pipe_notify(link->socket, NNG_PIPE_EV_REM_POST, pipe_removed, link);
    if (result == 0)
        result = nng_dialer_create(&link->dialer, link->socket, url);
    return result;
}

static void pause_ns(long ns)
{
    struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}

static void *dial(void *arg)
{
    struct link *link = arg;
    int result = socket_open(link);
    if (result == 0)
        result = nng_dialer_start(link->dialer, 0);
    while (result == NNG_EAGAIN && link_now_ns() < link->until_ns) {
        pause_ns(DIAL_RETRY_NS);
        result = nng_dialer_start(link->dialer, 0);
    }
    pthread_mutex_lock(&link->mutex);
    link->dialled = true;
    link->dial_result = result;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
    link_release(link);
    return NULL;
}

// Starts a thread that takes no signals; nor do those that nng starts from it.
static int thread_start(void *(*run)(void *), struct link *link, pthread_t *thread)
{
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int result = pthread_create(thread, NULL, run, link);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return result;
}

static struct link *link_create(const char *path, uint64_t until_ns)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&link->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&link->mutex, NULL);
    list_init(&link->idle);
    list_init(&link->busy);
    list_init(&link->slots);
    link->holders = 1;
    link->until_ns = until_ns;
    snprintf(link->path, sizeof link->path, "%s", path);
    return link;
}

// Waits until *flag is set; false when the time is over.
static bool wait_flag(struct link *link, const bool *flag, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    int result = 0;
    pthread_mutex_lock(&link->mutex);
    while (!*flag && result == 0)
        result = pthread_cond_timedwait(&link->changed, &link->mutex, &until);
    bool set = *flag;
    pthread_mutex_unlock(&link->mutex);
    return set;
}

static enum status refuse_unreachable(const char *path, struct error *error)
{
    struct stat status;
    bool absent = stat(path, &status) != 0 && errno == ENOENT;
    return error_set(error, STATUS_UNAVAILABLE,
                     "no daemon at %s: %s; start it with 'systemctl start cpattnd' or "
                     "'cpattnd --socket %s'",
                     path, absent ? "there is no such socket" : "nobody listens there", path);
}

static enum status dial_status(struct link *link, struct error *error)
{
    switch (link->dial_result) {
    case 0:
        if (link_up(link))
            return STATUS_OK;
        return error_set(error, STATUS_UNAVAILABLE,
                         "the daemon at %s closed the connection at once; it has too many "
                         "clients, or it is no cpattnd",
                         link->path);
    case NNG_ECONNREFUSED:
        return refuse_unreachable(link->path, error);
    case NNG_EPERM:
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "the socket %s may not be used by this user; its group may", link->path);
    case NNG_ENOMEM:
    case NNG_ENOFILES:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "connecting to %s: memory or file descriptors are short", link->path);
    case NNG_EADDRINVAL:
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is no path of a socket", link->path);
    case NNG_ETIMEDOUT:
    case NNG_EAGAIN:
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "somebody listens at %s but did not answer in time", link->path);
    default:
        return error_set(error, STATUS_UNAVAILABLE, "connecting to %s: %s", link->path,
                         nng_strerror(link->dial_result));
    }
}

enum status link_open(const char *path, uint64_t until_ns, struct link **link, struct error *error)
{
    if (!link_allowed())
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this process was forked from one that had a client; it has to exec "
                         "before it can have one of its own");
    pthread_t thread;
    struct link *opening = link_create(path, until_ns);
    if (!opening)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a client");
    link_hold(opening);
    if (thread_start(dial, opening, &thread) != 0) {
        link_release(opening);
        link_release(opening);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no thread could be started");
    }
    if (!wait_flag(opening, &opening->dialled, until_ns)) {
        pthread_detach(thread);
        link_release(opening);
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "somebody listens at %s but did not answer in time", path);
    }
    pthread_join(thread, NULL);
    enum status status = dial_status(opening, error);
    if (status == STATUS_OK)
        *link = opening;
    else
        link_release(opening);
    return status;
}

bool link_up(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    bool up = link->up;
    pthread_mutex_unlock(&link->mutex);
    return up;
}

void link_hold(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->holders++;
    pthread_mutex_unlock(&link->mutex);
}

static void wait_starts(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->ending = true;
    while (link->starting > 0)
        pthread_cond_wait(&link->changed, &link->mutex);
    pthread_mutex_unlock(&link->mutex);
}

// Ends everything that lives in nng.
static void link_close(struct link *link)
{
    wait_starts(link);
    LIST_FOREACH (place, &link->slots)
        nng_aio_stop(LIST_ENTRY(place, struct slot, place)->aio); // and its callback
    link_answer_all(link);
    if (link->opened)
        nng_close(link->socket); // and its contexts
    LIST_FOREACH (place, &link->slots) {
        struct slot *slot = LIST_ENTRY(place, struct slot, place);
        nng_aio_free(slot->aio);
        free(slot);
    }
}

// True for the last holder.
static bool holder_leave(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    int holders = --link->holders;
    pthread_mutex_unlock(&link->mutex);
    return holders == 0;
}

static void link_free(struct link *link)
{
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->mutex);
    free(link);
}

static void *end(void *arg)
{
    struct link *link = arg;
    link_close(link);
    pthread_mutex_lock(&link->mutex);
    link->ended = true;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
    if (holder_leave(link))
        link_free(link);
    return NULL;
}

void link_release(struct link *link)
{
    pthread_t thread;
    if (!link || !holder_leave(link))
        return;
    link->holders = 2; // this thread and the one that ends the link
    if (thread_start(end, link, &thread) != 0)
        end(link);
    else if (wait_flag(link, &link->ended, link_now_ns() + END_WAIT_NS))
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    if (holder_leave(link))
        link_free(link);
}

// ---- exchanges ----------------------------------------------------------------------------------

static struct slot *slot_create(struct link *link)
{
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->link = link;
    list_init(&slot->node);
    list_init(&slot->place);
    if (nng_ctx_open(&slot->context, link->socket) != 0 ||
        nng_aio_alloc(&slot->aio, slot_progress, slot) != 0) {
        free(slot); // the context goes with the socket
        return NULL;
    }
    list_push_back(&link->slots, &slot->place);
    link->slot_count++;
    return slot;
}

// A slot for one exchange, on the busy list; NULL when there is none. With the lock held.
static struct slot *slot_get(struct link *link)
{
    struct list *node = list_pop_front(&link->idle);
    struct slot *slot = node ? LIST_ENTRY(node, struct slot, node) : NULL;
    if (!slot && link->slot_count < SLOTS_MAX)
        slot = slot_create(link);
    if (!slot)
        return NULL;
    list_push_back(&link->busy, &slot->node);
    return slot;
}

static enum status message_create(const void *data, size_t size, nng_msg **message,
                                  struct error *error)
{
    if (nng_msg_alloc(message, size) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a request");
    memcpy(nng_msg_body(*message), data, size);
    return STATUS_OK;
}

enum status link_exchange(struct link *link, const void *data, size_t size, uint64_t deadline_ns,
                          link_done *done, void *arg, struct error *error)
{
    nng_msg *message;
    if (size > REQUEST_BYTES_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "a request of %zu bytes is larger than the %d that one may have", size,
                         REQUEST_BYTES_MAX);
    enum status status = message_create(data, size, &message, error);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&link->mutex);
    bool up = link->up;
    struct slot *slot = up ? slot_get(link) : NULL;
    if (slot) {
        slot->done = done;
        slot->arg = arg;
        slot->deadline_ns = deadline_ns;
        slot->receiving = false;
    }
    pthread_mutex_unlock(&link->mutex);
    if (!slot) {
        nng_msg_free(message);
        return up ? error_set(error, STATUS_RESOURCE_EXHAUSTED, "no room for another request")
                  : error_set(error, STATUS_UNAVAILABLE,
                              "the connection to the daemon at %s was lost", link->path);
    }
    nng_aio_set_msg(slot->aio, message);
    nng_aio_set_timeout(slot->aio, milliseconds_until(deadline_ns));
    nng_ctx_send(slot->context, slot->aio);
    return STATUS_OK;
}
