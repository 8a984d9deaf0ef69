// SPDX-License-Identifier: Apache-2.0
// nng 1.5 has races that shape this file:
// - A request is never sent twice: the resend time is infinite and set before anything is dialled.
//   A link that went down does not dial again.
// - A dial is never aborted, since that can end the daemon's listener for good. It runs in its own
//   thread. When its time is over, the caller goes on, and the thread ends the link after the dial
//   (nng gives up a handshake after 10 s).
// - A receive is posted only after its send is complete; the other order can crash.
// - A connection carries one exchange at a time. If one of several exchanges ends on one side, a
//   send of the other side fails while a read is pending; nng then loses the read, and its reaper
//   of connections waits for the read forever, in the daemon as well.
// - The same can happen when a close meets an arriving answer. Therefore a separate thread ends a
//   link, and the caller waits for it for a limited time.
// - Nothing is started on a context, an operation or a dialer while the socket is being closed, and
//   nothing is aborted while it is being started: the end of a link waits for every start, stops
//   the operation, and closes the socket last.
#include "client/link.h"

#include <errno.h>
#include <limits.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <nng/supplemental/tls/tls.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/link_refusals.h"
#include "common/limits.h"

// nng counts the request id, by which it pairs reply and request, as part of the reply.
#define REPLY_HEADER_BYTES 4
#define DIAL_RETRY_NS      10000000   // while the daemon's backlog is full
#define END_WAIT_NS        1000000000 // far longer than any end that completes

struct link {
    pthread_mutex_t mutex; // guards everything below; never held during `done`
    pthread_cond_t changed;
    int holders;                 // the owner, and the thread that dials or ends
    char path[LINK_ADDRESS_MAX]; // or URL
    nng_tls_config *tls;         // held until the link is freed; NULL: none
    uint64_t until_ns;           // end of the time for dialling
    bool dialled;
    int dial_result;
    bool opened; // `socket` is open
    nng_socket socket;
    nng_dialer dialer;
    nng_ctx context;
    nng_aio *aio;
    bool up, down; // a pipe was added; a pipe was removed, which nng may report first
    int starting;  // calls into nng in progress; the end waits for them
    bool ending;   // no new calls into nng
    bool ended;
    // the exchange
    bool receiving;
    uint64_t deadline_ns;
    link_done *done; // NULL: none under way
    void *arg;
};

// Pid of the process that first used nng; 0: none. nng's threads do not exist in a forked child,
// and any call into nng there would end the child.
static atomic_int first_user;

static bool process_allowed(void)
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

// Takes the callback of the exchange, so that it is called once. Needs the lock.
static link_done *done_take(struct link *link, void **arg)
{
    link_done *done = link->done;
    link->done = NULL;
    *arg = link->arg;
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
        snprintf(text, sizeof text, "not enough memory for the request");
    } else {
        snprintf(text, sizeof text, "talking to the daemon at %s: %s", link->path,
                 nng_strerror(result));
    }
    done(arg, status, text, NULL, 0);
}

// Announces a call into nng, which start_end() must follow. False if the link is ending: make no
// call.
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

// Starts the wait for the answer, after a complete send. False if the link is ending.
static bool receive(struct link *link)
{
    if (!start_begin(link))
        return false;
    link->receiving = true;
    nng_aio_set_timeout(link->aio, milliseconds_until(link->deadline_ns));
    nng_ctx_recv(link->context, link->aio);
    start_end(link);
    return true;
}

// With the lock held.
static void mark_down(struct link *link)
{
    link->up = false;
    link->down = true;
}

// Callback of the aio: nng has completed a send or a receive.
static void progress(void *arg)
{
    struct link *link = arg;
    int result = nng_aio_result(link->aio);
    bool sent = !link->receiving && result == 0, answered = link->receiving && result == 0;
    if (sent && receive(link))
        return;
    if (sent)
        result = NNG_ECLOSED;
    // The reply, or the request that could not be sent; nothing otherwise.
    nng_msg *message = answered || (!link->receiving && !sent) ? nng_aio_get_msg(link->aio) : NULL;
    nng_aio_set_msg(link->aio, NULL);
    void *done_arg;
    pthread_mutex_lock(&link->mutex);
    if (result != 0)
        mark_down(link);
    link_done *done = done_take(link, &done_arg);
    pthread_mutex_unlock(&link->mutex); // from here on another exchange may begin
    if (done && answered)
        answer_reply(message, done, done_arg);
    else if (done)
        answer_failure(link, result, done, done_arg);
    if (message && !answered) // it may hold a token
        explicit_bzero(nng_msg_body(message), nng_msg_len(message));
    nng_msg_free(message);
}

