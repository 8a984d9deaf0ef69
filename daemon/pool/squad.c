// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/squad.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/plural.h"
#include "daemon/pool/rank_child.h"

// Time limit for a process that has got SIGKILL.
#define REAP_MAX_NS (2 * NS_PER_S)
// Time limit for the sockets to ranks of other hosts.
#define MEETING_S   10.

// ---- the end -----------------------------------------------------------------------------------

static void starting_end(struct squad *s)
{
    if (!s->starting)
        return;
    ev_check_stop(s->host->loop, &s->step);
    ev_idle_stop(s->host->loop, &s->awake);
    ev_timer_stop(s->host->loop, &s->meeting);
    mesh_fini(&s->mesh);
    if (s->progress_fd >= 0)
        close(s->progress_fd);
    s->starting = false;
}

void squad_destroy(struct squad *s, uint64_t deadline_ns)
{
    if (!s)
        return;
    for (int rank = 0; s->children && rank < s->world_size; rank++)
        rank_child_kill(&s->children[rank]);
    starting_end(s);
    for (int rank = 0; s->children && rank < s->world_size; rank++)
        rank_child_fini(&s->children[rank], deadline_ns);
    if (s->progress)
        munmap(s->progress, (size_t)s->world_size * sizeof(*s->progress));
    list_remove(&s->node);
    free(s->children);
    free(s);
}

static void child_gone(struct squad *s, int rank, const struct rank_end *end)
{
    s->alive--;
    if (s->error.status == STATUS_OK)
        s->handler.gone(s->handler.context, rank, end);
    else if (s->alive == 0)
        s->handler.not_started(s->handler.context, &s->error);
}

// Fails the start: kills the started ranks and closes their channels. The failure is reported when
// the last of them is reaped. A rank that the starter is creating counts as started.
static void start_fail(struct squad *s, const struct error *error)
{
    int alive = s->making;
    s->error = *error;
    for (int rank = 0; rank < s->world_size; rank++) {
        if (s->children[rank].pid == 0)
            continue;
        rank_child_abandon(&s->children[rank]);
        alive++;
    }
    starting_end(s);
    s->alive = alive;
    if (alive == 0)
        s->handler.not_started(s->handler.context, &s->error);
}

void squad_fail(struct squad *s, const struct error *error)
{
    if (s->starting && !s->killed)
        start_fail(s, error);
}

// Ends the start of a killed squad: reports the ranks that were never created as gone.
static void unstarted_tell(struct squad *s)
{
    const struct rank_end end = {.kind = RANK_LIVES};
    int left[WORLD_SIZE_MAX], count = 0;
    starting_end(s);
    for (int rank = s->next; rank < s->world_size; rank++)
        if (s->children[rank].squad)
            left[count++] = rank;
    for (int i = 0; i < count; i++)
        child_gone(s, left[i], &end);
}

// ---- the start ---------------------------------------------------------------------------------

// Creates the memory of progress words. It is sealed, because the daemon's next read would be fatal
// if a rank shrank it.
static enum status progress_create(struct squad *s, struct error *error)
{
    size_t size = (size_t)s->world_size * sizeof(*s->progress);
    int fd = memfd_create("cpattn-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    s->progress_fd = fd;
    if (memory == MAP_FAILED)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no shared memory for progress: %s",
                         strerror(errno));
    s->progress = memory;
    return STATUS_OK;
}

// Returns the first rank on this host that is `rank` or higher; world_size: there is none.
static int next_here(const struct squad *s, int rank)
{
    while (rank < s->world_size && !s->children[rank].squad)
        rank++;
    return rank;
}

static enum status rank_order_next(struct squad *s, struct error *error)
{
    struct rank_child *c = &s->children[s->next];
    enum status status = mesh_open(&s->mesh, s->next, error);
    if (status == STATUS_OK)
        status = rank_child_order(c, mesh_row(&s->mesh, s->next), s->progress_fd, error);
    if (status != STATUS_OK)
        rank_child_fini(c, 0);
    mesh_close(&s->mesh, s->next);
    s->making = status == STATUS_OK;
    return status;
}

// True if the next rank has to wait until earlier ones have sent HELLO. Guests never wait, because
// they may wait for each other before their first message.
static bool must_wait(const struct squad *s)
{
    int silent = 0;
    for (int rank = 0; rank < s->next; rank++)
        silent += s->children[rank].squad && !s->children[rank].heard;
    return !s->guest && silent >= s->host->starting_max;
}

// Does one step of the start, once in a round of the loop. If the start has to wait, an event
// causes the next step: a socket, a rank's HELLO, or an answer of the starter.
static void on_step(struct ev_loop *loop, ev_check *watcher, int events)
{
    (void)events;
    struct squad *s = watcher->data;
    struct error error;
    ev_idle_stop(loop, &s->awake);
    if (s->making)
        return;
    if (s->killed)
        unstarted_tell(s);
    else if (mesh_lacks(&s->mesh) == 0 && !must_wait(s) && rank_order_next(s, &error) != STATUS_OK)
        start_fail(s, &error);
}

static void starting_go_on(struct squad *s)
{
    if (s->next == s->world_size)
        starting_end(s);
    else
        ev_idle_start(s->host->loop, &s->awake);
}

// The starter's answer for a rank that was requested before the start failed.
static void made_too_late(struct squad *s, bool made)
{
    const struct rank_end end = {.kind = RANK_LIVES};
    if (made)
        rank_child_abandon(&s->children[s->next]);
    else
        child_gone(s, s->next, &end);
}

