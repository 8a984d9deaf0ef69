// SPDX-License-Identifier: Apache-2.0
// Replaces cpattn-rank in tests of the daemon. It computes nothing, and misbehaves on request: the
// label of a case tells the last rank of the pool what to do. Pools of 5 to 8 ranks do not start.
// Processes of the same user may trace it.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/report.h"
#include "plan/kind.h"

#define PROGRESS_FD 4

static struct {
    int rank, world_size;
    uint32_t generation;
    struct progress *progress;
    _Alignas(16) char payload[CHANNEL_PAYLOAD_MAX];
} self;

static void say(enum channel_type type, uint32_t generation, uint64_t job, const void *payload,
                size_t size)
{
    struct error error;
    if (channel_send(CHANNEL_FD, type, generation, job, payload, (uint32_t)size, &error) !=
        STATUS_OK)
        _exit(9);
}

static void say_raw(const void *data, size_t size)
{
    if (send(CHANNEL_FD, data, size, MSG_NOSIGNAL) < 0)
        _exit(9);
}

static struct rank_report passed(void)
{
    struct rank_report report;
    memset(&report, 0, sizeof(report));
    report.rank = self.rank;
    report.pass = true;
    return report;
}

// Sends as many bytes of a report as a real rank does.
static void report_say(uint32_t generation, uint64_t job, const struct rank_report *report)
{
    say(CHANNEL_REPORT, generation, job, report, report_bytes(report->op_times.count));
}

static void report_send(uint64_t job)
{
    struct rank_report report = passed();
    report_say(self.generation, job, &report);
}

static void failure_send(uint64_t job, int kind, int peer)
{
    struct rank_failure failure = {.status = STATUS_INTERNAL,
                                   .kind = kind,
                                   .peer = peer,
                                   .phase = REPORT_BACKWARD,
                                   .step = 3,
                                   .text = "out of ideas"};
    say(CHANNEL_FAILED, self.generation, job, &failure, sizeof(failure));
}

static void sleep_for_good(void)
{
    for (;;)
        pause();
}

// ---- ways to misbehave -------------------------------------------------------------------------

static void odd_garbage(uint64_t job)
{
    (void)job;
    say_raw("garbage!", 8);
    sleep_for_good();
}

static void odd_magic(uint64_t job)
{
    struct channel_frame frame = {
        .magic = CHANNEL_MAGIC, .type = 77, .version = CHANNEL_VERSION, .job = job};
    frame.generation = self.generation;
    say_raw(&frame, sizeof(frame));
    sleep_for_good();
}

static void odd_case(uint64_t job)
{
    say(CHANNEL_STOP, self.generation, job, NULL, 0);
    sleep_for_good();
}

static void odd_short(uint64_t job)
{
    struct rank_report report = passed();
    say(CHANNEL_REPORT, self.generation, job, &report, report_bytes(0) / 2);
    sleep_for_good();
}

static void odd_job(uint64_t job)
{
    report_send(job + 1);
    sleep_for_good();
}

static void odd_twice(uint64_t job)
{
    report_send(job);
    report_send(job);
    sleep_for_good();
}

static void odd_figures(uint64_t job)
{
    struct rank_report report = passed();
    report.figures_count = 1000000;
    report_say(self.generation, job, &report);
    sleep_for_good();
}

static void odd_tensor(uint64_t job)
{
    struct rank_report report = passed();
    report.figures_count = 1;
    report.figures[0].tensor = TENSOR_COUNT;
    report_say(self.generation, job, &report);
    sleep_for_good();
}

static void odd_broken(uint64_t job)
{
    struct rank_report report = passed();
    report.figures_count = 1;
    report.figures[0] = (struct figures){.tensor = TENSOR_DK, .broken = RULE_ROW, .elements = 1};
    report_say(self.generation, job, &report);
    sleep_for_good();
}

