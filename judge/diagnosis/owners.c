// SPDX-License-Identifier: Apache-2.0
// Hypotheses about key rows: contributions of single ranks' queries, or of single query heads, are
// missing, count twice, or belong to the keys of another rank.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// A share is a subset of the queries of each panel: those of a rank, of a chunk, or of some heads
// of the group.
struct share {
    int rank, chunk; // -1: all
    int head, heads; // first head of the group, and number of heads; 0 heads: all
};

static void share_add(struct trial *t, struct panel *p, const struct share *share, double *rows)
{
    for (int head = 0; head < p->group; head++) {
        if (share->heads && (head < share->head || head >= share->head + share->heads))
            continue;
        for (int chunk = 0; chunk < p->q_chunks.count; chunk++) {
            if ((share->rank >= 0 && p->q_chunks.ranks[chunk] != share->rank) ||
                (share->chunk >= 0 && share->chunk != chunk))
                continue;
            int64_t begin = head * p->queries + p->q_chunks.begin[chunk];
            int64_t end = head * p->queries + p->q_chunks.begin[chunk + 1];
            if (t->in->tensor == TENSOR_DV)
                panel_add_v(p, p->p, begin, end, rows);
            else
                panel_add_qk(p, p->ds, begin, end, rows);
        }
    }
}

// Computes the contribution of a share to the rows of a panel. Needs p->p and p->ds of the right
// attention.
static void share_panel(struct trial *t, struct panel *p, const struct share *share, double *rows)
{
    int64_t count = (int64_t)p->rows * t->dim;
    memset(rows, 0, (size_t)count * sizeof(double));
    share_add(t, p, share, rows);
    for (int64_t i = 0; i < count && t->in->tensor == TENSOR_DK; i++)
        rows[i] *= case_scale(t->c);
}

static void share_evaluate(struct trial *t, const struct share *share, double *values)
{
    for (int i = 0; i < t->panel_count; i++)
        share_panel(t, &t->panels[i], share, values + (int64_t)t->panel_first[i] * t->dim);
}

// ---- missing or twice ---------------------------------------------------------------------------

static void share_name(const struct trial *t, const struct share *share, char *text, size_t size)
{
    const struct chunks *x = &t->panels[0].q_chunks;
    if (share->heads == 1)
        snprintf(text, size, "query head %d of each group", share->head);
    else if (share->heads)
        snprintf(text, size, "query heads %d to %d of each group", share->head,
                 share->head + share->heads - 1);
    else if (share->chunk >= 0)
        snprintf(text, size, "queries %lld to %lld (chunk %d, rank %d)",
                 (long long)x->begin[share->chunk], (long long)x->begin[share->chunk + 1] - 1,
                 share->chunk, x->ranks[share->chunk]);
    else
        snprintf(text, size, "the queries of rank %d", share->rank);
}

static double energy_of_row(const struct trial *t, const double *values, int row)
{
    double sum = 0;
    for (int at = row * t->dim; at < (row + 1) * t->dim; at++)
        sum += pow(t->got[at] - values[at], 2);
    return sum;
}

// Offers that the share is missing only in the rows whose error this halves at least.
static void try_rows(struct trial *t, const struct share *share, const double *values)
{
    char name[100];
    int changed = 0;
    for (int row = 0; row < t->rows; row++) {
        double *tried = t->tried + row * t->dim;
        for (int k = 0; k < t->dim; k++)
            tried[k] = t->right[row * t->dim + k] - values[row * t->dim + k];
        if (energy_of_row(t, t->tried, row) < 0.5 * energy_of_row(t, t->right, row)) {
            changed++;
            continue;
        }
        memcpy(tried, t->right + row * t->dim, (size_t)t->dim * sizeof(double));
    }
    share_name(t, share, name, sizeof(name));
    t->partly = true;
    trial_offer(t, DIAGNOSIS_MISSING_PART, t->tried,
                "the contribution of %s is missing from %s, in %d of %d examined rows", name,
                report_tensor_name(t->in->tensor), changed, t->rows);
    t->partly = false;
}

static void try_share(struct trial *t, const struct share *share, double *values)
{
    char name[100];
    share_evaluate(t, share, values);
    share_name(t, share, name, sizeof(name));
    for (int times = 0; times < 3; times += 2) {
        for (int i = 0; i < t->rows * t->dim; i++)
            t->tried[i] = t->right[i] + (times - 1) * values[i];
        trial_offer(t, DIAGNOSIS_MISSING_PART, t->tried, "the contribution of %s is %s %s", name,
                    times ? "twice in" : "missing from", report_tensor_name(t->in->tensor));
    }
    int others = share->heads ? t->panels[0].group - share->heads : t->c->world_size - 1;
    if (others > 1) // else the other one is missing
        trial_offer(t, DIAGNOSIS_MISSING_PART, values,
                    "%s has only the contribution of %s: the rest is overwritten, or never added",
                    report_tensor_name(t->in->tensor), name);
    try_rows(t, share, values);
}

