// SPDX-License-Identifier: Apache-2.0
// Hypotheses about the tiles at the edges of the mask: they are not masked, or they are left out.
// A kernel masks only these tiles, so its other tiles are right.
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/slice.h"

#define TILE_LEAST 16
#define TILE_MOST  256

enum edge {
    EDGE_OPEN,      // a query sees all keys of the tiles at the diagonal
    EDGE_GONE,      // a query sees no key of the tiles at the diagonal
    EDGE_LAST_ONLY, // of the tiles at the diagonal only the last one is masked
    EDGE_LEFT_OPEN, // a query sees all keys of the tiles at the left edge of the window
    EDGES
};

// A kernel with tiles of `queries` and `keys` tokens. own: the tiles are those of the memory of the
// query's rank, and only its own keys are concerned.
struct kernel {
    enum edge edge;
    int64_t queries, keys;
    bool own;
};

static int64_t floor_to(int64_t x, int64_t tile)
{
    return x < 0 ? -((tile - 1 - x) / tile) * tile : x / tile * tile;
}

// The keys [first, last] that a query sees, by the band alone.
static int64_t first_of(const struct case_band *band, int64_t query)
{
    return band->left >= SLICE_UNBOUNDED ? 0 : query - band->shift - band->left;
}

static int64_t last_of(const struct case_band *band, int64_t query)
{
    return band->right >= SLICE_UNBOUNDED ? SLICE_UNBOUNDED : query - band->shift + band->right;
}

// True if the kernel lets the query see the key. All are places in one order.
static bool admits(const struct kernel *x, const struct case_band *band, int64_t keys,
                   int64_t query, int64_t key)
{
    int64_t begin = floor_to(query, x->queries), last = last_of(band, begin + x->queries - 1);
    bool left = key >= first_of(band, query), right = key <= last_of(band, query);
    last = last < keys ? last : keys - 1;
    switch (x->edge) {
    case EDGE_OPEN:
        return left && key < floor_to(last, x->keys) + x->keys;
    case EDGE_GONE:
        return left && key < floor_to(last_of(band, begin) + 1, x->keys);
    case EDGE_LAST_ONLY:
        return left && (right || key < floor_to(last, x->keys));
    default:
        return right && key >= floor_to(first_of(band, begin), x->keys);
    }
}

// What a panel needs of its tokens: ranks, and places in the memory of their ranks.
struct token {
    int rank;
    int64_t place;
};

static struct token token_of(const struct panel *p, const struct chunks *x, int64_t position)
{
    return (struct token){x->ranks[chunks_find(x, position)], chunks_place(x, p->c, position)};
}

static bool pair_seen(const struct panel *p, const struct kernel *x, const struct case_band *band,
                      int64_t query, int64_t key, struct token q)
{
    bool right = first_of(band, query) <= key && key <= last_of(band, query);
    if (!x->own)
        return admits(x, band, p->keys, query, key);
    struct token k = token_of(p, &p->k_chunks, key);
    return q.rank == k.rank ? admits(x, band, p->keys, q.place, k.place) : right;
}

static void seen_fill(const struct panel *p, const struct kernel *x, bool *seen)
{
    struct case_band band = case_band(p->c, p->setup.sequence);
    memset(seen, 0, (size_t)(p->rows * p->columns) * sizeof(bool));
    bool queries = p->setup.side == SIDE_Q;
    for (int row = 0; row < p->rows; row++) {
        int64_t own = p->setup.positions[row];
        for (int64_t column = 0; column < (queries ? p->keys : p->columns); column++) {
            int64_t query = queries ? own : column % p->queries, key = queries ? column : own;
            struct token q = {0};
            if (x->own)
                q = token_of(p, &p->q_chunks, query);
            seen[row * p->columns + column] = pair_seen(p, x, &band, query, key, q);
        }
    }
}

static bool evaluate(struct trial *t, const struct kernel *x)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        bool *seen = malloc((size_t)(p->rows * p->columns) * sizeof(bool));
        if (!seen)
            return false;
        seen_fill(p, x, seen);
        struct variant variant = variant_none(p);
        variant.seen = seen;
        trial_evaluate_panel(t, p, &variant, t->panel_first[i], t->tried, t->lse_tried);
        free(seen);
    }
    return true;
}

