// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/shakes.h"

#include "daemon/net/connection.h"

static struct connection *shake_entry(struct list *node)
{
    return LIST_ENTRY(node, struct connection, shake);
}

void shakes_init(struct shakes *s)
{
    *s = (struct shakes){.count = 0};
    list_init(&s->under_way);
    list_init(&s->waiting);
}

static bool has_room(const struct shakes *s, const struct connection *c)
{
    int of_host = 0;
    uint64_t host = peer_key(&c->peer);
    LIST_FOREACH (node, &s->under_way)
        of_host += peer_key(&shake_entry(node)->peer) == host;
    return s->count < SHAKES_MAX && of_host < SHAKES_HOST_MAX;
}

static void take(struct shakes *s, struct connection *c, bool room)
{
    list_remove(&c->shake);
    list_push_back(room ? &s->under_way : &s->waiting, &c->shake);
    c->shaking = room;
    s->count += room;
}

bool shakes_begin(struct shakes *s, struct connection *c)
{
    if (!c->shaking)
        take(s, c, has_room(s, c));
    return c->shaking;
}

struct connection *shakes_end(struct shakes *s, struct connection *c)
{
    bool room = c->shaking;
    list_remove(&c->shake);
    s->count -= c->shaking;
    c->shaking = false;
    LIST_FOREACH (node, &s->waiting) {
        struct connection *next = shake_entry(node);
        if (!room || !has_room(s, next))
            continue;
        take(s, next, true);
        return next;
    }
    return NULL;
}
