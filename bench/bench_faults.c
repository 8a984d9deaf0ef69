// SPDX-License-Identifier: Apache-2.0
// Reaction times of a real daemon as a client sees them: from the death of a rank to the answer and
// to the next verdict; from a deadline to its answer; from a request to BUSY, with ten times the
// requests that the queue holds; and status requests per second. For comparison, the round trip of
// a packet to another process and back.
//
//     bench_faults [PATH OF cpattnd [ROUNDS [OPTION OF cpattnd]...]]
//
// The times after a death are measured without options, and then once with each of the options.
// CPATTN_BENCH_RANKS is the world size of the cases (default 2); with CPATTN_TEST_BACKEND=cuda they
// run on GPUs.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/support/children.h"
#include "tests/support/raw_client.h"

#define ROUNDS_DEFAULT 200
#define ROUNDS_MAX     10000
#define PATIENCE_MS    30000
#define DEADLINE_MS    100
#define QUEUE_MAX      32
#define FLOOD          (10 * QUEUE_MAX)
#define IN_FLIGHT      64
#define STATUS_CALLS   100000
#define RANKS_SEEN     64
// Time after which a LARGE case is certainly running.
#define UNDER_WAY_US   (b->gpus ? 50000 : 3000)
// Time after which all pools are ready.
#define SETTLED_US     (b->gpus ? 6000000 : 500000)

extern char **environ;

struct bench {
    char folder[64], socket[96];
    pid_t daemon;
    struct echo echo;
    struct raw_client client;
    uint32_t last;
    int rounds, ranks;
    bool gpus;
    int idle_pools; // number of idle pools when all pools are ready; 0: not known yet
};

static double values[4][ROUNDS_MAX];

static _Noreturn void fail(const char *what, const char *text)
{
    fprintf(stderr, "bench_faults: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static double now_ms(void)
{
    return measure_now_us() * 1e-3;
}

// ---- the daemon --------------------------------------------------------------------------------

static void daemon_start(struct bench *b, const char *program, char *option)
{
    strcpy(b->folder, "/tmp/cpattnd-bench-XXXXXX");
    if (!mkdtemp(b->folder))
        fail(b->folder, "cannot be made");
    snprintf(b->socket, sizeof(b->socket), "%s/socket", b->folder);
    char name[] = "cpattnd", socket[] = "--socket", level[] = "--log-level=error", backend[32],
         devices[32], queue[32];
    snprintf(backend, sizeof(backend), "--backend=%s", b->gpus ? "cuda" : "cpu");
    snprintf(devices, sizeof(devices), "--devices=%d", b->ranks);
    snprintf(queue, sizeof(queue), "--queue-max=%d", QUEUE_MAX);
    char *const arguments[] = {name,    socket, b->socket, level, backend,
                               devices, queue,  option,    NULL};
    if (posix_spawn(&b->daemon, program, NULL, NULL, arguments, environ) != 0)
        fail(program, "cannot be started");
    for (double end = now_ms() + PATIENCE_MS; !raw_open(&b->client, b->socket);) {
        if (now_ms() > end)
            fail("connect", strerror(errno));
        usleep(10000);
    }
    b->idle_pools = 0;
}

static void daemon_end(struct bench *b)
{
    raw_close(&b->client);
    kill(b->daemon, SIGTERM);
    waitpid(b->daemon, NULL, 0);
    rmdir(b->folder);
}

// ---- requests ----------------------------------------------------------------------------------

enum size {
    SMALL,  // 16 tokens
    MEDIUM, // is admitted, but takes longer than DEADLINE_MS
    LARGE,  // takes some seconds
};

static uint32_t case_send(struct bench *b, enum size size, int timeout_ms)
{
    static struct wire_request request;
    uint32_t number = ++b->last;
    memset(&request, 0, sizeof(request));
    request.version = WIRE_VERSION;
    request.method = METHOD_RUN;
    request.timeout_ns = (uint64_t)timeout_ms * 1000000;
    memcpy(request.id.bytes, &number, sizeof(number));
    memcpy(request.id.bytes + 4, &b->daemon, sizeof(b->daemon));
    case_init(&request.run);
    request.run.batch = 1;
    int scale = b->gpus ? b->ranks : 1, length = b->gpus ? 65536 : 4096;
    request.run.world_size = b->ranks;
    request.run.heads = request.run.kv_heads = size == LARGE    ? 8 * scale
                                               : size == MEDIUM ? 2 * scale
                                                                : 1;
    request.run.head_dim_qk = request.run.head_dim_v = size == SMALL ? 16 : 64;
    request.run.seqlen_q = request.run.seqlen_kv = size == SMALL ? 16 : length;
    request.run.seed = number;
    raw_send(&b->client, number, &request);
    return number;
}

static void status_send(struct bench *b)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_STATUS};
    uint32_t number = ++b->last;
    memcpy(request.id.bytes, &number, sizeof(number));
    raw_send(&b->client, number, &request);
}

