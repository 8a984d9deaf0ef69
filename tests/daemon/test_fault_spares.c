// SPDX-License-Identifier: Apache-2.0
// Faults of a standby pool. In a cell a pool of two and its spare are warm. The spare is restarted,
// and its rank 1 meets the fault during the start or when idle. The working pool is not affected.
// Then the working pool is killed, and the spare or its replacement takes over. A case is answered
// as expected, the next one passes, and there is a pool with a spare again.
// tests/daemon/test_fault_matrix.c tests the states of a working pool.
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/fault_scene.h"

#define RANKS    2
// The deadline of a case that must miss it.
#define SHORT_MS 2000
#define HOARD_MS 4000

// ---- the table ---------------------------------------------------------------------------------

// The answer to the first case after the working pool was killed.
static int expected(const struct cell *cell)
{
    bool idle = cell->point == FAULT_IDLE;
    switch (cell->kind) {
    case FAULT_KIND_STOP:
    case FAULT_KIND_SPIN: // the fault shows only in a case
        return idle ? OVERRUNS | TOO_EARLY : PASSES;
    case FAULT_KIND_HOARD: // the BLAS may wait for memory for ever
        return PASSES | FAILS | EXITS | OVERRUNS | TOO_EARLY | LACKS | NOT_STARTED;
    case FAULT_KIND_CLOSE: // the daemon waits before it calls the rank faulty
        return PASSES | (idle ? FAILS : 0);
    case FAULT_KIND_KILL:
    case FAULT_KIND_ABORT:
    case FAULT_KIND_EXIT: // with GPUs the driver delays the exit of the process
        return PASSES | (idle && on_gpus() ? EXITS : 0);
    default: // the spare was lost before and is replaced
        return PASSES;
    }
}

static int limit_ms(const struct cell *cell)
{
    if (is_hang(cell->kind) && cell->point == FAULT_IDLE)
        return SHORT_MS;
    return cell->kind == FAULT_KIND_HOARD ? HOARD_MS : PATIENCE_MS;
}

// ---- a cell ------------------------------------------------------------------------------------

static bool status_take(struct wire_reply *reply)
{
    uint32_t number = ++scene.last, got;
    raw_send_status(&scene.client, number);
    if (raw_wait(&scene.client, PATIENCE_MS, &got, reply) == RAW_REPLY)
        return true;
    trouble("no answer to a status call");
    return false;
}

// True if there are one idle pool and one idle spare.
static bool both_are_idle(void)
{
    struct wire_reply reply;
    int idle = 0, spares = 0;
    if (!status_take(&reply))
        return true;
    for (int i = 0; i < reply.pools.pool_count; i++) {
        const struct wire_pool *pool = &reply.pools.pools[i];
        idle += pool->state == POOL_IDLE;
        spares += pool->state == POOL_IDLE && pool->spare;
    }
    wire_reply_fini(&reply);
    return idle == 2 && spares == 1;
}

static void spare_await(void)
{
    for (int waited = 0; !both_are_idle(); waited += PAUSE_US) {
        if (waited > PATIENCE_MS * 1000) {
            trouble("no spare comes");
            return;
        }
        usleep(PAUSE_US);
    }
}

static void both_up(void)
{
    warm_up();
    spare_await();
}

static void order_await(void)
{
    for (int waited = 0; !order_is_met(); waited += PAUSE_US) {
        if (waited > PATIENCE_MS * 1000) {
            trouble("the fault was not met");
            return;
        }
        usleep(PAUSE_US);
    }
}

// The number of deaths of all pools, from the status.
static uint64_t deaths_told(void)
{
    struct wire_reply reply;
    uint64_t deaths = 0;
    if (!status_take(&reply))
        return UINT64_MAX;
    for (int i = 0; i < reply.pools.pool_count; i++)
        deaths += reply.pools.pools[i].deaths;
    wire_reply_fini(&reply);
    return deaths;
}

// Waits until the daemon reports a death. A process first frees its memory, which takes time.
static void death_await(uint64_t before)
{
    for (int waited = 0; deaths_told() <= before; waited += PAUSE_US) {
        if (waited > PATIENCE_MS * 1000) {
            trouble("the daemon does not tell that a rank has died");
            return;
        }
        usleep(PAUSE_US);
    }
}

static void cell_run(const struct cell *cell)
{
    pid_t pids[CHILDREN_MAX];
    spare_await();
    // The ranks of the working pool started first.
    if (children_list(pids) != 2 * RANKS) {
        trouble("a pool and its spare are not all that is there");
        return;
    }
    ranks_rest(pids, RANKS); // so that the spare meets the order
    order_write(cell);
    ranks_end(pids + RANKS, RANKS);
    uint64_t deaths = deaths_told();
    order_await();
    if (cell->point == FAULT_IDLE && is_end(cell->kind))
        death_await(deaths);
    answer_take("case of the pool that works", case_send(PATIENCE_MS), PASSES, NULL);
    for (int i = 0; i < RANKS; i++)
        if (kill(pids[i], 0) != 0)
            trouble("the pool that works has ended");
    ranks_end(pids, RANKS);
    answer_take("case after its death", case_send(limit_ms(cell)), expected(cell), NULL);
    // The next cell cannot use ranks that keep memory or descriptors.
    if (cell->kind == FAULT_KIND_HOARD || cell->kind == FAULT_KIND_LEAK)
        ranks_kill();
    both_up();
}

int main(int argc, char **argv)
{
    static const enum fault_point points[] = {FAULT_HELLO, FAULT_READY, FAULT_IDLE};
    static const struct cells cells = {"spare ", points, 3, "on", both_up, cell_run};
    return cells_main(&cells, argc, argv);
}
