// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/timers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool timers_init(struct timers *t, int ids)
{
    memset(t, 0, sizeof(*t));
    t->at_ns = calloc((size_t)ids, sizeof(*t->at_ns));
    t->heap_at = calloc((size_t)ids, sizeof(*t->heap_at));
    t->heap = calloc((size_t)ids, sizeof(*t->heap));
    t->ids = ids;
    return t->at_ns && t->heap_at && t->heap;
}

void timers_fini(struct timers *t)
{
    free(t->at_ns);
    free(t->heap_at);
    free(t->heap);
    memset(t, 0, sizeof(*t));
}

static bool timers_earlier(const struct timers *t, int a, int b)
{
    return t->at_ns[t->heap[a]] < t->at_ns[t->heap[b]];
}

static void timers_put(struct timers *t, int at, int id)
{
    t->heap[at] = id;
    t->heap_at[id] = at + 1;
}

static void timers_swap(struct timers *t, int a, int b)
{
    int id = t->heap[a];
    timers_put(t, a, t->heap[b]);
    timers_put(t, b, id);
}

static void timers_raise(struct timers *t, int at)
{
    for (int parent = (at - 1) / 2; at > 0 && timers_earlier(t, at, parent);
         parent = (at - 1) / 2) {
        timers_swap(t, at, parent);
        at = parent;
    }
}

static void timers_lower(struct timers *t, int at)
{
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < t->count; child++)
            if (timers_earlier(t, child, least))
                least = child;
        if (least == at)
            return;
        timers_swap(t, at, least);
        at = least;
    }
}

void timers_set(struct timers *t, int id, uint64_t at_ns)
{
    assert(id >= 0 && id < t->ids);
    timers_clear(t, id);
    if (at_ns == TIMERS_NEVER)
        return;
    t->at_ns[id] = at_ns;
    timers_put(t, t->count++, id);
    timers_raise(t, t->count - 1);
}

void timers_clear(struct timers *t, int id)
{
    assert(id >= 0 && id < t->ids);
    if (t->heap_at[id] == 0)
        return;
    int at = t->heap_at[id] - 1;
    int last = t->heap[--t->count];
    t->heap_at[id] = 0;
    if (last == id)
        return;
    timers_put(t, at, last);
    timers_raise(t, at);
    timers_lower(t, at);
}

bool timers_is_set(const struct timers *t, int id)
{
    return t->heap_at[id] != 0;
}

uint64_t timers_next_ns(const struct timers *t)
{
    return t->count > 0 ? t->at_ns[t->heap[0]] : TIMERS_NEVER;
}

int timers_take_due(struct timers *t, uint64_t now_ns)
{
    if (timers_next_ns(t) > now_ns || t->count == 0)
        return -1;
    int id = t->heap[0];
    timers_clear(t, id);
    return id;
}

void timers_assert(const struct timers *t)
{
    assert(t->count >= 0 && t->count <= t->ids);
    for (int at = 0; at < t->count; at++) {
        assert(t->heap_at[t->heap[at]] == at + 1);
        assert(at == 0 || !timers_earlier(t, at, (at - 1) / 2));
    }
}