#define GROUP_MAX 8 // largest group for which all ranges of heads are tried

static void try_heads_lost(struct trial *t, double *values)
{
    int group = t->panels[0].group;
    for (int heads = 1; heads < group && heads <= GROUP_MAX && !trial_over(t); heads++)
        for (int head = 0; head + heads <= group; head++)
            if (heads == 1 || group <= GROUP_MAX)
                try_share(t, &(struct share){-1, -1, head, heads}, values);
}

// ---- another rank's keys ------------------------------------------------------------------------

#define OWNERS_MAX 16

// Fills `positions` with those of the tokens at the same places in the memory of `rank`; for the
// own rank, at the same places of its other chunk. False if a token does not exist.
static bool places_elsewhere(const struct panel *p, int rank, int64_t *positions)
{
    const struct chunks *x = &p->k_chunks;
    for (int row = 0; row < p->rows; row++) {
        int chunk = chunks_find(x, p->setup.positions[row]);
        bool own = x->ranks[chunk] == rank; // uses its other chunk
        int other = shard_chunk_of(p->c, rank, own ? !x->halves[chunk] : x->halves[chunk]);
        int64_t position = x->begin[other] + p->setup.positions[row] - x->begin[chunk];
        if (position >= x->begin[other + 1])
            return false;
        positions[row] = position;
    }
    return true;
}

static bool elsewhere_panel(struct trial *t, int i, int rank, int n, double *components)
{
    const struct panel *p = &t->panels[i];
    int64_t positions[DIAGNOSIS_ROWS_MAX];
    struct panel_setup setup = p->setup;
    struct panel other;
    setup.positions = positions;
    setup.like = p;
    if (!places_elsewhere(p, rank, positions) || !panel_init(&other, &setup))
        return false;
    memcpy(other.lse, p->lse, (size_t)p->columns * sizeof(double));
    memcpy(other.delta, p->delta, (size_t)p->columns * sizeof(double));
    struct variant right = variant_none(&other);
    variant_key_gradient(&other, &right, other.lse, other.delta);
    for (int from = 0; from < t->c->world_size; from++)
        share_panel(t, &other, &(struct share){from, -1, 0, 0},
                    components + (int64_t)from * n + (int64_t)t->panel_first[i] * t->dim);
    panel_fini(&other);
    return true;
}

// Lists the ranks whose factor rounds to `value`, such as "0, 2, 3".
static void ranks_list(const double *factors, int world, double value, char *text, size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (int rank = 0; rank < world && length + 8 < size; rank++)
        if (round(factors[rank]) == value)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%d", length ? ", " : "", rank);
}

static void sum_rounded(struct trial *t, double *const *components, const double *factors,
                        int count)
{
    int n = t->rows * t->dim;
    memset(t->tried, 0, (size_t)n * sizeof(double));
    for (int i = 0; i < count; i++)
        for (int at = 0; at < n && round(factors[i]) != 0; at++)
            t->tried[at] += round(factors[i]) * components[i][at];
}

// Fits factors of the components that are not zero. A component is zero if its queries see none of
// the keys; its factor is set to `nothing`, or to 0 from component world_size on.
static bool fit_nonzero(struct trial *t, double *const *components, int count, double nothing,
                        double *factors)
{
    double *used[2 * OWNERS_MAX] = {0}, of_used[2 * OWNERS_MAX] = {0};
    int place[2 * OWNERS_MAX] = {0}, used_count = 0, n = t->rows * t->dim;
    for (int i = 0; i < count; i++) {
        double most = 0;
        for (int at = 0; at < n; at++)
            most =
                fmax(most, fabs(components[i][at])); // NOLINT(clang-analyzer-core.NullDereference)
        factors[i] = i < t->c->world_size ? nothing : 0;
        place[used_count] = i;
        used[used_count] = components[i];
        used_count += most > 0;
    }
    if (used_count == 0 || !trial_fit(t, used, used_count, NULL, of_used))
        return false;
    for (int i = 0; i < used_count; i++)
        factors[place[i]] = of_used[i];
    return true;
}

