// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/pool/rank_process.h"
#include "daemon/process/proc.h"
#include "daemon/process/spawn.h"
#include "daemon/process/strays.h"

// How long the end waits for processes that have had SIGKILL.
#define REAP_MAX_NS (2 * NS_PER_S)

// From asking a rank to end to SIGTERM, and from there to SIGKILL.
#define GRACE_S         .25
#define STRAYS_PAUSE_MS 2

// Of a round of the loop, for starting ranks. Of our own so many at least may be on their way to
// their first word at a time, and as many as there are cores: more of them would keep the daemon
// from its core, and none would be ready sooner.
#define STARTING_MIN   2
#define START_ROUND_NS (4 * NS_PER_MS)

#define LIBRARY_PIECE_BYTES (INT64_C(33) << 20)

// ---- all crews ---------------------------------------------------------------------------------

static void ranks_kill(struct crew *crew)
{
    for (int rank = 0; crew->ranks && rank < crew->world_size; rank++)
        rank_process_kill(&crew->ranks[rank]);
}

static void starting_end(struct crew *crew)
{
    struct crew_starting *s = &crew->starting;
    if (!s->active)
        return;
    ev_check_stop(crew->crews->loop, &s->step);
    ev_idle_stop(crew->crews->loop, &s->awake);
    mesh_fini(&s->mesh);
    if (s->progress_fd >= 0)
        close(s->progress_fd);
    s->active = false;
}

static void crew_fini(struct crew *crew, uint64_t deadline_ns)
{
    ranks_kill(crew);
    starting_end(crew);
    if (crew->crews)
        ev_timer_stop(crew->crews->loop, &crew->grace);
    for (int rank = 0; crew->ranks && rank < crew->world_size; rank++)
        rank_process_fini(&crew->ranks[rank], deadline_ns);
    if (crew->progress)
        munmap(crew->progress, (size_t)crew->world_size * sizeof(*crew->progress));
    free(crew->ranks);
    free(crew->reports);
    free(crew->snapshot);
    memset(crew, 0, sizeof(*crew));
}

// Nothing is heard any more of the ranks that were started; the last that is reaped brings the
// news.
static void start_fail(struct crew *crew, const struct error *error)
{
    int started = crew->starting.next;
    crew->start_error = *error;
    crew->alive -= crew->world_size - started;
    for (int rank = 0; rank < started; rank++)
        rank_process_abandon(&crew->ranks[rank]);
    starting_end(crew);
}

// What is known of a pool is kept for the answers that its last exit brings, and no longer.
static void on_rank_gone(struct crew *crew, int rank)
{
    const struct crew_handler *handler = &crew->crews->handler;
    uint32_t generation = crew->generation;
    crew->alive--;
    if (crew->start_error.status == STATUS_OK)
        handler->exited(handler->context, crew->index, generation, rank, &crew->ranks[rank].end);
    else if (crew->alive == 0)
        handler->not_started(handler->context, crew->index, generation, &crew->start_error);
    if (crew->generation == generation && crew->alive == 0)
        crew_fini(crew, 0);
}

enum status crews_create(struct ev_loop *loop, const char *program, const struct guests *guests,
                         const struct confinement *confinement, const struct crew_handler *handler,
                         struct crews **crews, struct error *error)
{
    struct crews *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the pools");
    c->loop = loop;
    c->handler = *handler;
    c->rank_gone = on_rank_gone;
    c->program = program;
    c->guests = guests;
    c->confinement = confinement;
    c->guest_confinement = *confinement;
    c->guest_confinement.is_guest = true;
    c->kills_strays = strays_are_ours();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    c->starting_max = cores > STARTING_MIN ? (int)cores : STARTING_MIN;
    c->table = calloc(POOLS_MAX, sizeof(*c->table));
    c->environment = spawn_environment_create(false);
    c->guest_environment = spawn_environment_create(true);
    c->null_fd = spawn_fd_lift(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!c->table || !c->environment || !c->guest_environment || c->null_fd < 0) {
        crews_destroy(c);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory or descriptor for the pools");
    }
    *crews = c;
    return STATUS_OK;
}

