// SPDX-License-Identifier: Apache-2.0
#include "tests/rank/collective_scene.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "rank/operations.h"
#include "tests/rank/plans_execute.h"

static struct error error;

struct collective scene_usual(void)
{
    struct collective c;
    memset(&c, 0, sizeof(c));
    job_kind_collective.init(&c);
    c.count = 37;
    return c;
}

bool scene_is_possible(const struct collective *c)
{
    return job_kind_collective.check(c, &error) == STATUS_OK;
}

const char *scene_text(const struct collective *c)
{
    static char text[256];
    struct job_spec spec = {.kind = &job_kind_collective};
    memcpy(spec.bytes, c, sizeof(*c));
    job_spec_describe(&spec, text, sizeof(text));
    return text;
}

// ---- memory ----

static void memory_take(struct scene *s, int rank)
{
    const struct plan *plan = s->plans[rank];
    struct collective_shared shared = collective_shared(&s->c, rank);
    int element = collective_element_bytes(s->c.dtype);
    ck_assert_int_le(plan->buffer_count, SCENE_BUFFERS_MAX);
    for (int i = 0; i < plan->buffer_count; i++) {
        // Of the exact size, so that a sanitizer detects accesses beyond it.
        char *data = malloc((size_t)plan->buffers[i].bytes);
        memset(data, plan->buffers[i].role == BUFFER_SCRATCH ? 0xff : SCENE_MEMORY,
               (size_t)plan->buffers[i].bytes);
        s->memory[rank][i] = data;
        s->buffers[rank][i] = data;
        if (plan->buffers[i].role == BUFFER_SEND)
            s->send[rank] = data;
        if (plan->buffers[i].role == BUFFER_RECEIVE)
            s->receive[rank] = data;
        if (plan->buffers[i].role != BUFFER_SHARED)
            continue;
        if (collective_send_count(&s->c, rank) > 0)
            s->send[rank] = data + shared.send * element;
        if (collective_receive_count(&s->c, rank) > 0)
            s->receive[rank] = data + shared.receive * element;
    }
    if (s->send[rank])
        collective_fill(&s->c, rank, s->send[rank]);
}

struct scene *scene_create(const struct collective *c)
{
    struct scene *s = calloc(1, sizeof(*s));
    s->c = *c;
    s->twice = -1;
    for (int rank = 0; rank < c->world_size; rank++) {
        ck_assert_int_eq(collective_plan(c, rank, &s->plans[rank], &error), STATUS_OK);
        memory_take(s, rank);
    }
    return s;
}

void scene_destroy(struct scene *s)
{
    for (int rank = 0; rank < s->c.world_size; rank++) {
        for (int i = 0; i < SCENE_BUFFERS_MAX; i++)
            free(s->memory[rank][i]);
        plan_destroy(s->plans[rank]);
    }
    free(s);
}

// ---- execution ----

static void compute(void *scene, int rank, const struct op *op)
{
    struct scene *s = scene;
    const struct operations operations = {
        .plan = s->plans[rank], .buffers = s->buffers[rank], .ops = &backend_cpu};
    int times = rank == s->twice && op->kind == OP_REDUCE ? 2 : 1;
    s->twice = times == 2 ? -1 : s->twice;
    for (int i = 0; i < times; i++)
        ck_assert_int_eq(operations_run(&operations, op, &error), STATUS_OK);
}

void scene_execute(struct scene *s)
{
    void *const *buffers[WORLD_SIZE_MAX];
    for (int rank = 0; rank < s->c.world_size; rank++)
        buffers[rank] = s->buffers[rank];
    plans_execute(s->plans, buffers, s->c.world_size, compute, s);
}

int scene_broken(const struct scene *s)
{
    int rules = 0;
    for (int rank = 0; rank < s->c.world_size; rank++) {
        struct figures receive = {0}, send = {0};
        collective_judge_receive(&s->c, rank, s->receive[rank], &receive);
        collective_judge_send(&s->c, rank, s->send[rank], s->c.in_place ? s->receive[rank] : NULL,
                              &send);
        rules |= receive.broken | send.broken;
    }
    return rules;
}
