// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/rank_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/process/pidfd.h"
#include "daemon/process/proc.h"
#include "daemon/process/spawn.h"

// Frames taken in one go, so that a rank that floods its channel does not hold the loop.
#define FRAMES_MAX        8
#define FRAMES_AT_END_MAX 64
// A process that ends closes its channel first. One that still lives this long after has closed it
// on purpose, or a child of it holds on.
#define SILENCE_S         2.
// How often a process is looked at that has ended and cannot be reaped.
#define REAP_AGAIN_S      .1
// Between looks at one that is waited for.
#define REAP_PAUSE_MS     2

static const struct crew_handler *handler_of(const struct rank_process *r)
{
    return &r->crew->crews->handler;
}

// ---- frames ------------------------------------------------------------------------------------

static void channel_close(struct rank_process *r)
{
    ev_io_stop(r->crew->crews->loop, &r->channel_watcher);
    if (r->channel >= 0)
        close(r->channel);
    r->channel = -1;
}

void rank_process_distrust(struct rank_process *r, const struct error *error)
{
    log_warning("rank_distrusted rank=%d world=%d generation=%u error=%s", r->rank,
                r->crew->world_size, r->crew->generation,
                log_quote(&(struct log_quoted){0}, error->text));
    channel_close(r);
    if (r->failure.status == STATUS_OK) {
        struct progress_view at = progress_load(&r->crew->progress[r->rank]);
        r->failure = (struct rank_failure){.status = (int32_t)error->status,
                                           .kind = FAILURE_OWN,
                                           .peer = -1,
                                           .phase = at.phase,
                                           .step = at.step};
        snprintf(r->failure.text, sizeof(r->failure.text), "%s", error->text);
    }
    handler_of(r)->failed(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                          FAILURE_OWN, -1);
}

static enum status on_hello(struct rank_process *r, const struct channel_frame *frame,
                            const void *payload, struct error *error)
{
    const struct rank_user *user = &r->crew->crews->confinement->user;
    enum status status = channel_hello_check(frame, payload, r->rank, error);
    if (status == STATUS_OK && user->set)
        status = confine_check(user, r->pid, error);
    r->said_hello = status == STATUS_OK;
    return status;
}

static enum status on_ready(struct rank_process *r, const struct channel_frame *frame,
                            const void *payload, struct error *error)
{
    (void)payload;
    enum status status = channel_expect(frame, 0, error);
    if (status != STATUS_OK)
        return status;
    if (r->said_ready)
        return error_set(error, STATUS_DATA_LOSS, "rank %d says READY twice", r->rank);
    r->said_ready = true;
    handler_of(r)->ready(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank);
    return STATUS_OK;
}

static void text_clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

// A tensor of attention has a number, that of another kind of job a name.
static bool tensor_plausible(const struct figures *f, bool attention)
{
    return attention ? f->tensor > 0 && f->tensor < TENSOR_COUNT
                     : f->tensor == 0 && report_name_is_valid(f->name);
}

// Whoever passes has broken no rule.
static bool figures_plausible(const struct figures *f, bool pass)
{
    return f->chunk >= 0 && f->chunk <= CHUNK_PADDING && f->elements >= 0 && f->mismatches >= 0 &&
           f->nonfinite >= 0 && f->judged >= 0 && f->judged <= f->elements &&
           f->te_mismatches >= 0 && f->remark >= 0 && f->remark < REMARK_COUNT && f->broken >= 0 &&
           f->broken <= RULES_ALL && !(pass && f->broken != 0);
}

static bool diagnosis_plausible(const struct diagnosis *d, bool attention)
{
    return d->tensor >= 0 && d->tensor < (attention ? TENSOR_COUNT : 1) && d->explained >= 0 &&
           d->explained <= 1;
}

static bool use_plausible(const struct provider_use *use)
{
    return use->own_forward >= 0 && use->own_backward >= 0 && use->provider_forward >= 0 &&
           use->provider_backward >= 0;
}

