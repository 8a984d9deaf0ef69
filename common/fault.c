// SPDX-License-Identifier: Apache-2.0
#include "common/fault.h"

#ifdef CPATTN_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/report.h"

#define FLOOD_BYTES       (10 * 1000 * 1000)
#define DESCRIPTORS_MAX   1024
#define WAIT_MAX_MS       60000
// Memory that hoard() can add under a limit of its own. If that limit has no effect, hoard() stops
// after twice as much.
#define HOARD_BYTES       (64UL << 20)
#define HOARD_PIECE_BYTES 65536

static struct {
    int rank;
    uint32_t generation;
    uint64_t job;
} self;

void fault_know(int rank, uint32_t generation)
{
    self.rank = rank;
    self.generation = generation;
}

void fault_know_job(uint64_t job)
{
    self.job = job;
}

static void sleep_for_good(void)
{
    for (;;)
        pause();
}

// ---- the kinds ---------------------------------------------------------------------------------

static void raw_send(const void *data, size_t size)
{
    ssize_t ignored = send(CHANNEL_FD, data, size, MSG_NOSIGNAL);
    (void)ignored;
}

// Sends a passing report of the given size.
static void report_send(uint32_t generation, size_t bytes)
{
    static struct rank_report report;
    struct error error;
    report = (struct rank_report){.rank = self.rank, .pass = true};
    enum status ignored = channel_send(CHANNEL_FD, CHANNEL_REPORT, generation, self.job, &report,
                                       (uint32_t)bytes, &error);
    (void)ignored;
}

static void spin(void)
{
    for (volatile unsigned turns = 0;; turns++)
        continue;
}

static void wait_for_end_of_file(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s.wait", getenv("CPATTN_FAULT"));
    for (int waited = 0; waited < WAIT_MAX_MS && access(path, F_OK) == 0; waited++)
        usleep(1000);
}

static void long_send(void)
{
    static struct {
        struct channel_frame frame;
        char payload[CHANNEL_PAYLOAD_MAX + 1];
    } frame;
    frame.frame = (struct channel_frame){.magic = CHANNEL_MAGIC,
                                         .type = CHANNEL_REPORT,
                                         .version = CHANNEL_VERSION,
                                         .generation = self.generation,
                                         .length = sizeof(frame.payload),
                                         .job = self.job};
    raw_send(&frame, sizeof(frame.frame) + sizeof(frame.payload));
}

static void flood(void)
{
    static const char line[] = "the same line over and over again, ten megabytes of it\n";
    for (size_t done = 0; done < FLOOD_BYTES; done += sizeof(line) - 1)
        if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
            return;
}

static void leak(void)
{
    struct rlimit limit = {DESCRIPTORS_MAX, DESCRIPTORS_MAX};
    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(STDERR_FILENO) >= 0)
        continue;
}

// Returns the most bytes that hoard() takes. Limits the process itself if the daemon has set no
// limit.
static size_t hoard_limit(void)
{
    struct rlimit limit;
    unsigned long pages = 0;
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return limit.rlim_cur;
    FILE *file = fopen("/proc/self/statm", "re");
    bool known = file && fscanf(file, "%lu", &pages) == 1;
    if (file)
        fclose(file);
    if (!known)
        return 0;
    limit.rlim_cur = limit.rlim_max = pages * (unsigned long)getpagesize() + HOARD_BYTES;
    setrlimit(RLIMIT_AS, &limit);
    return 2 * HOARD_BYTES;
}

static void hoard(void)
{
    size_t max = hoard_limit();
    void *volatile kept; // so that the compiler does not remove it
    for (size_t bytes = 0; bytes < max && (kept = malloc(HOARD_PIECE_BYTES));
         bytes += HOARD_PIECE_BYTES)
        memset(kept, 1, HOARD_PIECE_BYTES);
}

static void commit(enum fault_kind kind)
{
    switch (kind) {
    case FAULT_KIND_KILL:
        raise(SIGKILL);
        break;
    case FAULT_KIND_ABORT:
        abort();
    case FAULT_KIND_EXIT:
        _exit(0);
    case FAULT_KIND_STOP:
        raise(SIGSTOP);
        break;
    case FAULT_KIND_SPIN:
        spin();
        break;
    case FAULT_KIND_WAIT:
        wait_for_end_of_file();
        break;
    case FAULT_KIND_CLOSE:
        close(CHANNEL_FD);
        close(channel_last_fd());
        sleep_for_good();
        break;
    case FAULT_KIND_GARBAGE:
        raw_send("garbage!", 8);
        sleep_for_good();
        break;
    case FAULT_KIND_LONG:
        long_send();
        sleep_for_good();
        break;
    case FAULT_KIND_HALF:
        report_send(self.generation, report_bytes(0) / 2);
        sleep_for_good();
        break;
    case FAULT_KIND_STALE:
        report_send(self.generation - 1, report_bytes(0));
        break;
    case FAULT_KIND_TWICE:
        report_send(self.generation, report_bytes(0));
        break;
    case FAULT_KIND_FLOOD:
        flood();
        break;
    case FAULT_KIND_LEAK:
        leak();
        break;
    case FAULT_KIND_HOARD:
        hoard();
        break;
    case FAULT_KINDS:
        break;
    }
}

// ---- orders ------------------------------------------------------------------------------------

static int name_find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

#define FAULT_TEXT(name, text, sentence) text,
static int kind_find(const char *name)
{
    static const char *const names[] = {FAULT_KIND_LIST(FAULT_TEXT)};
    return name_find(names, FAULT_KINDS, name);
}

static int point_find(const char *name)
{
    static const char *const names[] = {FAULT_POINT_LIST(FAULT_TEXT)};
    return name_find(names, FAULT_POINTS, name);
}

void fault_meet(enum fault_point point)
{
    const char *path = getenv("CPATTN_FAULT");
    char text[64], at[16], what[16];
    int rank;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%15s %15s %d", at, what, &rank) != 3 || rank != self.rank ||
        point_find(at) != (int)point)
        return;
    int kind = kind_find(what);
    if (kind >= 0 && unlink(path) == 0)
        commit((enum fault_kind)kind);
}

#else
typedef int fault_is_not_compiled_in;
#endif