// Answers the waiting exchange, if any. A later result of nng is dropped.
static void answer_lost(struct link *link)
{
    void *arg;
    pthread_mutex_lock(&link->mutex);
    link_done *done = done_take(link, &arg);
    pthread_mutex_unlock(&link->mutex);
    if (done)
        answer_failure(link, NNG_ECONNRESET, done, arg);
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

// The dialer is closed with its pipe, because it would dial again.
static void pipe_removed(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct link *link = arg;
    (void)pipe;
    (void)event;
    pthread_mutex_lock(&link->mutex);
    mark_down(link);
    pthread_mutex_unlock(&link->mutex);
    answer_lost(link);
    if (!start_begin(link))
        return;
    nng_dialer_close(link->dialer);
    start_end(link);
}

static int dialer_open(struct link *link)
{
    char url[sizeof "ipc://" + LINK_ADDRESS_MAX];
    bool remote = net_url_is_meant(link->path);
    snprintf(url, sizeof url, "%s%s", remote ? "" : "ipc://", link->path);
    int result = nng_dialer_create(&link->dialer, link->socket, url);
    if (result == 0 && remote)
        result = nng_dialer_set_bool(link->dialer, NNG_OPT_TCP_KEEPALIVE, true);
    if (result == 0 && link->tls)
        result = nng_dialer_set_ptr(link->dialer, NNG_OPT_TLS_CONFIG, link->tls);
    return result;
}

static int socket_open(struct link *link)
{
    int result = nng_req0_open(&link->socket);
    if (result != 0)
        return result;
    link->opened = true;
    result = nng_socket_set_ms(link->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (result == 0) // after the resend time, which it inherits
        result = nng_ctx_open(&link->context, link->socket);
    if (result == 0)
        result = nng_aio_alloc(&link->aio, progress, link);
    if (result == 0)
        result = nng_socket_set_size(link->socket, NNG_OPT_RECVMAXSZ,
                                     REPLY_BYTES_MAX + REPLY_HEADER_BYTES);
    if (result == 0)
        result = nng_pipe_notify(link->socket, NNG_PIPE_EV_ADD_POST, pipe_added, link);
    if (result == 0)
        result = nng_pipe_notify(link->socket, NNG_PIPE_EV_REM_POST, pipe_removed, link);
    if (result == 0)
        result = dialer_open(link);
    return result;
}

static void pause_ns(long ns)
{
    struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}

// Ends the link: waits for calls into nng, stops the aio, answers the exchange, closes the socket.
static void end_now(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    link->ending = true;
    while (link->starting > 0)
        pthread_cond_wait(&link->changed, &link->mutex);
    pthread_mutex_unlock(&link->mutex);
    nng_aio_stop(link->aio); // and its callback; takes NULL
    answer_lost(link);
    if (link->opened)
        nng_close(link->socket); // and its context
    nng_aio_free(link->aio);
    pthread_mutex_lock(&link->mutex);
    link->ended = true;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
}

// Releases a holder. The last one ends the link, if it has not ended yet, and frees it.
static void leave(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    int holders = --link->holders;
    bool ended = link->ended;
    pthread_mutex_unlock(&link->mutex);
    if (holders > 0)
        return;
    if (!ended)
        end_now(link);
    pthread_cond_destroy(&link->changed);
    pthread_mutex_destroy(&link->mutex);
    if (link->tls)
        nng_tls_config_free(link->tls);
    free(link);
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
    leave(link);
    return NULL;
}

// Starts a thread with all signals blocked, also in threads that nng starts from it.
static int thread_start(void *(*run)(void *), struct link *link, pthread_t *thread)
{
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int result = pthread_create(thread, NULL, run, link);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return result;
}

static struct link *link_create(const struct link_target *target, uint64_t until_ns)
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
    link->holders = 1;
    link->until_ns = until_ns;
    snprintf(link->path, sizeof link->path, "%s", target->address);
    link->tls = target->tls;
    if (link->tls)
        nng_tls_config_hold(link->tls);
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

// Errors of network connections only; `result` is not 0. nng does not tell which side ended a
// handshake.
static enum status remote_status(const char *url, bool tls, int result, struct error *error)
{
    if (result == NNG_EADDRINVAL)
        return error_set(error, STATUS_UNAVAILABLE, "%s: there is no such host", url);
    if (result == NNG_EUNREACHABLE)
        return error_set(error, STATUS_UNAVAILABLE, "%s: there is no route to that host", url);
    if (!tls)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the connection to %s was closed at once: no cpattnd listens there, or "
                         "one with TLS, which takes tls+tcp:// (%s)",
                         url, nng_strerror(result));
    return error_set(error, STATUS_UNAUTHENTICATED,
                     "the TLS handshake with %s failed (%s). The daemon's certificate must "
                     "be signed by an authority in --tls-ca and issued for that name; if the "
                     "daemon asks for a client certificate, --tls-certificate and --tls-key "
                     "must name one that it trusts. The daemon's log has details",
                     url, nng_strerror(result));
}

static enum status closed_at_once(const char *path, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "the daemon at %s closed the connection at once; it has too many clients "
                     "(client_refused in its log), or it is no cpattnd",
                     path);
}

