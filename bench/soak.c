// SPDX-License-Identifier: Apache-2.0
// Chaos for a given time: the real daemon under random cases from many clients, which also cancel,
// ask again, die, talk nonsense and flood it, while every two seconds something is done to its
// ranks. In the end every request of a client that lived must have been answered exactly once, no
// fault may have become a verdict, the daemon must be the one that was started, and nothing may be
// left behind. Prints a report; the exit status is 0 only if all of that held.
//
//     soak SECONDS [PATH OF cpattnd [SEED [RANK PROGRAM WITH FAULTS]]]
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/soak_process.h"
#include "tests/generate.h"
#include "tests/raw_client.h"

#define CLIENTS     12
#define ASKS        16 // of one client under way
#define FLOODERS    6
#define FLOOD_ASKS  96 // of each, at once
#define QUEUE_MAX   48
#define WORLD_MAX   3
#define LENGTH_MAX  64
#define KNOWN       16384 // answers that a repeated request is compared with
#define FAULT_MS    2000
#define FLOOD_MS    15000
#define DEATH_MS    5000
#define HOSTILE_MS  7000
#define SAMPLE_MS   30000
#define TIMEOUT_MS  2500
// An answer that is this late after its deadline is lost.
#define LATE_MS     20000
#define SAMPLES_MAX 1024
#define PERMILLE(x) (generate_below(&soak.random, 1000) < (x))

enum kind { KIND_NONE, KIND_RUN, KIND_STATUS, KIND_CANCEL, KINDS };

struct ask {
    enum kind kind; // NONE: free
    uint32_t number;
    int64_t due_ms;
    uint64_t seed; // of the case
    struct request_id id;
};

struct client {
    struct raw_client raw;
    struct ask asks[FLOOD_ASKS];
    uint32_t last_number;
    int limit; // asks at once
    bool flooding;
};

// How a request was answered, for when it is made again.
struct known {
    struct request_id id;
    uint64_t seed, digest;
    enum status status;
    uint64_t at; // answers before it, 1 at least; 0: free
};

struct counts {
    uint64_t sent[KINDS], answered[KINDS], by_status[STATUS_COUNT];
    uint64_t passed, failed, again, again_same;
    uint64_t lost, twice, differing, wrong;
    uint64_t deaths, abandoned, hostile, floods, dropped;
    uint64_t faults[SOAK_FAULTS];
};

static struct {
    struct soak_process process;
    struct client clients[CLIENTS + FLOODERS];
    struct known known[KNOWN];
    struct counts counts;
    struct soak_sample samples[SAMPLES_MAX];
    int sample_count;
    uint64_t random, seed;
    int64_t began_ms, end_ms;
    int problems;
} soak;

