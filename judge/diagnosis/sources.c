// SPDX-License-Identifier: Apache-2.0
// Hypotheses that wrong inputs were read: those of another rank, chunks in another order, a
// sequence that begins one row too early.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// ---- keys from another place --------------------------------------------------------------------

// The key whose inputs are read at each position, for the sequence of a panel.
struct map {
    int64_t *source;
    const struct trial *trial;
    int rank, from; // as the fill_map function uses them
    bool values;    // the map is for V only, not for K
    bool keys;      // the map is for K only, not for V
};

typedef void fill_map(const struct panel *p, const struct map *map);

static int chunk_of_rank(const struct panel *p, int rank, int half)
{
    return shard_chunk_of(p->c, rank, half);
}

static int64_t chunk_length(const struct chunks *x, int chunk)
{
    return x->begin[chunk + 1] - x->begin[chunk];
}

// Returns the position of the token at a place in the memory of a rank; -1: no token.
static int64_t position_at(const struct panel *p, int rank, int64_t place)
{
    const struct chunks *x = &p->k_chunks;
    for (int half = 0; half < shard_chunks_per_rank(p->c); half++) {
        int chunk = chunk_of_rank(p, rank, half);
        if (place < chunk_length(x, chunk))
            return x->begin[chunk] + place;
        place -= chunk_length(x, chunk);
    }
    return -1;
}

// Reads the keys of rank map->from in place of the keys of rank map->rank, at the same places in
// memory.
static void map_rank(const struct panel *p, const struct map *map)
{
    const struct chunks *x = &p->k_chunks;
    for (int half = 0; half < shard_chunks_per_rank(p->c); half++) {
        int chunk = chunk_of_rank(p, map->rank, half);
        for (int64_t key = x->begin[chunk]; key < x->begin[chunk + 1]; key++) {
            int64_t from = position_at(p, map->from, chunks_place(x, p->c, key));
            map->source[key] = from >= 0 ? from : key;
        }
    }
}

// At each ring step reads the keys of the step before (map->from 1), or the keys of the query's own
// rank (map->from 0).
static void map_steps(const struct panel *p, const struct map *map)
{
    int world = p->c->world_size, own = map->trial->in->rank;
    for (int step = 1; step < world; step++) {
        struct map one = *map;
        one.rank = (own - step + world) % world;
        one.from = map->from == 0 ? own : (own - step + 1 + world) % world;
        map_rank(p, &one);
    }
}

// In place of the keys of each rank, the query's own rank included, reads the keys of the rank that
// is map->from places further.
static void map_neighbours(const struct panel *p, const struct map *map)
{
    int world = p->c->world_size;
    for (int rank = 0; rank < world; rank++) {
        struct map one = *map;
        one.rank = rank;
        one.from = (rank + map->from) % world;
        map_rank(p, &one);
    }
}

// For map->rank: the ranks whose chunks are exchanged.
#define OTHER_RANKS (-1) // than the query's
#define ALL_RANKS   (-2)

// Exchanges the two chunks of map->rank.
static void map_mirrored(const struct panel *p, const struct map *map)
{
    const struct chunks *x = &p->k_chunks;
    for (int chunk = 0; chunk < x->count; chunk++) {
        int other = x->count - 1 - chunk;
        bool own = x->ranks[chunk] == map->trial->in->rank;
        if (map->rank >= 0 ? x->ranks[chunk] != map->rank : map->rank == OTHER_RANKS && own)
            continue;
        for (int64_t i = 0; i < chunk_length(x, chunk); i++)
            map->source[x->begin[chunk] + i] =
                i < chunk_length(x, other) ? x->begin[other] + i : -1;
    }
}

// Each rank's keys begin one row too early in its memory.
static void map_early(const struct panel *p, const struct map *map)
{
    const struct chunks *x = &p->k_chunks;
    for (int rank = 0; rank < p->c->world_size; rank++) {
        int64_t before = -1;
        for (int i = 0; i < p->extra; i++)
            before = p->extra_rank[i] == rank ? p->keys + i : before;
        for (int half = 0; half < shard_chunks_per_rank(p->c); half++) {
            int chunk = chunk_of_rank(p, rank, half);
            for (int64_t key = x->begin[chunk]; key < x->begin[chunk + 1]; key++) {
                map->source[key] = before;
                before = key;
            }
        }
    }
}

