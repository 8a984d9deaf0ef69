// SPDX-License-Identifier: Apache-2.0
// Faults over several hosts: at rest, while a pool starts, in forward, in backward, and while ranks
// report. In a cell a pool of six is on three hosts, a rank waits at the place, and the fault
// happens. The case is answered once, with the cause. The next case passes. While a host is away,
// cases on the other hosts pass. No rank and no descriptor is left on any host. One line of TAP for
// each cell.
//
//     test_node_faults                             kills only, over loopback
//     test_node_faults all [FAULT [MOMENT...]]     all faults, with namespaces and cables: as root
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/nodes/node_scene.h"

// Deadline of a case that must miss it.
#define SHORT_MS    2500
// Shorter than the silence after which a host is lost, and longer.
#define PAUSE_MS    1000
#define LONG_MS     4500
// Maximum time from the daemon's death to that of all ranks. Checked only with cables.
#define GONE_MAX_MS 1000
// A rank on host c, a rank on the daemon's host, and the lost host: c.
#define FAR         4
#define NEAR        1
#define LOST        2

enum moment { REST, STARTING, FORWARD, BACKWARD, REPORTING, MOMENTS };
static const char *const moment_names[] = {"rest", "starting", "forward", "backward", "reporting"};
static const char *const points[] = {NULL, "ready", "forward", "backward", "report"};

enum victim { RANK, AGENT, DAEMON, CABLE };
// STOPPED cuts a connection until the host is lost, PAUSED for a shorter time.
enum way { KILLED, STOPPED, PAUSED };

static const struct fault {
    const char *name;
    enum victim victim;
    enum way way;
    int rank; // the waiting rank
} faults[] = {
    {"rank-killed", RANK, KILLED, FAR},         {"near-rank-killed", RANK, KILLED, NEAR},
    {"agent-killed", AGENT, KILLED, FAR},       {"daemon-killed", DAEMON, KILLED, NEAR},
    {"rank-stopped", RANK, STOPPED, FAR},       {"near-rank-stopped", RANK, STOPPED, NEAR},
    {"agent-stopped", AGENT, STOPPED, FAR},     {"daemon-stopped", DAEMON, STOPPED, FAR},
    {"cable-cut", CABLE, STOPPED, FAR},         {"agent-paused", AGENT, PAUSED, FAR},
    {"daemon-paused", DAEMON, PAUSED, NEAR},    {"cable-cut-shortly", CABLE, PAUSED, FAR},
    {"cable-cut-others", CABLE, STOPPED, NEAR},
};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

struct cell {
    const struct fault *fault;
    enum moment moment;
};