// ---- time and telling --------------------------------------------------------------------------

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((format(printf, 1, 2))) static void problem(const char *format, ...)
{
    va_list arguments;
    if (++soak.problems > 50)
        return;
    va_start(arguments, format);
    printf("PROBLEM at %.1f s: ", (double)(now_ms() - soak.began_ms) * 1e-3);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

// Whether something that happens every so often is due; a bit irregular, so that nothing beats.
static bool due(int64_t *next_ms, int64_t now, int64_t every_ms)
{
    if (now < *next_ms)
        return false;
    *next_ms = now + every_ms * 3 / 4 + generate_below(&soak.random, every_ms / 2);
    return true;
}

// ---- asking ------------------------------------------------------------------------------------

static struct ask *ask_free(struct client *c)
{
    for (int i = 0; i < c->limit; i++)
        if (c->asks[i].kind == KIND_NONE)
            return &c->asks[i];
    return NULL;
}

static void id_draw(struct request_id *id)
{
    uint64_t halves[2] = {generate_next(&soak.random), generate_next(&soak.random)};
    memcpy(id->bytes, halves, sizeof(id->bytes));
}

static void ask_send(struct client *c, struct ask *a, enum kind kind, struct wire_request *request)
{
    request->version = WIRE_VERSION;
    a->kind = kind;
    a->number = ++c->last_number & INT32_MAX;
    a->id = request->id;
    a->due_ms = now_ms() + (int64_t)(request->timeout_ns / 1000000) + LATE_MS;
    soak.counts.sent[kind]++;
    raw_send(&c->raw, a->number, request);
}

static void ask_run(struct client *c, const struct request_id *id, uint64_t seed)
{
    static struct wire_request request;
    struct ask *a = ask_free(c);
    if (!a)
        return;
    memset(&request, 0, sizeof(request));
    request.id = *id;
    request.method = METHOD_RUN;
    request.timeout_ns = TIMEOUT_MS * UINT64_C(1000000);
    if (c->flooding)
        request.timeout_ns *= 4;
    generate_case(seed, WORLD_MAX, LENGTH_MAX, &request.run);
    a->seed = seed;
    ask_send(c, a, KIND_RUN, &request);
}

static void ask_run_new(struct client *c)
{
    struct request_id id;
    id_draw(&id);
    ask_run(c, &id, generate_next(&soak.random));
}

static void ask_other(struct client *c, enum kind kind, const struct request_id *target)
{
    static struct wire_request request;
    struct ask *a = ask_free(c);
    if (!a)
        return;
    memset(&request, 0, sizeof(request));
    id_draw(&request.id);
    request.method = kind == KIND_STATUS ? METHOD_STATUS : METHOD_CANCEL;
    if (target)
        request.cancel = *target;
    ask_send(c, a, kind, &request);
}

// Whether the daemon is to know it, too: it forgets after ANSWERED_IDS_MAX answers, of which some
// went to clients that are gone.
static bool known_holds(const struct known *known)
{
    return known->at > 0 && soak.counts.answered[KIND_RUN] < known->at + ANSWERED_IDS_MAX / 2;
}

// Asks once more what was asked before: under way, or answered.
static void ask_again(struct client *c)
{
    const struct client *other = &soak.clients[generate_below(&soak.random, CLIENTS)];
    const struct ask *open = &other->asks[generate_below(&soak.random, ASKS)];
    const struct known *known = &soak.known[generate_below(&soak.random, KNOWN)];
    soak.counts.again++;
    if (open->kind == KIND_RUN && PERMILLE(500))
        ask_run(c, &open->id, open->seed);
    else if (known_holds(known))
        ask_run(c, &known->id, known->seed);
}

// One client's doings in a turn.
static void client_act(struct client *c)
{
    if (!PERMILLE(60))
        return;
    const struct ask *a = &c->asks[generate_below(&soak.random, ASKS)];
    if (PERMILLE(60) && a->kind == KIND_RUN)
        ask_other(c, KIND_CANCEL, &a->id);
    else if (PERMILLE(80))
        ask_again(c);
    else if (PERMILLE(250))
        ask_other(c, KIND_STATUS, NULL);
    else
        ask_run_new(c);
}

// ---- answers -----------------------------------------------------------------------------------

// What may be said of one request at one time and not at another.
static bool status_is_momentary(enum status status)
{
    return status == STATUS_RESOURCE_EXHAUSTED || status == STATUS_UNAVAILABLE ||
           status == STATUS_ALREADY_EXISTS || status == STATUS_FAILED_PRECONDITION;
}

static bool status_is_expected(enum status status)
{
    return status == STATUS_OK || status == STATUS_ABORTED || status == STATUS_CANCELLED ||
           status == STATUS_DEADLINE_EXCEEDED || status == STATUS_INTERNAL ||
           status_is_momentary(status);
}

static void run_answered(const struct ask *a, const struct wire_reply *reply)
{
    uint16_t place;
    memcpy(&place, a->id.bytes, sizeof(place));
    struct known *known = &soak.known[place % KNOWN];
    bool passed = reply->status == STATUS_OK && reply->result.verdict == VERDICT_PASS;
    soak.counts.passed += passed;
    if (reply->status == STATUS_OK && !passed) {
        soak.counts.failed++;
        problem("a verdict that is no pass: case %llu", (unsigned long long)a->seed);
    }
    if (status_is_momentary(reply->status))
        return;
    if (known_holds(known) && memcmp(&known->id, &a->id, sizeof(a->id)) == 0) {
        bool same = known->status == reply->status && known->digest == reply->result.digest;
        soak.counts.again_same += same;
        if (!same) {
            soak.counts.differing++;
            problem("answered %s first, then %s: %s", status_name(known->status),
                    status_name(reply->status), reply->message);
        }
        return;
    }
    *known = (struct known){a->id, a->seed, reply->result.digest, reply->status,
                            soak.counts.answered[KIND_RUN]};
}

static void answer_take(struct client *c, uint32_t number, const struct wire_reply *reply)
{
    struct ask *a = NULL;
    for (int i = 0; i < c->limit && !a; i++)
        if (c->asks[i].kind != KIND_NONE && c->asks[i].number == number)
            a = &c->asks[i];
    if (!a) {
        soak.counts.twice++;
        problem("an answer to request %u, which waits for none: %s", number, reply->message);
        return;
    }
    soak.counts.answered[a->kind]++;
    soak.counts.by_status[reply->status]++;
    bool addressed = memcmp(&reply->id, &a->id, sizeof(a->id)) == 0;
    bool expected = a->kind == KIND_RUN ? status_is_expected(reply->status)
                    : a->kind == KIND_CANCEL
                        ? reply->status == STATUS_OK || reply->status == STATUS_NOT_FOUND
                        : reply->status == STATUS_OK;
    if (!addressed || !expected) {
        soak.counts.wrong++;
        problem("%s: %s", status_name(reply->status), reply->message);
    }
    if (a->kind == KIND_RUN)
        run_answered(a, reply);
    a->kind = KIND_NONE;
}

static void client_close(struct client *c)
{
    for (int i = 0; i < c->limit; i++) {
        soak.counts.abandoned += c->asks[i].kind != KIND_NONE;
        c->asks[i].kind = KIND_NONE;
    }
    raw_close(&c->raw);
}

static int client_serve(struct client *c, int64_t now)
{
    struct wire_reply reply;
    uint32_t number;
    int open = 0;
    if (c->raw.fd < 0)
        return 0;
    raw_flush(&c->raw);
    for (enum raw_input input; (input = raw_next(&c->raw, &number, &reply)) != RAW_NOTHING;) {
        if (input == RAW_GONE) {
            soak.counts.dropped++;
            problem("the daemon dropped a client that kept the rules");
            client_close(c);
            return 0;
        }
        answer_take(c, number, &reply);
        wire_reply_fini(&reply);
    }
    for (int i = 0; i < c->limit; i++) {
        open += c->asks[i].kind != KIND_NONE;
        if (c->asks[i].kind == KIND_NONE || now < c->asks[i].due_ms)
            continue;
        soak.counts.lost++;
        problem("no answer to a request of kind %d", (int)c->asks[i].kind);
        c->asks[i].kind = KIND_NONE;
    }
    return open;
}

static int clients_serve(int64_t now)
{
    int open = 0;
    for (int i = 0; i < CLIENTS + FLOODERS; i++)
        open += client_serve(&soak.clients[i], now);
    return open;
}

// ---- what clients do to the daemon -------------------------------------------------------------

static void client_connect(struct client *c)
{
    if (c->raw.fd < 0 && !raw_open(&c->raw, soak.process.socket))
        problem("cannot connect: %s", strerror(errno));
}

static void client_die(void)
{
    struct client *c = &soak.clients[generate_below(&soak.random, CLIENTS)];
    soak.counts.deaths++;
    client_close(c);
    client_connect(c);
}

// Ten times what the queue holds. Whoever is through with the last flood takes part.
static void flood(void)
{
    soak.counts.floods++;
    for (int i = CLIENTS; i < CLIENTS + FLOODERS; i++) {
        struct client *c = &soak.clients[i];
        if (PERMILLE(200))
            client_close(c);
        client_connect(c);
        for (int k = 0; k < FLOOD_ASKS && c->raw.fd >= 0; k++)
            ask_run_new(c);
    }
}

// A connection that breaks the rules, or ends in the middle of something.
static void hostile(void)
{
    static const char *const lines[] = {
        "GET / HTTP/1.1\r\n\r\n", "\0SP\0\0\x31\0\0", "\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0",
        "\0SP\0\0\x30\0\0\1\xff\xff\xff\xff\xff\xff\xff\xff\x80\0\0\1",
        "\0SP\0\0\x30\0\0\1\0\0\0\0\0\0\0\x8\x80\0\0\1\xff\xff\xff\xff"};
    static const size_t sizes[] = {18, 8, 16, 21, 25};
    struct raw_client c;
    if (!raw_open(&c, soak.process.socket))
        return;
    soak.counts.hostile++;
    c.out_bytes = 0; // instead of the greeting
    int64_t which = generate_below(&soak.random, (int64_t)(sizeof(sizes) / sizeof(sizes[0])));
    ssize_t ignored = send(c.fd, lines[which], sizes[which], MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
    raw_close(&c);
}

// ---- the run -----------------------------------------------------------------------------------

static void sample_take(int open)
{
    struct soak_sample *s = &soak.samples[soak.sample_count];
    if (soak.sample_count == SAMPLES_MAX)
        return;
    soak_process_sample(&soak.process, s);
    s->second = (int)((now_ms() - soak.began_ms) / 1000);
    soak.sample_count++;
    printf("%6d s: %ld KiB, %d descriptors, %d children, %d requests open, %llu answered, %llu "
           "passed, %d problems\n",
           s->second, s->resident_kib, s->descriptors, s->children, open,
           (unsigned long long)soak.counts.answered[KIND_RUN],
           (unsigned long long)soak.counts.passed, soak.problems);
    fflush(stdout);
}

static void chaos(void)
{
    int64_t fault_ms = 0, flood_ms = 0, death_ms = 0, hostile_ms = 0, sample_ms = 0, now;
    while ((now = now_ms()) < soak.end_ms) {
        int open = clients_serve(now);
        for (int i = 0; i < CLIENTS; i++)
            client_act(&soak.clients[i]);
        if (due(&fault_ms, now, FAULT_MS)) {
            int kind = soak_process_fault(&soak.process, &soak.random);
            if (kind >= 0)
                soak.counts.faults[kind]++;
        }
        if (due(&flood_ms, now, FLOOD_MS))
            flood();
        if (due(&death_ms, now, DEATH_MS))
            client_die();
        if (due(&hostile_ms, now, HOSTILE_MS))
            hostile();
        if (due(&sample_ms, now, SAMPLE_MS))
            sample_take(open);
        if (!soak_process_alive(&soak.process)) {
            problem("the daemon has ended");
            return;
        }
        usleep(5000);
    }
}

// Faults are over; whoever waits gets an answer.
static void quiet(void)
{
    soak_process_calm(&soak.process);
    int64_t end_ms = now_ms() + LATE_MS + 4 * TIMEOUT_MS;
    while (clients_serve(now_ms()) > 0 && now_ms() < end_ms)
        usleep(5000);
    sample_take(clients_serve(now_ms()));
    for (int i = 0; i < CLIENTS + FLOODERS; i++)
        client_close(&soak.clients[i]);
}

// ---- the report --------------------------------------------------------------------------------

static void statuses_print(void)
{
    for (int status = 0; status < STATUS_COUNT; status++)
        if (soak.counts.by_status[status])
            printf("  %-22s %10llu\n", status_name((enum status)status),
                   (unsigned long long)soak.counts.by_status[status]);
}

static void report(const char *end)
{
    const struct counts *c = &soak.counts;
    uint64_t faults = 0;
    for (int i = 0; i < SOAK_FAULTS; i++)
        faults += c->faults[i];
    printf("\nseconds %lld, seed %llu\n", (long long)(now_ms() - soak.began_ms) / 1000,
           (unsigned long long)soak.seed);
#define LINE(text, value) printf("%-52s %10llu\n", text, (unsigned long long)(value))
    LINE("faults done to ranks", faults);
    for (int i = 0; i < SOAK_FAULTS; i++)
        if (c->faults[i])
            printf("  %-50s %10llu\n", soak_fault_name(i), (unsigned long long)c->faults[i]);
    LINE("cases sent", c->sent[KIND_RUN]);
    LINE("  of these asked again under the same id", c->again);
    LINE("  given up by a client that died", c->abandoned);
    LINE("cancels, status calls sent", c->sent[KIND_CANCEL] + c->sent[KIND_STATUS]);
    LINE("clients that died", c->deaths);
    LINE("hostile connections", c->hostile);
    LINE("floods of 12 times the queue", c->floods);
    LINE("answers", c->answered[KIND_RUN] + c->answered[KIND_CANCEL] + c->answered[KIND_STATUS]);
    statuses_print();
    LINE("verdicts pass", c->passed);
    LINE("verdicts fail (must be 0)", c->failed);
    LINE("answers lost (must be 0)", c->lost);
    LINE("answers twice (must be 0)", c->twice);
    LINE("same id, another answer (must be 0)", c->differing);
    LINE("answers of a kind that cannot be (must be 0)", c->wrong);
    LINE("lawful clients dropped (must be 0)", c->dropped);
    printf("end of the daemon: %s\n", end);
    int step = soak.sample_count > 12 ? soak.sample_count / 12 : 1;
    printf("%8s %14s %12s %9s\n", "second", "resident KiB", "descriptors", "children");
    for (int i = 0; i < soak.sample_count; i++)
        if (i % step == 0 || i == soak.sample_count - 1)
            printf("%8d %14ld %12d %9d\n", soak.samples[i].second, soak.samples[i].resident_kib,
                   soak.samples[i].descriptors, soak.samples[i].children);
    printf("problems: %d\n", soak.problems);
}

int main(int argc, char **argv)
{
    int seconds = argc > 1 ? atoi(argv[1]) : 0;
    char end[256];
    if (seconds < 1) {
        fprintf(stderr, "usage: soak SECONDS [cpattnd [SEED [RANK PROGRAM WITH FAULTS]]]\n");
        return 64;
    }
    soak.seed = soak.random = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    char queue[16];
    snprintf(queue, sizeof(queue), "%d", QUEUE_MAX);
    soak_process_start(&soak.process, argc > 2 ? argv[2] : "./cpattnd", queue,
                       argc > 4 ? argv[4] : NULL);
    soak.began_ms = now_ms();
    soak.end_ms = soak.began_ms + seconds * INT64_C(1000);
    for (int i = 0; i < CLIENTS + FLOODERS; i++) {
        struct client *c = &soak.clients[i];
        c->flooding = i >= CLIENTS;
        c->limit = c->flooding ? FLOOD_ASKS : ASKS;
        c->raw.fd = -1;
        if (!c->flooding)
            client_connect(c);
    }
    chaos();
    quiet();
    if (!soak_process_end(&soak.process, end, sizeof(end)))
        problem("%s", end);
    report(end);
    return soak.problems == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