void squad_made(struct squad *s, pid_t pid, const struct error *told)
{
    struct rank_child *c = &s->children[s->next];
    struct error error = *told;
    s->making = false;
    bool made = error.status == STATUS_OK && rank_child_made(c, pid, &error) == STATUS_OK;
    if (!made)
        rank_child_fini(c, clock_now_ns() + REAP_MAX_NS);
    if (s->error.status != STATUS_OK) {
        made_too_late(s, made);
        return;
    }
    if (made)
        s->next = next_here(s, s->next + 1);
    if (made && s->killed)
        rank_child_kill(c);
    if (made || s->killed)
        starting_go_on(s);
    else
        start_fail(s, &error);
}

static void on_awake(struct ev_loop *loop, ev_idle *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

static void on_meeting(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct squad *s = watcher->data;
    struct error error;
    if (mesh_lacks(&s->mesh) == 0)
        return;
    error_set(&error, STATUS_UNAVAILABLE,
              "%d sockets to ranks of other hosts were not there after %d s", mesh_lacks(&s->mesh),
              (int)MEETING_S);
    squad_fail(s, &error);
}

static enum status squad_init(struct squad *s, const struct squad_start *start, struct error *error)
{
    ev_check_init(&s->step, on_step);
    ev_idle_init(&s->awake, on_awake);
    ev_timer_init(&s->meeting, on_meeting, MEETING_S, 0.);
    s->step.data = s->meeting.data = s;
    s->starting = true;
    s->progress_fd = -1;
    s->children = calloc((size_t)start->world_size, sizeof(*s->children));
    if (!s->children)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool of %d rank%s",
                         start->world_size, plural(start->world_size));
    for (int rank = 0; rank < start->world_size; rank++) {
        struct rank_child *c = &s->children[rank];
        if (start->here && !start->here[rank])
            continue;
        c->squad = s;
        c->rank = rank;
        c->device = start->devices ? start->devices[rank] : -1;
        c->pidfd = c->channel = -1;
        s->here++;
    }
    s->alive = s->here;
    s->next = next_here(s, 0);
    enum status status = progress_create(s, error);
    return status == STATUS_OK ? mesh_init(&s->mesh, start->world_size, start->here, error)
                               : status;
}

enum status squad_create(struct rank_host *host, const struct squad_start *start,
                         const struct squad_handler *handler, struct squad **squad,
                         struct error *error)
{
    struct squad *s = calloc(1, sizeof(*s));
    *squad = NULL;
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool");
    s->host = host;
    s->handler = *handler;
    s->child_gone = child_gone;
    s->generation = start->generation;
    s->guest = start->guest;
    s->world_size = start->world_size;
    list_init(&s->node);
    s->ticket = ++host->tickets;
    list_push_back(&host->squads, &s->node);
    enum status status = squad_init(s, start, error);
    if (status == STATUS_OK && mesh_lacks(&s->mesh) == 0)
        status = rank_order_next(s, error);
    if (status != STATUS_OK) {
        squad_destroy(s, 0);
        return status;
    }
    ev_check_start(host->loop, &s->step);
    ev_timer_start(host->loop, &s->meeting);
    *squad = s;
    return STATUS_OK;
}

bool squad_connect(struct squad *s, int rank, int peer, int fd)
{
    if (s->starting && !s->killed && mesh_put(&s->mesh, rank, peer, fd)) {
        ev_idle_start(s->host->loop, &s->awake);
        return true;
    }
    close(fd);
    return false;
}

// ---- work --------------------------------------------------------------------------------------

enum status squad_send(const struct squad *s, int rank, enum channel_type type, uint64_t job,
                       const void *payload, uint32_t length, const int *fds, int count,
                       struct error *error)
{
    int channel = s->children[rank].channel;
    if (!s->children[rank].squad || channel < 0)
        return error_set(error, STATUS_UNAVAILABLE, "the channel of rank %d is closed", rank);
    return channel_send_fds(channel, type, s->generation, job, payload, length, fds, count, error);
}

void squad_signal(const struct squad *s, int number)
{
    for (int rank = 0; rank < s->world_size; rank++)
        rank_child_signal(&s->children[rank], number);
}

// Marks the squad as killed. If its start is in progress, the next step ends it.
static void starting_wake(struct squad *s)
{
    s->killed = true;
    if (s->starting)
        ev_idle_start(s->host->loop, &s->awake);
}

void squad_kill(struct squad *s)
{
    starting_wake(s);
    for (int rank = 0; rank < s->world_size; rank++)
        rank_child_kill(&s->children[rank]);
}

// SIGCONT lets a rank that is stopped by a signal receive the message. Failures are only logged:
// the rank is dead.
void squad_stop(struct squad *s)
{
    struct error error;
    starting_wake(s);
    for (int rank = 0; rank < s->world_size; rank++) {
        if (s->children[rank].squad &&
            squad_send(s, rank, CHANNEL_STOP, 0, NULL, 0, NULL, 0, &error) != STATUS_OK)
            log_debug("rank_stop rank=%d error=%s", rank,
                      log_quote(&(struct log_quoted){0}, error.text));
    }
    squad_signal(s, SIGCONT);
}

void squad_drain_stderr(struct squad *s)
{
    for (int rank = 0; rank < s->world_size; rank++)
        stderr_pipe_drain(&s->children[rank].stderr_pipe);
}
