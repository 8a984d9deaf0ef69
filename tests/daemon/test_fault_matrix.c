// SPDX-License-Identifier: Apache-2.0
// Every kind of fault (common/fault.h) in every state of a rank. In a cell a pool of two is warm,
// rank 1 has a fault, one case meets the fault, and a second case waits. The first case is answered
// once, as expected, with the causing rank. The second case runs. Then the pool is up again, and
// the daemon has as many descriptors and children as before. Several processes with one daemon each
// run the cells. One line of TAP for each cell.
#include <string.h>
#include <unistd.h>

#include "tests/daemon/fault_scene.h"

// The deadline of a case that must miss it. It is longer if the case did not reach the fault.
#define SHORT_MS     250
#define SHORT_GPU_MS 2500 // the ranks must start first
#define SHORT_MAX_MS 16000
#define HOARD_MS     3000
#define HOARD_GPU_MS 15000 // ranks start slowly on GPUs

// ---- the table ---------------------------------------------------------------------------------

// The answer to the case that meets the fault.
static int expected(const struct cell *cell)
{
    bool start = is_start(cell->point), after = cell->point == FAULT_REPORTED,
         idle = cell->point == FAULT_IDLE;
    switch (cell->kind) {
    case FAULT_KIND_STALE:
    case FAULT_KIND_FLOOD:
    case FAULT_KIND_LEAK:
        return PASSES;
    case FAULT_KIND_HOARD: // the BLAS may wait for memory for ever
        return PASSES | FAILS | EXITS | OVERRUNS | LACKS | (start || idle ? NOT_STARTED : 0);
    case FAULT_KIND_STOP:
    case FAULT_KIND_SPIN:
        return start ? NOT_STARTED | PASSES : after ? PASSES : OVERRUNS;
    case FAULT_KIND_TWICE: // the false report counts if all other ranks have reported
        return start ? PASSES : PASSES | FAILS;
    default: // a pool lost without a case starts again; a rank that is idle may be done
        return start ? PASSES : (is_end(cell->kind) ? EXITS : FAILS) | (idle || after ? PASSES : 0);
    }
}

// True if the second case may meet the fault instead.
static bool reaches_second(const struct cell *cell)
{
    return cell->point == FAULT_REPORTED || cell->point == FAULT_IDLE ||
           cell->kind == FAULT_KIND_TWICE || cell->kind == FAULT_KIND_HOARD;
}

// The answer's text for the place of the rank; NULL: several places are possible.
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

// True if the case may miss its deadline before the rank reaches the point. The cell is then tried
// again with a longer deadline.
static bool may_be_early(const struct cell *cell)
{
    return is_hang(cell->kind) || cell->kind == FAULT_KIND_HOARD;
}

// The first answer names the culprit, how it ended and its place.
static int first_take(uint32_t number, const struct cell *cell)
{
    char message[ERROR_TEXT_MAX];
    int allowed = expected(cell) | (is_hang(cell->kind) ? NOT_STARTED | OVERRUNS : 0) |
                  (may_be_early(cell) ? TOO_EARLY : 0);
    int kind = answer_take("first case", number, allowed, message);
    const char *place = place_of(cell->point);
    if (kind == EXITS && is_end(cell->kind) &&
        (!strstr(message, fate_of(cell->kind)) || (place && !strstr(message, place))))
        trouble("first case: '%s' and '%s' expected in: %s", fate_of(cell->kind),
                place ? place : "", message);
    return kind;
}

// ---- a cell ------------------------------------------------------------------------------------

// Faults before a case need a new pool. A warm pool may still finish its last case after the
// answer. Its ranks must not meet the fault then, so they must sleep first.
static void prepare(const struct cell *cell)
{
    pid_t pids[CHILDREN_MAX];
    if (is_start(cell->point) || cell->point == FAULT_IDLE) {
        ranks_kill();
        order_write(cell);
    } else {
        warm_up();
        ranks_rest(pids, children_list(pids));
        order_write(cell);
    }
}

static int short_ms(const struct cell *cell)
{
    bool starts = is_start(cell->point) || cell->point == FAULT_IDLE;
    return on_gpus() && starts ? SHORT_GPU_MS : SHORT_MS;
}

// The deadline of the case that meets the fault: `longer` times that of the first attempt.
static int limit_ms(const struct cell *cell, int longer)
{
    if (cell->kind == FAULT_KIND_HOARD)
        return longer * (on_gpus() ? HOARD_GPU_MS : HOARD_MS);
    return is_hang(cell->kind) ? longer * short_ms(cell) : PATIENCE_MS;
}

// True if the case ended before the rank reached the point: the cell must be tried again.
static bool cell_try(const struct cell *cell, int deadline_ms)
{
    bool second = reaches_second(cell);
    prepare(cell);
    uint32_t a = case_send(deadline_ms);
    uint32_t b = case_send(second ? 2 * deadline_ms : PATIENCE_MS);
    int first = first_take(a, cell);
    bool met = order_is_met();
    if (first == NOT_STARTED)
        ranks_kill(); // the daemon would wait for its start timeout
    answer_take("second case", b,
                PASSES | (second || !met ? EXITS | FAILS | OVERRUNS | NOT_STARTED | TOO_EARLY : 0) |
                    (cell->kind == FAULT_KIND_HOARD ? LACKS : 0),
                NULL);
    met = order_is_met();
    if (!met && !may_be_early(cell))
        trouble("the fault was not met");
    return !met || !(first & expected(cell));
}

// Kills ranks that the next cell cannot use: they keep memory or descriptors, or did not start.
static void clean_up(const struct cell *cell)
{
    unlink(scene.order);
    if (cell->kind == FAULT_KIND_HOARD || cell->kind == FAULT_KIND_LEAK || is_start(cell->point))
        ranks_kill();
}

static void cell_run(const struct cell *cell)
{
    bool early = true;
    for (int longer = 1; early && !trouble_text[0]; longer *= 2) {
        if (longer * short_ms(cell) > SHORT_MAX_MS)
            trouble("the fault was not met within %d ms", limit_ms(cell, longer) / 2);
        else
            early = cell_try(cell, limit_ms(cell, longer));
        clean_up(cell);
    }
    warm_up();
}

int main(int argc, char **argv)
{
    static const enum fault_point points[] = {FAULT_HELLO,    FAULT_READY,     FAULT_RECEIPT,
                                              FAULT_INPUTS,   FAULT_FORWARD,   FAULT_EXCHANGE,
                                              FAULT_BACKWARD, FAULT_REFERENCE, FAULT_REPORT,
                                              FAULT_REPORTED, FAULT_IDLE};
    _Static_assert(sizeof(points) / sizeof(points[0]) == FAULT_POINTS, "every state");
    // A spare would meet the fault instead of the pool.
    static const struct cells cells = {"", points, FAULT_POINTS, "off", warm_up, cell_run};
    return cells_main(&cells, argc, argv);
}