// Reads the inputs of the key that is map->from places further in the memory of its rank. The first
// key follows the last one.
static void map_shifted(const struct panel *p, const struct map *map)
{
    const struct chunks *x = &p->k_chunks;
    for (int64_t key = 0; key < p->keys; key++) {
        int rank = x->ranks[chunks_find(x, key)];
        int64_t keys = 0, place = chunks_place(x, p->c, key) + map->from;
        for (int half = 0; half < shard_chunks_per_rank(p->c); half++)
            keys += chunk_length(x, chunk_of_rank(p, rank, half));
        map->source[key] = position_at(p, rank, place < 0 ? keys - 1 : place < keys ? place : 0);
    }
}

static bool evaluate_map(struct trial *t, fill_map *fill, struct map *map)
{
    map->trial = t;
    if (trial_over(t))
        return false;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        map->source = malloc((size_t)(2 * p->keys) * sizeof(int64_t));
        if (!map->source)
            return false;
        for (int64_t key = 0; key < 2 * p->keys; key++)
            map->source[key] = key % p->keys;
        fill(p, map);
        struct variant variant = variant_none(p);
        *(map->values ? &variant.values : &variant.source) = map->source;
        if (map->keys)
            variant.values = map->source + p->keys; // their own
        trial_evaluate_panel(t, p, &variant, t->panel_first[i], t->tried, t->lse_tried);
        free(map->source);
    }
    return true;
}

#define STALE_RANKS_MAX 8 // largest world size for which single stale slots are tried

// At each ring step K and V come from two neighbouring ranks.
static void try_apart(struct trial *t)
{
    int world = t->c->world_size;
    for (int way = 0; way < (world > 2 ? 2 : 1); way++) {
        struct map map = {.from = way ? 1 : world - 1, .values = true};
        if (evaluate_map(t, map_neighbours, &map))
            trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                        "at each ring step K is that of one rank r and V that of rank r %s 1",
                        way ? "+" : "-");
    }
}

static void try_stale(struct trial *t, bool values)
{
    int world = t->c->world_size, own = t->in->rank;
    struct map own_keys = {.from = 0, .values = values};
    struct map previous = {.from = 1, .values = values};
    const char *what = values ? "values (not the keys)" : "keys";
    if (evaluate_map(t, map_steps, &own_keys))
        trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                    "the %s of all other ranks are those of rank %d itself: %s", what, own,
                    t->in->steps_unknown ? "their slots are not filled, or not read"
                                         : "the slot of the first ring step");
    if (world > 2 && evaluate_map(t, map_steps, &previous))
        trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                    "each ring step attends the %s of the step before", what);
    for (int rank = 0; rank < world && world <= STALE_RANKS_MAX; rank++)
        for (int from = 0; from < world; from++) {
            struct map one = {.rank = rank, .from = from, .values = values};
            if (rank == from || rank == own || !evaluate_map(t, map_rank, &one))
                continue;
            if (t->in->steps_unknown)
                trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                            "in the place of rank %d's %s are those of rank %d (the rows of rank "
                            "%d attend a stale slot)",
                            rank, what, from, own);
            else
                trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                            "in the place of rank %d's %s are those of rank %d (ring step %d "
                            "attends a stale slot)",
                            rank, what, from, (own - rank + world) % world);
        }
}

