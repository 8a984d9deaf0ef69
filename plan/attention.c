// SPDX-License-Identifier: Apache-2.0
// Attention as a kind of job: its spec is a case.
#include "plan/kind.h"

static void init(void *spec)
{
    case_init(spec);
}

static enum status check(const void *spec, struct error *error)
{
    return case_check(spec, error);
}

static void needs_fill(const void *spec, struct job_needs *needs)
{
    const struct cp_case *c = spec;
    *needs = (struct job_needs){.world_size = c->world_size,
                                .nodes = c->nodes,
                                .ranks_per_node = c->ranks_per_node,
                                .implementation = c->implementation,
                                .provider = c->provider,
                                .verdict = c->verify != VERIFY_OFF};
    case_cost(c, &needs->cost);
}

static enum status memory(const void *spec, int64_t *rank_bytes, struct error *error)
{
    return case_memory(spec, rank_bytes, error);
}

static uint64_t hash(const void *spec)
{
    return case_hash(spec);
}

static int describe(const void *spec, char *text, size_t size)
{
    return case_describe(spec, text, size);
}

const struct job_kind job_kind_attention = {
    .name = "attention",
    .about = "run one case",
    .spec_bytes = sizeof(struct cp_case),
    .init = init,
    .check = check,
    .needs = needs_fill,
    .memory = memory,
    .hash = hash,
    .describe = describe,
};