static void odd_judged(uint64_t job)
{
    struct rank_report report = passed();
    report.figures_count = 1;
    report.figures[0] = (struct figures){.tensor = TENSOR_DK, .elements = 1, .judged = 2};
    report_say(self.generation, job, &report);
    sleep_for_good();
}

static void odd_diagnosis(uint64_t job)
{
    struct rank_report report = passed();
    report.pass = false;
    report.diagnosis = (struct diagnosis){.tensor = TENSOR_DK, .explained = 2, .text = "guess"};
    report_say(self.generation, job, &report);
    sleep_for_good();
}

// An operation that ends before it starts.
static void odd_times(uint64_t job)
{
    struct rank_report report = passed();
    report.op_times = (struct op_times){.begin_ns = 1, .count = 1, .list = {{7, 6}}};
    report_say(self.generation, job, &report);
    sleep_for_good();
}

// The report has fewer times than its count says.
static void odd_few_times(uint64_t job)
{
    struct rank_report report = passed();
    report.op_times.count = 3;
    say(CHANNEL_REPORT, self.generation, job, &report, report_bytes(2));
    sleep_for_good();
}

static void odd_many_times(uint64_t job)
{
    struct rank_report report = passed();
    report.op_times.count = OP_TIMES_MAX + 1;
    say(CHANNEL_REPORT, self.generation, job, &report, sizeof(report));
    sleep_for_good();
}

static void odd_stale(uint64_t job)
{
    struct rank_report report = passed();
    report.pass = false;
    report_say(self.generation - 1, job, &report);
    report_send(job);
}

static void odd_mute(uint64_t job)
{
    (void)job;
    close(CHANNEL_FD);
    sleep_for_good();
}

// A child keeps all descriptors open, so the daemon sees no end of file when the rank dies.
static void odd_child(uint64_t job)
{
    (void)job;
    if (fork() == 0)
        sleep_for_good();
    _exit(3);
}

// A child in its own session traces the rank. Only the child can then reap the rank.
static void odd_traced(uint64_t job)
{
    int ready[2];
    char byte;
    (void)job;
    pid_t parent = getpid();
    if (pipe(ready) != 0)
        _exit(9);
    if (fork() == 0) {
        setsid();
        if (ptrace(PTRACE_SEIZE, parent, NULL, NULL) != 0 || write(ready[1], "", 1) != 1)
            _exit(9);
        sleep_for_good();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) == 1)
        sleep_for_good();
}

// Maps memory and does not use it. The exit status says which mappings were granted.
static void odd_memory(uint64_t job)
{
    (void)job;
    const int protection = PROT_READ | PROT_WRITE;
    void *own = mmap(NULL, (size_t)512 << 20, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *shared =
        mmap(NULL, (size_t)2 << 30, protection, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    _exit((own == MAP_FAILED ? 0 : 1) | (shared == MAP_FAILED ? 0 : 2));
}

// Maps memory until that fails, then sleeps, like a library that repeats a failed allocation.
static void odd_hoard(uint64_t job)
{
    (void)job;
    while (mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0) != MAP_FAILED)
        continue;
    sleep_for_good();
}

static void odd_file(uint64_t job)
{
    (void)job;
    FILE *file = tmpfile();
    if (!file || fputs("what is left behind", file) == EOF || fclose(file) == EOF)
        _exit(9);
    _exit(0);
}

// Tries what a process of another user must not do. Passes if nothing succeeds; else the exit
// status has a bit for each success.
static void odd_pry(uint64_t job)
{
    const char *secret = getenv("NCCL_TEST_SECRET");
    char path[64];
    int gained = 0;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)getppid());
    gained |= kill(getppid(), 0) == 0 ? 1 : 0;
    gained |= !secret || open(secret, O_RDONLY) >= 0 ? 2 : 0;
    gained |= open(path, O_RDONLY) >= 0 ? 4 : 0;
    gained |= setuid(0) == 0 || seteuid(0) == 0 || setreuid(0, 0) == 0 ? 8 : 0;
    gained |= setgid(0) == 0 || setgroups(0, NULL) == 0 ? 16 : 0;
    if (gained)
        _exit(gained);
    report_send(job);
}