static bool report_plausible(const struct rank_report *report, int rank, bool attention)
{
    unsigned char pass;
    memcpy(&pass, &report->pass, 1);
    bool plausible = pass <= 1 && report->rank == rank && report->refusal.status >= STATUS_OK &&
                     report->refusal.status < STATUS_COUNT && report->figures_count >= 0 &&
                     report->figures_count <= REPORT_FIGURES_MAX &&
                     diagnosis_plausible(&report->diagnosis, attention) &&
                     use_plausible(&report->use);
    for (int i = 0; plausible && i < report->figures_count; i++)
        plausible = tensor_plausible(&report->figures[i], attention) &&
                    figures_plausible(&report->figures[i], pass);
    return plausible;
}

static enum status on_report(struct rank_process *r, const struct channel_frame *frame,
                             const void *payload, struct error *error)
{
    struct rank_report *report = &r->crew->reports[r->rank];
    enum status status = channel_expect(frame, sizeof(*report), error);
    if (status != STATUS_OK)
        return status;
    if (frame->job == 0 || frame->job != r->crew->job || r->reported)
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports on a case it does not run",
                         r->rank);
    memcpy(report, payload, sizeof(*report));
    if (!report_plausible(report, r->rank, r->crew->kind == &job_kind_attention))
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports impossible figures", r->rank);
    text_clean(report->refusal.text, sizeof(report->refusal.text));
    text_clean(report->diagnosis.text, sizeof(report->diagnosis.text));
    text_clean(report->use.reason, sizeof(report->use.reason));
    r->reported = true;
    handler_of(r)->reported(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                            frame->job);
    return STATUS_OK;
}

static bool failure_plausible(const struct rank_failure *f, int rank, int world_size)
{
    bool peer_named = f->peer >= 0 && f->peer < world_size && f->peer != rank;
    return f->status > STATUS_OK && f->status < STATUS_COUNT && f->phase >= 0 &&
           f->phase < REPORT_PHASES && f->step >= 0 &&
           (f->kind == FAILURE_OWN || (f->kind == FAILURE_PEER_LOST && peer_named));
}

static enum status on_failed(struct rank_process *r, const struct channel_frame *frame,
                             const void *payload, struct error *error)
{
    struct rank_failure failure;
    enum status status = channel_expect(frame, sizeof(failure), error);
    if (status != STATUS_OK)
        return status;
    memcpy(&failure, payload, sizeof(failure));
    if (!failure_plausible(&failure, r->rank, r->crew->world_size))
        return error_set(error, STATUS_DATA_LOSS, "rank %d reports an impossible failure", r->rank);
    text_clean(failure.text, sizeof(failure.text));
    if (r->failure.status == STATUS_OK)
        r->failure = failure;
    handler_of(r)->failed(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                          failure.kind, failure.peer);
    return STATUS_OK;
}

static enum status on_pong(struct rank_process *r, const struct channel_frame *frame,
                           const void *payload, struct error *error)
{
    (void)r;
    (void)payload;
    return channel_expect(frame, 0, error);
}

static enum status frame_handle(struct rank_process *r, const struct channel_frame *frame,
                                const void *payload, struct error *error)
{
    static enum status (*const handlers[])(struct rank_process *, const struct channel_frame *,
                                           const void *, struct error *) = {
        [CHANNEL_READY] = on_ready,
        [CHANNEL_REPORT] = on_report,
        [CHANNEL_FAILED] = on_failed,
        [CHANNEL_PONG] = on_pong,
    };
    if (frame->generation != r->crew->generation)
        return STATUS_OK;
    if (!r->said_hello)
        return on_hello(r, frame, payload, error);
    if (frame->type >= sizeof(handlers) / sizeof(handlers[0]) || !handlers[frame->type])
        return error_set(error, STATUS_DATA_LOSS,
                         "rank %d sends %s, which ranks must not "
                         "send",
                         r->rank, channel_type_name(frame->type));
    return handlers[frame->type](r, frame, payload, error);
}

static void end_tell(struct rank_process *r); // below, with all that belongs to the end

// Takes one frame; false when there is none.
static bool frame_take(struct rank_process *r)
{
    struct channel_frame frame;
    struct error error;
    uint8_t *payload = r->crew->crews->payload;
    if (r->channel < 0)
        return false;
    enum status status = channel_recv(r->channel, &frame, payload, &error);
    if (status == STATUS_NOT_FOUND)
        return false;
    if (status == STATUS_UNAVAILABLE) {
        channel_close(r);
        ev_timer_start(r->crew->crews->loop, &r->silence);
        end_tell(r);
        return false;
    }
    if (status == STATUS_OK)
        status = frame_handle(r, &frame, payload, &error);
    if (status != STATUS_OK)
        rank_process_distrust(r, &error);
    return true;
}