static bool pid_is_rank(const void *context, pid_t pid)
{
    const struct crews *c = context;
    for (int i = 0; i < POOLS_MAX; i++) {
        const struct crew *crew = &c->table[i];
        for (int rank = 0; rank < crew->world_size; rank++) {
            if (crew->ranks[rank].pid == pid)
                return true;
        }
    }
    return false;
}

void crews_reap_strays(struct crews *c)
{
    strays_end(c->kills_strays, pid_is_rank, c);
}

// Those of ranks that have just been reaped come to us now.
static void strays_finish(struct crews *c, uint64_t deadline_ns)
{
    while (strays_end(c->kills_strays, pid_is_rank, c) > 0 && clock_now_ns() < deadline_ns)
        poll(NULL, 0, STRAYS_PAUSE_MS);
}

void crews_destroy(struct crews *c)
{
    if (!c)
        return;
    uint64_t deadline_ns = clock_now_ns() + REAP_MAX_NS;
    for (int i = 0; c->table && i < POOLS_MAX; i++)
        ranks_kill(&c->table[i]);
    for (int i = 0; c->table && i < POOLS_MAX; i++)
        crew_fini(&c->table[i], deadline_ns);
    if (c->table)
        strays_finish(c, deadline_ns);
    free(c->table);
    spawn_environment_destroy(c->environment);
    spawn_environment_destroy(c->guest_environment);
    if (c->null_fd >= 0)
        close(c->null_fd);
    free(c);
}

struct crew *crews_get(struct crews *c, int index)
{
    return &c->table[index];
}

// ---- one crew ----------------------------------------------------------------------------------

// Sealed, because a rank that cut the memory short would make the daemon's next read fatal.
static int progress_create(struct crew *crew, struct error *error)
{
    size_t size = (size_t)crew->world_size * sizeof(*crew->progress);
    int fd = spawn_fd_lift(memfd_create("cpattn-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        error_set(error, STATUS_RESOURCE_EXHAUSTED, "no shared memory for progress: %s",
                  strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    crew->progress = memory;
    return fd;
}

// Twice: what did not do as asked is told to, then killed.
static void on_grace(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)events;
    struct crew *crew = watcher->data;
    if (crew->told) {
        ev_timer_stop(loop, watcher);
        ranks_kill(crew);
        return;
    }
    crew->told = true;
    for (int rank = 0; rank < crew->world_size; rank++) {
        rank_process_signal(&crew->ranks[rank], SIGTERM);
        rank_process_signal(&crew->ranks[rank], SIGCONT);
    }
}

static enum status crew_init(struct crews *p, struct crew *crew, const struct crew_start *start,
                             struct error *error)
{
    int world_size = start->world_size;
    crew_fini(crew, 0);
    crew->crews = p;
    ev_timer_init(&crew->grace, on_grace, 0., GRACE_S);
    crew->grace.data = crew;
    crew->index = (int)(crew - p->table);
    crew->generation = start->generation;
    crew->implementation = start->implementation;
    crew->guest = start->implementation > 0 ? &p->guests->list[start->implementation - 1] : NULL;
    crew->ranks = calloc((size_t)world_size, sizeof(*crew->ranks));
    crew->reports = calloc((size_t)world_size, sizeof(*crew->reports));
    crew->snapshot = calloc((size_t)world_size, sizeof(*crew->snapshot));
    if (!crew->ranks || !crew->reports || !crew->snapshot)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool of %d ranks",
                         world_size);
    crew->world_size = crew->alive = world_size;
    for (int rank = 0; rank < world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        r->crew = crew;
        r->rank = rank;
        r->device = start->gpus ? start->gpus[rank] : -1;
        r->pidfd = r->channel = -1;
    }
    return STATUS_OK;
}