static void try_counts(struct trial *t, double *const *components)
{
    int world = t->c->world_size;
    double factors[OWNERS_MAX] = {0};
    char missing[60], twice[60];
    if (!fit_nonzero(t, components, world, 1, factors))
        return;
    sum_rounded(t, components, factors, world);
    ranks_list(factors, world, 0, missing, sizeof(missing));
    ranks_list(factors, world, 2, twice, sizeof(twice));
    if (*missing || *twice)
        trial_offer(t, DIAGNOSIS_MISSING_PART, t->tried,
                    "%s lacks the contribution of the queries of ranks %s%s%s",
                    report_tensor_name(t->in->tensor), *missing ? missing : "(none)",
                    *twice ? " and counts twice that of ranks " : "", twice);
}

// Tries whether some ranks contribute to these keys, and others to the keys of rank `rank` at the
// same places.
static void try_owner(struct trial *t, int rank, double *const *components)
{
    int world = t->c->world_size, n = t->rows * t->dim;
    double factors[2 * OWNERS_MAX] = {0};
    char foreign[60];
    for (int i = 0; i < t->panel_count; i++)
        if (!elsewhere_panel(t, i, rank, n, components[world]))
            return;
    if (!fit_nonzero(t, components, 2 * world, 1, factors))
        return;
    sum_rounded(t, components, factors, 2 * world);
    ranks_list(factors + world, world, 1, foreign, sizeof(foreign));
    if (*foreign && rank == t->in->rank)
        trial_offer(
            t, DIAGNOSIS_SWAPPED_CHUNKS, t->tried,
            "%s has the contributions to the other chunk of rank %d at the same places, from the "
            "queries of rank%s %s",
            report_tensor_name(t->in->tensor), rank, strchr(foreign, ',') ? "s" : "", foreign);
    else if (*foreign)
        trial_offer(t, DIAGNOSIS_WRONG_OWNER, t->tried,
                    "%s has the contributions to the keys of rank %d at the same places, from the "
                    "queries of rank%s %s",
                    report_tensor_name(t->in->tensor), rank, strchr(foreign, ',') ? "s" : "",
                    foreign);
}

static void try_owners_all(struct trial *t, double *memory)
{
    double *components[2 * OWNERS_MAX] = {0};
    int world = t->c->world_size, own = t->in->rank;
    for (int i = 0; i < 2 * world; i++)
        components[i] = memory + (int64_t)i * t->rows * t->dim;
    for (int rank = 0; rank < world; rank++)
        share_evaluate(t, &(struct share){rank, -1, 0, 0}, components[rank]);
    try_counts(t, components);
    for (int rank = 0; rank < world; rank++) {
        int distance = (rank - own + world) % world;
        if (trial_over(t))
            return;
        bool other_chunk = rank == own && shard_chunks_per_rank(t->c) > 1;
        if ((rank != own || other_chunk) && (world <= 8 || distance <= 1 || distance == world - 1))
            try_owner(t, rank, components);
    }
}

// dk has the values of dv, or the other way round. Needs p->p and p->ds of the right attention.
static void try_exchanged(struct trial *t)
{
    bool dk = t->in->tensor == TENSOR_DK;
    if (t->c->head_dim_qk != t->c->head_dim_v)
        return;
    memset(t->tried, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        double *values = t->tried + (int64_t)t->panel_first[i] * t->dim;
        if (dk)
            panel_add_v(p, p->p, 0, p->columns, values);
        else
            panel_add_qk(p, p->ds, 0, p->columns, values);
    }
    for (int i = 0; i < t->rows * t->dim && !dk; i++)
        t->tried[i] *= case_scale(t->c);
    trial_offer(t, DIAGNOSIS_LAYOUT, t->tried, "%s has the values of %s", dk ? "dk" : "dv",
                dk ? "dv" : "dk");
}

// ---- tiles that are overwritten -----------------------------------------------------------------

// Queries of a tile: of the sequence, or of each rank's memory.
struct queries {
    int64_t tile;
    bool backwards; // the first tile is the last that is written
    bool of_ranks;  // the parts of ranks are added up
    bool last_head; // of a group; else the parts of its heads are added up
};

