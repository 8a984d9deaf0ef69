// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/crew.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/plural.h"
#include "daemon/pool/rank_child.h"
#include "daemon/pool/rank_host.h"
#include "daemon/pool/rank_process.h"
#include "daemon/pool/squad.h"

// Time limit of crews_destroy() for processes that have got SIGKILL.
#define REAP_MAX_NS (2 * NS_PER_S)

// Time in seconds from the STOP message to SIGTERM, and from SIGTERM to SIGKILL.
#define GRACE_S .25

// Visits the other hosts that have ranks of the crew.
#define FAR_FOREACH(host, crew)                                                                    \
    for (int host = 0; host < HOSTS_MAX; host++)                                                   \
        if ((crew)->far >> host & 1)

// ---- all crews ---------------------------------------------------------------------------------

static void ranks_kill(struct crew *crew)
{
    const struct far_hosts *far = &crew->crews->far;
    if (crew->squad)
        squad_kill(crew->squad);
    FAR_FOREACH(host, crew)
    far->kill(far->context, host, crew->generation);
}

static void crew_fini(struct crew *crew, uint64_t deadline_ns)
{
    if (!crew->crews)
        return;
    if (crew->alive > 0)
        ranks_kill(crew);
    ev_timer_stop(crew->crews->loop, &crew->grace);
    squad_destroy(crew->squad, deadline_ns);
    for (int rank = 0; crew->ranks && rank < crew->world_size; rank++)
        stderr_text_fini(&crew->ranks[rank].stderr_text);
    free(crew->ranks);
    free(crew->reports);
    free(crew->words);
    free(crew->snapshot);
    memset(crew, 0, sizeof(*crew));
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
    c->guests = guests;
    c->table = calloc(POOLS_MAX, sizeof(*c->table));
    enum status status = rank_host_init(&c->host, loop, program, guests, confinement, error);
    if (status == STATUS_OK && !c->table)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the pools");
    if (status != STATUS_OK) {
        crews_destroy(c);
        return status;
    }
    *crews = c;
    return STATUS_OK;
}

void crews_set_far(struct crews *crews, const struct far_hosts *far)
{
    crews->far = *far;
}

void crews_reap_strays(struct crews *c)
{
    rank_host_reap_strays(&c->host);
}

void crews_destroy(struct crews *c)
{
    if (!c)
        return;
    uint64_t deadline_ns = clock_now_ns() + REAP_MAX_NS;
    for (int i = 0; c->table && i < POOLS_MAX; i++)
        if (c->table[i].crews)
            ranks_kill(&c->table[i]);
    for (int i = 0; c->table && i < POOLS_MAX; i++)
        crew_fini(&c->table[i], deadline_ns);
    rank_host_fini(&c->host, deadline_ns);
    free(c->table);
    free(c);
}

struct crew *crews_get(struct crews *crews, int index)
{
    return &crews->table[index];
}

// ---- events of ranks on any host ---------------------------------------------------------------

// Frees the data of a pool if all its ranks are gone. Call after the handler: the answers that the
// last exit causes need the data.
static void ranks_gone(struct crew *crew, uint32_t generation)
{
    if (crew->generation == generation && crew->alive == 0)
        crew_fini(crew, 0);
}

static void not_started(struct crew *crew, int host, const struct error *error)
{
    const struct crew_handler *handler = &crew->crews->handler;
    uint32_t generation = crew->generation;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        crew->alive -= r->host == host && !r->gone;
        if (r->host == host)
            r->gone = r->closed = true;
    }
    handler->not_started(handler->context, crew->index, generation, host, error);
    ranks_gone(crew, generation);
}

static void distrusted(struct rank_process *r, const struct error *error)
{
    if (r->crew->squad && r->host == HOST_HERE)
        rank_child_close(&r->crew->squad->children[r->rank]);
    rank_process_distrust(r, error);
}

static void ending(struct rank_process *r, const struct rank_end *end)
{
    const struct crew_handler *handler = &r->crew->crews->handler;
    r->ending = true;
    r->end = *end;
    handler->ending(handler->context, r->crew->index, r->crew->generation, r->rank, end);
}

static void gone(struct rank_process *r, const struct rank_end *end)
{
    struct crew *crew = r->crew;
    const struct crew_handler *handler = &crew->crews->handler;
    uint32_t generation = crew->generation;
    r->ending = r->gone = r->closed = true;
    r->end = *end;
    crew->alive--;
    stderr_text_end(&r->stderr_text);
    handler->exited(handler->context, crew->index, generation, r->rank, end);
    ranks_gone(crew, generation);
}

