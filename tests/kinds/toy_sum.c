// SPDX-License-Identifier: Apache-2.0
// The daemon's side of the kind `sum`.
#include "tests/kinds/toy_sum.h"

#include "common/arena.h"
#include "plan/members.h"

static const struct case_field fields[] = {
    MEMBER_INT(struct toy_sum, world_size, 1, WORLD_SIZE_MAX, "ranks that have a vector"),
    MEMBER_INT(struct toy_sum, count, 0, TOY_SUM_COUNT_MAX, "elements of each vector"),
    MEMBER_INT(struct toy_sum, rounds, 1, INT32_MAX, "how often it is made"),
    MEMBER_INT(struct toy_sum, wrong, -1, WORLD_SIZE_MAX - 1, "a rank that adds 1 too much, or -1"),
    MEMBER_UINT(struct toy_sum, seed, "of the vectors"),
    {.name = NULL}};

static void init(void *spec)
{
    *(struct toy_sum *)spec =
        (struct toy_sum){.world_size = 2, .count = 1000, .rounds = 1, .wrong = -1, .seed = 1};
}

static enum status check(const void *spec, struct error *error)
{
    const struct toy_sum *s = spec;
    if (s->wrong < s->world_size)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "wrong is %d with %d ranks; accepted is -1 to %d", s->wrong, s->world_size,
                     s->world_size - 1);
}

static void needs_fill(const void *spec, struct job_needs *needs)
{
    const struct toy_sum *s = spec;
    needs->world_size = s->world_size;
    needs->verdict = true;
    needs->cost.drawn = (double)s->count * s->world_size;
}

static enum status memory(const void *spec, int64_t *rank_bytes, struct error *error)
{
    const struct toy_sum *s = spec;
    size_t total = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i <= s->world_size && status == STATUS_OK; i++)
        status = arena_add(&total, s->count, sizeof(uint64_t), error);
    *rank_bytes = (int64_t)total;
    return status;
}

const struct job_kind job_kind_toy_sum = {
    .name = "sum",
    .about = "add up a vector of each rank",
    .spec_bytes = sizeof(struct toy_sum),
    .fields = fields,
    .init = init,
    .check = check,
    .needs = needs_fill,
    .memory = memory,
};