// Makes calls that the filter refuses. Calls that also need a privilege come last in the table.
// Passes if all fail with EPERM and a unix socket can be created. Else the exit status is the
// number of the first call with another outcome.
static void odd_calls(uint64_t job)
{
    static const long numbers[] = {SYS_ptrace,          SYS_process_vm_readv,
                                   SYS_unshare,         SYS_keyctl,
                                   SYS_io_uring_setup,  SYS_userfaultfd,
                                   SYS_perf_event_open, SYS_bpf,
                                   SYS_mount,           SYS_setns,
                                   SYS_kexec_load,      SYS_reboot};
    int number = 0;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && number == 0; i++)
        if (syscall(numbers[i], -1, -1, -1, -1, -1, -1) != -1 || errno != EPERM)
            number = (int)i + 1;
    if (number == 0 &&
        (syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) != -1 || errno != EPERM))
        number = 20;
    if (number == 0 && (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EPERM))
        number = 21;
    if (number == 0 && socket(AF_UNIX, SOCK_STREAM, 0) < 0)
        number = 22;
    if (number)
        _exit(number);
    report_send(job);
}

static void odd_flood(uint64_t job)
{
    (void)job;
    static const char line[] = "the same line over and over again, and no end to it\n";
    for (;;) {
        if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
            _exit(9);
    }
}

static void odd_words(uint64_t job)
{
    (void)job;
    fprintf(stderr, "first line\nbinary \x01\xff\x1b[31m and 100%% percent %%s\nlast words\n");
    fflush(stderr);
    raise(SIGUSR1); // sanitizers have no handler for it
}

static void odd_exit(uint64_t job)
{
    (void)job;
    _exit(0);
}

static void odd_killed(uint64_t job)
{
    (void)job;
    raise(SIGKILL);
}

static void odd_silent(uint64_t job)
{
    (void)job;
    sleep_for_good();
}

// The rank stops. Its progress word says that it waits for rank 0.
static void odd_stopped(uint64_t job)
{
    progress_store(self.progress, (struct progress_view){.job = (uint32_t)(job & 0xffffff),
                                                         .phase = REPORT_BACKWARD,
                                                         .step = 2,
                                                         .waiting_for = 0});
    raise(SIGSTOP);
}

static void odd_failed(uint64_t job)
{
    failure_send(job, FAILURE_OWN, -1);
    sleep_for_good();
}

static void odd_peer(uint64_t job)
{
    failure_send(job, FAILURE_PEER_LOST, 0);
    sleep_for_good();
}

static void odd_blame(uint64_t job)
{
    failure_send(job, FAILURE_PEER_LOST, 99);
    sleep_for_good();
}

// The diagnosis contains an escape character of terminals.
static void odd_fail_verdict(uint64_t job)
{
    struct rank_report report = passed();
    report.pass = false;
    report.figures_count = 1;
    report.figures[0] = (struct figures){.tensor = TENSOR_DK,
                                         .broken = RULE_SLOPE,
                                         .elements = 8,
                                         .judged = 4,
                                         .slope = 0.5,
                                         .te_mismatches = 3,
                                         .remark = REMARK_LONG_SUM};
    report.diagnosis =
        (struct diagnosis){.tensor = TENSOR_DK, .explained = 0.75, .text = "half\033of it"};
    report_say(self.generation, job, &report);
}

