// SPDX-License-Identifier: Apache-2.0
// The program cpattn-rank from the daemon's side.
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/report.h"
#include "plan/kind.h"

#define GENERATION 7
#define FD_HIGH    100

// ---- a pool by hand ----

struct pool {
    int size;
    pid_t pids[2];
    int channels[2];
    int progress_fd;
    const struct progress *progress;
};

static const char *program(void)
{
    static char path[4096];
    return runner_build(path, sizeof(path), "cpattn-rank");
}

// In the child: moves the descriptors to the numbers of a rank, and executes the rank program.
static void rank_exec(int rank, int size, int channel, int progress_fd, int mesh, pid_t parent)
{
    char numbers[4][16];
    const int wanted[4] = {rank, size, GENERATION, (int)parent};
    int null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, FD_HIGH);
    channel = fcntl(channel, F_DUPFD, FD_HIGH);
    progress_fd = fcntl(progress_fd, F_DUPFD, FD_HIGH);
    mesh = mesh < 0 ? null : fcntl(mesh, F_DUPFD, FD_HIGH);
    dup2(null, 0);
    dup2(channel, CHANNEL_FD);
    dup2(progress_fd, CHANNEL_FD + 1);
    for (int peer = 0; peer < size; peer++)
        dup2(peer == rank ? null : mesh, CHANNEL_FD + 2 + peer);
    close_range((unsigned)(CHANNEL_FD + 2 + size), ~0U, 0);
    for (int i = 0; i < 4; i++)
        snprintf(numbers[i], sizeof(numbers[i]), "%d", wanted[i]);
    execl(program(), "cpattn-rank", numbers[0], numbers[1], numbers[2], numbers[3], (char *)NULL);
    perror(program());
    _exit(99);
}

static void pool_start(struct pool *p, int size)
{
    int mesh[2] = {-1, -1};
    pid_t parent = getpid();
    p->size = size;
    p->progress_fd = memfd_create("progress", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(p->progress_fd, 4096), 0);
    p->progress = mmap(NULL, 4096, PROT_READ, MAP_SHARED, p->progress_fd, 0);
    ck_assert(p->progress != MAP_FAILED);
    if (size == 2)
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mesh), 0);
    for (int rank = 0; rank < size; rank++) {
        int ends[2];
        struct error error;
        ck_assert_int_eq(channel_pair(ends, &error), STATUS_OK);
        p->pids[rank] = fork();
        if (p->pids[rank] == 0)
            rank_exec(rank, size, ends[1], p->progress_fd, mesh[rank], parent);
        close(ends[1]);
        p->channels[rank] = ends[0];
    }
    close(mesh[0]);
    close(mesh[1]);
}

// The next frame of a rank; waits for it.
static enum channel_type hear(struct pool *p, int rank, struct channel_frame *frame, void *payload)
{
    struct error error = {0};
    struct pollfd readable = {.fd = p->channels[rank], .events = POLLIN};
    ck_assert_int_eq(poll(&readable, 1, -1), 1);
    enum status status = channel_recv(p->channels[rank], frame, payload, &error);
    ck_assert_msg(status == STATUS_OK, "rank %d: %s", rank, error.text);
    ck_assert_uint_eq(frame->generation, GENERATION);
    return (enum channel_type)frame->type;
}

static _Alignas(16) char payload_buffer[CHANNEL_PAYLOAD_MAX];

static void expect(struct pool *p, int rank, enum channel_type type)
{
    struct channel_frame frame;
    ck_assert_int_eq(hear(p, rank, &frame, payload_buffer), type);
}

static void tell(struct pool *p, int rank, enum channel_type type, uint32_t generation,
                 uint64_t job, const void *payload, size_t bytes)
{
    struct error error;
    ck_assert_int_eq(
        channel_send(p->channels[rank], type, generation, job, payload, (uint32_t)bytes, &error),
        STATUS_OK);
}

static int status_of(struct pool *p, int rank)
{
    int status;
    ck_assert_int_eq(waitpid(p->pids[rank], &status, 0), p->pids[rank]);
    return status;
}