static enum status dial_status(struct link *link, struct error *error)
{
    switch (link->dial_result) {
    case 0:
        return link_up(link) ? STATUS_OK : closed_at_once(link->path, error);
    case NNG_ECONNREFUSED:
        return link_refuse_unreachable(link->path, error);
    case NNG_EPERM:
        return link_refuse_user(link->path, error);
    case NNG_ENOMEM:
    case NNG_ENOFILES:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "connecting to %s: not enough memory or file descriptors", link->path);
    case NNG_ETIMEDOUT:
    case NNG_EAGAIN:
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "the listener at %s did not answer in time", link->path);
    default:
        break;
    }
    if (net_url_is_meant(link->path))
        return remote_status(link->path, link->tls != NULL, link->dial_result, error);
    if (link->dial_result == NNG_ECONNSHUT || link->dial_result == NNG_ECONNRESET ||
        link->dial_result == NNG_ECLOSED)
        return closed_at_once(link->path, error);
    if (link->dial_result == NNG_EADDRINVAL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is no path of a socket", link->path);
    return error_set(error, STATUS_UNAVAILABLE, "connecting to %s: %s", link->path,
                     nng_strerror(link->dial_result));
}

enum status link_check_process(struct error *error)
{
    if (process_allowed())
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "this process was forked from a process with a client; it must exec "
                     "before it can create a client");
}

enum status link_open(const struct link_target *target, uint64_t until_ns, struct link **link,
                      struct error *error)
{
    enum status allowed = link_check_process(error);
    if (allowed != STATUS_OK)
        return allowed;
    pthread_t thread;
    struct link *opening = link_create(target, until_ns);
    if (!opening)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a client");
    opening->holders = 2; // this thread and the one that dials
    if (thread_start(dial, opening, &thread) != 0) {
        opening->holders = 1;
        leave(opening);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no thread could be started");
    }
    if (!wait_flag(opening, &opening->dialled, until_ns)) {
        pthread_detach(thread);
        leave(opening);
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "the listener at %s did not answer in time", target->address);
    }
    pthread_join(thread, NULL);
    enum status status = dial_status(opening, error);
    if (status == STATUS_OK)
        *link = opening;
    else
        link_close(opening);
    return status;
}

bool link_up(struct link *link)
{
    pthread_mutex_lock(&link->mutex);
    bool up = link->up;
    pthread_mutex_unlock(&link->mutex);
    return up;
}

static void *end(void *arg)
{
    end_now(arg);
    leave(arg);
    return NULL;
}

void link_close(struct link *link)
{
    pthread_t thread;
    if (!link)
        return;
    link->holders = 2; // this thread and the one that ends the link
    if (thread_start(end, link, &thread) != 0)
        link->holders = 1;
    else if (wait_flag(link, &link->ended, link_now_ns() + END_WAIT_NS))
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    leave(link);
}

// ---- the exchange -------------------------------------------------------------------------------

static enum status message_create(const void *data, size_t size, nng_msg **message,
                                  struct error *error)
{
    if (size > REQUEST_BYTES_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "a request of %zu bytes exceeds the limit of %d", size, REQUEST_BYTES_MAX);
    if (nng_msg_alloc(message, size) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "memory is short for a request");
    memcpy(nng_msg_body(*message), data, size);
    return STATUS_OK;
}

enum status link_exchange(struct link *link, const void *data, size_t size, uint64_t deadline_ns,
                          link_done *done, void *arg, struct error *error)
{
    nng_msg *message = NULL;
    enum status status = message_create(data, size, &message, error);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&link->mutex);
    bool up = link->up;
    if (up) {
        link->done = done;
        link->arg = arg;
        link->deadline_ns = deadline_ns;
        link->receiving = false;
        link->starting++;
    }
    pthread_mutex_unlock(&link->mutex);
    if (!up) {
        nng_msg_free(message);
        return error_set(error, STATUS_UNAVAILABLE, "the connection to the daemon at %s was lost",
                         link->path);
    }
    nng_aio_set_msg(link->aio, message);
    nng_aio_set_timeout(link->aio, milliseconds_until(deadline_ns));
    nng_ctx_send(link->context, link->aio);
    start_end(link);
    return STATUS_OK;
}
