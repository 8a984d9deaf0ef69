// SPDX-License-Identifier: Apache-2.0
// Every state of a rank, and in each every way to misbehave (common/fault.h). A cell: a pool of two
// is warm, rank 1 has an order, one case meets the fault and a second waits behind it. The first is
// answered once, as it must be, with the rank that was the cause; the second runs; the pool is back
// and the daemon holds no more descriptors and children than before. The cells are dealt to a few
// processes, each with a daemon of its own. One line of TAP a cell.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fault.h"
#include "tests/raw_client.h"
#include "tests/runner.h"

#define WORKERS      4
#define CELLS        (FAULT_POINTS * FAULT_KINDS)
// Far beyond what anything takes.
#define PATIENCE_MS  60000
// The deadline of a case that is to miss it; made longer where the fault was not reached before.
#define SHORT_MS     250
#define SHORT_GPU_MS 2500 // where the ranks are started first
#define SHORT_MAX_MS 16000
#define HOARD_MS     3000
#define CHILDREN_MAX 64
#define PAUSE_US     5000

extern char **environ;

#define FAULT_TEXT(name, text, sentence) text,
static const char *const point_names[] = {FAULT_POINT_LIST(FAULT_TEXT)};
static const char *const kind_names[] = {FAULT_KIND_LIST(FAULT_TEXT)};

// What an answer may be.
enum {
    PASSES = 1,
    EXITS = 2,        // ABORTED: rank 1 was lost
    FAILS = 4,        // INTERNAL: rank 1 failed, or broke the rules
    OVERRUNS = 8,     // DEADLINE_EXCEEDED: rank 1 held up the case
    NOT_STARTED = 16, // DEADLINE_EXCEEDED: the pool did not come up
    TOO_EARLY = 32,   // DEADLINE_EXCEEDED: rank 0 had come less far still
    LACKS = 64,       // RESOURCE_EXHAUSTED: rank 1 has no memory
};

struct cell {
    enum fault_point point;
    enum fault_kind kind;
};

static struct {
    int number;
    char folder[64], socket[96], log[96], wrapper[96], order[96];
    pid_t daemon;
    struct raw_client client;
    uint32_t last;
    int descriptors, children; // with a warm pool and nothing to do
    char trouble[1024];        // what is wrong with this cell; "": nothing
} w;

__attribute__((format(printf, 1, 2))) static void trouble(const char *format, ...)
{
    va_list arguments;
    if (w.trouble[0])
        return;
    va_start(arguments, format);
    vsnprintf(w.trouble, sizeof(w.trouble), format, arguments);
    va_end(arguments);
}

// ---- the table ---------------------------------------------------------------------------------

static bool is_start(enum fault_point point)
{
    return point == FAULT_HELLO || point == FAULT_READY;
}

static bool is_hang(enum fault_kind kind)
{
    return kind == FAULT_KIND_STOP || kind == FAULT_KIND_SPIN;
}

static bool is_end(enum fault_kind kind)
{
    return kind == FAULT_KIND_KILL || kind == FAULT_KIND_ABORT || kind == FAULT_KIND_EXIT;
}

// What the case that meets the fault is answered.
static int expected(const struct cell *cell)
{
    bool start = is_start(cell->point), after = cell->point == FAULT_REPORTED,
         idle = cell->point == FAULT_IDLE;
    switch (cell->kind) {
    case FAULT_KIND_STALE:
    case FAULT_KIND_FLOOD:
    case FAULT_KIND_LEAK:
        return PASSES;
    case FAULT_KIND_HOARD: // the BLAS waits for memory for ever
        return PASSES | FAILS | EXITS | OVERRUNS | LACKS | (start ? NOT_STARTED : 0);
    case FAULT_KIND_STOP:
    case FAULT_KIND_SPIN:
        return start ? NOT_STARTED | PASSES : after ? PASSES : OVERRUNS;
    case FAULT_KIND_TWICE: // a lie that is believed when all others have reported
        return start ? PASSES : PASSES | FAILS;
    default: // a pool that is lost without a case is started again; one rank alone may be through
        return start ? PASSES : (is_end(cell->kind) ? EXITS : FAILS) | (idle || after ? PASSES : 0);
    }
}

