// SPDX-License-Identifier: Apache-2.0
// Some rows of one sequence and head with the inputs of all tokens that they may meet on the other
// side, the columns: of a query row all keys, of a key row the queries of all heads that share it,
// head behind head. Inputs come from the case; products are fp64.
#ifndef CPATTN_JUDGE_DIAGNOSIS_PANEL_H
#define CPATTN_JUDGE_DIAGNOSIS_PANEL_H

#include "plan/shard.h"

// Chunks of a sequence on one side: chunk k has positions [begin[k], begin[k + 1]), as far as they
// are tokens.
struct chunks {
    int count;
    int ranks[2 * WORLD_SIZE_MAX];  // who holds it
    int halves[2 * WORLD_SIZE_MAX]; // its 0th or 1st
    int64_t begin[2 * WORLD_SIZE_MAX + 1];
};

void chunks_init(struct chunks *x, const struct cp_case *c, enum shard_side side, int32_t sequence);
int chunks_find(const struct chunks *x, int64_t position);

// Which tokens of which heads, with the inputs of which. Where an error takes the inputs of another
// head or token, these are not those that the row is named after.
enum panel_misread {
    MISREAD_NOTHING,
    MISREAD_ROWS_FIRST,  // memory of [heads][rows] is read as [rows][heads]
    MISREAD_HEADS_FIRST, // and the other way round
    MISREAD_V_IS_K,      // keys are read where values should be
    MISREAD_K_IS_V,
    MISREAD_WAYS
};

struct panel_setup {
    const struct cp_case *c;
    enum shard_side side; // of the rows
    int32_t sequence;
    int head;    // of the rows: a query head, or a key head
    int reading; // the key head whose K and V are read; for query rows
    int asking;  // the query head whose Q and dO are taken; for query rows
    bool modulo; // for key rows: the queries of heads h with h % kv_heads == head
    int count;
    const int64_t *positions;
    const int64_t *taken;       // the positions whose inputs are taken; NULL: the same
    enum panel_misread misread; // of K and V; for query rows
    int misread_own;            // the rank: of its keys alone; ~rank: of all but its keys
    const struct panel *like;   // whose columns are borrowed where they are the same, or NULL
};

struct panel {
    struct panel_setup setup;
    const struct cp_case *c;
    int rows;
    int64_t queries, keys; // tokens of the sequence
    int64_t columns;       // keys and extra keys; or heads of the group * queries
    int group;             // 1 for query rows
    struct chunks q_chunks, k_chunks;
    // Keys of the sequence before that lie in front of this one's in the memory of a rank: column
    // keys + i is that of rank extra_rank[i].
    int extra, extra_rank[WORLD_SIZE_MAX];
    double *row_qk, *row_v; // [rows][d]: Q and dO of query rows, K and V of key rows
    double *col_qk, *col_v; // [columns][d]
    double *products, *dp;  // [rows][columns]: Q.K and dO.V
    double *p, *ds, *slope; // [rows][columns], for who works on the panel
    double *lse, *delta;    // the true ones: [rows] of query rows, else [columns]
    void *memory;
};

// False where it would be beyond the bounds of judge/diagnosis.h, or memory is short.
bool panel_init(struct panel *p, const struct panel_setup *setup);
void panel_fini(struct panel *p);

// The query head of a column of a key panel.
int panel_column_head(const struct panel *p, int64_t column);

// out [rows][d] += w [rows][columns], of columns [begin, end), times their inputs.
void panel_add_qk(struct panel *p, const double *w, int64_t begin, int64_t end, double *out);
void panel_add_v(struct panel *p, const double *w, int64_t begin, int64_t end, double *out);

#endif
