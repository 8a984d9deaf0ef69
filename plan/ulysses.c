// SPDX-License-Identifier: Apache-2.0
// All-to-all (Ulysses): all ranks are one team that exchanges heads. Each rank attends the whole
// sequences for its own heads. Heads are exchanged in groups: one group is attended while the next
// arrives and the results of the previous group are sent back.
#include "plan/deal.h"

struct ulysses {
    struct builder *b;
    const struct cp_case *c;
    struct tensors tensors;
    struct team team;
    int groups;
    struct deal deals[TEAM_GROUPS_MAX];
    int32_t dkv[TEAM_GROUPS_MAX]; // fp32, of all tokens
};

static struct pair group_keys(const struct ulysses *u, int g, int32_t buffer, int element)
{
    return part_keys(&u->deals[g].part, buffer, team_rows(u->c, SIDE_KV, u->team), element);
}

static bool ulysses_init(struct ulysses *u, struct builder *b)
{
    u->b = b;
    u->c = builder_case(b);
    u->team = (struct team){0, u->c->world_size};
    u->groups = team_groups(u->c);
    tensors_init(&u->tensors, b);
    for (int g = 0; g < u->groups; g++) {
        char number[12];
        snprintf(number, sizeof number, "%d", g);
        if (!deal_init(&u->deals[g], b, &u->tensors, u->team, g, u->groups))
            return false;
        if (u->c->training)
            u->dkv[g] = part_key_buffer(&u->deals[g].part, "dkv_part", number,
                                        team_rows(u->c, SIDE_KV, u->team), 4);
    }
    return true;
}

static void ulysses_forward(struct ulysses *u)
{
    builder_step(u->b, PHASE_FORWARD, 0);
    tensors_begin(&u->tensors, u->b, PHASE_FORWARD);
    for (int g = 0; g < u->groups; g++) {
        struct deal *d = &u->deals[g];
        builder_step(u->b, PHASE_FORWARD, g);
        if (g == 0)
            deal_forward_in(d);
        if (g + 1 < u->groups)
            deal_forward_in(d + 1);
        part_forward_begin(&d->part);
        part_forward(&d->part, group_keys(u, g, d->kv, case_element_bytes(u->c)), u->team);
        deal_forward_out(d);
    }
    tensors_reduce(&u->tensors, u->b, PHASE_FORWARD);
}

static void ulysses_backward(struct ulysses *u)
{
    builder_step(u->b, PHASE_BACKWARD, 0);
    tensors_begin(&u->tensors, u->b, PHASE_BACKWARD);
    struct pair sum = deal_sum_begin(u->b, &u->tensors, u->team);
    for (int g = 0; g < u->groups; g++) {
        struct deal *d = &u->deals[g];
        struct pair dkv = group_keys(u, g, u->dkv[g], 4);
        builder_step(u->b, PHASE_BACKWARD, g);
        if (g == 0)
            deal_backward_in(d);
        if (g + 1 < u->groups)
            deal_backward_in(d + 1);
        part_backward_begin(&d->part);
        builder_fill(u->b, dkv.both, 0);
        part_backward(&d->part, group_keys(u, g, d->kv, case_element_bytes(u->c)), dkv, u->team);
        deal_backward_out(d, dkv, sum);
    }
    deal_sum_end(u->b, &u->tensors, sum);
    tensors_reduce(&u->tensors, u->b, PHASE_BACKWARD);
}

void ulysses_build(struct builder *b)
{
    struct ulysses *u = builder_alloc(b, 1, sizeof *u);
    if (!u || !ulysses_init(u, b))
        return;
    ulysses_forward(u);
    if (u->c->training)
        ulysses_backward(u);
}
