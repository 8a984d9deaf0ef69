// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/process/proc.h"
#include "daemon/process/spawn.h"

// Time to wait for the end of the process, before and again after SIGKILL, and the number of checks
// in that time.
#define REAP_MAX_MS 1000
#define REAP_TRIES  100

struct stream {
    int fd; // -1: at its end
    size_t used;
    char *text; // PROBE_TEXT_MAX bytes with a final NUL; further output is dropped
};

struct running {
    pid_t pid;
    struct stream out, err;
};

// The descriptors of the program: /dev/null, and pipes for stdout and stderr.
enum { FDS = 3 };

static enum status fds_open(struct running *p, int fds[FDS], struct error *error)
{
    struct stream *const streams[] = {&p->out, &p->err};
    bool good = (fds[0] = spawn_fd_lift(open("/dev/null", O_RDONLY | O_CLOEXEC))) >= 0;
    for (int i = 0; i < 2 && good; i++) {
        int ends[2];
        good = pipe2(ends, O_CLOEXEC) == 0;
        if (!good)
            break;
        streams[i]->fd = ends[0];
        fds[1 + i] = spawn_fd_lift(ends[1]);
        good = fds[1 + i] >= 0;
    }
    return good ? STATUS_OK
                : error_set(error, STATUS_UNAVAILABLE, "cannot run a program: %s", strerror(errno));
}

static enum status program_start(struct running *p, struct spawn_process *process,
                                 struct error *error)
{
    int fds[FDS] = {-1, -1, -1};
    char **environment = spawn_environment_create(false);
    enum status status = fds_open(p, fds, error);
    process->environment = environment;
    process->fds = fds;
    process->fd_count = FDS;
    if (status == STATUS_OK && !environment)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory to run a program");
    if (status == STATUS_OK)
        status = spawn_process(process, &p->pid, error);
    process->environment = NULL;
    process->fds = NULL;
    process->fd_count = 0;
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    spawn_environment_destroy(environment);
    return status;
}

static void stream_read(struct stream *s)
{
    char dropped[512];
    size_t room = PROBE_TEXT_MAX - 1 - s->used;
    ssize_t got =
        room > 0 ? read(s->fd, s->text + s->used, room) : read(s->fd, dropped, sizeof(dropped));
    if (got < 0 && errno == EINTR)
        return;
    if (got <= 0) {
        close(s->fd);
        s->fd = -1;
    } else if (room > 0) {
        s->used += (size_t)got;
        s->text[s->used] = '\0';
    }
}

// Reads until both streams end. False: the time limit has passed, or poll() failed.
static bool streams_drain(struct running *p, uint64_t deadline_ns)
{
    while (p->out.fd >= 0 || p->err.fd >= 0) {
        uint64_t now_ns = clock_now_ns();
        struct pollfd fds[2] = {{.fd = p->out.fd, .events = POLLIN},
                                {.fd = p->err.fd, .events = POLLIN}};
        if (now_ns >= deadline_ns)
            return false;
        if (poll(fds, 2, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1) < 0 && errno != EINTR)
            return false;
        if (fds[0].revents)
            stream_read(&p->out);
        if (fds[1].revents)
            stream_read(&p->err);
    }
    return true;
}

static bool program_reap(struct running *p, int *status)
{
    pid_t reaped = 0;
    for (int i = 0; i < REAP_TRIES && reaped == 0; i++) {
        reaped = waitpid(p->pid, status, WNOHANG);
        if (reaped == 0)
            poll(NULL, 0, REAP_MAX_MS / REAP_TRIES);
    }
    return reaped != 0;
}

// Reaps the program after its streams have ended: waits a short time, then kills it. A program that
// does not end even then, because a driver holds it in the kernel, is left behind. Returns the wait
// status; 0 if it is left behind.
static int program_end(struct running *p)
{
    char text[PROC_TEXT_MAX];
    int status = 0;
    if (program_reap(p, &status))
        return status;
    kill(p->pid, SIGKILL);
    if (!program_reap(p, &status))
        log_error("probe_left_behind process=%s",
                  log_quote(&(struct log_quoted){0}, proc_describe(p->pid, text)));
    return status;
}

enum status probe_program(const char *program, char *const arguments[],
                          const struct confinement *confinement, int limit_ms, struct probe *result,
                          struct error *error)
{
    *result = (struct probe){.in_time = true};
    struct running p = {.out = {.fd = -1, .text = result->out},
                        .err = {.fd = -1, .text = result->err}};
    struct spawn_process process = {
        .program = program, .arguments = arguments, .confinement = confinement};
    enum status status = program_start(&p, &process, error);
    if (status == STATUS_OK) {
        result->in_time = streams_drain(&p, clock_now_ns() + (uint64_t)limit_ms * NS_PER_MS);
        if (!result->in_time)
            kill(p.pid, SIGKILL);
        result->status = program_end(&p);
    }
    if (p.out.fd >= 0)
        close(p.out.fd);
    if (p.err.fd >= 0)
        close(p.err.fd);
    return status;
}

void probe_clean(char *text)
{
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

const char *probe_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    probe_clean(text);
    return text;
}