static enum status answer_take(struct bench *b, uint32_t expected)
{
    struct wire_reply reply;
    uint32_t number;
    if (raw_wait(&b->client, PATIENCE_MS, &number, &reply) != RAW_REPLY)
        fail("answer", "none came");
    if (expected && number != expected)
        fail("answer", "it is another's");
    enum status status = reply.status;
    wire_reply_fini(&reply);
    return status;
}

static void expect(const char *what, enum status got, enum status wanted)
{
    if (got != wanted)
        fail(what, status_name(got));
}

// ---- what is measured --------------------------------------------------------------------------

static int pools_idle(struct bench *b)
{
    struct wire_reply reply;
    uint32_t number;
    int count = 0;
    status_send(b);
    if (raw_wait(&b->client, PATIENCE_MS, &number, &reply) != RAW_REPLY)
        fail("status", "no answer");
    for (int i = 0; i < reply.pools.pool_count; i++)
        count += reply.pools.pools[i].state == POOL_IDLE;
    wire_reply_fini(&reply);
    return count;
}

// Runs a small case, then polls the status every 20 ms until all pools are ready again.
static void pools_await(struct bench *b)
{
    double end = now_ms() + PATIENCE_MS;
    expect("warm", answer_take(b, case_send(b, SMALL, PATIENCE_MS)), STATUS_OK);
    if (b->idle_pools == 0) {
        usleep(SETTLED_US);
        b->idle_pools = pools_idle(b);
    }
    while (pools_idle(b) < b->idle_pools) {
        if (now_ms() > end)
            fail("pools", "they do not come back");
        usleep(20000);
    }
}

// Finds a rank of the running case; 0: none. The ranks of the oldest pool are the first children.
// On the CPU it takes one of them that is running (state R). On GPUs ranks sleep most of the time,
// so it takes the first.
static pid_t worker_find(const struct bench *b)
{
    pid_t pids[RANKS_SEEN], found = 0;
    int count = children_of(b->daemon, pids, RANKS_SEEN);
    if (count > b->ranks)
        count = b->ranks;
    if (b->gpus)
        return count > 0 ? pids[0] : 0;
    for (int i = 0; i < count; i++) {
        char path[64], state = '?';
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pids[i]);
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'R')
            found = pids[i];
        if (file)
            fclose(file);
    }
    return found;
}

// Kills a rank of a running case. Measures the time from the kill to the answer, and from the kill
// to the verdict of the next case.
static void death_once(struct bench *b, double *answer_ms, double *verdict_ms)
{
    pools_await(b);
    uint32_t number = case_send(b, LARGE, PATIENCE_MS);
    pid_t rank = 0;
    while (rank == 0) {
        usleep(UNDER_WAY_US);
        rank = worker_find(b);
    }
    double began = now_ms();
    kill(rank, SIGKILL);
    expect("death", answer_take(b, number), STATUS_ABORTED);
    *answer_ms = now_ms() - began;
    expect("next", answer_take(b, case_send(b, SMALL, PATIENCE_MS)), STATUS_OK);
    *verdict_ms = now_ms() - began;
}

static double deadline_once(struct bench *b)
{
    pools_await(b);
    double began = now_ms();
    expect("deadline", answer_take(b, case_send(b, MEDIUM, DEADLINE_MS)), STATUS_DEADLINE_EXCEEDED);
    return now_ms() - began - DEADLINE_MS;
}

// Sends ten times the cases that the queue holds. Stores the time from each refused request to its
// BUSY answer in busy_ms[room]; returns the number of values. Admitted cases must be answered OK.
static int busy_once(struct bench *b, double *busy_ms, int room)
{
    static double sent_ms[FLOOD];
    uint32_t first = b->last + 1, number;
    struct wire_reply reply;
    int count = 0, open = 0;
    for (int i = 0; i < FLOOD; i++, open++) {
        sent_ms[i] = now_ms();
        case_send(b, SMALL, PATIENCE_MS);
        while (raw_next(&b->client, &number, &reply) == RAW_REPLY) {
            if (reply.status == STATUS_RESOURCE_EXHAUSTED && count < room)
                busy_ms[count++] = now_ms() - sent_ms[number - first];
            else
                expect("accepted", reply.status, STATUS_OK);
            wire_reply_fini(&reply);
            open--;
        }
    }
    for (; open > 0; open--) {
        if (raw_wait(&b->client, PATIENCE_MS, &number, &reply) != RAW_REPLY)
            fail("busy", "an answer is missing");
        if (reply.status == STATUS_RESOURCE_EXHAUSTED && count < room)
            busy_ms[count++] = now_ms() - sent_ms[number - first];
        else if (reply.status != STATUS_RESOURCE_EXHAUSTED)
            expect("accepted", reply.status, STATUS_OK);
        wire_reply_fini(&reply);
    }
    return count;
}

