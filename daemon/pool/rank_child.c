// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/rank_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/process/pidfd.h"
#include "daemon/process/proc.h"

// Maximum number of frames that are read after the process has ended.
#define FRAMES_AT_END_MAX 64
// Time in seconds from the end of the channel to the end of the process. An ending process closes
// its channel first; one that is still alive after this time has closed it deliberately.
#define SILENCE_S         2.
// Period in seconds of the attempts to reap a process that has ended and cannot be reaped yet.
#define REAP_AGAIN_S      .1
// Pause between the checks of a blocking wait for an exit.
#define REAP_PAUSE_MS     2

#define LIBRARY_PIECE_BYTES (INT64_C(33) << 20)

static const struct squad_handler *handler_of(const struct rank_child *c)
{
    return &c->squad->handler;
}

static struct ev_loop *loop_of(const struct rank_child *c)
{
    return c->squad->host->loop;
}

// ---- frames ------------------------------------------------------------------------------------

void rank_child_close(struct rank_child *c)
{
    ev_io_stop(loop_of(c), &c->channel_watcher);
    if (c->channel >= 0)
        close(c->channel);
    c->channel = -1;
}

static void distrust(struct rank_child *c, const struct error *error)
{
    rank_child_close(c);
    handler_of(c)->distrusted(handler_of(c)->context, c->rank, error);
}

static enum status hello_check(struct rank_child *c, const struct channel_frame *frame,
                               const void *payload, struct error *error)
{
    const struct rank_user *user = &c->squad->host->confinement->user;
    enum status status = channel_hello_check(frame, payload, c->rank, error);
    if (status == STATUS_OK && user->set)
        status = confine_check(user, c->pid, error);
    c->heard = status == STATUS_OK;
    if (c->squad->starting)
        ev_idle_start(loop_of(c), &c->squad->awake);
    return status;
}

static enum status frame_handle(struct rank_child *c, const struct channel_frame *frame,
                                const void *payload, struct error *error)
{
    if (frame->generation != c->squad->generation)
        return STATUS_OK;
    enum status status = c->heard ? STATUS_OK : hello_check(c, frame, payload, error);
    if (status == STATUS_OK)
        status = handler_of(c)->frame(handler_of(c)->context, c->rank, frame, payload, error);
    return status;
}

static void end_tell(struct rank_child *c); // defined below

// Receives and handles one frame. False: there is none, or the channel is closed.
static bool frame_take(struct rank_child *c)
{
    struct channel_frame frame;
    struct error error;
    uint8_t *payload = c->squad->host->payload;
    if (c->channel < 0)
        return false;
    enum status status = channel_recv(c->channel, &frame, payload, &error);
    if (status == STATUS_NOT_FOUND)
        return false;
    if (status == STATUS_UNAVAILABLE) {
        rank_child_close(c);
        ev_timer_start(loop_of(c), &c->silence);
        end_tell(c);
        return false;
    }
    if (status == STATUS_OK)
        status = frame_handle(c, &frame, payload, &error);
    if (status != STATUS_OK)
        distrust(c, &error);
    return true;
}

// Handles one frame for each event: mostly there is only one, and a rank that floods its channel
// must not block the loop.
static void on_channel(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    frame_take(watcher->data);
}

static void on_silence(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct rank_child *c = watcher->data;
    struct error error;
    char state = proc_state(c->pid);
    if (state == 'Z' || state == 'X')
        return; // dead; its exit event follows
    error_set(&error, STATUS_UNAVAILABLE, "rank %d closed its channel and continues to run",
              c->rank);
    distrust(c, &error);
}

// ---- the end -----------------------------------------------------------------------------------

static struct rank_end end_of(const siginfo_t *info)
{
    if (info->si_pid == 0)
        return (struct rank_end){.kind = RANK_VANISHED};
    return rank_end_of(info->si_code == CLD_EXITED ? W_EXITCODE(info->si_status, 0)
                                                   : W_EXITCODE(0, info->si_status));
}

void rank_child_signal(const struct rank_child *c, int number)
{
    if (c->pid != 0)
        kill(-c->pid, number);
}

void rank_child_kill(const struct rank_child *c)
{
    if (c->pid == 0)
        return;
    kill(-c->pid, SIGKILL);
    if (c->pidfd >= 0)
        process_fd_signal(c->pidfd, SIGKILL);
}

void rank_child_abandon(struct rank_child *c)
{
    rank_child_kill(c);
    ev_timer_stop(loop_of(c), &c->silence);
    rank_child_close(c);
    c->ending = true;
}

static void process_forget(struct rank_child *c)
{
    ev_io_stop(loop_of(c), &c->exit_watcher);
    ev_timer_stop(loop_of(c), &c->silence);
    ev_timer_stop(loop_of(c), &c->reap);
    rank_child_close(c);
    if (c->pidfd >= 0)
        close(c->pidfd);
    c->pidfd = -1;
    c->pid = 0;
}

// The process has ended but cannot be reaped yet, because its tracer has to wait for it first.
// Polls with a timer in place of the pidfd, which stays readable meanwhile.
static void reap_later(struct rank_child *c)
{
    char text[PROC_TEXT_MAX];
    struct error error;
    if (ev_is_active(&c->reap))
        return;
    ev_io_stop(loop_of(c), &c->exit_watcher);
    ev_timer_again(loop_of(c), &c->reap);
    error_set(&error, STATUS_UNAVAILABLE, "rank %d has ended and cannot be reaped (%s)", c->rank,
              proc_describe(c->pid, text));
    distrust(c, &error);
}

