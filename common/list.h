// SPDX-License-Identifier: Apache-2.0
// Intrusive doubly linked list: the node lives in the element, so that nothing is allocated and an
// element is on one list per node. A list head is a node of its own; heads and nodes alike are set
// up with list_init(). Nothing here owns an element. Callers serialise access.
#ifndef CPATTN_COMMON_LIST_H
#define CPATTN_COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

// The element whose member `member` is `node`.
#define LIST_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

// Visits the nodes of `head` in order; the body may remove the visited node, and no other.
#define LIST_FOREACH(node, head)                                                                   \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);              \
         node = node##_next, node##_next = node->next)

// Makes an empty list, or a node that is on no list.
static inline void list_init(struct list *list)
{
    list->prev = list;
    list->next = list;
}

// For a head: true if the list is empty. For a node: true if it is on no list.
static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_insert_between(struct list *node, struct list *prev, struct list *next)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

// The node must be on no list.
static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_between(node, head->prev, head);
}

// The node must be on no list.
static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_between(node, head, head->next);
}

// Removes the node from its list; no effect if it is on none. It can be pushed again at once.
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

// First node, or NULL when the list is empty.
static inline struct list *list_first(const struct list *head)
{
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not know that list_remove() unlinks.
    return list_empty(head) ? NULL : head->next;
}

// Removes and returns the first node; NULL if the list is empty.
static inline struct list *list_pop_front(struct list *head)
{
    struct list *node = list_first(head);
    if (node)
        list_remove(node);
    return node;
}

// Number of nodes; walks the list.
static inline size_t list_length(const struct list *head)
{
    size_t length = 0;
    for (const struct list *node = head->next; node != head; node = node->next)
        length++;
    return length;
}

#endif