static void offer(struct trial *t, const struct kernel *x, const struct some_rows *rows)
{
    char where[100];
    const char *own = x->own ? ", among the keys of its own rank," : "";
    some_rows_name(rows, where, sizeof(where));
    t->partly = rows->wrong < rows->shown;
    switch (x->edge) {
    case EDGE_OPEN:
        trial_offer(t, DIAGNOSIS_MASK, t->tried,
                    "%sthe tiles at the diagonal are not masked: a query%s sees its whole tile of "
                    "%d%s",
                    trial_pass(t), own, (int)x->keys, where);
        break;
    case EDGE_GONE:
        trial_offer(t, DIAGNOSIS_MASK, t->tried,
                    "%sthe tiles at the diagonal are left out: a query%s sees no key of its tile "
                    "of %d%s",
                    trial_pass(t), own, (int)x->keys, where);
        break;
    case EDGE_LAST_ONLY:
        trial_offer(t, DIAGNOSIS_MASK, t->tried,
                    "%sonly the last tile of keys at the diagonal is masked: a query%s sees the "
                    "whole tiles before it, with tiles of %d queries and %d keys%s",
                    trial_pass(t), own, (int)x->queries, (int)x->keys, where);
        break;
    default:
        trial_offer(t, DIAGNOSIS_WINDOW, t->tried,
                    "%sthe tiles at the left edge of the window are not masked: a query%s sees "
                    "them whole, with tiles of %d queries and %d keys%s",
                    trial_pass(t), own, (int)x->queries, (int)x->keys, where);
        break;
    }
    t->partly = false;
}

// The best kernel with the mistake in some tiles only.
struct partly {
    struct kernel kernel;
    double energy; // that it leaves
};

// Offers a kernel with the mistake in all its tiles; keeps another one for later.
static void try_kernel(struct trial *t, const struct kernel *x, struct partly *partly)
{
    if (trial_over(t) || trial_solved(t) || !evaluate(t, x))
        return;
    struct some_rows rows = trial_some_rows(t);
    double energy = trial_energy(t, t->tried);
    if (rows.wrong > 0 && rows.wrong == rows.shown)
        offer(t, x, &rows);
    else if (rows.wrong > 0 && energy < partly->energy)
        *partly = (struct partly){*x, energy};
}

static bool applies(const struct trial *t, enum edge edge)
{
    struct case_band band = case_band(t->c, t->panels[0].setup.sequence);
    return (edge == EDGE_LEFT_OPEN ? band.left : band.right) < SLICE_UNBOUNDED;
}

// True if the edge depends on the tile of keys beyond the larger tile.
static bool has_two_sizes(enum edge edge)
{
    return edge == EDGE_LAST_ONLY || edge == EDGE_LEFT_OPEN;
}

// True if the tiles of the memory of a rank are those of the sequence, at the diagonal.
static bool is_aligned(const struct trial *t, const struct kernel *x)
{
    const struct chunks *chunks = &t->panels[0].q_chunks;
    bool aligned = x->edge != EDGE_LEFT_OPEN;
    for (int chunk = 0; chunk < chunks->count; chunk++)
        aligned = aligned && chunks->begin[chunk] % x->queries == 0;
    return aligned;
}

// With tiles at least as long as the sequence there is no mask.
static void try_edge(struct trial *t, enum edge edge, bool own, struct partly *partly)
{
    int64_t keys = t->panels[0].keys;
    for (int64_t tile = TILE_LEAST; tile <= TILE_MOST && tile < keys; tile *= 2) {
        struct kernel x = {edge, tile, tile, own};
        if (own && is_aligned(t, &x))
            continue;
        if (edge != EDGE_LAST_ONLY)
            try_kernel(t, &x, partly);
        for (x.keys = TILE_LEAST; has_two_sizes(edge) && x.keys < tile; x.keys *= 2)
            try_kernel(t, &x, partly);
    }
}

void try_masks(struct trial *t)
{
    bool local = t->c->world_size > 1 && case_band(t->c, 0).shift == 0;
    struct partly partly = {.energy = trial_energy(t, t->right)};
    for (int own = 0; own < (local ? 2 : 1); own++)
        for (int edge = 0; edge < EDGES; edge++)
            if (applies(t, (enum edge)edge))
                try_edge(t, (enum edge)edge, own, &partly);
    if (partly.kernel.keys == 0 || trial_solved(t) || !evaluate(t, &partly.kernel))
        return;
    struct some_rows rows = trial_some_rows(t);
    offer(t, &partly.kernel, &rows);
}
