// SPDX-License-Identifier: Apache-2.0
// Runs cases on real ranks on GPUs, without a daemon. Compares the figures of the CUDA engine with
// those of the CPU engine, for random cases over all fields. Also tests repeats, seeded delays,
// shortage of memory and faults.
//
// Prints TAP; exits with status 77 without a device. Arguments: number of cases [200], the first
// seed [drawn], the longest sequence [300], repeats of exchanges with delays [300]. With
// CPATTN_TEST_RANKS_PER_GPU=N up to N ranks share a device.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plan/case.h"
#include "rank/cuda/engine.h"
#include "rank/cuda/probe.h"
#include "tests/cuda/faulty.h"
#include "tests/support/generate.h"
#include "tests/support/world.h"

#define DEVICES_USED_MAX 8
#define EXIT_SKIPPED     77

static int devices;
static long case_count = 200, seqlen_max = 300, repeats = 300;
static unsigned long first_seed;
static int number, failures;

static void result(bool ok, const char *name)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++number, name);
    failures += !ok;
    fflush(stdout);
}

// Counts in a child process, because ranks cannot be forked from a process that has started CUDA.
static int devices_count(void)
{
    int ends[2];
    char text[4096] = "";
    if (pipe(ends) != 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        int status = probe_run();
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n = 1; n > 0 && length<sizeof(text) - 1; length += n> 0 ? (size_t)n : 0)
        n = read(ends[0], text + length, sizeof(text) - 1 - length);
    close(ends[0]);
    waitpid(pid, NULL, 0);
    int count = 0;
    for (const char *at = text; (at = strstr(at, "device ")); at++)
        count++;
    return count < DEVICES_USED_MAX ? count : DEVICES_USED_MAX;
}

// ---- worlds of either engine ----

enum engine_name { CPU, CUDA, ENGINES };
static struct world *worlds[ENGINES][DEVICES_USED_MAX + 1];

