// SPDX-License-Identifier: Apache-2.0
// Plans of collectives that reduce.
#include "plan/collective_layout.h"

// ---- partial results ----

static void sum_begin(struct layout *l, struct region own, struct region sum, int64_t message_max)
{
    l->own = own;
    l->sum = sum;
    l->started = false;
    l->together = own.buffer == sum.buffer && own.offset == sum.offset;
    l->temporary[0] = layout_scratch(l, "part0", message_max);
    l->temporary[1] = layout_scratch(l, "part1", message_max);
}

// This rank's partial result of these elements: in `sum` if `started`, else its own elements.
static struct region sum_now(const struct layout *l, int64_t first, int64_t count)
{
    return layout_part(l, l->started ? l->sum : l->own, first, count);
}

// Where to receive these elements: in `sum` if that is separate memory without a partial result,
// else in the other temporary buffer.
static struct region sum_place(struct layout *l, int64_t first, int64_t count)
{
    if (!l->started && !l->together)
        return layout_part(l, l->sum, first, count);
    l->turn = !l->turn;
    return layout_region(l, l->temporary[l->turn], 0, count);
}

// Adds the elements received in sum_place().
static void sum_add(struct layout *l, int64_t first, int64_t count)
{
    struct region to = layout_part(l, l->sum, first, count);
    if (!l->started && !l->together)
        builder_reduce(l->b, layout_part(l, l->own, first, count), to);
    else
        builder_reduce(l->b, layout_region(l, l->temporary[l->turn], 0, count), to);
}

static void average(struct layout *l, struct region result)
{
    if (l->c->reduction == REDUCTION_AVG && l->size > 1)
        builder_divide(l->b, result, (float)l->size);
}

// ---- all_reduce ----

// Elements of one chunk of one segment. The elements are cut into `segments` segments, and each
// segment into one chunk per rank. `chunk` is taken modulo the number of ranks.
static struct layout_range segment_chunk(const struct layout *l, int segments, int segment,
                                         int chunk)
{
    struct layout_range whole = layout_chunks(l->c->count, segment, segment + 1, segments);
    int of = layout_modulo(chunk, l->size);
    struct layout_range part = layout_chunks(whole.count, of, of + 1, l->size);
    return (struct layout_range){whole.first + part.first, part.count};
}

// Segments of a ring: at most two, because the exchanges of one other segment hide its sums.
static int ring_segments(const struct layout *l, int64_t elements)
{
    return layout_segments(l, elements) > 1 ? 2 : 1;
}

// Step s of the reduce-scatter ring of a segment: sends the partial sum of chunk rank - s and adds
// to chunk rank - s - 1.
static void ring_reduce(struct layout *l, int segments, int segment, int s)
{
    int next = layout_modulo(l->rank + 1, l->size), before = layout_modulo(l->rank - 1, l->size);
    struct layout_range out = segment_chunk(l, segments, segment, l->rank - s);
    struct layout_range in = segment_chunk(l, segments, segment, l->rank - s - 1);
    l->started = s > 0; // the sent chunk: summed in the step before
    struct region send = sum_now(l, out.first, out.count);
    l->started = false; // the received chunk: no partial result yet
    layout_shift(l, next, send, before, sum_place(l, in.first, in.count));
    sum_add(l, in.first, in.count);
}

// Step s of the all-gather ring of a segment.
static void ring_collect(struct layout *l, int segments, int segment, int s)
{
    int next = layout_modulo(l->rank + 1, l->size), before = layout_modulo(l->rank - 1, l->size);
    struct layout_range out = segment_chunk(l, segments, segment, l->rank + 1 - s);
    struct layout_range in = segment_chunk(l, segments, segment, l->rank - s);
    struct region done = layout_part(l, l->sum, out.first, out.count);
    if (s == 0)
        average(l, done);
    layout_shift(l, next, done, before, layout_part(l, l->sum, in.first, in.count));
}

// A reduce-scatter ring, then an all-gather ring. After the first, rank r has the sum of chunk r +
// 1 of each segment. Unless in place, chunks are received directly into the result.
static void all_reduce_ring(struct layout *l)
{
    int64_t n = l->c->count;
    int segments = ring_segments(l, n / l->size);
    sum_begin(l, layout_sent(l, 0, n), layout_received(l, 0, n),
              l->c->in_place ? n / segments / l->size + 2 : 0);
    for (int s = 0; s + 1 < l->size; s++)
        for (int segment = 0; segment < segments; segment++)
            ring_reduce(l, segments, segment, s);
    for (int s = 0; s + 1 < l->size; s++)
        for (int segment = 0; segment < segments; segment++)
            ring_collect(l, segments, segment, s);
}