static void on_channel(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct rank_process *r = watcher->data;
    for (int i = 0; i < FRAMES_MAX && frame_take(r); i++)
        ;
}

static void on_silence(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct rank_process *r = watcher->data;
    struct error error;
    char state = proc_state(r->pid);
    if (state == 'Z' || state == 'X')
        return; // dead, its exit is about to be seen
    error_set(&error, STATUS_UNAVAILABLE, "rank %d closed its channel and continues to run",
              r->rank);
    rank_process_distrust(r, &error);
}

// ---- the end -----------------------------------------------------------------------------------

static struct rank_end end_of(const siginfo_t *info)
{
    if (info->si_pid == 0)
        return (struct rank_end){.kind = RANK_VANISHED};
    return rank_end_of(info->si_code == CLD_EXITED ? W_EXITCODE(info->si_status, 0)
                                                   : W_EXITCODE(0, info->si_status));
}

// A rank that is stopped hears it when it goes on; one that has gone already needs not hear it.
void rank_process_stop(struct rank_process *r)
{
    struct error error;
    if (r->channel >= 0 && channel_send(r->channel, CHANNEL_STOP, r->crew->generation, 0, NULL, 0,
                                        &error) != STATUS_OK)
        log_debug("rank_stop rank=%d error=%s", r->rank,
                  log_quote(&(struct log_quoted){0}, error.text));
    rank_process_signal(r, SIGCONT);
}

void rank_process_signal(const struct rank_process *r, int number)
{
    if (r->pid != 0)
        kill(-r->pid, number);
}

void rank_process_kill(const struct rank_process *r)
{
    if (r->pid == 0)
        return;
    kill(-r->pid, SIGKILL);
    if (r->pidfd >= 0)
        process_fd_signal(r->pidfd, SIGKILL);
}

void rank_process_abandon(struct rank_process *r)
{
    rank_process_kill(r);
    ev_timer_stop(r->crew->crews->loop, &r->silence);
    channel_close(r);
    r->ending = true;
}

static void process_forget(struct rank_process *r)
{
    ev_io_stop(r->crew->crews->loop, &r->exit_watcher);
    ev_timer_stop(r->crew->crews->loop, &r->silence);
    ev_timer_stop(r->crew->crews->loop, &r->reap);
    channel_close(r);
    if (r->pidfd >= 0)
        close(r->pidfd);
    r->pidfd = -1;
    r->pid = 0;
}

// Its end is known, and there is nothing to reap: a process that is traced belongs to its tracer
// until that one has waited for it. Its pidfd stays readable all the while, and must not be
// watched.
static void reap_later(struct rank_process *r)
{
    char text[PROC_TEXT_MAX];
    struct error error;
    if (ev_is_active(&r->reap))
        return;
    ev_io_stop(r->crew->crews->loop, &r->exit_watcher);
    ev_timer_again(r->crew->crews->loop, &r->reap);
    error_set(&error, STATUS_UNAVAILABLE, "rank %d has ended and cannot be reaped (%s)", r->rank,
              proc_describe(r->pid, text));
    rank_process_distrust(r, &error);
}

// The channel has ended, which is the first that is seen of a process that ends
// (channel_last_fd()).
static void end_tell(struct rank_process *r)
{
    int wait_status;
    bool hidden = r->crew->crews->confinement->user.set;
    if (r->ending || !proc_exit_status(r->pid, &wait_status) || (wait_status == 0 && hidden))
        return;
    r->ending = true;
    r->end = rank_end_of(wait_status);
    stderr_pipe_drain(&r->stderr_pipe);
    handler_of(r)->ending(handler_of(r)->context, r->crew->index, r->crew->generation, r->rank,
                          &r->end);
}