static void try_swapped(struct trial *t, bool values)
{
    int world = t->c->world_size;
    const char *what = values ? "values (not of keys)" : "keys";
    struct map remote = {.rank = OTHER_RANKS, .values = values};
    struct map all = {.rank = ALL_RANKS, .values = values};
    if (evaluate_map(t, map_mirrored, &remote))
        trial_offer(t, DIAGNOSIS_SWAPPED_CHUNKS, t->tried,
                    "the two chunks of %s of every other rank are exchanged", what);
    if (evaluate_map(t, map_mirrored, &all))
        trial_offer(t, DIAGNOSIS_SWAPPED_CHUNKS, t->tried,
                    "the two chunks of %s of every rank are exchanged", what);
    for (int rank = 0; rank < world && world <= STALE_RANKS_MAX; rank++) {
        struct map one = {.rank = rank, .values = values};
        if (evaluate_map(t, map_mirrored, &one))
            trial_offer(t, DIAGNOSIS_SWAPPED_CHUNKS, t->tried,
                        "the two chunks of %s of rank %d are exchanged", what, rank);
    }
}

// Tries K, V or both of the neighbouring keys in memory.
static void try_shifted(struct trial *t)
{
    static const char *const what[] = {"K is", "V is", "K and V are"};
    bool lse = t->in->tensor == TENSOR_LSE; // without V
    for (int i = 0; i < (lse ? 1 : 3); i++)
        for (int way = -1; way < 2; way += 2) {
            struct map map = {.from = way, .keys = i == 0, .values = i == 1};
            if (evaluate_map(t, map_shifted, &map))
                trial_offer(t, DIAGNOSIS_LAYOUT, t->tried,
                            "%s%s read one row too %s in the memory of each rank", trial_pass(t),
                            what[i], way < 0 ? "early" : "late");
        }
}

// ---- another layout -----------------------------------------------------------------------------

static bool evaluate_misread(struct trial *t, enum panel_misread misread, int own)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel_setup setup = t->panels[i].setup;
        setup.misread = misread;
        setup.misread_own = own;
        if (trial_over(t) ||
            !trial_evaluate_other(t, i, &setup, t->in->tensor != TENSOR_DQ, t->tried))
            return false;
    }
    return true;
}

static void try_layouts(struct trial *t)
{
    static const char *const names[] = {
        [MISREAD_ROWS_FIRST] = "K and V are read with heads and rows exchanged",
        [MISREAD_HEADS_FIRST] = "K and V are read with heads and rows exchanged",
        [MISREAD_V_IS_K] = "K is read where V should be",
        [MISREAD_K_IS_V] = "V is read where K should be"};
    const char *text = t->in->tensor == TENSOR_DQ ? "in the backward pass " : "";
    int world = t->c->world_size, own = t->in->rank;
    const struct {
        const char *name;
        int own;
    } where[] = {{"all ranks", ~world}, {"the own rank", own}, {"other ranks", ~own}};
    for (int i = 0; i < (world > 1 ? 3 : 1); i++)
        for (int way = MISREAD_ROWS_FIRST; way < MISREAD_WAYS; way++) {
            if (way >= MISREAD_V_IS_K && t->c->head_dim_qk != t->c->head_dim_v)
                continue;
            if (!evaluate_misread(t, (enum panel_misread)way, where[i].own))
                return;
            trial_offer(t, DIAGNOSIS_LAYOUT, t->tried, "%s%s, of %s", text, names[way],
                        where[i].name);
        }
}

// ---- queries with the mask of other queries -----------------------------------------------------

// Fills `positions` with those of the tokens at the rows' places in the memory of `rank`; with
// `exchanged`, as if its two chunks were exchanged.
static void places_of(const struct panel *p, int rank, bool exchanged, int64_t *positions)
{
    const struct chunks *x = &p->q_chunks;
    for (int row = 0; row < p->rows; row++) {
        int chunk = chunks_find(x, p->setup.positions[row]);
        int half = exchanged ? 1 - x->halves[chunk] : x->halves[chunk];
        int other = shard_chunk_of(p->c, rank, half);
        positions[row] = x->begin[other] + p->setup.positions[row] - x->begin[chunk];
    }
}

static void try_masked_as(struct trial *t, int rank, bool exchanged)
{
    int64_t positions[DIAGNOSIS_ROWS_MAX];
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant variant = variant_none(p);
        places_of(p, rank, exchanged, positions);
        variant.seen_as = positions;
        trial_evaluate_panel(t, p, &variant, t->panel_first[i], t->tried, t->lse_tried);
    }
    if (exchanged)
        trial_offer(t, DIAGNOSIS_MASK, t->tried,
                    "queries are masked as if the two chunks of rank %d were exchanged", rank);
    else
        trial_offer(t, DIAGNOSIS_MASK, t->tried,
                    "queries are masked as if they were those of rank %d at the same places", rank);
}