// ---- the start ---------------------------------------------------------------------------------

static enum status rank_start_next(struct crew *crew, struct error *error)
{
    struct crew_starting *s = &crew->starting;
    struct rank_process *r = &crew->ranks[s->next];
    enum status status = mesh_open(&s->mesh, s->next, error);
    if (status == STATUS_OK)
        status = rank_process_start(r, &s->mesh, s->progress_fd, error);
    if (status != STATUS_OK)
        rank_process_fini(r, clock_now_ns() + REAP_MAX_NS);
    mesh_close(&s->mesh, s->next);
    s->next += status == STATUS_OK;
    return status;
}

// Guests may wait for one another before they say anything.
static bool must_wait(const struct crew *crew)
{
    int silent = 0;
    for (int rank = 0; rank < crew->starting.next; rank++)
        silent += !crew->ranks[rank].said_hello;
    return !crew->guest && silent >= crew->crews->starting_max;
}

// Starts one rank, and more until the time is over.
static enum status ranks_start(struct crew *crew, struct error *error)
{
    uint64_t end_ns = clock_now_ns() + START_ROUND_NS;
    enum status status;
    do
        status = rank_start_next(crew, error);
    while (status == STATUS_OK && crew->starting.next < crew->world_size && !must_wait(crew) &&
           clock_now_ns() < end_ns);
    return status;
}

// Of a crew that was killed: ranks that never were are as good as reaped.
static void unstarted_tell(struct crew *crew)
{
    int world_size = crew->world_size;
    starting_end(crew);
    for (int rank = crew->starting.next; rank < world_size; rank++)
        on_rank_gone(crew, rank);
}

static void on_step(struct ev_loop *loop, ev_check *watcher, int events)
{
    (void)events;
    struct crew *crew = watcher->data;
    struct error error;
    if (crew->killed)
        unstarted_tell(crew);
    else if (must_wait(crew))
        ev_idle_stop(loop, &crew->starting.awake); // for a word of theirs
    else if (ranks_start(crew, &error) != STATUS_OK)
        start_fail(crew, &error);
    else if (crew->starting.next == crew->world_size)
        starting_end(crew);
    else
        ev_idle_start(loop, &crew->starting.awake);
}

static void on_awake(struct ev_loop *loop, ev_idle *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
}

static enum status starting_begin(struct crew *crew, struct error *error)
{
    struct crew_starting *s = &crew->starting;
    *s = (struct crew_starting){.active = true};
    ev_check_init(&s->step, on_step);
    ev_idle_init(&s->awake, on_awake);
    s->step.data = crew;
    s->progress_fd = progress_create(crew, error);
    return s->progress_fd < 0 ? error->status : mesh_init(&s->mesh, crew->world_size, error);
}

enum status crew_start(struct crews *crews, int index, const struct crew_start *start,
                       struct error *error)
{
    struct crew *crew = &crews->table[index];
    enum status status = crew_init(crews, crew, start, error);
    if (status == STATUS_OK)
        status = starting_begin(crew, error);
    if (status == STATUS_OK)
        status = ranks_start(crew, error);
    if (status != STATUS_OK && crew->starting.next == 0) {
        crew_fini(crew, clock_now_ns() + REAP_MAX_NS);
        return status;
    }
    if (status != STATUS_OK) {
        start_fail(crew, error);
    } else if (crew->starting.next == crew->world_size) {
        starting_end(crew);
    } else {
        ev_check_start(crews->loop, &crew->starting.step);
        ev_idle_start(crews->loop, &crew->starting.awake);
    }
    return STATUS_OK;
}

// ---- work --------------------------------------------------------------------------------------

