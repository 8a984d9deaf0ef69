// SPDX-License-Identifier: Apache-2.0
#include "rank/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/clock.h"
#include "common/fault.h"
#include "rank/kind.h"

#define PROGRESS_FD (CHANNEL_FD + 1)
#define MESH_FD     (CHANNEL_FD + 2)

// Number of arguments of every rank program.
#define RANK_ARGUMENTS 5

// EX_USAGE and EX_SOFTWARE of sysexits.h.
#define EXIT_USAGE    64
#define EXIT_SOFTWARE 70

// If memory runs out, the kernel must kill a rank before the daemon.
#define OOM_SCORE 500

struct rank {
    int rank, world_size;
    uint32_t generation;
    pid_t parent;
    const struct engine_kind *kind;
    char *const *arguments; // arguments for the engine
    struct progress *progress;
    struct transport *transport;
    struct session session;
    struct places_frame tensors; // tensors of the next case; without descriptors there are none
    int fds[2];
    _Alignas(16) char payload[CHANNEL_PAYLOAD_MAX];
};

// ---- the process ----

static bool number_parse(const char *text, long min, long max, long *value)
{
    char *end;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (errno || end == text || *end || parsed < min || parsed > max)
        return false;
    *value = parsed;
    return true;
}

static bool arguments_parse(struct rank *r, int argc, char **argv)
{
    long rank, world_size, generation, parent;
    if (argc < RANK_ARGUMENTS + r->kind->argument_min ||
        argc > RANK_ARGUMENTS + r->kind->argument_max ||
        !number_parse(argv[2], 1, WORLD_SIZE_MAX, &world_size) ||
        !number_parse(argv[1], 0, world_size - 1, &rank) ||
        !number_parse(argv[3], 0, UINT32_MAX, &generation) ||
        !number_parse(argv[4], 1, INT32_MAX, &parent))
        return false;
    r->rank = (int)rank;
    r->world_size = (int)world_size;
    r->generation = (uint32_t)generation;
    r->parent = (pid_t)parent;
    r->arguments = argv + RANK_ARGUMENTS;
    return true;
}

// A rank must not outlive its daemon: the kernel kills the rank when the daemon ends. getppid()
// detects a daemon that ended before prctl().
static bool parent_bind(const struct rank *r)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == r->parent;
}

// Raises the process's score to OOM_SCORE; a higher score is kept.
static void oom_score_raise(void)
{
    int score = 0;
    FILE *file = fopen("/proc/self/oom_score_adj", "r+e");
    if (!file)
        return;
    if (fscanf(file, "%d", &score) == 1 && score < OOM_SCORE) {
        rewind(file);
        fprintf(file, "%d", OOM_SCORE);
    }
    fclose(file);
}

static void limits_set(void)
{
    struct rlimit none = {0};
    (void)setrlimit(RLIMIT_CORE, &none);
    oom_score_raise();
}

// Sets close-on-exec on all descriptors from the daemon, and duplicates the channel to
// channel_last_fd().
static enum status descriptors_adopt(const struct rank *r, struct error *error)
{
    for (int fd = CHANNEL_FD; fd < MESH_FD + r->world_size; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 && fd != MESH_FD + r->rank)
            return error_set(error, STATUS_INVALID_ARGUMENT, "descriptor %d of rank %d: %s", fd,
                             r->rank, strerror(errno));
    if (dup3(CHANNEL_FD, channel_last_fd(), O_CLOEXEC) < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the channel of rank %d as %d: %s",
                         r->rank, channel_last_fd(), strerror(errno));
    return STATUS_OK;
}

static enum status progress_map(struct rank *r, struct error *error)
{
    size_t bytes = (size_t)r->world_size * sizeof(struct progress);
    struct stat stat;
    // A mapping beyond the end of the object would succeed, and kill the process on the first
    // access.
    if (fstat(PROGRESS_FD, &stat) != 0 || stat.st_size < (off_t)bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "descriptor %d does not hold %d progress words", PROGRESS_FD,
                         r->world_size);
    void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, PROGRESS_FD, 0);
    if (words == MAP_FAILED)
        return error_set(error, STATUS_INTERNAL, "cannot map progress words: %s", strerror(errno));
    close(PROGRESS_FD);
    r->progress = (struct progress *)words + r->rank;
    return STATUS_OK;
}

