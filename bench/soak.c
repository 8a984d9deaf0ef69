// SPDX-License-Identifier: Apache-2.0
// Soak test: runs the real daemon under faults for a given time. Many clients, on its socket and
// over TCP, submit random cases, cancel, repeat requests, die, send invalid bytes and flood the
// queue. Every two seconds a fault hits its ranks, and every 20 s its settings change. Checks that
// - every request of a living client is answered exactly once;
// - no case gets the verdict fail, whatever faults hit its ranks;
// - the daemon does not end before SIGTERM;
// - no process or file is left, and memory, descriptors and threads have not grown.
// Prints a report. The exit status is 0 only if all of this held.
//
//     soak SECONDS [PATH OF cpattnd [SEED [RANK PROGRAM WITH FAULTS]]] [-- OPTION OF cpattnd...]
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/soak_client.h"
#include "bench/soak_report.h"
#include "bench/soak_state.h"
#include "tests/support/generate.h"

#define QUEUE_MAX  "48"
#define MS_US      INT64_C(1000)
#define TURN_US    (5 * MS_US)
#define FAULT_US   (2000 * MS_US)
#define FLOOD_US   (15000 * MS_US)
#define DEATH_US   (5000 * MS_US)
#define HOSTILE_US (7000 * MS_US)
#define RELOAD_US  (20000 * MS_US)
#define SAMPLE_US  (5000 * MS_US)
#define TELL_US    (30000 * MS_US)
#define QUIET_US   (40000 * MS_US)
#define REST_S     30
// An iteration of this length is a stall of the soak itself: its clients did not read meanwhile.
#define STALL_US   (2000 * MS_US)

// True if a periodic event is due; then sets its next time. The period varies by a quarter, so that
// events do not align.
static bool due(int64_t *next_us, int64_t now_us, int64_t every_us)
{
    if (now_us < *next_us)
        return false;
    *next_us = now_us + every_us * 3 / 4 + generate_below(&soak.random, every_us / 2);
    return true;
}

// ---- the run -----------------------------------------------------------------------------------

static void sample_take(void)
{
    if (soak.sample_count == SOAK_SAMPLES_MAX)
        return;
    struct soak_sample *s = &soak.samples[soak.sample_count++];
    soak_process_sample(&soak.process, s);
    s->second = (int)((soak_now_us() - soak.began_us) / 1000000);
}

static void tell(int open)
{
    const struct soak_sample *s = &soak.samples[soak.sample_count - 1];
    fprintf(stderr,
            "%6d s: %ld KiB, %d descriptors, %d ranks, %d requests open, %llu answered, %llu "
            "passed, %d problems\n",
            s->second, s->resident_kib, s->descriptors, s->children, open,
            (unsigned long long)soak.counts.answered[KIND_RUN],
            (unsigned long long)soak.counts.passed, soak.problems);
}

static void fault(void)
{
    int kind = soak_process_fault(&soak.process, &soak.random);
    if (kind >= 0)
        soak.counts.faults[kind]++;
}

static void reload(void)
{
    static const char *const idle[] = {"20s", "3s", "0"};
    int64_t how = generate_below(&soak.random, 3);
    soak_process_reload(&soak.process, idle[how], how == 1 ? 40 : 24, how == 2 ? "info" : "notice");
    soak.counts.reloads++;
}

// Detects stalls of the soak itself, after which the daemon may drop clients that did not read.
static void stall_look(int64_t now_us)
{
    int64_t gap_us = soak.turn_us > 0 ? now_us - soak.turn_us : 0;
    soak.turn_us = now_us;
    if (gap_us > soak.stall_longest_us)
        soak.stall_longest_us = gap_us;
    if (gap_us < STALL_US)
        return;
    soak.stalled_us = now_us;
    soak.counts.stalls++;
    fprintf(stderr, "the soak itself stood still for %.1f s\n", (double)gap_us * 1e-6);
}

static void chaos(void)
{
    int64_t fault_us = 0, flood_us = 0, death_us = 0, hostile_us = 0, sample_us = 0, tell_us = 0;
    int64_t reload_us = soak_now_us() + RELOAD_US, turn_us = 0, now_us;
    while ((now_us = soak_now_us()) < soak.end_us) {
        stall_look(now_us);
        int open = clients_serve(now_us);
        if (now_us >= turn_us) {
            clients_act();
            turn_us = now_us + TURN_US;
        }
        if (due(&fault_us, now_us, FAULT_US))
            fault();
        if (due(&flood_us, now_us, FLOOD_US))
            clients_flood();
        if (due(&death_us, now_us, DEATH_US))
            client_die();
        if (due(&hostile_us, now_us, HOSTILE_US))
            client_hostile();
        if (due(&reload_us, now_us, RELOAD_US))
            reload();
        if (due(&sample_us, now_us, SAMPLE_US))
            sample_take();
        if (due(&tell_us, now_us, TELL_US))
            tell(open);
        if (!soak_process_alive(&soak.process)) {
            problem("the daemon has ended");
            return;
        }
        clients_wait((int)(TURN_US / MS_US));
    }
}

// Ends the faults, waits for the open answers, closes the clients, and waits until idle pools have
// ended. Takes the last samples.
static void quiet(void)
{
    soak_process_calm(&soak.process);
    int64_t end_us = soak_now_us() + QUIET_US;
    while (clients_serve(soak_now_us()) > 0 && soak_now_us() < end_us)
        clients_wait((int)(TURN_US / MS_US));
    sample_take();
    tell(clients_serve(soak_now_us()));
    clients_close();
    sleep(1);
    soak_process_reload(&soak.process, "500ms", 24, "notice");
    soak.counts.reloads++;
    for (int i = 0; i < REST_S * 10 && (i < 20 || soak.rest.children > 0); i++) {
        usleep(100000);
        soak_process_sample(&soak.process, &soak.rest);
    }
    soak.counts.reloaded = (uint64_t)soak_process_logged(&soak.process, " reloaded ");
}

// Finds a free TCP port of 127.0.0.1; 0: there is none.
static int port_find(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &size) != 0)
        name.sin_port = 0;
    if (fd >= 0)
        close(fd);
    return ntohs(name.sin_port);
}

static void begin(int argc, char **argv)
{
    int own = 1;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    int seconds = own > 1 ? atoi(argv[1]) : 0;
    if (seconds < 1 || own > 5) {
        fprintf(stderr, "usage: soak SECONDS [cpattnd [SEED [RANK PROGRAM WITH FAULTS]]] "
                        "[-- OPTION OF cpattnd...]\n");
        exit(64);
    }
    soak.seed = soak.random = own > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    const struct soak_start start = {
        .program = own > 2 ? argv[2] : "./cpattnd",
        .faulty_rank = own > 4 ? argv[4] : NULL,
        .queue_max = QUEUE_MAX,
        .port = port_find(),
        .options = argv + (own < argc ? own + 1 : argc),
    };
    soak_process_start(&soak.process, &start);
    soak_process_sample(&soak.process, &soak.base);
    soak.began_us = soak_now_us();
    soak.end_us = soak.began_us + seconds * 1000 * MS_US;
}

int main(int argc, char **argv)
{
    char end[512];
    begin(argc, argv);
    clients_begin();
    chaos();
    quiet();
    report_judge();
    if (!soak_process_end(&soak.process, end, sizeof(end)))
        problem("the daemon ended %s", end);
    fprintf(stderr, "its log: %s\n", soak.process.log);
    report_print(argc, argv, end);
    return soak.problems == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
