// SPDX-License-Identifier: Apache-2.0
#include "plan/ring.h"

// ---- teams and ranks ----

static struct team ring_team(const struct ring *r, int index)
{
    int size = r->part->team.size;
    return (struct team){index * size, size};
}

// The rank in team `index` that has the same place there as this rank in its team.
static int ring_rank(const struct ring *r, int index)
{
    return index * r->part->team.size + r->place;
}

static struct pair ring_pair(const struct ring *r, int32_t buffer, int source, int element)
{
    return part_keys(r->part, buffer, team_rows(r->part->c, SIDE_KV, ring_team(r, source)),
                     element);
}

// ---- sources and destinations ----

// The team `distance` places after `team` in the ring.
static int behind(const struct ring *r, int team, int distance)
{
    return (team + distance) % r->size;
}

// The team `distance` places before `team` in the ring.
static int before(const struct ring *r, int team, int distance)
{
    return (team + r->size - distance) % r->size;
}

static int forward_source(const struct ring *r, int team, int step)
{
    return before(r, team, step);
}

static int backward_source(const struct ring *r, int team, int step)
{
    return behind(r, team, 1 + step);
}

// The traffic of one kind. In each step, each team receives the data of one source team.
// giver(team, step): the team that sends to it; -1: it receives nothing. given, got: where the
// sender and the receiver have the data of a source.
struct traffic {
    int (*giver)(const struct ring *r, int team, int step);
    int (*source)(const struct ring *r, int team, int step);
    struct region (*given)(const struct ring *r, int source),
        (*got)(const struct ring *r, int source);
};

// Adds an exchange with all messages of this rank. Adds none if no team receives anything: every
// rank knows what all teams receive, so all ranks agree.
static void exchange(const struct ring *r, const struct traffic *x, int step)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    int count = 0, from = x->giver(r, r->index, step);
    bool any = from >= 0;
    for (int i = 1; i < r->size; i++) {
        int team = behind(r, r->index, i), giver = x->giver(r, team, step);
        any = any || giver >= 0;
        if (giver == r->index)
            transfers[count++] = (struct transfer){.peer = ring_rank(r, team),
                                                   .send = x->given(r, x->source(r, team, step))};
    }
    if (from >= 0)
        transfers[count++] = (struct transfer){.peer = ring_rank(r, from),
                                               .receive = x->got(r, x->source(r, r->index, step))};
    if (any)
        builder_exchange(r->part->b, transfers, count);
}

// ---- keys ----

// Index of a source among the sources that the team sees, in forward order.
static int forward_number(const struct ring *r, int team, int source)
{
    int number = 0;
    for (int i = 1; before(r, team, i) != source; i++)
        number += sight_has(&r->sight, team, before(r, team, i));
    return number;
}

// The same in backward order.
static int backward_number(const struct ring *r, int team, int source)
{
    int number = 0;
    for (int i = 1; behind(r, team, i) != source; i++)
        number += sight_has(&r->sight, team, behind(r, team, i));
    return number;
}

static struct pair keys(const struct ring *r, int source)
{
    int32_t buffer = source == r->index ? r->kv : r->slot[forward_number(r, r->index, source) % 2];
    return ring_pair(r, buffer, source, case_element_bytes(r->part->c));
}

static struct region keys_moved(const struct ring *r, int source)
{
    return keys(r, source).both;
}

// The team that sends the keys of `source` to `team`: the neighbour, which attended them a step
// earlier, or their owner if the neighbour does not attend them. -1: the team does not see them.
static int keys_giver(const struct ring *r, int team, int neighbour, int source)
{
    if (!sight_has(&r->sight, team, source))
        return -1;
    return sight_has(&r->sight, neighbour, source) ? neighbour : source;
}

static int forward_giver(const struct ring *r, int team, int step)
{
    return keys_giver(r, team, before(r, team, 1), forward_source(r, team, step));
}

// -1 for the first two sources: the forward left their keys in the slots.
static int backward_giver(const struct ring *r, int team, int step)
{
    int source = backward_source(r, team, step);
    if (source == team || backward_number(r, team, source) < 2)
        return -1;
    return keys_giver(r, team, behind(r, team, 1), source);
}

void ring_forward(const struct ring *r)
{
    static const struct traffic traffic = {forward_giver, forward_source, keys_moved, keys_moved};
    for (int step = 0; step < r->size; step++) {
        int source = forward_source(r, r->index, step);
        builder_step(r->part->b, PHASE_FORWARD, step);
        if (step + 1 < r->size)
            exchange(r, &traffic, step + 1);
        if (step == 0)
            part_forward_begin(r->part);
        if (step == 0 || sight_has(&r->sight, r->index, source))
            part_forward(r->part, keys(r, source), ring_team(r, source));
    }
}

// ---- sums ----

// True if the team handles the sum of dK, dV of that source. A team always handles its own sum.
static bool adds(const struct ring *r, int team, int source)
{
    return team == source || sight_has(&r->adders, team, source);
}

// The team that sends the sum of the step's source to `team`: the previous team that adds to it.
// -1: none.
static int sum_giver(const struct ring *r, int team, int step)
{
    int source = backward_source(r, team, step);
    for (int i = step - 1; i >= 0 && adds(r, team, source); i--) {
        int other = before(r, source, 1 + i);
        if (adds(r, other, source))
            return other;
    }
    return -1;
}