static void pause_ms(int ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

// ---- answers -----------------------------------------------------------------------------------

static bool loses_host(const struct fault *f)
{
    return (f->victim == AGENT && f->way != PAUSED) || (f->victim == CABLE && f->way == STOPPED);
}

// The answer to the case that meets the fault, and a part of its text.
static enum status expected(const struct cell *cell, char text[64])
{
    const struct fault *f = cell->fault;
    bool starting = cell->moment == STARTING;
    text[0] = '\0';
    // A pool that is lost without a case is started again when its hosts are present.
    if (f->way == PAUSED || (starting && !(f->victim == RANK && f->way == STOPPED)))
        return STATUS_OK;
    if (f->victim == RANK && f->way == KILLED) {
        snprintf(text, 64, "rank %d of 6 was killed by signal 9", f->rank);
        return STATUS_ABORTED;
    }
    if (f->victim == RANK) {
        snprintf(text, 64, starting ? "was being started" : "rank %d", f->rank);
        return STATUS_DEADLINE_EXCEEDED;
    }
    strcpy(text, f->victim == DAEMON ? "was lost" : "host c was lost");
    return STATUS_ABORTED;
}

static void answer_check(const struct cell *cell, uint32_t number)
{
    struct wire_reply reply;
    char text[64];
    enum status status = expected(cell, text);
    if (!answer_take("the case", number, &reply))
        return;
    if (reply.status != status || !strstr(reply.message, text) ||
        (status == STATUS_OK && reply.result.verdict != VERDICT_PASS))
        trouble("%s instead of %s '%s': %s", status_name(reply.status), status_name(status), text,
                reply.message);
    wire_reply_fini(&reply);
}

// ---- faults ------------------------------------------------------------------------------------

static pid_t victim_of(const struct fault *f)
{
    return f->victim == RANK    ? rank_pid(f->rank)
           : f->victim == AGENT ? node_scene.processes[LOST]
                                : node_scene.processes[0];
}

static void signal_send(const struct fault *f, int number)
{
    pid_t pid = victim_of(f);
    if (pid > 0)
        kill(pid, number);
}

static void fault_begin(const struct fault *f)
{
    if (f->victim == CABLE)
        cable_set(LOST, false);
    else
        signal_send(f, f->way == KILLED ? SIGKILL : SIGSTOP);
    if (f->way == PAUSED || f->victim == DAEMON)
        pause_ms(f->way == PAUSED ? PAUSE_MS : f->way == STOPPED ? LONG_MS : 0);
}

// Stopped daemons and agents continue. A killed agent is started again.
static void fault_end(const struct fault *f)
{
    if (f->victim == CABLE)
        cable_set(LOST, true);
    else if (f->way != KILLED && f->victim != RANK)
        signal_send(f, SIGCONT);
    if (f->victim == AGENT && f->way == KILLED) {
        agent_reap(LOST);
        agent_begin(LOST);
    }
}

// ---- cells -------------------------------------------------------------------------------------

static uint32_t case_begin(const struct cell *cell)
{
    const struct fault *f = cell->fault;
    bool overruns = f->victim == RANK && f->way == STOPPED;
    if (cell->moment == STARTING)
        pools_end();
    if (cell->moment != REST)
        wait_begin(points[cell->moment], f->rank);
    if (cell->moment == REST && !overruns)
        return 0;
    if (cell->moment == REST)
        fault_begin(f); // the fault shows only in a case
    uint32_t number = case_send(WORLD, NODES, overruns ? SHORT_MS : PATIENCE_MS);
    if (cell->moment != REST)
        wait_await();
    return number;
}

static void host_lost(const struct cell *cell, uint32_t number)
{
    log_await("host_lost host=c", 1);
    if (number && cell->moment != STARTING)
        answer_check(cell, number);
    case_pass("a case on the others", 4, 2);
    fault_end(cell->fault);
    wait_end();
    log_await("host_back host=c", 1);
    if (number && cell->moment == STARTING)
        answer_check(cell, number);
}

static void daemon_killed(bool measured)
{
    struct wire_reply reply;
    uint32_t number;
    uint64_t begin_ns = clock_now_ns();
    ranks_await(0);
    double ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    printf("# no rank is left on any host %.0f ms after the daemon\n", ms);
    if (measured && ms > GONE_MAX_MS)
        trouble("ranks outlive the daemon by %.0f ms", ms);
    while (raw_wait(&node_scene.client, PATIENCE_MS, &number, &reply) == RAW_REPLY) {
        trouble("a daemon that was killed answers %s", status_name(reply.status));
        wire_reply_fini(&reply);
    }
    daemon_reap();
    wait_end();
    daemon_begin();
    log_await("host_back", NODES - 1);
}

static void daemon_stopped(const struct cell *cell, uint32_t number)
{
    fault_end(cell->fault);
    log_await("host_lost", NODES - 1);
    wait_end();
    if (number)
        answer_check(cell, number);
    log_await("host_back", NODES - 1);
}

static void cell_run(const struct cell *cell)
{
    const struct fault *f = cell->fault;
    log_mark();
    uint32_t number = case_begin(cell);
    if (cell->moment != REST || number == 0)
        fault_begin(f);
    if (loses_host(f)) {
        host_lost(cell, number);
    } else if (f->victim == DAEMON && f->way == KILLED) {
        daemon_killed(node_scene.cables);
    } else if (f->victim == DAEMON && f->way == STOPPED) {
        daemon_stopped(cell, number);
    } else {
        if (cell->moment == REST && f->way == KILLED)
            log_await("pool_kill", 1); // a case before that would meet the death
        if (f->way == PAUSED)
            fault_end(f);
        if (f->victim != RANK || f->way == KILLED)
            wait_end();
        if (number)
            answer_check(cell, number);
        wait_end();
    }
    if (!trouble_text[0])
        cases_pass("the next case");
    if (!trouble_text[0])
        nothing_more();
    if (!trouble_text[0])
        baseline_await();
}

static bool chosen(const struct cell *cell, int argc, char **argv)
{
    if (argc < 2)
        return cell->fault->way == KILLED;
    if (argc > 2 && strcmp(argv[2], cell->fault->name) != 0)
        return false;
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], moment_names[cell->moment]) == 0)
            return true;
    return argc < 4;
}

static struct cell cell_of(int i)
{
    return (struct cell){&faults[i / MOMENTS], (enum moment)(i % MOMENTS)};
}

int main(int argc, char **argv)
{
    int count = 0, number = 0;
    bool good = true;
    for (int i = 0; i < FAULTS * MOMENTS; i++) {
        struct cell cell = cell_of(i);
        count += chosen(&cell, argc, argv);
    }
    printf("1..%d\n", count);
    fflush(stdout);
    if (!scene_begin(argc > 1)) {
        printf("Bail out! No network namespaces can be made: that takes root and ip(8).\n");
        return EXIT_FAILURE;
    }
    for (int i = 0; i < FAULTS * MOMENTS && !trouble_text[0]; i++) {
        struct cell cell = cell_of(i);
        if (!chosen(&cell, argc, argv))
            continue;
        uint64_t begin_ns = clock_now_ns();
        cell_run(&cell);
        good = !trouble_text[0];
        printf("%s %d - %s at %s # %.1f s\n", good ? "ok" : "not ok", ++number, cell.fault->name,
               moment_names[cell.moment], (double)(clock_now_ns() - begin_ns) * 1e-9);
        if (!good)
            printf("# %s\n", trouble_text);
        fflush(stdout);
    }
    bool clean = scene_end();
    if (!clean)
        printf("# something is left, or did not end as it should\n");
    return good && clean && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