// Two ranks exchange all elements: the same bytes as in a ring of two, in half the steps. The sum
// of two is the same in either order.
static void all_reduce_pair(struct layout *l)
{
    int64_t n = l->c->count;
    int segments = layout_segments(l, n), peer = 1 - l->rank;
    sum_begin(l, layout_sent(l, 0, n), layout_received(l, 0, n),
              l->c->in_place ? n / segments + 1 : 0);
    for (int segment = 0; segment < segments; segment++) {
        struct layout_range part = layout_chunks(n, segment, segment + 1, segments);
        l->started = false;
        layout_shift(l, peer, sum_now(l, part.first, part.count), peer,
                     sum_place(l, part.first, part.count));
        sum_add(l, part.first, part.count);
        average(l, layout_part(l, l->sum, part.first, part.count));
    }
}

// Adds the parts of all other ranks (consecutive, `count` elements each) in the order of ranks to
// `sum`, which holds this rank's elements. Then divides, if the reduction is an average.
static void sum_all(struct layout *l, int32_t parts, int64_t count, struct region sum)
{
    for (int i = 0; i + 1 < l->size; i++)
        builder_reduce(l->b, layout_region(l, parts, i * count, count), sum);
    average(l, sum);
}

// Index of a peer among the ranks other than this one.
static int among_others(const struct layout *l, int peer)
{
    return peer - (peer > l->rank);
}

static struct region chunk_received(const struct layout *l, struct layout_range chunk)
{
    return layout_received(l, chunk.first, chunk.count);
}

// The reduce-scatter exchange of a segment: receives this rank's chunk from all other ranks into
// `parts`, and sends them theirs.
static void direct_gather(struct layout *l, int segments, int segment, int32_t parts)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    struct layout_range own = segment_chunk(l, segments, segment, l->rank);
    for (int peer = 0; peer < l->size; peer++) {
        struct layout_range theirs = segment_chunk(l, segments, segment, peer);
        transfers[peer] = (struct transfer){
            .peer = peer,
            .send = layout_sent(l, theirs.first, theirs.count),
            .receive = layout_region(l, parts, among_others(l, peer) * own.count, own.count)};
    }
    transfers[l->rank] = layout_own_copy(l, transfers[l->rank].send, chunk_received(l, own));
    layout_exchange(l, transfers, l->size);
}

// The all-gather exchange of a segment: each rank sends the sum of its chunk to all others.
static void direct_spread(struct layout *l, int segments, int segment)
{
    struct transfer transfers[WORLD_SIZE_MAX];
    struct region result = chunk_received(l, segment_chunk(l, segments, segment, l->rank));
    for (int peer = 0; peer < l->size; peer++)
        transfers[peer] = (struct transfer){
            .peer = peer,
            .send = result,
            .receive = chunk_received(l, segment_chunk(l, segments, segment, peer))};
    transfers[l->rank] = layout_own_copy(l, result, result);
    layout_exchange(l, transfers, l->size);
}

// While a segment is summed, the next one is gathered. A segment costs two exchanges.
static void all_reduce_direct(struct layout *l)
{
    int64_t n = l->c->count;
    int segments = layout_segments(l, n / l->size * (l->size - 1) / 2), chunks = segments * l->size;
    int32_t parts[2] = {0};
    for (int i = 0; i < 2 && i < segments; i++)
        parts[i] =
            layout_scratch(l, i ? "parts1" : "parts0", (n + chunks - 1) / chunks * (l->size - 1));
    for (int segment = 0; segment <= segments; segment++) {
        if (segment < segments)
            direct_gather(l, segments, segment, parts[segment % 2]);
        if (segment > 0)
            direct_spread(l, segments, segment - 1);
        if (segment == segments)
            return;
        struct layout_range own = segment_chunk(l, segments, segment, l->rank);
        sum_all(l, parts[segment % 2], own.count, chunk_received(l, own));
    }
}

// ---- trees ----

// Reduction along a binomial tree to `root`. `from`: distance of this rank from the root.
static void tree_reduce(struct layout *l, int root, int64_t n)
{
    int from = layout_modulo(l->rank - root, l->size);
    bool given = false;
    for (int mask = 1; mask < l->size; mask *= 2) {
        bool sends = !given && (from & mask), receives = !given && !sends && from + mask < l->size;
        struct region place = {.bytes = 0};
        if (receives)
            place = sum_place(l, 0, n);
        layout_shift(l, sends ? layout_modulo(l->rank - mask, l->size) : -1, sum_now(l, 0, n),
                     receives ? layout_modulo(l->rank + mask, l->size) : -1, place);
        if (receives) {
            sum_add(l, 0, n);
            l->started = true;
        }
        given = given || sends;
    }
}

