// SPDX-License-Identifier: Apache-2.0
#include "tests/rank/random_cases.h"

#include <stdio.h>

#include "plan/cost.h"
#include "plan/minimize.h"
#include "tests/support/generate.h"
#include "tests/support/world.h"

#define WORLD_MAX   8
#define SEQLEN_MOST 72
#define LONG_MOST   1000
// Limit of the forward FLOPs of a case; the reference takes about ten times as long as the kernels.
#define FLOPS_MAX   2e8
// Maximum number of attempts to make a failing case smaller.
#define TRIES       600

static struct rank_report reports[WORLD_SIZE_MAX];

static bool is_too_much(const struct cp_case *c)
{
    struct case_cost cost;
    case_cost(c, &cost);
    return cost.forward > FLOPS_MAX;
}

static void bound_work(struct cp_case *c)
{
    if (is_too_much(c))
        c->heads = c->kv_heads;
    if (is_too_much(c))
        c->heads = c->kv_heads = 1;
    if (is_too_much(c)) {
        c->head_dim_qk = (c->head_dim_qk + 7) / 8;
        c->head_dim_v = (c->head_dim_v + 7) / 8;
    }
}

void random_case(uint64_t seed, struct cp_case *c)
{
    uint64_t state = ~seed;
    bool is_long = generate_below(&state, 10) == 0;
    generate_case(seed, WORLD_MAX, is_long ? LONG_MOST : SEQLEN_MOST, c);
    bound_work(c);
}

// ---- one case ----

enum random_end random_run(const struct cp_case *c)
{
    struct error error = {.text = ""};
    if (world_run(c, reports, &error) != STATUS_OK)
        return RANDOM_BREAKS_OFF;
    return world_passed(reports, c->world_size) ? RANDOM_PASSES : RANDOM_FAILS;
}

uint64_t random_digest(const struct cp_case *c)
{
    return random_run(c) == RANDOM_BREAKS_OFF ? 0 : world_digest(reports, c->world_size);
}

// ---- a smaller case ----

static bool ends_alike(const struct cp_case *c, void *context)
{
    return random_run(c) == *(const enum random_end *)context;
}

static bool differs(const struct cp_case *c, void *context)
{
    struct cp_case plain = *c;
    (void)context;
    plain.explore_seed = 0;
    return random_digest(c) != random_digest(&plain);
}

static void print_end(const struct cp_case *c, enum random_end end)
{
    struct error error = {.text = ""};
    if (end == RANDOM_FAILS && random_run(c) == end)
        world_print(c, reports);
    if (end == RANDOM_BREAKS_OFF && world_run(c, reports, &error) != STATUS_OK)
        printf("#   %s\n", error.text);
}

int random_minimize(struct cp_case *c, char *text)
{
    enum random_end end = random_run(c);
    int tried = minimize_case(c, end == RANDOM_PASSES ? differs : ends_alike, &end, TRIES);
    case_command(c, text, CASE_COMMAND_MAX);
    print_end(c, end);
    return tried;
}