// Whether the second case may be the one that meets the fault.
static bool reaches_second(const struct cell *cell)
{
    return cell->point == FAULT_REPORTED || cell->point == FAULT_IDLE ||
           cell->kind == FAULT_KIND_TWICE || cell->kind == FAULT_KIND_HOARD;
}

// How the answer says where the rank was; NULL where it may be in several places.
static const char *place_of(enum fault_point point)
{
    static const char *const places[FAULT_POINTS] = {[FAULT_RECEIPT] = "before it began the case",
                                                     [FAULT_INPUTS] = "in inputs",
                                                     [FAULT_FORWARD] = "in forward",
                                                     [FAULT_BACKWARD] = "in backward",
                                                     [FAULT_REPORT] = "after the last step"};
    return places[point];
}

static const char *fate_of(enum fault_kind kind)
{
    return kind == FAULT_KIND_KILL    ? "killed by signal 9"
           : kind == FAULT_KIND_ABORT ? "killed by signal 6"
           : kind == FAULT_KIND_EXIT  ? "exited with 0"
                                      : "rank 1 of 2";
}

// ---- the daemon --------------------------------------------------------------------------------

static int children_list(pid_t *pids)
{
    char path[96];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)w.daemon, (int)w.daemon);
    FILE *file = fopen(path, "re");
    while (file && count < CHILDREN_MAX && fscanf(file, "%d", &pids[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

static int descriptors_count(void)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)w.daemon);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

// Kills all ranks and waits until the daemon has reaped them.
static void ranks_kill(void)
{
    pid_t killed[CHILDREN_MAX];
    int count = children_list(killed), left = count;
    for (int i = 0; i < count; i++)
        kill(killed[i], SIGKILL);
    for (int waited = 0; left > 0 && waited < PATIENCE_MS * 1000; waited += PAUSE_US) {
        left = 0;
        for (int i = 0; i < count; i++)
            left += kill(killed[i], 0) == 0;
        usleep(PAUSE_US);
    }
    if (left > 0)
        trouble("ranks that were killed are not reaped");
}

// The GPUs' rank program has the points where everything is built with --enable-faults.
static bool on_gpus(void)
{
    const char *backend = getenv("CPATTN_TEST_BACKEND");
    return backend && strcmp(backend, "cuda") == 0;
}

static void wrapper_write(void)
{
    char program[4096];
    runner_build(program, sizeof(program), on_gpus() ? "cpattn-rank-cuda" : "tests/faulty_rank");
    if (getenv("CPATTN_TEST_RANK"))
        snprintf(program, sizeof(program), "%s", getenv("CPATTN_TEST_RANK"));
    FILE *file = fopen(w.wrapper, "we");
    if (!file)
        abort();
    fprintf(file, "#!/bin/sh\nCPATTN_FAULT='%s' exec '%s' \"$@\"\n", w.order, program);
    fclose(file);
    chmod(w.wrapper, 0700);
}

// What sanitizers map would count.
static bool limits_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return !on_gpus();
#endif
}

static void daemon_start(void)
{
    char program[4096];
    strcpy(w.folder, "/tmp/cpattnd-test-XXXXXX");
    if (!mkdtemp(w.folder))
        abort();
    snprintf(w.socket, sizeof(w.socket), "%s/socket", w.folder);
    snprintf(w.log, sizeof(w.log), "%s/log", w.folder);
    snprintf(w.wrapper, sizeof(w.wrapper), "%s/rank", w.folder);
    snprintf(w.order, sizeof(w.order), "%s/order", w.folder);
    wrapper_write();
    runner_build(program, sizeof(program), "cpattnd");
    const char *const arguments[] = {"cpattnd",
                                     "--socket",
                                     w.socket,
                                     "--devices",
                                     "2",
                                     "--spares", // one would meet the fault in place of the pool
                                     "off",
                                     "--backend",
                                     on_gpus() ? "cuda" : "cpu",
                                     "--rank-program",
                                     w.wrapper,
                                     "--cuda-rank-program",
                                     w.wrapper,
                                     limits_memory() ? "--rank-memory" : NULL,
                                     "256M",
                                     NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, w.log, O_WRONLY | O_CREAT, 0600);
    if (posix_spawn(&w.daemon, program, &actions, NULL, (char *const *)(uintptr_t)arguments,
                    environ) != 0)
        abort();
    posix_spawn_file_actions_destroy(&actions);
    for (int waited = 0; waited < PATIENCE_MS * 1000 && !raw_open(&w.client, w.socket);
         waited += PAUSE_US)
        usleep(PAUSE_US);
}