// ---- talking to the daemon ----

static enum status say(const struct rank *r, enum channel_type type, uint64_t job,
                       const void *payload, size_t length, struct error *error)
{
    return channel_send(CHANNEL_FD, type, r->generation, job, payload, (uint32_t)length, error);
}

static enum status say_hello(const struct rank *r, struct error *error)
{
    struct channel_hello hello;
    FAULT_KNOW(r->rank, r->generation);
    FAULT(HELLO);
    channel_hello_fill(&hello, (int)getpid(), r->rank);
    return say(r, CHANNEL_HELLO, 0, &hello, sizeof(hello), error);
}

static void complain(const struct rank *r, const struct error *error)
{
    fprintf(stderr, "rank %d: %s: %s\n", r->rank, status_text(error->status), error->text);
}

// If memory ran out and the daemon limits the rank's memory, adds the limit to the error's text.
static void limit_tell(struct error *error)
{
    struct rlimit data;
    char text[ERROR_TEXT_MAX];
    if (error->status != STATUS_RESOURCE_EXHAUSTED || getrlimit(RLIMIT_DATA, &data) != 0 ||
        data.rlim_cur == RLIM_INFINITY)
        return;
    memcpy(text, error->text, sizeof(text));
    error_set(error, error->status, "%s; a rank may have %llu MiB (rank-memory)", text,
              (unsigned long long)data.rlim_cur >> 20);
}

// Reports the failure to the daemon and on stderr, then waits to be killed. Returns if the channel
// ends first.
static int give_up(struct rank *r, uint64_t job, struct error *error)
{
    struct rank_failure failure;
    struct error unsent = {0};
    limit_tell(error);
    complain(r, error);
    session_failure(&r->session, error, &failure);
    if (say(r, CHANNEL_FAILED, job, &failure, sizeof(failure), &unsent) != STATUS_OK)
        return EXIT_SOFTWARE;
    struct channel_frame frame;
    while (channel_recv(CHANNEL_FD, &frame, r->payload, &unsent) == STATUS_OK)
        continue;
    return EXIT_SOFTWARE;
}

// ---- serving ----

static void tensors_drop(struct rank *r)
{
    for (int i = 0; i < 2; i++) {
        if (r->fds[i] >= 0)
            close(r->fds[i]);
        r->fds[i] = -1;
    }
}

// Handles TENSORS: keeps the descriptors of the next case's tensors.
static enum status tensors_serve(struct rank *r, const struct channel_frame *frame, const int *fds,
                                 int count, struct error *error)
{
    struct places_frame *t = &r->tensors;
    enum status status = channel_expect(frame, sizeof(*t), error);
    if (status == STATUS_OK)
        memcpy(t, r->payload, sizeof(*t));
    if (status == STATUS_OK && (!!t->has_given + !!t->has_wanted != count || count == 0))
        status = error_set(error, STATUS_DATA_LOSS, "%d descriptors came with TENSORS", count);
    if (status != STATUS_OK) {
        for (int i = 0; i < count; i++)
            close(fds[i]);
        return status;
    }
    tensors_drop(r);
    r->fds[0] = t->has_given ? fds[0] : -1;
    r->fds[1] = t->has_wanted ? fds[!!t->has_given] : -1;
    return STATUS_OK;
}

static enum status job_run(struct rank *r, const struct job_spec *spec, uint64_t job,
                           struct rank_report *report, struct error *error)
{
    struct segments segments;
    if (r->fds[0] < 0 && r->fds[1] < 0)
        return rank_kind_run(&r->session, spec, job, NULL, report, error);
    if (spec->kind != &job_kind_attention)
        return error_set(error, STATUS_DATA_LOSS, "tensors came with a job '%s'", spec->kind->name);
    enum status status = segments_open(&segments, &spec->attention, &r->tensors, r->fds, error);
    r->fds[0] = r->fds[1] = -1;
    if (status != STATUS_OK)
        return status;
    status = rank_kind_run(&r->session, spec, job, &segments, report, error);
    segments_close(&segments);
    return status;
}

static void limit_set(struct engine *engine, uint64_t left_ns)
{
    engine->limit_ns = left_ns > 0 ? clock_now_ns() + left_ns : 0;
}