// Adds to each row the part of the last tile in [begin, end) that sees the row's key.
static void last_tile_add(struct trial *t, struct panel *p, const struct queries *x, int64_t begin,
                          int64_t end, double *part, double *rows)
{
    bool filled[DIAGNOSIS_ROWS_MAX] = {false};
    int64_t tiles = (end - begin + x->tile - 1) / x->tile;
    int left = p->rows;
    for (int64_t i = 0; i < tiles && left > 0; i++) {
        int64_t first = begin + (x->backwards ? i : tiles - 1 - i) * x->tile;
        int64_t last = first + x->tile < end ? first + x->tile : end;
        memset(part, 0, (size_t)(p->rows * t->dim) * sizeof(double));
        if (t->in->tensor == TENSOR_DV)
            panel_add_v(p, p->p, first, last, part);
        else
            panel_add_qk(p, p->ds, first, last, part);
        for (int row = 0; row < p->rows; row++) {
            double weight = 0;
            for (int64_t at = first; at < last && !filled[row]; at++)
                weight += p->p[row * p->columns + at];
            if (filled[row] || weight == 0)
                continue;
            filled[row] = true;
            left--;
            for (int k = 0; k < t->dim; k++)
                rows[row * t->dim + k] += part[row * t->dim + k];
        }
    }
}

static void last_tiles_panel(struct trial *t, struct panel *p, const struct queries *x,
                             double *part, double *rows)
{
    const struct chunks *chunks = &p->q_chunks;
    for (int head = x->last_head ? p->group - 1 : 0; head < p->group; head++) {
        int64_t of_head = head * p->queries;
        if (!x->of_ranks)
            last_tile_add(t, p, x, of_head, of_head + p->queries, part, rows);
        for (int chunk = 0; chunk < chunks->count && x->of_ranks; chunk++) {
            bool wanted =
                chunks->halves[chunk] == (x->backwards ? 0 : shard_chunks_per_rank(p->c) - 1);
            if (wanted)
                last_tile_add(t, p, x, of_head + chunks->begin[chunk],
                              of_head + chunks->begin[chunk + 1], part, rows);
        }
    }
}

static void try_last_tiles(struct trial *t, const struct queries *x, double *part)
{
    memset(t->tried, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int i = 0; i < t->panel_count; i++)
        last_tiles_panel(t, &t->panels[i], x, part, t->tried + (int64_t)t->panel_first[i] * t->dim);
    for (int i = 0; i < t->rows * t->dim && t->in->tensor == TENSOR_DK; i++)
        t->tried[i] *= case_scale(t->c);
    trial_offer(t, DIAGNOSIS_MISSING_PART, t->tried,
                "each row of %s has only the %s tile of %d queries that sees it%s%s: a tile "
                "overwrites what those before it have added",
                report_tensor_name(t->in->tensor), x->backwards ? "first" : "last", (int)x->tile,
                x->of_ranks ? ", of each rank" : "", x->last_head ? ", of the last head" : "");
}

#define TILE_LEAST 16
#define TILE_MOST  256

static void try_overwritten(struct trial *t, double *part)
{
    int heads = t->panels[0].group > 1 ? 2 : 1, of_ranks = t->c->world_size > 1 ? 2 : 1;
    for (int64_t tile = TILE_LEAST; tile <= TILE_MOST; tile *= 2)
        for (int way = 0; way < 2 * heads * of_ranks && !trial_over(t); way++) {
            struct queries x = {.tile = tile,
                                .backwards = way % 2,
                                .of_ranks = way / 2 % of_ranks,
                                .last_head = way / 2 / of_ranks};
            if (tile < t->panels[0].queries)
                try_last_tiles(t, &x, part);
        }
}

void try_owners(struct trial *t)
{
    int world = t->c->world_size, chunks = t->panels[0].q_chunks.count;
    int64_t n = (int64_t)t->rows * t->dim;
    if (t->panels[0].setup.side != SIDE_KV)
        return;
    double *memory = calloc((size_t)(n * 2 * OWNERS_MAX), sizeof(double));
    if (!memory)
        return;
    for (int i = 0; i < t->panel_count; i++) {
        struct variant right = variant_none(&t->panels[i]);
        variant_key_gradient(&t->panels[i], &right, t->panels[i].lse, t->panels[i].delta);
    }
    for (int rank = 0; rank < world && world > 1 && !trial_over(t); rank++)
        try_share(t, &(struct share){rank, -1, 0, 0}, memory);
    for (int chunk = 0; chunk < chunks && chunks > world && !trial_over(t); chunk++)
        try_share(t, &(struct share){-1, chunk, 0, 0}, memory);
    try_exchanged(t);
    try_heads_lost(t, memory);
    if (world > 1 && world <= OWNERS_MAX)
        try_owners_all(t, memory);
    if (world > 1 && t->in->rank >= 0) {
        share_evaluate(t, &(struct share){t->in->rank, -1, 0, 0}, memory);
        trial_try_shares(t, memory, "queries");
    }
    if (!trial_solved(t))
        try_overwritten(t, memory);
    free(memory);
}
