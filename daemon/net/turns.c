// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/turns.h"

static struct turn_group *group_entry(struct list *node)
{
    return LIST_ENTRY(node, struct turn_group, node);
}

void turns_init(struct turns *t)
{
    t->last = TURN_CLASSES - 1;
    list_init(&t->free);
    for (int class = 0; class < TURN_CLASSES; class ++)
        list_init(&t->classes[class]);
    for (int i = 0; i < (int)(sizeof(t->groups) / sizeof(t->groups[0])); i++) {
        list_init(&t->groups[i].node);
        list_init(&t->groups[i].queue);
        list_push_back(&t->free, &t->groups[i].node);
    }
}

static void group_free(struct turns *t, struct turn_group *group)
{
    list_remove(&group->node);
    list_push_front(&t->free, &group->node);
}

// Frees the empty groups of a class: list_remove() of a waiting node may leave one.
static void groups_sweep(struct turns *t, struct list *class)
{
    LIST_FOREACH (node, class)
        if (list_empty(&group_entry(node)->queue))
            group_free(t, group_entry(node));
}

static struct turn_group *group_of(struct turns *t, enum turn_class class, uint64_t user)
{
    LIST_FOREACH (node, &t->classes[class])
        if (group_entry(node)->user == user)
            return group_entry(node);
    if (list_empty(&t->free))
        for (int i = 0; i < TURN_CLASSES; i++)
            groups_sweep(t, &t->classes[i]);
    struct turn_group *group = group_entry(list_pop_front(&t->free));
    group->user = user;
    list_push_back(&t->classes[class], &group->node);
    return group;
}

void turns_ask(struct turns *t, enum turn_class class, uint64_t user, struct list *node)
{
    list_push_back(&group_of(t, class, user)->queue, node);
}

// Removes and returns the next node of a class, or NULL. Moves its group behind the others of the
// class.
static struct list *class_next(struct turns *t, struct list *class)
{
    for (struct list *node; (node = list_first(class));) {
        struct turn_group *group = group_entry(node);
        struct list *next = list_pop_front(&group->queue);
        list_remove(node);
        list_push_back(class, node);
        if (list_empty(&group->queue))
            group_free(t, group);
        if (next)
            return next;
    }
    return NULL;
}

struct list *turns_next(struct turns *t, bool handshakes)
{
    for (int i = 0; i < TURN_CLASSES; i++) {
        int class = (t->last + 1 + i) % TURN_CLASSES;
        if (class == TURN_HANDSHAKE && !handshakes)
            continue;
        struct list *next = class_next(t, &t->classes[class]);
        if (!next)
            continue;
        t->last = class;
        return next;
    }
    return NULL;
}

bool turns_empty(struct turns *t)
{
    for (int class = 0; class < TURN_CLASSES; class ++) {
        groups_sweep(t, &t->classes[class]);
        if (!list_empty(&t->classes[class]))
            return false;
    }
    return true;
}