// ---- from this host ----------------------------------------------------------------------------

static void on_not_started(void *context, const struct error *error)
{
    not_started(context, HOST_HERE, error);
}

static enum status on_frame(void *context, int rank, const struct channel_frame *frame,
                            const void *payload, struct error *error)
{
    struct crew *crew = context;
    return rank_process_frame(&crew->ranks[rank], frame, payload, error);
}

static void on_distrusted(void *context, int rank, const struct error *error)
{
    struct crew *crew = context;
    distrusted(&crew->ranks[rank], error);
}

static void on_ending(void *context, int rank, const struct rank_end *end)
{
    struct crew *crew = context;
    ending(&crew->ranks[rank], end);
}

static void on_gone(void *context, int rank, const struct rank_end *end)
{
    struct crew *crew = context;
    gone(&crew->ranks[rank], end);
}

static void on_wrote(void *context, int rank, const void *data, size_t size)
{
    struct crew *crew = context;
    stderr_text_add(&crew->ranks[rank].stderr_text, data, size);
}

// ---- from other hosts --------------------------------------------------------------------------

static struct crew *far_crew(struct crews *crews, const struct far_rank *at)
{
    if (at->pool < 0 || at->pool >= POOLS_MAX)
        return NULL;
    struct crew *crew = &crews->table[at->pool];
    return crew->crews && crew->generation == at->generation && at->host < HOSTS_MAX &&
                   (crew->far >> at->host & 1)
               ? crew
               : NULL;
}

static struct rank_process *far_rank(struct crews *crews, const struct far_rank *at)
{
    struct crew *crew = far_crew(crews, at);
    if (!crew || at->rank < 0 || at->rank >= crew->world_size)
        return NULL;
    struct rank_process *r = &crew->ranks[at->rank];
    return r->host == at->host && !r->gone ? r : NULL;
}

void crews_far_not_started(struct crews *crews, const struct far_rank *at,
                           const struct error *error)
{
    struct crew *crew = far_crew(crews, at);
    if (crew)
        not_started(crew, at->host, error);
}

void crews_far_frame(struct crews *crews, const struct far_rank *at,
                     const struct channel_frame *frame, const void *payload)
{
    struct rank_process *r = far_rank(crews, at);
    struct error error;
    if (r && !r->closed && rank_process_frame(r, frame, payload, &error) != STATUS_OK)
        distrusted(r, &error);
}

void crews_far_distrusted(struct crews *crews, const struct far_rank *at, const struct error *error)
{
    struct rank_process *r = far_rank(crews, at);
    if (r)
        distrusted(r, error);
}

void crews_far_ending(struct crews *crews, const struct far_rank *at, const struct rank_end *end)
{
    struct rank_process *r = far_rank(crews, at);
    if (r && !r->ending)
        ending(r, end);
}

void crews_far_gone(struct crews *crews, const struct far_rank *at, const struct rank_end *end)
{
    struct rank_process *r = far_rank(crews, at);
    if (r)
        gone(r, end);
}

void crews_far_wrote(struct crews *crews, const struct far_rank *at, const void *data, size_t size)
{
    struct rank_process *r = far_rank(crews, at);
    if (r)
        stderr_text_add(&r->stderr_text, data, size);
}

void crews_far_seen(struct crews *crews, const struct far_rank *at, const struct progress *word,
                    char state, bool at_memory_limit)
{
    struct rank_process *r = far_rank(crews, at);
    if (!r)
        return;
    progress_store(&r->crew->progress[r->rank], progress_load(word));
    r->far_state = state;
    r->far_at_memory_limit = at_memory_limit;
}

void crews_connect(struct crews *crews, int pool, uint32_t generation, int rank, int peer, int fd)
{
    struct crew *crew = &crews->table[pool];
    if (crew->generation == generation && crew->squad)
        squad_connect(crew->squad, rank, peer, fd);
    else
        close(fd);
}

void crews_not_connected(struct crews *crews, int pool, uint32_t generation,
                         const struct error *error)
{
    struct crew *crew = &crews->table[pool];
    if (crew->generation == generation && crew->squad)
        squad_fail(crew->squad, error);
}

void crews_host_lost(struct crews *crews, int host)
{
    for (int i = 0; i < POOLS_MAX; i++) {
        struct crew *crew = &crews->table[i];
        if (!crew->crews || !(crew->far >> host & 1))
            continue;
        crew->far &= ~(UINT64_C(1) << host);
        for (int rank = 0; rank < crew->world_size; rank++) {
            struct rank_process *r = &crew->ranks[rank];
            crew->alive -= r->host == host && !r->gone;
            if (r->host == host)
                r->gone = r->closed = true;
        }
        ranks_gone(crew, crew->generation);
    }
}

