// SPDX-License-Identifier: Apache-2.0
// Plans of collectives that copy elements, and the choice of the algorithm.
#include "plan/collective_layout.h"

// ---- all_gather ----

static void gather_ring(struct layout *l)
{
    int size = l->size, next = layout_modulo(l->rank + 1, size),
        before = layout_modulo(l->rank - 1, size);
    struct region own = layout_sent(l, 0, l->c->count);
    const struct transfer first[] = {
        {.peer = next, .send = own},
        {.peer = before, .receive = layout_block_received(l, layout_modulo(l->rank - 1, size))},
        layout_own_copy(l, own, layout_block_received(l, l->rank))};
    layout_exchange(l, first, 3);
    for (int s = 1; s + 1 < size; s++)
        layout_shift(l, next, layout_block_received(l, layout_modulo(l->rank - s, size)), before,
                     layout_block_received(l, layout_modulo(l->rank - s - 1, size)));
}

static void gather_direct(struct layout *l)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    struct region own = layout_sent(l, 0, l->c->count);
    int k = 0;
    transfers[k++] = layout_own_copy(l, own, layout_block_received(l, l->rank));
    for (int peer = 0; peer < l->size; peer++)
        if (peer != l->rank)
            transfers[k++] = (struct transfer){
                .peer = peer, .send = own, .receive = layout_block_received(l, peer)};
    layout_exchange(l, transfers, k);
}

static void gather_doubling(struct layout *l)
{
    int64_t all = l->c->count * l->size;
    const struct transfer own =
        layout_own_copy(l, layout_sent(l, 0, l->c->count), layout_block_received(l, l->rank));
    layout_exchange(l, &own, 1);
    layout_double_up(l, layout_received(l, 0, all), all, l->size);
}

// The root sends from its send buffer, while it copies to its own result.
static void broadcast_direct(struct layout *l, struct region source, struct region data)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    int k = 0, root = l->c->root;
    for (int peer = 0; peer < l->size && l->rank == root; peer++)
        if (peer != root)
            transfers[k++] = (struct transfer){.peer = peer, .send = source};
    if (l->rank == root)
        transfers[k++] = layout_own_copy(l, source, data);
    else
        transfers[k++] = (struct transfer){.peer = root, .receive = data};
    layout_exchange(l, transfers, k);
}

// Sends chunk by chunk along the ring: the rank `from` places behind the root has chunk k after
// step k + from - 1.
static void broadcast_ring(struct layout *l, struct region source, struct region data)
{
    int64_t n = l->c->count;
    int size = l->size, from = layout_modulo(l->rank - l->c->root, size);
    for (int s = 0; s < 2 * size - 2; s++) {
        int out = s - from, in = s - from + 1, k = 0;
        struct transfer transfers[3];
        if (from + 1 < size && out >= 0 && out < size) {
            struct layout_range give = layout_chunks(n, out, out + 1, size);
            transfers[k++] = (struct transfer){
                .peer = layout_modulo(l->rank + 1, size),
                .send = layout_part(l, from == 0 ? source : data, give.first, give.count)};
        }
        if (from > 0 && in >= 0 && in < size) {
            struct layout_range take = layout_chunks(n, in, in + 1, size);
            transfers[k++] =
                (struct transfer){.peer = layout_modulo(l->rank - 1, size),
                                  .receive = layout_part(l, data, take.first, take.count)};
        }
        if (from == 0 && s == 0)
            transfers[k++] = layout_own_copy(l, source, data);
        layout_exchange(l, transfers, k);
    }
}

static void broadcast(struct layout *l, enum collective_algorithm algorithm)
{
    int root = l->c->root;
    struct region data = layout_received(l, 0, l->c->count);
    struct region source = l->rank == root ? layout_sent(l, 0, l->c->count) : data;
    if (algorithm == ALGORITHM_TREE)
        layout_broadcast(l, root, source, data);
    else if (algorithm == ALGORITHM_DIRECT)
        broadcast_direct(l, source, data);
    else
        broadcast_ring(l, source, data);
}

// ---- operations that move elements ----

// In place, copies the elements to send to scratch, because receiving overwrites them.
static void put_aside(struct layout *l)
{
    int64_t n = collective_send_count(l->c, l->rank);
    if (!l->c->in_place || n == 0)
        return;
    int32_t aside = layout_scratch(l, "aside", n);
    const struct transfer copy =
        layout_own_copy(l, layout_sent(l, 0, n), layout_region(l, aside, 0, n));
    layout_exchange(l, &copy, 1);
    l->send_buffer = aside;
    l->send_first = 0;
}