// The channel has ended, which is the first sign of an ending process (channel_last_fd()). Reports
// the end if the kernel shows the exit status before the process can be reaped.
static void end_tell(struct rank_child *c)
{
    int wait_status;
    bool hidden = c->squad->host->confinement->user.set;
    if (c->ending || !proc_exit_status(c->pid, &wait_status) || (wait_status == 0 && hidden))
        return;
    c->ending = true;
    struct rank_end end = rank_end_of(wait_status);
    stderr_pipe_drain(&c->stderr_pipe);
    handler_of(c)->ending(handler_of(c)->context, c->rank, &end);
}

// The process has ended: handles its last frames, reaps it and reports the exit. Kills its group
// before reaping, while the number of the group cannot be reused.
static void end_look(struct rank_child *c)
{
    struct squad *squad = c->squad;
    siginfo_t info = {0};
    char text[RANK_END_TEXT_MAX];
    c->ending = true;
    for (int i = 0; i < FRAMES_AT_END_MAX && frame_take(c); i++)
        ;
    kill(-c->pid, SIGKILL);
    if (process_fd_reap(c->pidfd, &info) == 0 && info.si_pid == 0) {
        reap_later(c);
        return;
    }
    struct rank_end end = end_of(&info);
    log_write(squad->killed ? LOG_LEVEL_DEBUG : LOG_LEVEL_NOTICE,
              "rank_exited rank=%d world=%d generation=%u pid=%d fate=%s", c->rank,
              squad->world_size, squad->generation, (int)c->pid,
              log_quote(&(struct log_quoted){0}, rank_end_text(&end, text)));
    stderr_pipe_drain(&c->stderr_pipe);
    stderr_pipe_fini(&c->stderr_pipe);
    process_forget(c);
    squad->child_gone(squad, c->rank, &end);
}

static void on_exit_watcher(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    end_look(watcher->data);
}

static void on_reap(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    end_look(watcher->data);
}

// ---- state and output --------------------------------------------------------------------------

char rank_child_state(const struct rank_child *c)
{
    return proc_state(c->ending ? 0 : c->pid);
}

// True within LIBRARY_PIECE_BYTES of the limit: libraries allocate pieces of up to 32 MiB, and some
// retry a failed allocation endlessly.
bool rank_child_at_memory_limit(const struct rank_child *c)
{
    int64_t limit = c->squad->host->confinement->memory_bytes;
    return limit > 0 && proc_data_bytes(c->pid) > limit - LIBRARY_PIECE_BYTES;
}

static void on_wrote(void *context, const void *data, size_t size)
{
    const struct rank_child *c = context;
    handler_of(c)->wrote(handler_of(c)->context, c->rank, data, size);
}

// ---- the start ---------------------------------------------------------------------------------

static void watch(struct rank_child *c)
{
    ev_io_init(&c->exit_watcher, on_exit_watcher, c->pidfd, EV_READ);
    ev_io_init(&c->channel_watcher, on_channel, c->channel, EV_READ);
    ev_timer_init(&c->silence, on_silence, SILENCE_S, 0.);
    ev_timer_init(&c->reap, on_reap, 0., REAP_AGAIN_S);
    c->exit_watcher.data = c->channel_watcher.data = c->silence.data = c->reap.data = c;
    ev_io_start(loop_of(c), &c->exit_watcher);
    ev_io_start(loop_of(c), &c->channel_watcher);
}

enum status rank_child_made(struct rank_child *c, pid_t pid, struct error *error)
{
    c->pid = pid;
    c->pidfd = process_fd_open(pid);
    if (c->pidfd < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no descriptor for rank %d: %s", c->rank,
                         strerror(errno));
    watch(c);
    return STATUS_OK;
}

enum status rank_child_order(struct rank_child *c, const int *mesh, int progress_fd,
                             struct error *error)
{
    const struct squad *squad = c->squad;
    struct rank_host *host = squad->host;
    int ends[2] = {-1, -1}, stderr_end = -1;
    enum status status = channel_pair(ends, error);
    c->channel = ends[0];
    if (status == STATUS_OK)
        status = stderr_pipe_init(&c->stderr_pipe, host->loop, on_wrote, c, &stderr_end, error);
    const struct starter_order order = {
        .ticket = squad->ticket,
        .rank = c->rank,
        .world_size = squad->world_size,
        .implementation = squad->guest ? (int)(squad->guest - host->guests->list) + 1 : 0,
        .device = c->device,
        .generation = squad->generation,
    };
    const struct starter_fds fds = {
        .null_fd = host->null_fd,
        .stderr_fd = stderr_end,
        .channel_fd = ends[1],
        .progress_fd = progress_fd,
        .mesh = mesh,
    };
    if (status == STATUS_OK)
        status = starter_order(host->starter, &order, &fds, error);
    if (stderr_end >= 0)
        close(stderr_end);
    if (ends[1] >= 0)
        close(ends[1]);
    return status;
}

static bool reap(pid_t pid, uint64_t deadline_ns)
{
    for (;;) {
        pid_t got = waitpid(pid, NULL, WNOHANG);
        if (got == pid || (got < 0 && errno == ECHILD))
            return true;
        if (clock_now_ns() >= deadline_ns)
            return false;
        poll(NULL, 0, REAP_PAUSE_MS);
    }
}

void rank_child_fini(struct rank_child *c, uint64_t deadline_ns)
{
    char text[PROC_TEXT_MAX];
    if (!c->squad)
        return;
    rank_child_kill(c);
    if (c->pid != 0 && !reap(c->pid, deadline_ns))
        log_error("rank_left_behind rank=%d world=%d generation=%u process=%s", c->rank,
                  c->squad->world_size, c->squad->generation,
                  log_quote(&(struct log_quoted){0}, proc_describe(c->pid, text)));
    process_forget(c);
    stderr_pipe_fini(&c->stderr_pipe);
}