// ---- the start ---------------------------------------------------------------------------------

// Called twice per kill: first sends SIGTERM, then SIGKILL.
static void on_grace(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)events;
    struct crew *crew = watcher->data;
    const struct far_hosts *far = &crew->crews->far;
    if (crew->told) {
        ev_timer_stop(loop, watcher);
        ranks_kill(crew);
        return;
    }
    crew->told = true;
    if (crew->squad) {
        squad_signal(crew->squad, SIGTERM);
        squad_signal(crew->squad, SIGCONT);
    }
    FAR_FOREACH(host, crew)
    {
        far->signal(far->context, host, crew->generation, SIGTERM);
        far->signal(far->context, host, crew->generation, SIGCONT);
    }
}

static enum status ranks_init(struct crew *crew, const struct crew_start *start,
                              struct error *error)
{
    enum status status = STATUS_OK;
    for (int rank = 0; rank < crew->world_size && status == STATUS_OK; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        r->crew = crew;
        r->rank = rank;
        r->host = start->hosts ? start->hosts[rank] : HOST_HERE;
        r->far_state = 'S';
        crew->far |= r->host == HOST_HERE ? 0 : UINT64_C(1) << r->host;
        status = stderr_text_init(&r->stderr_text, rank, crew->world_size, crew->generation, error);
    }
    return status;
}

static enum status crew_init(struct crews *p, struct crew *crew, const struct crew_start *start,
                             struct error *error)
{
    size_t world_size = (size_t)start->world_size;
    crew_fini(crew, 0);
    crew->crews = p;
    ev_timer_init(&crew->grace, on_grace, 0., GRACE_S);
    crew->grace.data = crew;
    crew->index = (int)(crew - p->table);
    crew->generation = start->generation;
    crew->exchange[0] = '\0';
    crew->implementation = start->implementation;
    crew->guest = start->implementation > 0 ? &p->guests->list[start->implementation - 1] : NULL;
    crew->ranks = calloc(world_size, sizeof(*crew->ranks));
    crew->reports = calloc(world_size, sizeof(*crew->reports));
    crew->words = calloc(world_size, sizeof(*crew->words));
    crew->snapshot = calloc(world_size, sizeof(*crew->snapshot));
    if (!crew->ranks || !crew->reports || !crew->words || !crew->snapshot)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a pool of %d rank%s",
                         start->world_size, plural(start->world_size));
    crew->world_size = start->world_size;
    crew->progress = crew->words;
    return ranks_init(crew, start, error);
}

static enum status ranks_here_start(struct crew *crew, const struct crew_start *start,
                                    struct error *error)
{
    bool here[WORLD_SIZE_MAX], some = false;
    for (int rank = 0; rank < crew->world_size; rank++) {
        here[rank] = crew->ranks[rank].host == HOST_HERE;
        some |= here[rank];
    }
    if (!some)
        return STATUS_OK;
    const struct squad_handler handler = {crew,      on_not_started, on_frame, on_distrusted,
                                          on_ending, on_gone,        on_wrote};
    const struct squad_start squad = {.generation = crew->generation,
                                      .guest = crew->guest,
                                      .world_size = crew->world_size,
                                      .devices = start->devices,
                                      .here = here};
    enum status status = squad_create(&crew->crews->host, &squad, &handler, &crew->squad, error);
    if (status == STATUS_OK)
        crew->progress = crew->squad->progress;
    return status;
}

enum status crew_start(struct crews *crews, int index, const struct crew_start *start,
                       struct error *error)
{
    struct crew *crew = &crews->table[index];
    enum status status = crew_init(crews, crew, start, error);
    if (status == STATUS_OK)
        status = ranks_here_start(crew, start, error);
    if (status != STATUS_OK) {
        crew_fini(crew, 0);
        return status;
    }
    crew->alive = crew->world_size;
    if (crew->far != 0)
        crews->far.start(crews->far.context, index, start);
    return STATUS_OK;
}

// ---- work --------------------------------------------------------------------------------------

// Sends the descriptors of a client's tensors; must precede the case. Only ranks on this host can
// receive descriptors.
static enum status tensors_send(const struct rank_process *r, uint64_t job,
                                const struct crew_task *task, struct error *error)
{
    struct places_frame frame = {.places = *task->places,
                                 .has_given = task->given_fd >= 0,
                                 .has_wanted = task->wanted_fd >= 0};
    int fds[CHANNEL_FDS_MAX], count = 0;
    if (r->host != HOST_HERE)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "tensors of a client cannot reach rank %d, which is on another host",
                         r->rank);
    if (frame.has_given)
        fds[count++] = task->given_fd;
    if (frame.has_wanted)
        fds[count++] = task->wanted_fd;
    return squad_send(r->crew->squad, r->rank, CHANNEL_TENSORS, job, &frame, sizeof(frame), fds,
                      count, error);
}