// ---- positions as places in memory --------------------------------------------------------------

// The position of a token if each rank held consecutive tokens, or in a case where it does, the two
// chunks of zigzag.
static int64_t place_in_order(const struct chunks *x, const struct cp_case *c, int64_t position)
{
    int rank = x->ranks[chunks_find(x, position)];
    int64_t place = chunks_place(x, c, position);
    if (c->sharding != SHARDING_ZIGZAG) {
        int64_t half = (chunk_length(x, rank) + 1) / 2;
        return place < half ? rank * half + place : (2 * c->world_size - 2 - rank) * half + place;
    }
    for (int chunk = 0; chunk < x->count; chunk++)
        place += x->ranks[chunk] < rank ? chunk_length(x, chunk) : 0;
    return place;
}

static bool evaluate_in_order(struct trial *t, bool queries, bool keys)
{
    int64_t of_queries[DIAGNOSIS_ROWS_MAX];
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant variant = variant_none(p);
        int64_t *of_keys = malloc((size_t)p->keys * sizeof(int64_t));
        if (!of_keys)
            return false;
        for (int64_t key = 0; key < p->keys; key++)
            of_keys[key] = place_in_order(&p->k_chunks, p->c, key);
        for (int row = 0; row < p->rows; row++)
            of_queries[row] = place_in_order(&p->q_chunks, p->c, p->setup.positions[row]);
        variant.seen_as = queries ? of_queries : NULL;
        variant.key_seen_as = keys ? of_keys : NULL;
        trial_evaluate_panel(t, p, &variant, t->panel_first[i], t->tried, t->lse_tried);
        free(of_keys);
    }
    return true;
}

// Tries the mask of zigzag chunks as if each rank held consecutive tokens, or the other way round.
static void try_in_order(struct trial *t)
{
    bool zigzag = t->c->sharding == SHARDING_ZIGZAG;
    static const char *const whose[] = {"", "queries", "keys", "queries and keys"};
    for (int i = 1; i < 4 && !trial_over(t); i++)
        if (evaluate_in_order(t, i & 1, i & 2))
            trial_offer(t, DIAGNOSIS_MASK, t->tried,
                        "%s are masked as if each rank held %s, not %s", whose[i],
                        zigzag ? "consecutive tokens" : "the two chunks of zigzag",
                        zigzag ? "the two chunks of zigzag" : "consecutive tokens");
}

void try_sources(struct trial *t)
{
    struct map early = {.values = false};
    bool later = false;
    if (t->in->tensor == TENSOR_DK || t->in->tensor == TENSOR_DV)
        return;
    for (int i = 0; i < t->panel_count; i++)
        later = later || t->panels[i].extra > 0;
    for (int rank = 0; rank < t->c->world_size && rank < STALE_RANKS_MAX; rank++)
        if (rank != t->in->rank && !trial_over(t))
            try_masked_as(t, rank, false);
    if (t->c->world_size > 1) {
        if (shard_chunks_per_rank(t->c) > 1 && t->in->rank >= 0)
            try_masked_as(t, t->in->rank, true);
        try_stale(t, false);
        if (!trial_solved(t) && t->in->tensor != TENSOR_LSE)
            try_stale(t, true);
        if (!trial_solved(t) && t->in->tensor == TENSOR_OUT)
            try_apart(t);
        for (int values = 0; values < 2 && t->c->sharding == SHARDING_ZIGZAG; values++)
            if (values == 0 || t->in->tensor != TENSOR_LSE)
                try_swapped(t, values);
        try_in_order(t);
    }
    try_layouts(t);
    if (!trial_solved(t))
        try_shifted(t);
    if (later && evaluate_map(t, map_early, &early))
        trial_offer(t, DIAGNOSIS_BOUNDARY, t->tried,
                    "the keys of a packed sequence begin one row too early");
}