// What the rank said before its end is reported before its end. Its group is killed while the
// process is not reaped yet: until then nobody else can get the number.
static void end_look(struct rank_process *r)
{
    struct crew *crew = r->crew;
    siginfo_t info = {0};
    char text[RANK_END_TEXT_MAX];
    r->ending = true;
    for (int i = 0; i < FRAMES_AT_END_MAX && frame_take(r); i++)
        ;
    kill(-r->pid, SIGKILL);
    if (process_fd_reap(r->pidfd, &info) == 0 && info.si_pid == 0) {
        reap_later(r);
        return;
    }
    r->end = end_of(&info);
    log_write(crew->killed ? LOG_LEVEL_DEBUG : LOG_LEVEL_NOTICE,
              "rank_exited rank=%d world=%d generation=%u pid=%d fate=%s", r->rank,
              crew->world_size, crew->generation, (int)r->pid,
              log_quote(&(struct log_quoted){0}, rank_end_text(&r->end, text)));
    stderr_pipe_close(&r->stderr_pipe);
    process_forget(r);
    crew->crews->rank_gone(crew, r->rank);
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

// ---- the start ---------------------------------------------------------------------------------

static void watch(struct rank_process *r)
{
    struct ev_loop *loop = r->crew->crews->loop;
    ev_io_init(&r->exit_watcher, on_exit_watcher, r->pidfd, EV_READ);
    ev_io_init(&r->channel_watcher, on_channel, r->channel, EV_READ);
    ev_timer_init(&r->silence, on_silence, SILENCE_S, 0.);
    ev_timer_init(&r->reap, on_reap, 0., REAP_AGAIN_S);
    r->exit_watcher.data = r->channel_watcher.data = r->silence.data = r->reap.data = r;
    ev_io_start(loop, &r->exit_watcher);
    ev_io_start(loop, &r->channel_watcher);
}

static enum status process_spawn(struct rank_process *r, const struct spawn *spawn,
                                 struct error *error)
{
    enum status status = spawn_rank(spawn, &r->pid, error);
    if (status != STATUS_OK) {
        r->pid = 0;
        return status;
    }
    r->pidfd = process_fd_open(r->pid);
    if (r->pidfd < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no descriptor for rank %d: %s", r->rank,
                         strerror(errno));
    return STATUS_OK;
}

enum status rank_process_start(struct rank_process *r, struct mesh *mesh, int progress_fd,
                               struct error *error)
{
    struct crews *crews = r->crew->crews;
    int ends[2] = {-1, -1}, stderr_end = -1;
    enum status status = channel_pair(ends, error);
    r->channel = ends[0];
    if (status == STATUS_OK)
        status = stderr_pipe_init(&r->stderr_pipe, crews->loop, r->rank, r->crew->world_size,
                                  r->crew->generation, &stderr_end, error);
    const struct guest *guest = r->crew->guest;
    char *words[GUEST_WORDS_MAX + 1];
    if (guest)
        guest_words(guest, words);
    struct spawn spawn = {
        .program = crews->program,
        .words = guest ? words : NULL,
        .environment = guest ? crews->guest_environment : crews->environment,
        .confinement = guest ? &crews->guest_confinement : crews->confinement,
        .rank = r->rank,
        .world_size = r->crew->world_size,
        .generation = r->crew->generation,
        .device = r->device,
        .null_fd = crews->null_fd,
        .stderr_fd = spawn_fd_lift(stderr_end),
        .channel_fd = spawn_fd_lift(ends[1]),
        .progress_fd = progress_fd,
        .mesh = mesh_row(mesh, r->rank),
    };
    if (status == STATUS_OK && (spawn.stderr_fd < 0 || spawn.channel_fd < 0))
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no descriptors for rank %d: %s",
                           r->rank, strerror(errno));
    if (status == STATUS_OK)
        status = process_spawn(r, &spawn, error);
    if (spawn.stderr_fd >= 0)
        close(spawn.stderr_fd);
    if (spawn.channel_fd >= 0)
        close(spawn.channel_fd);
    if (status == STATUS_OK)
        watch(r);
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

void rank_process_fini(struct rank_process *r, uint64_t deadline_ns)
{
    char text[PROC_TEXT_MAX];
    if (!r->crew)
        return;
    rank_process_kill(r);
    if (r->pid != 0 && !reap(r->pid, deadline_ns))
        log_error("rank_left_behind rank=%d world=%d generation=%u process=%s", r->rank,
                  r->crew->world_size, r->crew->generation,
                  log_quote(&(struct log_quoted){0}, proc_describe(r->pid, text)));
    process_forget(r);
    stderr_pipe_fini(&r->stderr_pipe);
}
