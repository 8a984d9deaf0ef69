// SPDX-License-Identifier: Apache-2.0
// The ranks' side of the kind `sum`: a rank fills its vector, receives the vectors of the others,
// adds all, and compares the sum with the drawn values.
#include "rank/kind.h"

#include <stdio.h>

#include "common/clock.h"
#include "judge/digest.h"
#include "judge/philox.h"
#include "tests/kinds/toy_sum.h"

extern const struct rank_kind rank_kind_toy_sum;

struct vectors {
    uint64_t *of_rank[WORLD_SIZE_MAX], *sum;
};

static uint64_t element(const struct toy_sum *spec, int rank, int index)
{
    struct philox_block counter = {{(uint32_t)index, (uint32_t)rank, 0, 0}};
    struct philox_block drawn = philox_block(counter, spec->seed);
    return (uint64_t)drawn.word[0] << 32 | drawn.word[1];
}

static enum status vectors_take(const struct rank_task *task, struct vectors *v,
                                struct error *error)
{
    const struct toy_sum *spec = task->spec;
    struct arena *arena = &task->session->arena;
    int64_t bytes = 0;
    enum status status = job_kind_toy_sum.memory(spec, &bytes, error);
    if (status == STATUS_OK)
        status = arena_reserve(arena, (size_t)bytes, error);
    if (status != STATUS_OK)
        return status;
    for (int rank = 0; rank < spec->world_size; rank++)
        v->of_rank[rank] = arena_take(arena, spec->count, sizeof(uint64_t));
    v->sum = arena_take(arena, spec->count, sizeof(uint64_t));
    for (int i = 0; i < spec->count; i++)
        v->of_rank[task->session->rank][i] = element(spec, task->session->rank, i);
    return STATUS_OK;
}

static enum status sum_make(const struct rank_task *task, const struct vectors *v, int round,
                            struct error *error)
{
    const struct toy_sum *spec = task->spec;
    int self = task->session->rank, count = 0;
    size_t bytes = (size_t)spec->count * sizeof(uint64_t);
    struct message messages[WORLD_SIZE_MAX];
    for (int peer = 0; peer < spec->world_size; peer++)
        if (peer != self)
            messages[count++] =
                (struct message){peer, v->of_rank[self], bytes, v->of_rank[peer], bytes};
    enum status status = rank_task_exchange(task, 1 + round % 1000, messages, count, error);
    for (int i = 0; i < spec->count && status == STATUS_OK; i++) {
        v->sum[i] = self == spec->wrong && i + 1 == spec->count;
        for (int rank = 0; rank < spec->world_size; rank++)
            v->sum[i] += v->of_rank[rank][i];
    }
    return status;
}

static void judge(const struct rank_task *task, const struct vectors *v)
{
    const struct toy_sum *spec = task->spec;
    struct figures *f = report_figures_add(task->report, "sum");
    f->elements = f->judged = spec->count;
    for (int i = 0; i < spec->count; i++) {
        uint64_t right = 0;
        for (int rank = 0; rank < spec->world_size; rank++)
            right += element(spec, rank, i);
        if (v->sum[i] == right)
            continue;
        if (f->mismatches++ == 0)
            f->first_bad.position = i;
        f->broken = RULE_ELEMENT;
    }
    task->report->pass = f->broken == 0;
    task->report->digest = digest_add(DIGEST_START, v->sum, (size_t)spec->count * sizeof(uint64_t));
}

static enum status run(const struct rank_task *task, struct error *error)
{
    const struct toy_sum *spec = task->spec;
    struct vectors v;
    rank_task_at(task, REPORT_INPUTS, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = vectors_take(task, &v, error);
    task->report->timings.inputs_ns = clock_now_ns() - start_ns;
    for (int round = 0; round < spec->rounds && status == STATUS_OK; round++) {
        rank_task_at(task, REPORT_FORWARD, round % 1000);
        status = sum_make(task, &v, round, error);
    }
    rank_task_at(task, REPORT_COMPARE, 0);
    if (status == STATUS_OK)
        judge(task, &v);
    return status;
}

const struct rank_kind rank_kind_toy_sum = {.kind = &job_kind_toy_sum, .run = run};