// Descriptors first, so that they are there when the case is read.
static enum status tensors_send(const struct rank_process *r, uint64_t job,
                                const struct crew_task *task, struct error *error)
{
    struct places_frame frame = {.places = *task->places,
                                 .has_given = task->given_fd >= 0,
                                 .has_wanted = task->wanted_fd >= 0};
    int fds[CHANNEL_FDS_MAX], count = 0;
    if (frame.has_given)
        fds[count++] = task->given_fd;
    if (frame.has_wanted)
        fds[count++] = task->wanted_fd;
    return channel_send_fds(r->channel, CHANNEL_TENSORS, r->crew->generation, job, &frame,
                            sizeof(frame), fds, count, error);
}

static enum status job_send(const struct rank_process *r, uint64_t job,
                            const struct crew_task *task, const struct job_frame *frame,
                            uint32_t bytes, struct error *error)
{
    enum status status = task->places ? tensors_send(r, job, task, error) : STATUS_OK;
    if (status == STATUS_OK)
        status =
            channel_send(r->channel, CHANNEL_CASE, r->crew->generation, job, frame, bytes, error);
    return status;
}

void crew_run(struct crew *crew, uint64_t job, const struct crew_task *task)
{
    struct job_frame frame;
    uint32_t bytes = job_frame_fill(&frame, task->spec);
    crew->job = job;
    crew->kind = task->spec->kind;
    crew->verify = job_spec_needs(task->spec).verdict;
    for (int rank = 0; rank < crew->world_size; rank++)
        crew->ranks[rank].reported = false;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        struct error error;
        // Without a channel its end is known and about to be reported.
        if (r->channel < 0)
            continue;
        enum status status = job_send(r, job, task, &frame, bytes, &error);
        // Where the other end is closed, the channel's watcher finds that out, after what the rank
        // had to say, and the exit tells why.
        if (status == STATUS_OK || status == STATUS_UNAVAILABLE)
            continue;
        error_prefix(&error, "rank %d does not take the case", rank);
        rank_process_distrust(r, &error);
    }
}

// Libraries ask for pieces of up to 32 MiB, and some ask again for ever when they do not get them.
static bool at_memory_limit(const struct rank_process *r)
{
    int64_t limit = r->crew->crews->confinement->memory_bytes;
    return limit > 0 && proc_data_bytes(r->pid) > limit - LIBRARY_PIECE_BYTES;
}

void crew_snapshot(struct crew *crew)
{
    if (crew->killed)
        return;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        progress_store(&crew->snapshot[rank], progress_load(&crew->progress[rank]));
        r->state = proc_state(r->ending ? 0 : r->pid);
        r->at_memory_limit = at_memory_limit(r);
    }
}

// Whether all of its ranks are well and have nothing to do.
static bool crew_rests(const struct crew *crew)
{
    bool rests = crew->alive == crew->world_size;
    for (int rank = 0; rank < crew->world_size && rests; rank++) {
        const struct rank_process *r = &crew->ranks[rank];
        rests = r->said_ready && r->channel >= 0 && r->failure.status == STATUS_OK &&
                (crew->job == 0 || r->reported);
    }
    return rests;
}

void crew_kill(struct crew *crew)
{
    crew_snapshot(crew);
    bool rests = !crew->killed && crew_rests(crew);
    crew->killed = true;
    if (!rests) {
        ranks_kill(crew);
        return;
    }
    ev_timer_again(crew->crews->loop, &crew->grace);
    for (int rank = 0; rank < crew->world_size; rank++)
        rank_process_stop(&crew->ranks[rank]);
}

bool crew_is_ready(const struct crew *crew)
{
    bool ready = crew->world_size > 0;
    for (int rank = 0; rank < crew->world_size; rank++)
        ready = ready && crew->ranks[rank].said_ready;
    return ready;
}

void crew_drain_stderr(struct crew *crew)
{
    for (int rank = 0; rank < crew->world_size; rank++)
        stderr_pipe_drain(&crew->ranks[rank].stderr_pipe);
}