static void send_receive(struct layout *l)
{
    int64_t n = l->c->count;
    int next = layout_modulo(l->rank + 1, l->size), before = layout_modulo(l->rank - 1, l->size);
    put_aside(l);
    layout_shift(l, next, layout_sent(l, 0, n), before, layout_received(l, 0, n));
}

static void all_to_all(struct layout *l, enum collective_algorithm algorithm)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    int64_t to_first[WORLD_SIZE_MAX + 1] = {0}, from_first[WORLD_SIZE_MAX + 1] = {0};
    for (int peer = 0; peer < l->size; peer++) {
        to_first[peer + 1] = to_first[peer] + collective_message(l->c, l->rank, peer);
        from_first[peer + 1] = from_first[peer] + collective_message(l->c, peer, l->rank);
    }
    put_aside(l);
    for (int peer = 0; peer < l->size; peer++)
        transfers[peer] = (struct transfer){
            .peer = peer,
            .send = layout_sent(l, to_first[peer], to_first[peer + 1] - to_first[peer]),
            .receive =
                layout_received(l, from_first[peer], from_first[peer + 1] - from_first[peer])};
    if (algorithm == ALGORITHM_DIRECT) {
        layout_exchange(l, transfers, l->size);
        return;
    }
    for (int s = 0; s < l->size; s++) {
        int to = layout_modulo(l->rank + s, l->size), from = layout_modulo(l->rank - s, l->size);
        struct transfer send = transfers[to], receive = transfers[from];
        if (to == from) {
            layout_exchange(l, &send, 1);
            continue;
        }
        layout_shift(l, to, send.send, from, receive.receive);
    }
}

// ---- the choice ----

// World size 1: copies send to receive, unless in place.
static void alone(struct layout *l)
{
    int64_t n =
        l->c->operation == COLLECTIVE_ALL_TO_ALLV ? collective_message(l->c, 0, 0) : l->c->count;
    const struct transfer own = layout_own_copy(l, layout_sent(l, 0, n), layout_received(l, 0, n));
    layout_exchange(l, &own, 1);
}

static void all_gather(struct layout *l, enum collective_algorithm algorithm)
{
    static void (*const build[ALGORITHMS])(struct layout *) = {
        [ALGORITHM_RING] = gather_ring,
        [ALGORITHM_HALVING] = gather_doubling,
        [ALGORITHM_DIRECT] = gather_direct,
    };
    build[algorithm](l);
}

static void operation_build(struct layout *l)
{
    enum collective_algorithm algorithm = collective_algorithm(l->c);
    if (algorithm == ALGORITHM_NCCL)
        return;
    if (l->size == 1) {
        alone(l);
        return;
    }
    switch (l->c->operation) {
    case COLLECTIVE_ALL_REDUCE:
        layout_all_reduce(l, algorithm);
        break;
    case COLLECTIVE_ALL_GATHER:
        all_gather(l, algorithm);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        layout_reduce_scatter(l, algorithm);
        break;
    case COLLECTIVE_BROADCAST:
        broadcast(l, algorithm);
        break;
    case COLLECTIVE_REDUCE:
        layout_reduce(l, algorithm);
        break;
    case COLLECTIVE_SEND_RECEIVE:
        send_receive(l);
        break;
    default:
        all_to_all(l, algorithm);
        break;
    }
}

static void margins_set(const struct collective *c, struct plan *plan)
{
    plan_guard(plan, false);
    for (int32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].role != BUFFER_SCRATCH)
            plan->buffers[i].before += (int64_t)c->offset * collective_element_bytes(c->dtype);
}

enum status collective_plan(const struct collective *c, int rank, struct plan **plan,
                            struct error *error)
{
    struct builder *b = builder_create_collective(c, rank);
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the plan of rank %d",
                         rank);
    struct layout l = {.c = c,
                       .b = b,
                       .rank = rank,
                       .size = c->world_size,
                       .element = collective_element_bytes(c->dtype)};
    layout_init(&l);
    operation_build(&l);
    enum status status = builder_finish(b, plan, error);
    builder_destroy(b);
    if (status == STATUS_OK)
        margins_set(c, *plan);
    return status;
}
