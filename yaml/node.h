// SPDX-License-Identifier: Apache-2.0
// Definitions shared by the parser (load.c) and the tree (tree.c).
#ifndef CPATTN_YAML_NODE_H
#define CPATTN_YAML_NODE_H

#include "yaml/yaml.h"

struct yaml_block; // a block of memory for nodes and texts

struct yaml {
    char *name;
    struct yaml_block *blocks;
    struct yaml_node *root;
    int node_count;
};

struct yaml_node {
    const struct yaml *yaml;
    const struct yaml_node *parent; // NULL: the root
    struct yaml_node *first, *last; // children
    struct yaml_node *next;         // sibling
    const char *key;                // NULL: the root or an item of a list
    const char *text;               // of a scalar
    enum yaml_kind kind;
    uint32_t key_hash;
    int line, column, key_line, key_column;
    int count; // children
    int index; // among its siblings
};

uint32_t yaml_hash(const char *key);

// Replaces control characters in a message by '?', so that text from the file cannot control a
// terminal. Accepts NULL.
void yaml_disarm(struct error *error);

#endif