// The step in which the sum that the team added to in `step` is sent to the next team.
static int sum_leaves(const struct ring *r, int team, int step)
{
    int source = backward_source(r, team, step), i = step + 1;
    while (!adds(r, before(r, source, 1 + i), source))
        i++;
    return i;
}

// Assigns one of the two sum buffers to each source that the team adds to: sum_of[source] is 0 or
// 1, the buffer that is free first. Returns -1, or if no buffer is free, the source whose sum
// occupies its buffer the longest.
static int deal_sums(const struct ring *r, int team, int *sum_of)
{
    int leaves[2] = {0, 0}, last[2] = {0, 0};
    for (int step = 0; step < r->size; step++) {
        int source = backward_source(r, team, step), first = leaves[1] < leaves[0];
        if (!adds(r, team, source))
            continue;
        if (leaves[first] > step)
            return last[1 - first];
        sum_of[source] = first;
        last[first] = source;
        leaves[first] = source == team ? step : sum_leaves(r, team, step);
    }
    return -1;
}

// Makes every team handle the sum of `source`, from the first that adds to it. The sum then moves
// in every step.
static void add_everywhere(struct ring *r, int source)
{
    bool begun = false;
    for (int step = 0; step + 1 < r->size; step++) {
        int team = before(r, source, 1 + step);
        begun = begun || sight_has(&r->sight, team, source);
        r->adders.teams[team] |= (uint64_t)begun << source;
    }
}

// Sums skip teams that add nothing. Such a sum waits in one of the two buffers of the team that
// sends it. If a team would need a third buffer, the longest waiting sum goes through the teams
// between, which add nothing.
static void choose_adders(struct ring *r)
{
    r->adders = r->sight;
    for (int team = 0; team < r->size;) {
        int source = deal_sums(r, team, r->sum_of);
        if (source < 0) {
            team++;
            continue;
        }
        add_everywhere(r, source);
        team = 0;
    }
    (void)deal_sums(r, r->index, r->sum_of);
}

// This team's part of dK, dV of a source; after the addition the sum so far.
static struct pair sum(const struct ring *r, int source)
{
    return ring_pair(r, r->sum[r->sum_of[source]], source, 4);
}

static struct region sum_given(const struct ring *r, int source)
{
    return sum(r, source).both;
}

static struct region sum_got(const struct ring *r, int source)
{
    return ring_pair(r, r->arrived, source, 4).both;
}

// ---- the algorithm ----

void ring_init(struct ring *r, struct part *part, int32_t kv)
{
    const struct cp_case *c = part->c;
    int members = part->team.size, rank = builder_rank(part->b);
    int size = c->world_size / members, index = rank / members;
    *r = (struct ring){
        .part = part, .kv = kv, .size = size, .index = index, .place = rank % members};
    sight_init(&r->sight, c, members);

    int64_t rows_max = team_rows_max(c, SIDE_KV, members);
    int element = case_element_bytes(c);
    if (size > 1)
        r->slot[0] = part_key_buffer(part, "slot", "0", rows_max, element);
    if (size > 2)
        r->slot[1] = part_key_buffer(part, "slot", "1", rows_max, element);
    if (!c->training)
        return;
    choose_adders(r);
    r->sum[0] = part_key_buffer(part, "dkv_part", "0", rows_max, 4);
    if (size > 1) {
        r->sum[1] = part_key_buffer(part, "dkv_part", "1", rows_max, 4);
        r->arrived = part_key_buffer(part, "dkv_arrived", "", rows_max, 4);
    }
}

// The exchange of the next keys precedes that of the current sum, so that the next keys do not wait
// for the addition to the sum.
struct pair ring_backward(const struct ring *r)
{
    static const struct traffic next_keys = {backward_giver, backward_source, keys_moved,
                                             keys_moved};
    static const struct traffic sums = {sum_giver, backward_source, sum_given, sum_got};
    struct builder *b = r->part->b;
    builder_step(b, PHASE_BACKWARD, 0);
    part_backward_begin(r->part);
    for (int step = 0; step < r->size; step++) {
        int source = backward_source(r, r->index, step);
        builder_step(b, PHASE_BACKWARD, step);
        if (step + 1 < r->size)
            exchange(r, &next_keys, step + 1);
        exchange(r, &sums, step);
        if (!adds(r, r->index, source))
            continue;
        builder_fill(b, sum(r, source).both, 0);
        part_backward(r->part, keys(r, source), sum(r, source), ring_team(r, source));
        if (sum_giver(r, r->index, step) >= 0)
            builder_add(b, sum_got(r, source), sum(r, source).both);
    }
    return sum(r, r->index);
}

// ---- p2p: teams of one rank ----

void ring_build(struct builder *b)
{
    struct tensors t;
    struct part part;
    struct ring r;
    tensors_init(&t, b);
    if (!part_init_own(&part, b, &t))
        return;
    ring_init(&r, &part, t.kv.both.buffer);
    tensors_begin(&t, b, PHASE_FORWARD);
    ring_forward(&r);
    builder_convert(b, part.o_sum, t.out);
    tensors_reduce(&t, b, PHASE_FORWARD);
    if (!part.c->training)
        return;
    builder_step(b, PHASE_BACKWARD, 0);
    tensors_begin(&t, b, PHASE_BACKWARD);
    struct pair sum = ring_backward(&r);
    builder_convert(b, part.dq_sum, t.dq);
    builder_convert(b, sum.both, t.dkv.both);
    tensors_reduce(&t, b, PHASE_BACKWARD);
}
