// SPDX-License-Identifier: Apache-2.0
#include "tests/support/world.h"

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

#include "judge/digest.h"
#include "rank/session.h"

#define ANSWER_TIMEOUT_MS 120000
// Ranks that may hang are looked at in this interval. They are deadlocked if all sleep during this
// number of looks.
#define LOOK_MS           100
#define LOOKS_STILL       10

struct request {
    uint64_t job;
    struct cp_case c;
};

struct answer {
    enum status status;
    struct rank_report report;
    struct rank_failure failure;
};

struct world {
    int size;
    uint64_t job;
    pid_t pids[WORLD_SIZE_MAX];
    int controls[WORLD_SIZE_MAX];
    struct progress *progress;
    struct rank_failure failure;
    void *shared; // of its transport
};

static const struct engine_kind *engine = &engine_cpu;

void world_engine(const struct engine_kind *kind)
{
    engine = kind;
}

static int devices;

void world_devices(int count)
{
    devices = count;
}

static const struct world_transport *exchange;

void world_transport(const struct world_transport *kind)
{
    exchange = kind;
}

static void insist(bool holds, const char *what)
{
    if (holds)
        return;
    perror(what);
    abort();
}

// ---- a rank ----

static enum status transport_open(const struct world *w, int rank, const int *mesh,
                                  struct transport **transport, struct error *error)
{
    if (exchange)
        return exchange->create(w->shared, rank, w->size, mesh, transport, error);
    return transport_socket_create(rank, w->size, mesh, transport, error);
}

static void answer_fill(struct session *s, const struct request *request, struct answer *answer)
{
    struct error error = {0};
    memset(answer, 0, sizeof(*answer));
    answer->status = session_run(s, &request->c, request->job, NULL, &answer->report, &error);
    if (answer->status != STATUS_OK)
        session_failure(s, &error, &answer->failure);
}

