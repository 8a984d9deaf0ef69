// SPDX-License-Identifier: Apache-2.0
// The processes that carry out the cells of a fault matrix.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/fault_scene.h"

#define WORKERS 4
// All kinds before WAIT: a waiting rank is not a fault.
#define KINDS   FAULT_KIND_WAIT

static bool cell_report(const struct cells *cells, int number, const struct cell *cell)
{
    char line[1400];
    int length =
        snprintf(line, sizeof(line), "%s - %d %s%s: %s%s%s\n", trouble_text[0] ? "not ok" : "ok",
                 number, cells->prefix, point_names[cell->point], kind_names[cell->kind],
                 trouble_text[0] ? "\n# " : "", trouble_text);
    fflush(stdout);
    ssize_t ignored = write(STDOUT_FILENO, line, (size_t)length);
    (void)ignored;
    return trouble_text[0] == '\0';
}

static int pairs(void)
{
    return devices() < 2 ? 1 : devices() / 2;
}

static int workers(void)
{
    return number_of("CPATTN_TEST_WORKERS", on_gpus() ? pairs() : WORKERS);
}

// If there are more workers than pairs of devices, workers share pairs.
static void devices_choose(int worker)
{
    char pair[32];
    int first = worker % pairs() * 2;
    snprintf(pair, sizeof(pair), "%d,%d", first, first + 1);
    setenv("CUDA_VISIBLE_DEVICES", pair, 1);
}

// The cells are in the order of kinds.
static struct cell cell_of(const struct cells *cells, int i)
{
    return (struct cell){cells->points[i % cells->point_count],
                         (enum fault_kind)(i / cells->point_count)};
}

// True if the arguments POINT KIND... select the cell. "any": all points; no kind: all kinds.
static bool chosen(const struct cell *cell, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "any") != 0 && strcmp(argv[1], point_names[cell->point]) != 0)
        return false;
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], kind_names[cell->kind]) == 0)
            return true;
    return argc < 3;
}

// True if the cell is in the range CPATTN_TEST_CELLS, "FIRST-LAST", counted from 1; not set: all.
static bool in_range(int number)
{
    const char *text = getenv("CPATTN_TEST_CELLS");
    int first = 1, last = INT_MAX;
    if (text && sscanf(text, "%d-%d", &first, &last) != 2)
        abort();
    return number >= first && number <= last;
}

static int cells_count(const struct cells *cells)
{
    return cells->point_count * KINDS;
}

static bool is_wanted(const struct cells *cells, int i, int argc, char **argv)
{
    struct cell cell = cell_of(cells, i);
    return in_range(i + 1) && chosen(&cell, argc, argv);
}

static bool worker_cell(const struct cells *cells, int i)
{
    struct cell cell = cell_of(cells, i);
    trouble_forget();
    cells->run(&cell);
    nothing_more();
    baseline_await();
    alive_check();
    return cell_report(cells, i + 1, &cell);
}

// Runs the next free cell until none is left. Workers share `next`.
static int worker_run(const struct cells *cells, int number, _Atomic int *next, int argc,
                      char **argv)
{
    pid_t pids[CHILDREN_MAX];
    bool good = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    scene.number = number;
    scene.spares = cells->spares;
    if (on_gpus() && devices() > 1)
        devices_choose(number);
    hosts_start();
    cells->begin();
    usleep(200000);
    scene.descriptors = descriptors_count();
    scene.children = children_list(pids);
    for (int i; (i = (*next)++) < cells_count(cells);)
        if (is_wanted(cells, i, argc, argv))
            good &= worker_cell(cells, i);
    return hosts_end() && good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int cells_main(const struct cells *cells, int argc, char **argv)
{
    int count = 0, status;
    bool good = true;
    _Atomic int *next =
        mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED)
        abort();
    for (int i = 0; i < cells_count(cells); i++)
        count += is_wanted(cells, i, argc, argv);
    printf("1..%d\n", count);
    fflush(stdout);
    for (int number = 0; number < workers(); number++)
        if (fork() == 0)
            exit(worker_run(cells, number, next, argc, argv));
    while (wait(&status) > 0)
        good &= status == 0;
    munmap(next, sizeof(*next));
    return good && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
