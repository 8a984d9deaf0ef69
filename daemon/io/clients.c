// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/clients.h"

#include <stddef.h>
#include <string.h>

#define TABLE_SIZE (CLIENTS_MAX + CLIENTS_OWN_MAX)

void clients_init(struct clients *c, int limit)
{
    memset(c, 0, sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    c->limit = limit;
}

void clients_fini(struct clients *c)
{
    pthread_mutex_destroy(&c->lock);
}

// Call with the lock held. id 0 finds a free entry.
static struct client *client_find(struct clients *c, uint32_t id)
{
    for (int i = 0; i < TABLE_SIZE; i++) {
        if (c->table[i].id == id)
            return &c->table[i];
    }
    return NULL;
}

bool clients_add(struct clients *c, uint32_t id, int listener, bool own)
{
    pthread_mutex_lock(&c->lock);
    bool room = own ? c->own < CLIENTS_OWN_MAX : c->count < c->limit;
    if (room) {
        *client_find(c, 0) = (struct client){.id = id, .listener = listener, .own = own};
        *(own ? &c->own : &c->count) += 1;
    }
    pthread_mutex_unlock(&c->lock);
    return room;
}

int clients_count(struct clients *c)
{
    pthread_mutex_lock(&c->lock);
    int count = c->count + c->own;
    pthread_mutex_unlock(&c->lock);
    return count;
}

int clients_of_listener(struct clients *c, int listener)
{
    int count = 0;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < TABLE_SIZE; i++) {
        const struct client *client = &c->table[i];
        count += client->id != 0 && !client->gone && client->listener == listener;
    }
    pthread_mutex_unlock(&c->lock);
    return count;
}

bool clients_mark_gone(struct clients *c, uint32_t id)
{
    pthread_mutex_lock(&c->lock);
    struct client *client = client_find(c, id);
    if (client)
        c->any_gone = client->gone = true;
    pthread_mutex_unlock(&c->lock);
    return client != NULL;
}

bool clients_known(struct clients *c, uint32_t id)
{
    pthread_mutex_lock(&c->lock);
    bool known = client_find(c, id) != NULL;
    pthread_mutex_unlock(&c->lock);
    return known;
}

// Call with the lock held.
static struct client *client_find_gone(struct clients *c)
{
    for (int i = 0; c->any_gone && i < TABLE_SIZE; i++) {
        if (c->table[i].gone)
            return &c->table[i];
    }
    c->any_gone = false;
    return NULL;
}

bool clients_take_gone(struct clients *c, uint32_t *id)
{
    pthread_mutex_lock(&c->lock);
    struct client *client = client_find_gone(c);
    if (client) {
        *id = client->id;
        *(client->own ? &c->own : &c->count) -= 1;
        *client = (struct client){0};
    }
    pthread_mutex_unlock(&c->lock);
    return client != NULL;
}
