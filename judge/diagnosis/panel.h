// SPDX-License-Identifier: Apache-2.0
// A panel: some rows of one sequence and head, with the inputs of their columns. The columns of
// query rows are all keys; those of key rows are the queries of all heads that share the key head,
// head by head. Inputs come from the case; products are fp64.
#ifndef CPATTN_JUDGE_DIAGNOSIS_PANEL_H
#define CPATTN_JUDGE_DIAGNOSIS_PANEL_H

#include "plan/shard.h"

// Chunks of a sequence on one side. Chunk k has the tokens at positions [begin[k], begin[k + 1]).
struct chunks {
    int count;
    int ranks[2 * WORLD_SIZE_MAX];  // rank that holds chunk k
    int halves[2 * WORLD_SIZE_MAX]; // index of chunk k on its rank: 0 or 1
    int64_t begin[2 * WORLD_SIZE_MAX + 1];
};

void chunks_init(struct chunks *x, const struct cp_case *c, enum shard_side side, int32_t sequence);
int chunks_find(const struct chunks *x, int64_t position);

// Index of a token among the tokens of its sequence that its rank holds.
int64_t chunks_place(const struct chunks *x, const struct cp_case *c, int64_t position);

// Wrong ways to read K and V.
enum panel_misread {
    MISREAD_NOTHING,
    MISREAD_ROWS_FIRST,  // memory of [heads][rows] is read as [rows][heads]
    MISREAD_HEADS_FIRST, // memory of [rows][heads] is read as [heads][rows]
    MISREAD_V_IS_K,      // keys are read as values
    MISREAD_K_IS_V,      // values are read as keys
    MISREAD_WAYS
};

// The rows of a panel, and the heads and tokens whose inputs they use. A hypothesis may use inputs
// of other heads and tokens than those of the rows.
struct panel_setup {
    const struct cp_case *c;
    enum shard_side side; // of the rows
    int32_t sequence;
    int head;       // of the rows: a query head, or a key head
    int key_head;   // query rows: the head of K and V
    int query_head; // query rows: the head of Q and dO
    bool modulo;    // key rows: the columns are queries of heads h with h % kv_heads == head
    int count;
    const int64_t *positions;
    const int64_t *taken;       // positions of the inputs; NULL: `positions`
    enum panel_misread misread; // query rows: of K and V
    int misread_own;            // a rank: only its keys are misread; ~rank: all but its keys
    const struct panel *like;   // equal columns are shared with this panel; NULL: none
};

struct panel {
    struct panel_setup setup;
    const struct cp_case *c;
    int rows;
    int64_t queries, keys; // tokens of the sequence
    int64_t columns;       // keys and extra keys; or heads of the group * queries
    int group;             // 1 for query rows
    struct chunks q_chunks, k_chunks;
    // Keys of the previous sequence that lie in front of this sequence in the memory of a rank.
    // Column keys + i is the one of rank extra_rank[i].
    int extra, extra_rank[WORLD_SIZE_MAX];
    double *row_qk, *row_v; // [rows][d]: Q and dO of query rows, K and V of key rows
    double *col_qk, *col_v; // [columns][d]
    double *products, *dp;  // [rows][columns]: Q.K and dO.V
    double *p, *ds, *slope; // [rows][columns], filled by the functions of variant.h
    double *lse, *delta;    // right values: query rows [rows], key rows [columns]
    void *memory;
};

// False if the panel exceeds the bounds of judge/diagnosis.h, or memory is short.
bool panel_init(struct panel *p, const struct panel_setup *setup);
void panel_fini(struct panel *p);

// The query head of a column of a key panel.
int panel_column_head(const struct panel *p, int64_t column);

// Recomputes p->products with other values [rows][d_qk] of the rows: Q of query rows, K of key
// rows.
void panel_products(struct panel *p, const double *row_qk);

// out [rows][d] += w [rows][columns] * inputs of the columns, over columns [begin, end).
void panel_add_qk(struct panel *p, const double *w, int64_t begin, int64_t end, double *out);
void panel_add_v(struct panel *p, const double *w, int64_t begin, int64_t end, double *out);

#endif