static bool run(enum engine_name engine, const struct cp_case *c, struct rank_report *reports)
{
    struct world **w = &worlds[engine][c->world_size];
    struct error error;
    if (!*w) {
        world_engine(engine == CUDA ? &engine_cuda : &engine_cpu);
        *w = world_create(c->world_size);
    }
    if (world_run_on(*w, c, reports, &error) == STATUS_OK)
        return true;
    char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    printf("# %s\n# %s: %s\n", text, engine == CUDA ? "cuda" : "cpu", error.text);
    world_destroy(*w);
    *w = NULL;
    return false;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// ---- agreement ----

// Both engines judge the same elements, in units of the twin's error. Their twins differ slightly,
// which matters if a chunk has few elements, or if all its terms cancel; such chunks exceed these
// limits, and their twins are not compared. The error of a twin in fp32 depends on the order of its
// sums, which differs on a device.
#define TWIN_REL_MAX  0.1
#define ROW_LIMIT_MAX 23 // limits are wider if few rows determine the twin's error

static bool twins_agree(const struct cp_case *c, double cpu, double cuda)
{
    double ratio = cpu / cuda;
    return c->dtype == DTYPE_FP32 ? ratio > 0.25 && ratio < 4 : fabs(ratio - 1) <= 0.1;
}

static bool figures_agree(const struct cp_case *c, const struct figures *cpu,
                          const struct figures *cuda)
{
    bool twins = cpu->twin_rel > 0 && cuda->twin_rel > 0 && cpu->twin_rel < TWIN_REL_MAX &&
                 cuda->twin_rel < TWIN_REL_MAX && cpu->worst_row_limit < ROW_LIMIT_MAX &&
                 cuda->worst_row_limit < ROW_LIMIT_MAX && cuda->tensor != TENSOR_DSINK;
    return cpu->tensor == cuda->tensor && cpu->chunk == cuda->chunk &&
           cpu->elements == cuda->elements && cpu->judged == cuda->judged &&
           (!twins || twins_agree(c, cpu->twin_rel, cuda->twin_rel));
}

static bool reports_agree(const struct cp_case *c, const struct rank_report *cpu,
                          const struct rank_report *cuda)
{
    bool agree = cpu->pass && cuda->pass && cpu->figures_count == cuda->figures_count;
    for (int i = 0; agree && i < cpu->figures_count; i++)
        agree = figures_agree(c, &cpu->figures[i], &cuda->figures[i]);
    return agree;
}

// Prints a line about a tensor that breaks a rule, or that the CPU judges differently.
static void figures_print(int rank, const struct figures *cpu, const struct figures *cuda)
{
    printf("#   rank %d %s/%d broken %d twin %.3e (cpu %.3e) rmse %.1e (cpu %.1e) of %.1e "
           "row %.1e (%.1e) of %.1e bad %lld first %g for %g nonfinite %lld\n",
           rank, report_tensor_name(cuda->tensor), cuda->chunk, cuda->broken, cuda->twin_rel,
           cpu->twin_rel, cuda->rmse_rel, cpu->rmse_rel, cuda->rmse_limit, cuda->worst_row_rel,
           cpu->worst_row_rel, cuda->worst_row_limit, (long long)cuda->mismatches,
           cuda->first_bad_got, cuda->first_bad_expected, (long long)cuda->nonfinite);
}

static void disagreement_print(const struct cp_case *c, const struct rank_report *cpu,
                               const struct rank_report *cuda)
{
    char text[CASE_COMMAND_MAX];
    case_command(c, text, sizeof(text));
    printf("# %s\n", text);
    for (int rank = 0; rank < c->world_size; rank++) {
        const struct rank_report *a = &cpu[rank], *b = &cuda[rank];
        if (a->figures_count != b->figures_count)
            printf("#   rank %d has %d figures, cpu %d\n", rank, b->figures_count,
                   a->figures_count);
        for (int i = 0; i < a->figures_count && i < b->figures_count; i++)
            if (b->figures[i].broken || !figures_agree(c, &a->figures[i], &b->figures[i]))
                figures_print(rank, &a->figures[i], &b->figures[i]);
    }
}

static bool digests_equal(const struct rank_report *a, const struct rank_report *b, int world_size)
{
    for (int rank = 0; rank < world_size; rank++)
        if (a[rank].digest != b[rank].digest)
            return false;
    return true;
}

// ---- tests ----

static void cases_agree(void)
{
    struct rank_report cpu[DEVICES_USED_MAX], cuda[DEVICES_USED_MAX], again[DEVICES_USED_MAX];
    int wrong = 0, unlike = 0;
    double cuda_s = 0;
    for (long i = 0; i < case_count && wrong + unlike < 10; i++) {
        struct cp_case c;
        generate_case(first_seed + (unsigned long)i, devices, seqlen_max, &c);
        double start_s = now_s();
        bool ran = run(CUDA, &c, cuda);
        cuda_s += now_s() - start_s;
        if (!ran || !run(CPU, &c, cpu)) {
            wrong++;
            continue;
        }
        bool agree = true;
        for (int rank = 0; rank < c.world_size; rank++)
            agree = agree && reports_agree(&c, &cpu[rank], &cuda[rank]);
        if (!agree) {
            disagreement_print(&c, cpu, cuda);
            wrong++;
        }
        c.explore_seed = c.explore_seed ? 0 : first_seed + 1;
        if (c.deterministic && run(CUDA, &c, again) && !digests_equal(cuda, again, c.world_size)) {
            char text[CASE_COMMAND_MAX];
            case_command(&c, text, sizeof(text));
            printf("# other bits: %s\n", text);
            unlike++;
        }
    }
    printf("# %ld cases on up to %d devices, %.1f ms each\n", case_count, devices,
           1e3 * cuda_s / (double)case_count);
    result(wrong == 0, "the figures are those of the CPU");
    result(unlike == 0, "seeded delays change no bit");
}

// Each exchange must wait for its own bytes, whatever exchanges came before and whichever rank is
// late. Every second repeat has seeded delays.
static void repeats_agree(void)
{
    static const enum case_comm comms[] = {COMM_P2P, COMM_ALL_GATHER, COMM_A2A};
    enum { COMMS = sizeof(comms) / sizeof(*comms) };
    struct rank_report first[COMMS][DEVICES_USED_MAX], reports[DEVICES_USED_MAX];
    struct cp_case c;
    long unlike = 0, done = 0;
    if (devices < 2)
        return;
    case_init(&c);
    c.world_size = devices;
    c.heads = c.kv_heads = 8;
    c.seqlen_q = c.seqlen_kv = 1024;
    c.training = c.deterministic = true;
    c.verify = VERIFY_OFF;
    double start_s = now_s();
    for (long i = 0; i < repeats && unlike < 10; i++) {
        int comm = (int)((first_seed + (unsigned long)i / 2) % COMMS);
        bool begins = i < 2 * COMMS && i % 2 == 0;
        c.comm = comms[comm];
        c.explore_seed = i % 2 == 0 ? 0 : first_seed + (unsigned long)i;
        if (!run(CUDA, &c, begins ? first[comm] : reports)) {
            unlike++;
            break;
        }
        done++;
        if (!begins && !digests_equal(first[comm], reports, devices)) {
            char text[CASE_COMMAND_MAX];
            case_command(&c, text, sizeof(text));
            printf("# other bits: %s\n", text);
            unlike++;
        }
    }
    printf("# %ld repeats on %d devices, %.1f ms each\n", done, devices,
           1e3 * (now_s() - start_s) / (double)(done > 0 ? done : 1));
    result(unlike == 0, "repeats with and without delays give the same bits");
}

static void memory_is_taken(void)
{
    struct rank_report reports[DEVICES_USED_MAX];
    struct error error;
    struct cp_case c;
    world_engine(&engine_faulty);
    struct world *w = world_create(devices);
    case_init(&c);
    c.world_size = devices;
    strcpy(c.model, "greedy");
    bool refused = world_run_on(w, &c, reports, &error) == STATUS_OK;
    refused = refused && reports[devices - 1].refusal.status == STATUS_RESOURCE_EXHAUSTED;
    printf("# %s\n", refused ? reports[devices - 1].refusal.text : "");
    c.model[0] = '\0';
    result(refused && world_run_on(w, &c, reports, &error) == STATUS_OK &&
               world_passed(reports, devices),
           "memory that others have taken is missed before the case begins");
    world_destroy(w);
}

static void memory_lacks(void)
{
    struct rank_report reports[DEVICES_USED_MAX];
    struct cp_case c;
    case_init(&c);
    c.world_size = devices;
    c.batch = 64;
    c.heads = c.kv_heads = 128;
    c.seqlen_q = c.seqlen_kv = 1 << 20;
    bool refused = run(CUDA, &c, reports);
    for (int rank = 0; rank < devices && refused; rank++)
        refused = reports[rank].refusal.status == STATUS_RESOURCE_EXHAUSTED;
    printf("# %s\n", refused ? reports[0].refusal.text : "");
    result(refused, "a case that no device has the memory for is refused by all ranks");
    case_init(&c);
    c.world_size = devices;
    bool passed = run(CUDA, &c, reports) && world_passed(reports, devices);
    if (!passed)
        disagreement_print(&c, reports, reports);
    result(passed, "the ranks run the next one");
}

// ---- faults ----

static void faults_are_told(void)
{
    struct rank_report reports[DEVICES_USED_MAX];
    struct error error = {0};
    struct cp_case c;
    world_engine(&engine_faulty);
    struct world *w = world_create(devices);
    case_init(&c);
    c.world_size = devices;
    bool passed = world_run_on(w, &c, reports, &error) == STATUS_OK;
    strcpy(c.model, "astray");
    enum status status = world_run_on(w, &c, reports, &error);
    const struct rank_failure *failure = world_failure(w);
    printf("# %s, %s step %d\n", error.text, report_phase_name(failure->phase), failure->step);
    result(passed && status == STATUS_INTERNAL && strstr(error.text, "cudaErrorIllegalAddress") &&
               failure->phase == REPORT_BACKWARD,
           "an address that is not there is told with its phase");
    world_destroy(w);
}

static void sleepers_are_found(void)
{
    struct rank_report reports[DEVICES_USED_MAX];
    struct error error = {0};
    struct cp_case c;
    if (devices < 2)
        return;
    world_engine(&engine_faulty);
    struct world *w = world_create(devices);
    case_init(&c);
    c.world_size = devices;
    strcpy(c.model, "asleep");
    pid_t waiter = fork();
    if (waiter == 0)
        _exit(world_run_on(w, &c, reports, &error) == STATUS_OK);
    sleep(8);
    int culprit = progress_culprit(world_progress(w), devices);
    kill(waiter, SIGKILL);
    waitpid(waiter, NULL, 0);
    printf("# rank %d holds up the others\n", culprit);
    result(culprit == devices - 1, "whoever holds up the others is found");
    world_destroy(w);
}

// The sequences are so long that the diagnosis needs the statistics of the device.
static void mistakes_are_named(void)
{
    struct rank_report reports[DEVICES_USED_MAX];
    struct error error = {0};
    struct cp_case c;
    world_engine(&engine_faulty);
    struct world *w = world_create(devices);
    case_init(&c);
    c.world_size = devices;
    c.seqlen_q = c.seqlen_kv = 8192;
    strcpy(c.model, "doubled");
    bool ran = world_run_on(w, &c, reports, &error) == STATUS_OK;
    const struct diagnosis *d = &reports[devices - 1].diagnosis;
    printf("# %s\n", ran ? d->text : error.text);
    result(ran && !reports[devices - 1].pass && d->tensor == TENSOR_DK &&
               strstr(d->text, "times what it should be"),
           "what is wrong with dk is said");
    world_destroy(w);
}

int main(int argc, char **argv)
{
    const char *shared = getenv("CPATTN_TEST_RANKS_PER_GPU");
    devices = devices_count();
    world_devices(devices);
    devices *= shared ? (int)strtol(shared, NULL, 10) : 1;
    devices = devices < DEVICES_USED_MAX ? devices : DEVICES_USED_MAX;
    first_seed = (unsigned long)time(NULL);
    if (devices == 0) {
        printf("1..0 # SKIP there is no device\n");
        return EXIT_SKIPPED;
    }
    if (argc > 1)
        case_count = strtol(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoul(argv[2], NULL, 10);
    if (argc > 3)
        seqlen_max = strtol(argv[3], NULL, 10);
    if (argc > 4)
        repeats = strtol(argv[4], NULL, 10);
    printf("# seed %lu\n", first_seed);
    memory_lacks();
    memory_is_taken();
    faults_are_told();
    mistakes_are_named();
    sleepers_are_found();
    cases_agree();
    repeats_agree();
    printf("1..%d\n", number);
    for (int size = 0; size <= DEVICES_USED_MAX; size++) {
        world_destroy(worlds[CPU][size]);
        world_destroy(worlds[CUDA][size]);
    }
    return failures > 0;
}