static void log_print(void)
{
    char line[4096];
    FILE *file = getenv("CPATTN_TEST_LOG") ? fopen(w.log, "re") : NULL;
    while (file && fgets(line, sizeof(line), file))
        printf("# %s", line);
    if (file)
        fclose(file);
}

// SIGTERM; nothing may be left. False, with a line, otherwise.
static bool daemon_end(void)
{
    int status = -1, other;
    pid_t pid = 0;
    raw_close(&w.client);
    kill(w.daemon, SIGTERM);
    waitpid(w.daemon, &status, 0);
    for (int i = 0; i < 500 && (pid = waitpid(-1, &other, WNOHANG)) >= 0; i++)
        usleep(pid == 0 ? 10000 : 0);
    bool socket_left = access(w.socket, F_OK) == 0;
    log_print();
    unlink(w.order);
    unlink(w.log);
    unlink(w.wrapper);
    bool folder_left = rmdir(w.folder) != 0;
    if (status == 0 && pid < 0 && !socket_left && !folder_left)
        return true;
    printf("# daemon %d: wait status 0x%x, %s\n", w.number, (unsigned)status,
           pid >= 0 ? "a process is left" : "socket or lock is left, or all is well");
    return false;
}

// ---- cases -------------------------------------------------------------------------------------

static uint32_t case_send(int timeout_ms)
{
    static struct wire_request request;
    uint32_t number = ++w.last;
    memset(&request, 0, sizeof(request));
    request.version = WIRE_VERSION;
    request.method = METHOD_RUN;
    request.timeout_ns = (uint64_t)timeout_ms * 1000000;
    memcpy(request.id.bytes, &number, sizeof(number));
    request.id.bytes[15] = 1;
    case_init(&request.run);
    request.run.batch = 1;
    request.run.heads = request.run.kv_heads = 1;
    request.run.head_dim_qk = request.run.head_dim_v = 16;
    request.run.seqlen_q = request.run.seqlen_kv = 32;
    request.run.seed = number;
    raw_send(&w.client, number, &request);
    return number;
}

// What the answer is, as one of the bits above; 0 for any other.
static int classify(const struct wire_reply *reply)
{
    bool blamed = reply->failure.world_size == 2 && reply->failure.ranks[1].culprit &&
                  !reply->failure.ranks[0].culprit && strstr(reply->message, "rank 1 of 2");
    if (reply->status == STATUS_OK)
        return reply->result.verdict == VERDICT_PASS ? PASSES : 0;
    if (reply->status == STATUS_DEADLINE_EXCEEDED && strstr(reply->message, "was being started"))
        return NOT_STARTED;
    if (reply->status == STATUS_RESOURCE_EXHAUSTED && strstr(reply->message, "rank 1 of 2"))
        return LACKS;
    if (!blamed)
        return reply->status == STATUS_DEADLINE_EXCEEDED ? TOO_EARLY : 0;
    return reply->status == STATUS_ABORTED             ? EXITS
           : reply->status == STATUS_INTERNAL          ? FAILS
           : reply->status == STATUS_DEADLINE_EXCEEDED ? OVERRUNS
                                                       : 0;
}

// Takes the answer to this request, which must be the next, and be one of these.
static int answer_take(const char *which, uint32_t number, int allowed, const struct cell *cell)
{
    struct wire_reply reply;
    uint32_t got;
    if (raw_wait(&w.client, PATIENCE_MS, &got, &reply) != RAW_REPLY) {
        trouble("%s: no answer", which);
        return 0;
    }
    int kind = classify(&reply);
    const char *place = cell ? place_of(cell->point) : NULL;
    if (got != number)
        trouble("%s: an answer to request %u instead of %u", which, got, number);
    if (!(kind & allowed))
        trouble("%s: %s: %s", which, status_name(reply.status), reply.message);
    if (cell && kind == EXITS && is_end(cell->kind) &&
        (!strstr(reply.message, fate_of(cell->kind)) || (place && !strstr(reply.message, place))))
        trouble("%s: '%s' and '%s' expected in: %s", which, fate_of(cell->kind), place ? place : "",
                reply.message);
    wire_reply_fini(&reply);
    return kind;
}

