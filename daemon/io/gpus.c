// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/io/proc.h"
#include "daemon/io/spawn.h"

// ---- the list ----------------------------------------------------------------------------------

static void name_clean(char *name)
{
    for (char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static enum status line_parse(const char *line, struct wire_device *device, struct error *error)
{
    int64_t mebibytes;
    int end = 0;
    *device = (struct wire_device){0};
    int found = sscanf(line, "device %" SCNd32 " %15s %" SCNd64 " MiB %n", &device->index,
                       device->arch, &mebibytes, &end);
    if (found != 3 || end == 0 || !line[end] || device->index < 0 || device->index >= DEVICES_MAX ||
        mebibytes < 1 || mebibytes > INT64_MAX >> 20)
        return error_set(error, STATUS_DATA_LOSS,
                         "'%.80s' is no device such as \"device 0 sm_90 143771 MiB NVIDIA H200\"",
                         line);
    device->memory_bytes = mebibytes << 20;
    snprintf(device->name, sizeof(device->name), "%s", line + end);
    name_clean(device->name);
    name_clean(device->arch);
    return STATUS_OK;
}

static enum status device_add(const struct wire_device *device, struct wire_device *devices,
                              int *count, struct error *error)
{
    for (int i = 0; i < *count; i++)
        if (devices[i].index == device->index)
            return error_set(error, STATUS_DATA_LOSS, "device %d is named twice", device->index);
    if (*count == DEVICES_MAX)
        return error_set(error, STATUS_DATA_LOSS, "more than %d devices are named", DEVICES_MAX);
    devices[(*count)++] = *device;
    return STATUS_OK;
}

enum status gpus_parse(char *text, struct wire_device devices[DEVICES_MAX], int *count,
                       struct error *error)
{
    enum status status = STATUS_OK;
    char *rest;
    *count = 0;
    for (char *line = strtok_r(text, "\n", &rest); line && status == STATUS_OK;
         line = strtok_r(NULL, "\n", &rest)) {
        struct wire_device device;
        if (strncmp(line, "device ", 7) != 0)
            continue;
        status = line_parse(line, &device, error);
        if (status == STATUS_OK)
            status = device_add(&device, devices, count, error);
    }
    return status;
}

// ---- the program -------------------------------------------------------------------------------

// More than the longest list needs.
#define TEXT_MAX    16384
// How long its end is waited for, before SIGKILL and after it.
#define REAP_MAX_MS 1000
#define REAP_TRIES  100

struct stream {
    int fd; // -1: at its end
    size_t used;
    char text[TEXT_MAX]; // with a final NUL; what is beyond is dropped
};

struct probe {
    const char *program;
    const struct confinement *confinement;
    pid_t pid;
    struct stream out, err;
};

// The first descriptors of the program: nothing to read, and the two streams.
enum { FDS = 3 };

static enum status fds_open(struct probe *p, int fds[FDS], struct error *error)
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
                : error_set(error, STATUS_UNAVAILABLE, "cannot look for devices: %s",
                            strerror(errno));
}

static enum status probe_spawn(struct probe *p, const int fds[FDS], char **environment,
                               struct error *error)
{
    char name[] = "cpattn-rank-cuda", option[] = "--probe";
    char *const arguments[] = {name, option, NULL};
    const struct spawn_process process = {
        .program = p->program,
        .arguments = arguments,
        .environment = environment,
        .fds = fds,
        .fd_count = FDS,
        .confinement = p->confinement,
    };
    if (!environment)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to look for devices");
    return spawn_process(&process, &p->pid, error);
}

static enum status probe_start(struct probe *p, struct error *error)
{
    int fds[FDS] = {-1, -1, -1};
    char **environment = spawn_environment_create(false);
    enum status status = fds_open(p, fds, error);
    if (status == STATUS_OK)
        status = probe_spawn(p, fds, environment, error);
    for (int i = 0; i < FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    spawn_environment_destroy(environment);
    return status;
}

static void stream_read(struct stream *s)
{
    char dropped[512];
    size_t room = sizeof(s->text) - 1 - s->used;
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

// Reads until both streams are at their end; false when that takes too long.
static bool streams_drain(struct probe *p, uint64_t deadline_ns)
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

static bool probe_reap(struct probe *p, int *status)
{
    pid_t reaped = 0;
    for (int i = 0; i < REAP_TRIES && reaped == 0; i++) {
        reaped = waitpid(p->pid, status, WNOHANG);
        if (reaped == 0)
            poll(NULL, 0, REAP_MAX_MS / REAP_TRIES);
    }
    return reaped != 0;
}

// A program that closes its streams is about to end, and is not waited for if it does not; nor is
// one that a driver holds in the kernel.
static int probe_end(struct probe *p)
{
    char text[PROC_TEXT_MAX];
    int status = 0;
    if (probe_reap(p, &status))
        return status;
    kill(p->pid, SIGKILL);
    if (!probe_reap(p, &status))
        log_error("probe_left_behind process=%s",
                  log_quote(&(struct log_quoted){0}, proc_describe(p->pid, text)));
    return status;
}

static const char *first_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    name_clean(text);
    return text;
}

static enum status probe_judge(struct probe *p, bool in_time, int status,
                               struct wire_device devices[DEVICES_MAX], int *count,
                               struct error *error)
{
    struct error wrong;
    if (!in_time)
        return error_set(error, STATUS_UNAVAILABLE, "%s --probe did not end in time", p->program);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        if (gpus_parse(p->out.text, devices, count, &wrong) != STATUS_OK)
            return error_set(error, STATUS_UNAVAILABLE, "%s --probe: %s", p->program, wrong.text);
        if (*count > 0)
            return STATUS_OK;
    }
    if (WIFSIGNALED(status))
        return error_set(error, STATUS_UNAVAILABLE, "%s --probe was killed by signal %d",
                         p->program, WTERMSIG(status));
    return error_set(error, STATUS_UNAVAILABLE, "%s",
                     p->err.text[0] ? first_line(p->err.text) : "there is no usable GPU");
}

enum status gpus_probe(const char *program, const struct confinement *confinement, int limit_ms,
                       struct wire_device devices[DEVICES_MAX], int *count, struct error *error)
{
    struct probe p = {
        .program = program, .confinement = confinement, .out = {.fd = -1}, .err = {.fd = -1}};
    *count = 0;
    enum status status = probe_start(&p, error);
    if (status == STATUS_OK) {
        uint64_t deadline_ns = clock_now_ns() + (uint64_t)limit_ms * NS_PER_MS;
        bool in_time = streams_drain(&p, deadline_ns);
        if (!in_time)
            kill(p.pid, SIGKILL);
        int ended = probe_end(&p);
        status = probe_judge(&p, in_time, ended, devices, count, error);
    }
    if (p.out.fd >= 0)
        close(p.out.fd);
    if (p.err.fd >= 0)
        close(p.err.fd);
    return status;
}