static void pool_ready(struct pool *p, int size)
{
    pool_start(p, size);
    for (int rank = 0; rank < size; rank++) {
        struct channel_frame frame;
        struct error error = {0};
        ck_assert_int_eq(hear(p, rank, &frame, payload_buffer), CHANNEL_HELLO);
        ck_assert_msg(channel_hello_check(&frame, payload_buffer, rank, &error) == STATUS_OK, "%s",
                      error.text);
        struct channel_hello hello;
        memcpy(&hello, payload_buffer, sizeof(hello));
        ck_assert_int_eq(hello.pid, p->pids[rank]);
    }
    for (int rank = 0; rank < size; rank++)
        expect(p, rank, CHANNEL_READY);
}

static void pool_stop(struct pool *p)
{
    for (int rank = 0; rank < p->size; rank++)
        tell(p, rank, CHANNEL_STOP, GENERATION, 0, NULL, 0);
    for (int rank = 0; rank < p->size; rank++) {
        int status = status_of(p, rank);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void small_case(struct cp_case *c, int world_size)
{
    case_init(c);
    c->world_size = world_size;
    c->heads = c->kv_heads = 2;
    c->head_dim_qk = c->head_dim_v = 16;
    c->seqlen_q = c->seqlen_kv = 20;
}

static void tell_case(struct pool *p, int rank, uint32_t generation, uint64_t job,
                      const struct cp_case *c)
{
    struct job_spec spec;
    struct job_frame frame;
    job_spec_of_case(&spec, c);
    uint32_t bytes = job_frame_fill(&frame, &spec);
    tell(p, rank, CHANNEL_CASE, generation, job, &frame, bytes);
}

// ---- life ----

START_TEST(serves_cases_until_told_to_stop)
{
    struct pool p;
    struct cp_case c;
    struct channel_frame frame;
    struct rank_report reports[2][2];
    pool_ready(&p, 2);
    small_case(&c, 2);
    for (uint64_t job = 1; job <= 2; job++) {
        for (int rank = 0; rank < 2; rank++)
            tell_case(&p, rank, GENERATION, job, &c);
        for (int rank = 0; rank < 2; rank++) {
            ck_assert_int_eq(hear(&p, rank, &frame, payload_buffer), CHANNEL_REPORT);
            ck_assert_uint_eq(frame.job, job);
            ck_assert_uint_eq(frame.length, report_bytes(0));
            memcpy(&reports[job - 1][rank], payload_buffer, frame.length);
            ck_assert_int_eq(reports[job - 1][rank].rank, rank);
            ck_assert(reports[job - 1][rank].pass);
            struct progress_view view = progress_load(&p.progress[rank]);
            ck_assert_uint_eq(view.job, job);
            ck_assert_int_eq(view.phase, REPORT_IDLE);
        }
    }
    for (int rank = 0; rank < 2; rank++)
        ck_assert_uint_eq(reports[0][rank].digest, reports[1][rank].digest);
    pool_stop(&p);
}
END_TEST

START_TEST(answers_pings_and_ignores_the_past)
{
    struct pool p;
    struct cp_case c;
    struct channel_frame frame;
    pool_ready(&p, 1);
    small_case(&c, 1);
    tell(&p, 0, CHANNEL_STOP, GENERATION - 1, 0, NULL, 0);
    tell_case(&p, 0, GENERATION - 1, 1, &c);
    tell(&p, 0, CHANNEL_PING, GENERATION, 33, NULL, 0);
    ck_assert_int_eq(hear(&p, 0, &frame, payload_buffer), CHANNEL_PONG);
    ck_assert_uint_eq(frame.job, 33);
    pool_stop(&p);
}
END_TEST

START_TEST(leaves_when_the_channel_ends)
{
    struct pool p;
    pool_ready(&p, 1);
    close(p.channels[0]);
    int status = status_of(&p, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

// ---- failures ----

static void expect_failure(struct pool *p, int rank, uint64_t job, struct rank_failure *failure)
{
    struct channel_frame frame;
    ck_assert_int_eq(hear(p, rank, &frame, payload_buffer), CHANNEL_FAILED);
    ck_assert_uint_eq(frame.job, job);
    ck_assert_uint_eq(frame.length, sizeof(*failure));
    memcpy(failure, payload_buffer, sizeof(*failure));
}

// The rank has reported its failure. It must wait for the end of its channel, so that its exit does
// not end other ranks.
static void assert_gives_up(struct pool *p, int rank)
{
    siginfo_t info = {0};
    tell(p, rank, CHANNEL_PING, GENERATION, 0, NULL, 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)p->pids[rank], &info, WEXITED | WNOHANG | WNOWAIT), 0);
    ck_assert_int_eq(info.si_pid, 0);
    close(p->channels[rank]);
    int status = status_of(p, rank);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 70);
}

START_TEST(reports_what_it_cannot_do)
{
    struct pool p;
    struct cp_case c;
    struct rank_failure failure;
    pool_ready(&p, 1);
    small_case(&c, 1);
    c.kv_heads = 3;
    tell_case(&p, 0, GENERATION, 9, &c);
    expect_failure(&p, 0, 9, &failure);
    ck_assert_int_eq(failure.status, STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(failure.kind, FAILURE_OWN);
    ck_assert_int_eq(failure.peer, -1);
    ck_assert_ptr_nonnull(strstr(failure.text, "kv_heads"));
    assert_gives_up(&p, 0);
}
END_TEST

START_TEST(reports_an_invalid_frame)
{
    struct pool p;
    struct rank_failure failure;
    pool_ready(&p, 1);
    tell(&p, 0, CHANNEL_CASE, GENERATION, 4, "short", 5);
    expect_failure(&p, 0, 4, &failure);
    ck_assert_int_eq(failure.status, STATUS_DATA_LOSS);
    assert_gives_up(&p, 0);
    pool_ready(&p, 1);
    tell(&p, 0, CHANNEL_REPORT, GENERATION, 5, NULL, 0);
    expect_failure(&p, 0, 5, &failure);
    ck_assert_str_eq(failure.text, "the daemon sent REPORT to a rank");
    assert_gives_up(&p, 0);
    pool_ready(&p, 1);
    ck_assert_int_eq(send(p.channels[0], "garbage", 7, 0), 7);
    expect_failure(&p, 0, 0, &failure);
    ck_assert_int_eq(failure.status, STATUS_DATA_LOSS);
    assert_gives_up(&p, 0);
}
END_TEST

START_TEST(reports_the_lost_peer)
{
    struct pool p;
    struct cp_case c;
    struct rank_failure failure;
    pool_ready(&p, 2);
    small_case(&c, 2);
    kill(p.pids[0], SIGKILL);
    ck_assert(WIFSIGNALED(status_of(&p, 0)));
    tell_case(&p, 1, GENERATION, 1, &c);
    expect_failure(&p, 1, 1, &failure);
    ck_assert_int_eq(failure.status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(failure.kind, FAILURE_PEER_LOST);
    ck_assert_int_eq(failure.peer, 0);
    assert_gives_up(&p, 1);
}
END_TEST

// A peer that ends before it is ready.
START_TEST(reports_the_awaited_peer)
{
    struct pool p;
    struct rank_failure failure;
    pool_start(&p, 2);
    kill(p.pids[1], SIGKILL);
    expect(&p, 0, CHANNEL_HELLO);
    ck_assert(WIFSIGNALED(status_of(&p, 1)));
    struct channel_frame frame;
    // Rank 0 may have become ready before.
    if (hear(&p, 0, &frame, payload_buffer) == CHANNEL_FAILED) {
        memcpy(&failure, payload_buffer, sizeof(failure));
        ck_assert_int_eq(failure.kind, FAILURE_PEER_LOST);
        ck_assert_int_eq(failure.peer, 1);
        assert_gives_up(&p, 0);
    } else {
        ck_assert_int_eq(frame.type, CHANNEL_READY);
        tell(&p, 0, CHANNEL_STOP, GENERATION, 0, NULL, 0);
        status_of(&p, 0);
    }
}
END_TEST

// ---- environment of the process ----

static int program_status(char *const arguments[])
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execv(program(), arguments);
        _exit(99);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(wrong_arguments_are_refused)
{
    char name[] = "cpattn-rank", zero[] = "0", one[] = "1", two[] = "2", many[] = "65",
         word[] = "x", empty[] = "";
    ck_assert_int_eq(program_status((char *[]){name, NULL}), 64);
    ck_assert_int_eq(program_status((char *[]){name, two, two, one, one, NULL}), 64);
    ck_assert_int_eq(program_status((char *[]){name, zero, many, one, one, NULL}), 64);
    ck_assert_int_eq(program_status((char *[]){name, word, one, one, one, NULL}), 64);
    ck_assert_int_eq(program_status((char *[]){name, zero, one, empty, one, NULL}), 64);
    ck_assert_int_eq(program_status((char *[]){name, zero, one, one, one, one, NULL}), 64);
    // Process 1 as its parent means that the real parent has ended.
    ck_assert_int_eq(program_status((char *[]){name, zero, one, one, one, NULL}), 70);
}
END_TEST

START_TEST(a_missing_descriptor_is_reported)
{
    char name[] = "cpattn-rank", zero[] = "0", one[] = "1", parent[16];
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    close_range(3, 20, CLOSE_RANGE_CLOEXEC);
    ck_assert_int_eq(program_status((char *[]){name, zero, one, one, parent, NULL}), 70);
}
END_TEST

static long status_field(pid_t pid, const char *file, const char *name)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    FILE *stream = fopen(path, "re");
    ck_assert_ptr_nonnull(stream);
    while (fgets(line, sizeof(line), stream))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    fclose(stream);
    return value;
}

// A rank writes no core files, is killed before the daemon if memory is short, and passes no
// descriptors to child processes of libraries.
START_TEST(has_few_descriptors_and_little_memory)
{
    struct pool p;
    char path[64], line[128];
    long flags = 0;
    pool_ready(&p, 1);
    ck_assert_int_eq(status_field(p.pids[0], "limits", "Max core file size"), 0);
    ck_assert_int_eq(status_field(p.pids[0], "oom_score_adj", ""), 500);
    snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)p.pids[0], CHANNEL_FD);
    FILE *stream = fopen(path, "re");
    ck_assert_ptr_nonnull(stream);
    while (fgets(line, sizeof(line), stream))
        if (strncmp(line, "flags:", 6) == 0)
            flags = strtol(line + 6, NULL, 8);
    fclose(stream);
    ck_assert(flags & O_CLOEXEC);
    pool_stop(&p);
}
END_TEST