// The next answer is that of a request that is made now: none was left over, none comes twice.
static void nothing_more(void)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_STATUS};
    struct wire_reply reply;
    uint32_t number = ++w.last, got;
    memcpy(request.id.bytes, &number, sizeof(number));
    raw_send(&w.client, number, &request);
    if (raw_wait(&w.client, PATIENCE_MS, &got, &reply) != RAW_REPLY) {
        trouble("no answer to a status call");
        return;
    }
    if (got != number)
        trouble("request %u is answered twice", got);
    else if (reply.pools.queued + reply.pools.running != 0)
        trouble("%d cases queued, %d running in the end", reply.pools.queued, reply.pools.running);
    wire_reply_fini(&reply);
}

static void baseline_await(void)
{
    pid_t pids[CHILDREN_MAX];
    int descriptors = 0, children = 0;
    for (int waited = 0; waited < 20000000; waited += PAUSE_US) {
        descriptors = descriptors_count();
        children = children_list(pids);
        if (descriptors == w.descriptors && children == w.children)
            return;
        usleep(PAUSE_US);
    }
    trouble("%d descriptors, %d children; before it were %d and %d", descriptors, children,
            w.descriptors, w.children);
}

// ---- a cell ------------------------------------------------------------------------------------

static void order_write(const struct cell *cell)
{
    char path[128];
    snprintf(path, sizeof(path), "%s.new", w.order);
    FILE *file = fopen(path, "we");
    if (!file)
        abort();
    fprintf(file, "%s %s 1", point_names[cell->point], kind_names[cell->kind]);
    fclose(file);
    rename(path, w.order);
}

static void warm_up(void)
{
    answer_take("warming up", case_send(PATIENCE_MS), PASSES, NULL);
}

// What is met before a case comes is met by a pool that is started for it.
static void prepare(const struct cell *cell)
{
    if (is_start(cell->point) || cell->point == FAULT_IDLE) {
        ranks_kill();
        order_write(cell);
    } else {
        warm_up();
        order_write(cell);
    }
}

// True when the case was over before the rank came to the place.
static bool cell_try(const struct cell *cell, int short_ms)
{
    bool hang = is_hang(cell->kind), second = reaches_second(cell);
    prepare(cell);
    int limit_ms = hang ? short_ms : cell->kind == FAULT_KIND_HOARD ? HOARD_MS : PATIENCE_MS;
    uint32_t a = case_send(limit_ms);
    uint32_t b = case_send(second ? 2 * limit_ms : PATIENCE_MS);
    int first = answer_take("first case", a,
                            expected(cell) | (hang ? NOT_STARTED | OVERRUNS | TOO_EARLY : 0), cell);
    bool met = access(w.order, F_OK) != 0;
    if (first == NOT_STARTED)
        ranks_kill(); // the daemon itself would wait 30 s for the rest of the pool
    answer_take("second case", b,
                PASSES | (second || !met ? EXITS | FAILS | OVERRUNS | NOT_STARTED | TOO_EARLY : 0) |
                    (cell->kind == FAULT_KIND_HOARD ? LACKS : 0),
                NULL);
    met = access(w.order, F_OK) != 0;
    if (!met && !hang)
        trouble("the fault was not met");
    return !met || !(first & expected(cell));
}

// A rank that keeps what it took is of no use to the next cell.
static void clean_up(const struct cell *cell)
{
    unlink(w.order);
    if (cell->kind == FAULT_KIND_HOARD || cell->kind == FAULT_KIND_LEAK || is_start(cell->point))
        ranks_kill();
}

static int short_ms(const struct cell *cell)
{
    bool starts = is_start(cell->point) || cell->point == FAULT_IDLE;
    return on_gpus() && starts ? SHORT_GPU_MS : SHORT_MS;
}