static int rank_main(struct world *w, int rank, const int *mesh, int control)
{
    struct transport *transport;
    struct session session;
    struct error error;
    struct request request;
    struct answer answer;
    char number[12], *arguments[] = {engine->argument_max > 0 ? number : NULL, NULL};
    snprintf(number, sizeof(number), "%d", devices > 0 ? rank % devices : rank);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (transport_open(w, rank, mesh, &transport, &error) != STATUS_OK ||
        session_init(&session, engine, arguments, transport, &w->progress[rank], &error) !=
            STATUS_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, error.text);
        return 1;
    }
    while (recv(control, &request, sizeof(request), 0) == sizeof(request)) {
        answer_fill(&session, &request, &answer);
        if (send(control, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
            break;
    }
    session_fini(&session);
    transport->ops->destroy(transport);
    return 0;
}

// ---- a world ----

typedef int mesh_table[WORLD_SIZE_MAX][WORLD_SIZE_MAX];

static void mesh_open(mesh_table mesh, int size)
{
    memset(mesh, 0xff, sizeof(mesh_table));
    for (int a = 0; a < size; a++)
        for (int b = 0; b < a; b++) {
            int pair[2];
            insist(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
            mesh[a][b] = pair[0];
            mesh[b][a] = pair[1];
        }
}

// Closes all ends except those of one rank; -1: all.
static void mesh_close(mesh_table mesh, int size, int kept)
{
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            if (a != kept && mesh[a][b] >= 0)
                close(mesh[a][b]);
}

static void rank_start(struct world *w, int rank, mesh_table mesh)
{
    int pair[2];
    insist(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    fflush(NULL);
    w->pids[rank] = fork();
    insist(w->pids[rank] >= 0, "fork");
    if (w->pids[rank] == 0) {
        mesh_close(mesh, w->size, rank);
        for (int i = 0; i < rank; i++)
            close(w->controls[i]);
        close(pair[0]);
        int result = rank_main(w, rank, mesh[rank], pair[1]);
        fflush(NULL);
        _exit(result);
    }
    close(pair[1]);
    w->controls[rank] = pair[0];
}

struct world *world_create(int world_size)
{
    static mesh_table mesh;
    struct world *w = calloc(1, sizeof(*w));
    insist(w != NULL, "calloc");
    w->size = world_size;
    w->shared = exchange ? exchange->share(world_size) : NULL;
    w->progress = mmap(NULL, sizeof(struct progress) * WORLD_SIZE_MAX, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    insist(w->progress != MAP_FAILED, "mmap");
    mesh_open(mesh, world_size);
    for (int rank = 0; rank < world_size; rank++)
        rank_start(w, rank, mesh);
    mesh_close(mesh, world_size, -1);
    return w;
}

void world_destroy(struct world *w)
{
    if (!w)
        return;
    for (int rank = 0; rank < w->size; rank++) {
        close(w->controls[rank]);
        kill(w->pids[rank], SIGKILL);
        waitpid(w->pids[rank], NULL, 0);
    }
    munmap(w->progress, sizeof(struct progress) * WORLD_SIZE_MAX);
    free(w);
}

const struct rank_failure *world_failure(const struct world *w)
{
    return &w->failure;
}

pid_t world_pid(const struct world *w, int rank)
{
    return w->pids[rank];
}

const struct progress *world_progress(const struct world *w)
{
    return w->progress;
}

// ---- a case ----

static enum status answer_take(struct world *w, int rank, struct rank_report *report,
                               struct error *error)
{
    struct answer answer;
    w->failure = (struct rank_failure){.peer = -1};
    if (recv(w->controls[rank], &answer, sizeof(answer), 0) != sizeof(answer))
        return error_set(error, STATUS_UNAVAILABLE, "rank %d has gone", rank);
    if (answer.status != STATUS_OK) {
        w->failure = answer.failure;
        return error_set(error, answer.status, "%s", answer.failure.text);
    }
    *report = answer.report;
    return STATUS_OK;
}

// 0: no case is expected to hang.
static int patience_ms;

void world_patience(int ms)
{
    patience_ms = ms;
}

// The number of sleeps of a process, or -1 if it is awake.
static long sleeps(pid_t pid)
{
    char path[64], line[256];
    long count = -1;
    bool asleep = false;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        asleep = asleep || strncmp(line, "State:\tS", 8) == 0;
        sscanf(line, "voluntary_ctxt_switches: %ld", &count);
    }
    if (file)
        fclose(file);
    return asleep ? count : -1;
}

// True if all ranks have slept since the last look. seen[] has the counts of that look.
static bool all_asleep(const struct world *w, long *seen)
{
    bool still = true;
    for (int rank = 0; rank < w->size; rank++) {
        long count = sleeps(w->pids[rank]);
        still = still && count >= 0 && count == seen[rank];
        seen[rank] = count;
    }
    return still;
}

// Waits for an answer. False if none comes.
static bool answer_wait(const struct world *w, struct pollfd *polls)
{
    long seen[WORLD_SIZE_MAX] = {0};
    int still = 0;
    if (patience_ms == 0)
        return poll(polls, (nfds_t)w->size, ANSWER_TIMEOUT_MS) > 0;
    for (int waited = 0; waited < patience_ms && still < LOOKS_STILL; waited += LOOK_MS) {
        if (poll(polls, (nfds_t)w->size, LOOK_MS) > 0)
            return true;
        still = all_asleep(w, seen) ? still + 1 : 0;
    }
    return false;
}

enum status world_run_on(struct world *w, const struct cp_case *c, struct rank_report *reports,
                         struct error *error)
{
    struct request request = {.job = ++w->job, .c = *c};
    struct pollfd polls[WORLD_SIZE_MAX];
    for (int rank = 0; rank < w->size; rank++) {
        polls[rank] = (struct pollfd){.fd = w->controls[rank], .events = POLLIN};
        if (send(w->controls[rank], &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
            return error_set(error, STATUS_UNAVAILABLE, "rank %d has gone", rank);
    }
    for (int left = w->size; left > 0;) {
        if (!answer_wait(w, polls))
            return error_set(error, STATUS_DEADLINE_EXCEEDED, "rank %d holds up the others",
                             progress_culprit(w->progress, w->size));
        for (int rank = 0; rank < w->size; rank++) {
            if (polls[rank].fd < 0 || polls[rank].revents == 0)
                continue;
            enum status status = answer_take(w, rank, &reports[rank], error);
            if (status != STATUS_OK)
                return status;
            polls[rank].fd = -1;
            left--;
        }
    }
    return STATUS_OK;
}

static struct world *kept[WORLD_SIZE_MAX + 1];

enum status world_run(const struct cp_case *c, struct rank_report *reports, struct error *error)
{
    struct world **w = &kept[c->world_size];
    if (!*w)
        *w = world_create(c->world_size);
    enum status status = world_run_on(*w, c, reports, error);
    if (status != STATUS_OK) {
        world_destroy(*w);
        *w = NULL;
    }
    return status;
}

void world_close_all(void)
{
    for (int size = 0; size <= WORLD_SIZE_MAX; size++) {
        world_destroy(kept[size]);
        kept[size] = NULL;
    }
}

// ---- reports ----

bool world_passed(const struct rank_report *reports, int world_size)
{
    bool pass = true;
    for (int rank = 0; rank < world_size; rank++)
        pass = pass && reports[rank].pass;
    return pass;
}

uint64_t world_digest(const struct rank_report *reports, int world_size)
{
    uint64_t digest = DIGEST_START;
    for (int rank = 0; rank < world_size; rank++)
        digest = digest_add(digest, &reports[rank].digest, sizeof(reports[rank].digest));
    return digest;
}

static void figures_print(int rank, const struct figures *f)
{
    printf("#   rank %d %s chunk %d: rmse %.2e of %.0e, row %.2e of %.0e (sequence %d head %d "
           "position %lld), %lld of %lld outside, first %g instead of %g, %lld not finite\n",
           rank, report_tensor_name(f->tensor), f->chunk, f->rmse_rel, f->rmse_limit,
           f->worst_row_rel, f->worst_row_limit, f->worst_row.sequence, f->worst_row.head,
           (long long)f->worst_row.position, (long long)f->mismatches, (long long)f->elements,
           f->first_bad_got, f->first_bad_expected, (long long)f->nonfinite);
}

void world_print(const struct cp_case *c, const struct rank_report *reports)
{
    static char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    printf("# %s\n", text);
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < reports[rank].figures_count; i++)
            if (reports[rank].figures[i].broken)
                figures_print(rank, &reports[rank].figures[i]);
}