static void descriptor_target(pid_t pid, int fd, char target[64])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    ssize_t length = readlink(path, target, 63);
    ck_assert_msg(length > 0, "%s: %s", path, strerror(errno));
    target[length] = '\0';
}

// A dying process closes its channel before descriptors of libraries.
START_TEST(holds_its_channel_by_the_last_descriptor)
{
    struct pool p;
    char first[64], last[64];
    pool_ready(&p, 1);
    descriptor_target(p.pids[0], CHANNEL_FD, first);
    descriptor_target(p.pids[0], channel_last_fd(), last);
    ck_assert_str_eq(first, last);
    pool_stop(&p);
}
END_TEST

// A stopped rank does not see the end of its channel. It is killed when its parent dies.
START_TEST(dies_with_its_parent)
{
    int report[2], status;
    pid_t rank = 0;
    ck_assert_int_eq(pipe(report), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t middle = fork();
    if (middle == 0) {
        struct pool p;
        pool_ready(&p, 1);
        kill(p.pids[0], SIGSTOP);
        waitpid(p.pids[0], NULL, WUNTRACED);
        ssize_t ignored = write(report[1], &p.pids[0], sizeof(p.pids[0]));
        (void)ignored;
        raise(SIGKILL);
    }
    ck_assert_int_eq(read(report[0], &rank, sizeof(rank)), sizeof(rank));
    ck_assert_int_eq(waitpid(middle, NULL, 0), middle);
    ck_assert_int_eq(waitpid(rank, &status, 0), rank);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("rank_process");
    TCase *life = tcase_create("life");
    tcase_set_timeout(life, 60);
    tcase_add_test(life, serves_cases_until_told_to_stop);
    tcase_add_test(life, answers_pings_and_ignores_the_past);
    tcase_add_test(life, leaves_when_the_channel_ends);
    suite_add_tcase(s, life);
    TCase *failures = tcase_create("failures");
    tcase_set_timeout(failures, 60);
    tcase_add_test(failures, reports_what_it_cannot_do);
    tcase_add_test(failures, reports_an_invalid_frame);
    tcase_add_test(failures, reports_the_lost_peer);
    tcase_add_test(failures, reports_the_awaited_peer);
    suite_add_tcase(s, failures);
    TCase *surroundings = tcase_create("surroundings");
    tcase_set_timeout(surroundings, 60);
    tcase_add_test(surroundings, wrong_arguments_are_refused);
    tcase_add_test(surroundings, a_missing_descriptor_is_reported);
    tcase_add_test(surroundings, has_few_descriptors_and_little_memory);
    tcase_add_test(surroundings, holds_its_channel_by_the_last_descriptor);
    tcase_add_test(surroundings, dies_with_its_parent);
    suite_add_tcase(s, surroundings);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