static enum status job_send(const struct rank_process *r, uint64_t job,
                            const struct crew_task *task, const struct job_frame *frame,
                            uint32_t bytes, struct error *error)
{
    const struct crew *crew = r->crew;
    const struct far_hosts *far = &crew->crews->far;
    enum status status = task->places ? tensors_send(r, job, task, error) : STATUS_OK;
    if (status == STATUS_OK && r->host == HOST_HERE)
        return squad_send(crew->squad, r->rank, CHANNEL_CASE, job, frame, bytes, NULL, 0, error);
    if (status == STATUS_OK)
        far->send(far->context, r->host, crew->generation, r->rank, CHANNEL_CASE, job, frame,
                  bytes);
    return status;
}

// Prepares a rank for a job: clears the stderr output of earlier jobs, which is not about this one.
static void rank_begins(struct rank_process *r)
{
    r->reported = false;
    bytering_clear(&r->stderr_text.ring);
}

void crew_run(struct crew *crew, uint64_t job, const struct crew_task *task)
{
    struct job_frame frame;
    uint32_t bytes = job_frame_fill(&frame, task->spec);
    frame.left_ns = task->left_ns;
    crew_drain_stderr(crew);
    crew->job = job;
    crew->kind = task->spec->kind;
    crew->verify = job_spec_needs(task->spec).verdict;
    for (int rank = 0; rank < crew->world_size; rank++)
        rank_begins(&crew->ranks[rank]);
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        struct error error;
        // The rank is distrusted or gone, which is reported already.
        if (r->closed)
            continue;
        enum status status = job_send(r, job, task, &frame, bytes, &error);
        // UNAVAILABLE: the rank's end is closed. The channel's watcher notices this after the last
        // messages of the rank, and the exit has the reason.
        if (status == STATUS_OK || status == STATUS_UNAVAILABLE)
            continue;
        error_prefix(&error, "rank %d does not take the case", rank);
        distrusted(r, &error);
    }
}

void crew_snapshot(struct crew *crew)
{
    if (crew->killed)
        return;
    for (int rank = 0; rank < crew->world_size; rank++) {
        struct rank_process *r = &crew->ranks[rank];
        const struct rank_child *child = r->host == HOST_HERE ? &crew->squad->children[rank] : NULL;
        progress_store(&crew->snapshot[rank], progress_load(&crew->progress[rank]));
        r->state = child ? rank_child_state(child) : r->ending ? 'X' : r->far_state;
        r->at_memory_limit = child ? rank_child_at_memory_limit(child) : r->far_at_memory_limit;
    }
}

static bool rank_hears(const struct rank_process *r)
{
    return !r->closed && (r->host != HOST_HERE || r->crew->squad->children[r->rank].channel >= 0);
}

// True if all ranks are healthy and idle.
static bool crew_rests(const struct crew *crew)
{
    bool rests = crew->alive == crew->world_size;
    for (int rank = 0; rank < crew->world_size && rests; rank++) {
        const struct rank_process *r = &crew->ranks[rank];
        rests = r->said_ready && rank_hears(r) && r->failure.status == STATUS_OK &&
                (crew->job == 0 || r->reported);
    }
    return rests;
}

void crew_kill(struct crew *crew)
{
    const struct far_hosts *far = &crew->crews->far;
    crew_snapshot(crew);
    bool rests = !crew->killed && crew_rests(crew);
    crew->killed = true;
    if (!rests) {
        ranks_kill(crew);
        return;
    }
    ev_timer_again(crew->crews->loop, &crew->grace);
    if (crew->squad)
        squad_stop(crew->squad);
    FAR_FOREACH(host, crew)
    far->stop(far->context, host, crew->generation);
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
    if (crew->squad)
        squad_drain_stderr(crew->squad);
}

const char *crew_describe_process(const struct crew *crew, int rank, char text[PROC_TEXT_MAX])
{
    const struct far_hosts *far = &crew->crews->far;
    const struct rank_process *r = &crew->ranks[rank];
    if (r->host == HOST_HERE)
        return proc_describe(crew->squad->children[rank].pid, text);
    snprintf(text, PROC_TEXT_MAX, "a process on host %s", far->name(far->context, r->host));
    return text;
}
