// SPDX-License-Identifier: Apache-2.0
#include "plan/collective.h"

int collective_element_bytes(enum collective_element element)
{
    static const int bytes[ELEMENTS] = {
        [ELEMENT_FP32] = 4,  [ELEMENT_FP16] = 2,  [ELEMENT_BF16] = 2,
        [ELEMENT_INT32] = 4, [ELEMENT_INT64] = 8, [ELEMENT_UINT8] = 1};
    return bytes[element];
}

bool collective_is_real(enum collective_element element)
{
    return element == ELEMENT_FP32 || element == ELEMENT_FP16 || element == ELEMENT_BF16;
}

bool collective_reduces(const struct collective *c)
{
    return c->operation == COLLECTIVE_ALL_REDUCE || c->operation == COLLECTIVE_REDUCE_SCATTER ||
           c->operation == COLLECTIVE_REDUCE;
}

// Bytes from which the bandwidth of a ring outweighs its many steps.
#define RING_BYTES_MIN   65536
// Largest number of ranks for which AUTO chooses direct. Direct moves as many bytes as a ring in
// fewer exchanges. A host usually has this many devices, and all of them reach each other at full
// bandwidth at the same time. The choice does not depend on the hosts, so that the rounding of sums
// does not either.
#define DIRECT_RANKS_MAX 8

bool collective_halves(int ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

enum collective_algorithm collective_algorithm(const struct collective *c)
{
    bool large = c->count * collective_element_bytes(c->dtype) >= RING_BYTES_MIN;
    bool few = c->world_size > 2 && c->world_size <= DIRECT_RANKS_MAX;
    if (c->algorithm != ALGORITHM_AUTO)
        return c->algorithm;
    switch (c->operation) {
    case COLLECTIVE_ALL_REDUCE:
        if (few)
            return ALGORITHM_DIRECT;
        return large || c->world_size == 2 ? ALGORITHM_RING : ALGORITHM_HALVING;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
        if (few)
            return ALGORITHM_DIRECT;
        return large || !collective_halves(c->world_size) ? ALGORITHM_RING : ALGORITHM_HALVING;
    case COLLECTIVE_REDUCE:
        return large && c->world_size == 2 ? ALGORITHM_RING : ALGORITHM_TREE;
    case COLLECTIVE_BROADCAST:
        return ALGORITHM_TREE;
    default:
        return ALGORITHM_DIRECT;
    }
}

// Number of blocks of `count` elements in the size that nccl-tests reports.
static int size_blocks(const struct collective *c)
{
    switch (c->operation) {
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_TO_ALLV:
        return c->world_size;
    default:
        return 1;
    }
}

int64_t collective_size(const struct collective *c)
{
    return c->count * size_blocks(c) * collective_element_bytes(c->dtype);
}

double collective_bus_factor(const struct collective *c)
{
    double others = (double)(c->world_size - 1) / c->world_size;
    switch (c->operation) {
    case COLLECTIVE_ALL_REDUCE:
        return 2 * others;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_TO_ALLV:
        return others;
    default:
        return 1;
    }
}

// Elements of a message, from a hash of the seed and the two ranks: a quarter of the messages is
// empty, a quarter has `count` elements.
static int64_t drawn_count(const struct collective *c, int from, int to)
{
    uint64_t z =
        c->seed + (uint64_t)(from * WORLD_SIZE_MAX + to + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9); // splitmix64
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return z % 4 == 0 ? 0 : z % 4 == 1 ? c->count : (int64_t)((z >> 8) % ((uint64_t)c->count + 1));
}

int64_t collective_message(const struct collective *c, int from, int to)
{
    return c->operation == COLLECTIVE_ALL_TO_ALLV ? drawn_count(c, from, to) : c->count;
}

int64_t collective_send_count(const struct collective *c, int rank)
{
    int64_t sum = 0;
    switch (c->operation) {
    case COLLECTIVE_BROADCAST:
        return rank == c->root ? c->count : 0;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_TO_ALL:
        return c->count * c->world_size;
    case COLLECTIVE_ALL_TO_ALLV:
        for (int to = 0; to < c->world_size; to++)
            sum += drawn_count(c, rank, to);
        return sum;
    default:
        return c->count;
    }
}

int64_t collective_receive_count(const struct collective *c, int rank)
{
    int64_t sum = 0;
    switch (c->operation) {
    case COLLECTIVE_REDUCE:
        return rank == c->root ? c->count : 0;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_ALL_TO_ALL:
        return c->count * c->world_size;
    case COLLECTIVE_ALL_TO_ALLV:
        for (int from = 0; from < c->world_size; from++)
            sum += drawn_count(c, from, rank);
        return sum;
    default:
        return c->count;
    }
}

struct collective_shared collective_shared(const struct collective *c, int rank)
{
    int64_t send = collective_send_count(c, rank), receive = collective_receive_count(c, rank);
    struct collective_shared shared = {.count = send > receive ? send : receive};
    if (c->operation == COLLECTIVE_ALL_GATHER)
        shared.send = rank * c->count;
    if (c->operation == COLLECTIVE_REDUCE_SCATTER)
        shared.receive = rank * c->count;
    return shared;
}
