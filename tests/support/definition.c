// SPDX-License-Identifier: Apache-2.0
#include "tests/support/definition.h"

// Number `sequence` of a list; -1 where the list is empty.
static int64_t entry(const struct cp_case *c, enum case_list list, int sequence)
{
    int64_t skipped = 0;
    for (int before = 0; before < (int)list; before++)
        skipped += c->list_count[before];
    return c->list_count[list] == 0 ? -1 : c->list_values[skipped + sequence];
}

// True if the lists of queries apply to the keys, because there are no lists of keys.
static bool follows(const struct cp_case *c)
{
    return c->seqlen_kv == c->seqlen_q && c->list_count[LIST_LENGTHS_KV] == 0;
}

int64_t definition_length(const struct cp_case *c, enum shard_side side, int sequence)
{
    bool as_queries = side == SIDE_Q || follows(c);
    int64_t length = entry(c, as_queries ? LIST_LENGTHS_Q : LIST_LENGTHS_KV, sequence);
    if (length >= 0)
        return length;
    return side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
}

int64_t definition_occupied(const struct cp_case *c, enum shard_side side, int sequence)
{
    int64_t occupied = definition_length(c, side, sequence);
    int64_t padded = entry(c, side == SIDE_Q ? LIST_PADDED_Q : LIST_PADDED_KV, sequence);
    if (c->format != FORMAT_THD)
        return side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
    if (padded < 0 && side == SIDE_KV && follows(c))
        padded = entry(c, LIST_PADDED_Q, sequence);
    if (padded >= 0)
        return padded;
    while (occupied % c->pad_multiple != 0)
        occupied++;
    return occupied;
}

bool definition_visible(const struct cp_case *c, int sequence, int64_t i, int64_t j)
{
    int64_t queries = definition_length(c, SIDE_Q, sequence);
    int64_t keys = definition_length(c, SIDE_KV, sequence);
    int64_t ahead = j - i; // of the diagonal
    if (i < 0 || i >= queries || j < 0 || j >= keys)
        return false;
    bool from_the_end = c->mask == MASK_CAUSAL_BOTTOM_RIGHT || c->mask == MASK_NONE_BOTTOM_RIGHT;
    bool past_only = c->mask == MASK_CAUSAL_BOTTOM_RIGHT || c->mask == MASK_CAUSAL;
    if (from_the_end)
        ahead = (j - keys) - (i - queries);
    if (past_only && ahead > 0)
        return false;
    if (c->window_left >= 0 && ahead < -c->window_left)
        return false;
    return c->window_right < 0 || ahead <= c->window_right;
}