static void all_reduce_tree(struct layout *l)
{
    int64_t n = l->c->count;
    sum_begin(l, layout_sent(l, 0, n), layout_received(l, 0, n), n);
    tree_reduce(l, 0, n);
    if (l->rank == 0)
        average(l, l->sum);
    layout_broadcast(l, 0, l->sum, l->sum);
}

// ---- halving and doubling ----

// Reduce-scatter among the first `size` ranks, a power of 2, by recursive halving: rank i gets the
// sum of chunk i of `size`. The other ranks add empty exchanges.
static void halve(struct layout *l, int64_t n, int size)
{
    bool idle = l->rank >= size;
    for (int mask = size / 2; mask > 0; mask /= 2) {
        int base = l->rank & ~(2 * mask - 1), upper = (l->rank & mask) != 0;
        int peer = idle ? -1 : l->rank ^ mask, kept = base + upper * mask,
            given = base + !upper * mask;
        struct layout_range keep = layout_chunks(n, kept, kept + mask, size);
        struct layout_range give = layout_chunks(n, given, given + mask, size);
        struct region place = {.bytes = 0};
        if (!idle)
            place = sum_place(l, keep.first, keep.count);
        layout_shift(l, peer, idle ? place : sum_now(l, give.first, give.count), peer, place);
        if (idle)
            continue;
        sum_add(l, keep.first, keep.count);
        l->started = true;
    }
}

// Each rank beyond the largest power of 2 first sends its elements to a rank below it, and at the
// end receives the result from that rank.
static void all_reduce_halving(struct layout *l)
{
    int64_t n = l->c->count;
    int power = 1;
    while (2 * power <= l->size)
        power *= 2;
    int extra = l->size - power, partner = l->rank < extra ? l->rank + power : -1;
    int owner = l->rank >= power ? l->rank - power : -1;
    sum_begin(l, layout_sent(l, 0, n), layout_received(l, 0, n), n);
    if (extra > 0) {
        struct region place = {.bytes = 0};
        if (partner >= 0)
            place = sum_place(l, 0, n);
        layout_shift(l, owner, sum_now(l, 0, n), partner, place);
        if (partner >= 0) {
            sum_add(l, 0, n);
            l->started = true;
        }
    }
    halve(l, n, power);
    if (l->rank < power) {
        struct layout_range own = layout_chunks(n, l->rank, l->rank + 1, power);
        average(l, layout_part(l, l->sum, own.first, own.count));
    }
    layout_double_up(l, l->sum, n, power);
    if (extra > 0)
        layout_shift(l, partner, l->sum, owner, l->sum);
}

// ---- reduce_scatter ----

// Partial sums go round the ring; each rank adds its own block and sends the sum on.
static void reduce_scatter_ring(struct layout *l)
{
    int64_t n = l->c->count;
    int size = l->size, next = layout_modulo(l->rank + 1, size),
        before = layout_modulo(l->rank - 1, size);
    int32_t sums[2] = {layout_scratch(l, "sum0", n), layout_scratch(l, "sum1", n)};
    for (int s = 0; s + 1 < size; s++) {
        int out = layout_modulo(l->rank - s - 1, size), in = layout_modulo(l->rank - s - 2, size);
        struct region send =
            s == 0 ? layout_block_sent(l, out) : layout_region(l, sums[(s + 1) % 2], 0, n);
        struct region place = layout_region(l, sums[s % 2], 0, n);
        bool last = s + 2 == size;
        if (last && !l->c->in_place)
            place = layout_received(l, 0, n);
        layout_shift(l, next, send, before, place);
        if (last && l->c->in_place) // this rank's block is at the place of the result
            builder_reduce(l->b, place, layout_received(l, 0, n));
        else
            builder_reduce(l->b, layout_block_sent(l, in), place);
    }
    average(l, layout_received(l, 0, n));
}

static void reduce_scatter_direct(struct layout *l)
{
    int64_t n = l->c->count;
    int32_t parts = layout_scratch(l, "parts", n * (l->size - 1));
    struct transfer transfers[WORLD_SIZE_MAX];
    int k = 0;
    transfers[k++] = layout_own_copy(l, layout_block_sent(l, l->rank), layout_received(l, 0, n));
    for (int peer = 0; peer < l->size; peer++)
        if (peer != l->rank)
            transfers[k++] =
                (struct transfer){.peer = peer,
                                  .send = layout_block_sent(l, peer),
                                  .receive = layout_region(l, parts, among_others(l, peer) * n, n)};
    layout_exchange(l, transfers, k);
    sum_all(l, parts, n, layout_received(l, 0, n));
}