static void cell_run(const struct cell *cell)
{
    bool early = true;
    w.trouble[0] = '\0';
    for (int ms = short_ms(cell); early && !w.trouble[0]; ms *= 2) {
        if (ms > SHORT_MAX_MS)
            trouble("the fault was not met within %d ms", SHORT_MAX_MS);
        else
            early = cell_try(cell, ms);
        clean_up(cell);
    }
    warm_up();
    nothing_more();
    baseline_await();
    if (kill(w.daemon, 0) != 0 || waitpid(w.daemon, NULL, WNOHANG) != 0)
        trouble("the daemon has ended");
}

static bool cell_report(const struct cell *cell)
{
    char line[1400];
    int length = snprintf(line, sizeof(line), "%s - %s: %s%s%s\n", w.trouble[0] ? "not ok" : "ok",
                          point_names[cell->point], kind_names[cell->kind],
                          w.trouble[0] ? "\n# " : "", w.trouble);
    fflush(stdout);
    ssize_t ignored = write(STDOUT_FILENO, line, (size_t)length);
    (void)ignored;
    return w.trouble[0] == '\0';
}

// ---- all of them -------------------------------------------------------------------------------

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    int number = text ? atoi(text) : 0;
    return number > 0 ? number : otherwise;
}

static int pairs(void)
{
    int devices = number_of("CPATTN_TEST_DEVICES", 2);
    return devices < 2 ? 1 : devices / 2;
}

static int workers(void)
{
    return number_of("CPATTN_TEST_WORKERS", on_gpus() ? pairs() : WORKERS);
}

// Workers share pairs of devices where there are more of the former.
static void devices_choose(int worker)
{
    char pair[32];
    int first = worker % pairs() * 2;
    snprintf(pair, sizeof(pair), "%d,%d", first, first + 1);
    setenv("CUDA_VISIBLE_DEVICES", pair, 1);
}

static bool chosen(const struct cell *cell, int argc, char **argv)
{
    return (argc < 2 || strcmp(argv[1], point_names[cell->point]) == 0) &&
           (argc < 3 || strcmp(argv[2], kind_names[cell->kind]) == 0);
}

static int worker_run(int number, int argc, char **argv)
{
    pid_t pids[CHILDREN_MAX];
    bool good = true;
    int turn = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    w.number = number;
    if (on_gpus())
        devices_choose(number);
    daemon_start();
    warm_up();
    usleep(200000);
    w.descriptors = descriptors_count();
    w.children = children_list(pids);
    // Kinds that take long are dealt evenly when the points run fastest.
    for (int i = 0; i < CELLS; i++) {
        struct cell cell = {(enum fault_point)(i % FAULT_POINTS),
                            (enum fault_kind)(i / FAULT_POINTS)};
        if (!chosen(&cell, argc, argv) || turn++ % workers() != number)
            continue;
        cell_run(&cell);
        good &= cell_report(&cell);
    }
    return daemon_end() && good ? EXIT_SUCCESS : EXIT_FAILURE;
}

// test_fault_matrix [POINT [KIND]]; in the environment
//     CPATTN_TEST_BACKEND  cuda: on GPUs
//     CPATTN_TEST_DEVICES  how many GPUs there are; 2 unless it is set
//     CPATTN_TEST_WORKERS  how many daemons run; 4, or one for each pair of GPUs
//     CPATTN_TEST_RANK     the rank program; that of the build unless it is set
//     CPATTN_TEST_LOG      set: the daemons' logs are printed at the end
int main(int argc, char **argv)
{
    int count = 0, status;
    bool good = true;
    for (int i = 0; i < CELLS; i++)
        count += chosen(&(struct cell){(enum fault_point)(i % FAULT_POINTS),
                                       (enum fault_kind)(i / FAULT_POINTS)},
                        argc, argv);
    printf("1..%d\n", count);
    fflush(stdout);
    for (int number = 0; number < workers(); number++)
        if (fork() == 0)
            exit(worker_run(number, argc, argv));
    while (wait(&status) > 0)
        good &= status == 0;
    return good && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