// Status requests per second.
static double calls_rate(struct bench *b)
{
    double began = now_ms();
    int sent = 0;
    for (; sent < IN_FLIGHT; sent++)
        status_send(b);
    for (int done = 0; done < STATUS_CALLS; done++) {
        expect("status", answer_take(b, 0), STATUS_OK);
        if (sent++ < STATUS_CALLS)
            status_send(b);
    }
    return STATUS_CALLS / (now_ms() - began) * 1e3;
}

// ---- figures -----------------------------------------------------------------------------------

// Prints a row of the table: count, quantiles and maximum. Sorts ms[].
static void line(const char *name, double *ms, int count, double goal_ms)
{
    double p50 = measure_quantile(ms, count, .5), p99 = measure_quantile(ms, count, .99);
    printf("| %-44s | %6d | %8.2f | %8.2f | %8.2f |", name, count, p50, p99, ms[count - 1]);
    if (goal_ms > 0)
        printf(" p99 <= %.0f: %s |\n", goal_ms, p99 <= goal_ms ? "met" : "MISSED");
    else
        printf(" |\n");
    fflush(stdout);
}

static void load_print(const char *when)
{
    char text[64] = "?";
    FILE *file = fopen("/proc/loadavg", "re");
    if (file && fgets(text, sizeof(text), file))
        text[strcspn(text, "\n")] = '\0';
    if (file)
        fclose(file);
    printf("load %s: %s\n", when, text);
}

static void deaths_measure(struct bench *b, const char *program, char *option, double goal_ms)
{
    if (option)
        printf("with %s:\n", option);
    daemon_start(b, program, option);
    for (int i = 0; i < b->rounds; i++) {
        values[0][i] = echo_once(&b->echo) * 1e-3;
        if (values[0][i] < 0)
            fail("echo", "lost");
        death_once(b, &values[1][i], &values[2][i]);
    }
    line("echo of 200 bytes", values[0], b->rounds, 0);
    line("SIGKILL of a rank to the answer", values[1], b->rounds, 20);
    line("SIGKILL of a rank to the next verdict", values[2], b->rounds, goal_ms);
    daemon_end(b);
}

int main(int argc, char **argv)
{
    static struct bench b;
    const char *program = argc > 1 ? argv[1] : "./cpattnd";
    b.rounds = argc > 2 ? atoi(argv[2]) : ROUNDS_DEFAULT;
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX)
        fail("rounds", "1 to 10000");
    const char *ranks = getenv("CPATTN_BENCH_RANKS"), *backend = getenv("CPATTN_TEST_BACKEND");
    b.ranks = ranks ? atoi(ranks) : 2;
    b.gpus = backend && strcmp(backend, "cuda") == 0;
    if (b.ranks < 1 || b.ranks > RANKS_SEEN / 2)
        fail("CPATTN_BENCH_RANKS", "1 to 32");
    if (!echo_start(&b.echo))
        fail("echo", "cannot be started");
    load_print("before");
    printf("| %-44s | %6s | %8s | %8s | %8s | goal |\n", "milliseconds", "count", "p50", "p99",
           "max");
    deaths_measure(&b, program, NULL, b.gpus ? 250 : 200);
    for (int i = 3; i < argc; i++)
        deaths_measure(&b, program, argv[i], b.gpus ? 0 : 100);
    daemon_start(&b, program, NULL);
    for (int i = 0; i < b.rounds; i++)
        values[0][i] = deadline_once(&b);
    line("deadline of 100 ms to the answer, less that", values[0], b.rounds, 100);
    int count = 0;
    while (count < ROUNDS_MAX / 2)
        count += busy_once(&b, values[0] + count, ROUNDS_MAX - count);
    line("BUSY at ten times the queue", values[0], count, 10);
    double rate = calls_rate(&b);
    printf("| %-44s | %6d | %10.0f a second | goal >= 20000: %s |\n", "status calls, 64 in flight",
           STATUS_CALLS, rate, rate >= 20000 ? "met" : "MISSED");
    daemon_end(&b);
    load_print("after");
    echo_end(&b.echo);
    return EXIT_SUCCESS;
}