static const struct {
    const char *label;
    void (*act)(uint64_t job);
} oddities[] = {
    {"garbage", odd_garbage},
    {"magic", odd_magic},
    {"case", odd_case},
    {"short", odd_short},
    {"job", odd_job},
    {"twice", odd_twice},
    {"figures", odd_figures},
    {"tensor", odd_tensor},
    {"broken", odd_broken},
    {"stale", odd_stale},
    {"mute", odd_mute},
    {"child", odd_child},
    {"flood", odd_flood},
    {"words", odd_words},
    {"stopped", odd_stopped},
    {"exit", odd_exit},
    {"killed", odd_killed},
    {"silent", odd_silent},
    {"failed", odd_failed},
    {"peer", odd_peer},
    {"blame", odd_blame},
    {"verdict", odd_fail_verdict},
    {"alone", odd_failed},
    {"traced", odd_traced},
    {"memory", odd_memory},
    {"file", odd_file},
    {"pry", odd_pry},
    {"calls", odd_calls},
    {"hoard", odd_hoard},
    {"judged", odd_judged},
    {"diagnosis", odd_diagnosis},
    {"times", odd_times},
    {"few_times", odd_few_times},
    {"many_times", odd_many_times},
};

// ---- the process -------------------------------------------------------------------------------

static void case_serve(const struct cp_case *c, uint64_t job)
{
    progress_store(self.progress, (struct progress_view){.job = (uint32_t)(job & 0xffffff),
                                                         .phase = REPORT_FORWARD,
                                                         .step = 1,
                                                         .waiting_for = -1});
    for (size_t i = 0; i < sizeof(oddities) / sizeof(oddities[0]); i++) {
        if (self.rank == self.world_size - 1 && strcmp(c->model, oddities[i].label) == 0) {
            oddities[i].act(job);
            return;
        }
    }
    if (strcmp(c->model, "alone") == 0)
        sleep_for_good(); // in a collective that the failed rank never joins
    report_send(job);
}

// Ranks end at STOP. Ranks of a pool of 2 end only by SIGTERM, those of a pool of 4 by SIGKILL.
static void stop_hear(void)
{
    static const char text[] = "asked to end\n";
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ||
        (self.world_size != 2 && self.world_size != 4))
        _exit(0);
}

static void term_hear(int number)
{
    static const char text[] = "told to end\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 || self.world_size == 2)
        _exit(0);
}

static void start(void)
{
    struct channel_hello hello;
    channel_hello_fill(&hello, (int)getpid(), self.rank);
    if (self.world_size == 5)
        hello.build_id[0] ^= 1;
    if (self.world_size == 6) {
        fprintf(stderr, "no such library\n");
        _exit(127);
    }
    say(CHANNEL_HELLO, self.generation, 0, &hello, sizeof(hello));
    if (self.world_size == 7)
        sleep_for_good();
    char exchange[] = "by hand\t(4 MiB in 2 us)";
    say(CHANNEL_READY, self.generation, 0, self.world_size == 8 ? self.payload : exchange,
        self.world_size == 8 ? EXCHANGE_TEXT_MAX : sizeof(exchange) - 1);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (argc != 5)
        return 64;
    self.rank = atoi(argv[1]);
    self.world_size = atoi(argv[2]);
    self.generation = (uint32_t)strtoul(argv[3], NULL, 10);
    self.progress = mmap(NULL, (size_t)self.world_size * sizeof(*self.progress),
                         PROT_READ | PROT_WRITE, MAP_SHARED, PROGRESS_FD, 0);
    if (self.progress == MAP_FAILED)
        return 70;
    self.progress += self.rank;
    signal(SIGTERM, term_hear);
    start();
    for (;;) {
        struct channel_frame frame;
        struct cp_case c;
        struct error error;
        if (channel_recv(CHANNEL_FD, &frame, self.payload, &error) != STATUS_OK)
            return 0;
        memcpy(&c, ((const struct job_frame *)(const void *)self.payload)->spec, sizeof(c));
        if (frame.type == CHANNEL_CASE)
            case_serve(&c, frame.job);
        else if (frame.type == CHANNEL_STOP)
            stop_hear();
    }
}