static void reduce_scatter_halving(struct layout *l)
{
    int64_t n = l->c->count, all = n * l->size;
    int32_t sums = layout_scratch(l, "sums", all);
    sum_begin(l, layout_sent(l, 0, all), layout_region(l, sums, 0, all), all / 2);
    halve(l, all, l->size);
    const struct transfer copy =
        layout_own_copy(l, layout_part(l, l->sum, l->rank * n, n), layout_received(l, 0, n));
    layout_exchange(l, &copy, 1);
    average(l, layout_received(l, 0, n));
}

// ---- reduce ----

static void reduce_direct(struct layout *l)
{
    int64_t n = l->c->count;
    int root = l->c->root, k = 0;
    struct transfer transfers[WORLD_SIZE_MAX];
    if (l->rank != root) {
        layout_shift(l, root, layout_sent(l, 0, n), -1, layout_sent(l, 0, 0));
        return;
    }
    int32_t parts = layout_scratch(l, "parts", n * (l->size - 1));
    transfers[k++] = layout_own_copy(l, layout_sent(l, 0, n), layout_received(l, 0, n));
    for (int peer = 0; peer < l->size; peer++)
        if (peer != root)
            transfers[k++] = (struct transfer){
                .peer = peer, .receive = layout_region(l, parts, among_others(l, peer) * n, n)};
    layout_exchange(l, transfers, k);
    sum_all(l, parts, n, layout_received(l, 0, n));
}

// Reduction along a chain that ends at the root, segment by segment: in step s the rank `from`
// places behind the root receives segment s - (size - 2 - from).
static void reduce_chain(struct layout *l)
{
    int64_t n = l->c->count;
    int size = l->size, from = layout_modulo(l->rank - l->c->root, size);
    int segments = layout_segments(l, n);
    for (int s = 0; s < size - 2 + segments; s++) {
        int out = s - (size - 1 - from), in = s - (size - 2 - from);
        bool sends = from > 0 && out >= 0 && out < segments;
        bool receives = from + 1 < size && in >= 0 && in < segments;
        struct layout_range give = {0, 0}, take = {0, 0};
        if (sends)
            give = layout_chunks(n, out, out + 1, segments);
        if (receives)
            take = layout_chunks(n, in, in + 1, segments);
        l->started = from + 1 < size;
        struct region send = sum_now(l, give.first, give.count), place = {.bytes = 0};
        l->started = false;
        if (receives)
            place = sum_place(l, take.first, take.count);
        layout_shift(l, sends ? layout_modulo(l->rank - 1, size) : -1, send,
                     receives ? layout_modulo(l->rank + 1, size) : -1, place);
        if (receives)
            sum_add(l, take.first, take.count);
    }
}

void layout_reduce(struct layout *l, enum collective_algorithm algorithm)
{
    int64_t n = l->c->count;
    bool is_root = l->rank == l->c->root;
    if (algorithm == ALGORITHM_DIRECT) {
        reduce_direct(l);
        return;
    }
    struct region sum =
        is_root ? layout_received(l, 0, n) : layout_region(l, layout_scratch(l, "sum", n), 0, n);
    sum_begin(l, layout_sent(l, 0, n), sum, n);
    if (algorithm == ALGORITHM_TREE)
        tree_reduce(l, l->c->root, n);
    else
        reduce_chain(l);
    if (is_root)
        average(l, sum);
}

void layout_all_reduce(struct layout *l, enum collective_algorithm algorithm)
{
    static void (*const build[ALGORITHMS])(struct layout *) = {
        [ALGORITHM_RING] = all_reduce_ring,
        [ALGORITHM_TREE] = all_reduce_tree,
        [ALGORITHM_HALVING] = all_reduce_halving,
        [ALGORITHM_DIRECT] = all_reduce_direct,
    };
    if (l->size == 2 && algorithm == ALGORITHM_RING)
        all_reduce_pair(l);
    else
        build[algorithm](l);
}

void layout_reduce_scatter(struct layout *l, enum collective_algorithm algorithm)
{
    static void (*const build[ALGORITHMS])(struct layout *) = {
        [ALGORITHM_RING] = reduce_scatter_ring,
        [ALGORITHM_HALVING] = reduce_scatter_halving,
        [ALGORITHM_DIRECT] = reduce_scatter_direct,
    };
    build[algorithm](l);
}