static enum status job_serve(struct rank *r, const struct channel_frame *frame, struct error *error)
{
    struct job_spec spec;
    struct rank_report report;
    FAULT_KNOW_JOB(frame->job);
    FAULT(RECEIPT);
    enum status status = job_frame_load(r->payload, frame->length, &spec, error);
    if (status == STATUS_OK)
        limit_set(r->session.engine, ((const struct job_frame *)r->payload)->left_ns);
    if (status == STATUS_OK)
        status = job_run(r, &spec, frame->job, &report, error);
    if (status != STATUS_OK)
        return status;
    FAULT(REPORT);
    status =
        say(r, CHANNEL_REPORT, frame->job, &report, report_bytes(report.op_times.count), error);
    FAULT(REPORTED);
    return status;
}

static enum status frame_serve(struct rank *r, const struct channel_frame *frame, const int *fds,
                               int count, struct error *error)
{
    if (frame->type == CHANNEL_TENSORS)
        return tensors_serve(r, frame, fds, count, error);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    switch (frame->type) {
    case CHANNEL_CASE:
        return job_serve(r, frame, error);
    case CHANNEL_PING:
        return say(r, CHANNEL_PONG, frame->job, NULL, 0, error);
    default:
        return error_set(error, STATUS_DATA_LOSS, "the daemon sent %s to a rank",
                         channel_type_name(frame->type));
    }
}

static int serve(struct rank *r)
{
    for (;;) {
        struct channel_frame frame;
        struct error error = {0};
        int fds[CHANNEL_FDS_MAX], count;
        FAULT(IDLE);
        enum status status = channel_recv_fds(CHANNEL_FD, &frame, r->payload, fds, &count, &error);
        if (status == STATUS_UNAVAILABLE)
            return EXIT_SUCCESS;
        if (status != STATUS_OK)
            return give_up(r, 0, &error);
        if (frame.generation != r->generation)
            continue;
        if (frame.type == CHANNEL_STOP)
            return EXIT_SUCCESS;
        if (frame_serve(r, &frame, fds, count, &error) != STATUS_OK)
            return give_up(r, frame.job, &error);
    }
}

static enum status say_ready(const struct rank *r, struct error *error)
{
    const char *exchange = r->session.engine->exchange;
    return say(r, CHANNEL_READY, 0, exchange, strlen(exchange), error);
}

// Does everything up to READY. Work that needs the peers comes last, so a rank that cannot start
// reports this while the others wait.
static enum status start(struct rank *r, struct error *error)
{
    int fds[WORLD_SIZE_MAX];
    for (int peer = 0; peer < r->world_size; peer++)
        fds[peer] = peer == r->rank ? -1 : MESH_FD + peer;
    enum status status = transport_socket_create(r->rank, r->world_size, fds, &r->transport, error);
    if (status == STATUS_OK)
        status = session_init(&r->session, r->kind, r->arguments, r->transport, r->progress, error);
    if (status == STATUS_OK)
        status = session_barrier(&r->session, error);
    FAULT(READY);
    if (status == STATUS_OK)
        status = say_ready(r, error);
    return status;
}

static int run(struct rank *r)
{
    struct error error = {0};
    enum status status = descriptors_adopt(r, &error);
    if (status == STATUS_OK)
        status = progress_map(r, &error);
    if (status == STATUS_OK)
        status = say_hello(r, &error);
    if (status != STATUS_OK) {
        complain(r, &error);
        return EXIT_SOFTWARE;
    }
    int result = start(r, &error) == STATUS_OK ? serve(r) : give_up(r, 0, &error);
    session_fini(&r->session);
    if (r->transport)
        r->transport->ops->destroy(r->transport);
    return result;
}

int process_main(int argc, char **argv, const struct engine_kind *kind)
{
    // Comes first: stdout becomes stderr, so that output of libraries cannot get into a protocol.
    dup2(STDERR_FILENO, STDOUT_FILENO);
    static struct rank rank;
    rank.kind = kind;
    rank.fds[0] = rank.fds[1] = -1;
    if (!arguments_parse(&rank, argc, argv)) {
        fprintf(stderr, "usage: %s RANK WORLD GENERATION PARENT_PID%s (started by cpattnd)\n",
                kind->program, kind->arguments);
        return EXIT_USAGE;
    }
    if (!parent_bind(&rank))
        return EXIT_SOFTWARE;
    limits_set();
    return run(&rank);
}
