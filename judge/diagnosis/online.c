// SPDX-License-Identifier: Apache-2.0
// Hypotheses about a softmax that is computed piece by piece, over tiles of keys or over ring
// steps: a tile is left out, or sums are not scaled when the largest logit of a row grows.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

#define TILE_LEAST 16
#define TILE_MOST  256
#define PIECES_MAX 512 // their values take up to 50 MB
#define SLOTS_MAX  16

// The keys of a sequence in pieces, in the order in which a kernel takes them.
struct pieces {
    int count;
    int64_t tile; // keys of a piece; 0: the pieces are ring steps
    bool backwards;
    int64_t begin[PIECES_MAX], end[PIECES_MAX]; // of tiles
    double *values;                             // [piece][rows][dim]: share of P V, or of dS K
    double *weights, *tops;                     // [piece][rows]: sum of P, largest logit
};

// ---- pieces -------------------------------------------------------------------------------------

// Divides the keys into tiles. With several ranks each chunk begins a tile. False: too many.
static bool tiles_list(const struct trial *t, int64_t tile, struct pieces *x)
{
    const struct chunks *chunks = &t->panels[0].k_chunks;
    int64_t keys = 0;
    for (int i = 0; i < t->panel_count; i++)
        keys = t->panels[i].keys > keys ? t->panels[i].keys : keys;
    *x = (struct pieces){.tile = tile, .values = x->values, .weights = x->weights, .tops = x->tops};
    for (int chunk = 0; chunk < (t->c->world_size > 1 ? chunks->count : 1); chunk++) {
        int64_t begin = t->c->world_size > 1 ? chunks->begin[chunk] : 0;
        int64_t end = t->c->world_size > 1 ? chunks->begin[chunk + 1] : keys;
        for (; begin < end; begin += tile) {
            if (x->count == PIECES_MAX)
                return false;
            x->begin[x->count] = begin;
            x->end[x->count++] = begin + tile < end ? begin + tile : end;
        }
    }
    return x->count > 1;
}

// Adds keys [begin, end) of a panel to a piece.
static void piece_add(struct trial *t, int i, int64_t begin, int64_t end, struct pieces *x,
                      int piece)
{
    struct panel *p = &t->panels[i];
    int64_t first = (int64_t)piece * t->rows + t->panel_first[i];
    if (t->in->tensor == TENSOR_DQ)
        panel_add_qk(p, p->ds, begin, end, x->values + first * t->dim);
    else
        panel_add_v(p, p->p, begin, end, x->values + first * t->dim);
    for (int row = 0; row < p->rows; row++) {
        double most = 0;
        for (int64_t key = begin; key < end; key++) {
            double weight = p->p[row * p->columns + key];
            x->weights[first + row] += weight;
            most = fmax(most, weight);
        }
        if (most > 0)
            x->tops[first + row] = fmax(x->tops[first + row], p->lse[row] + log(most));
    }
}

static void pieces_clear(const struct trial *t, struct pieces *x)
{
    int64_t rows = (int64_t)x->count * t->rows;
    memset(x->values, 0, (size_t)(rows * t->dim) * sizeof(double));
    memset(x->weights, 0, (size_t)rows * sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        x->tops[i] = -INFINITY;
}

// dS K is multiplied by the scale of the softmax.
static void pieces_scale(const struct trial *t, struct pieces *x)
{
    int64_t elements = (int64_t)x->count * t->rows * t->dim;
    for (int64_t at = 0; at < elements && t->in->tensor == TENSOR_DQ; at++)
        x->values[at] *= case_scale(t->c);
}

static void tiles_fill(struct trial *t, struct pieces *x)
{
    pieces_clear(t, x);
    for (int i = 0; i < t->panel_count; i++)
        for (int piece = 0; piece < x->count; piece++) {
            int64_t keys = t->panels[i].keys; // of another sequence than the first panel's
            int64_t end = x->end[piece] < keys ? x->end[piece] : keys;
            if (x->begin[piece] < end)
                piece_add(t, i, x->begin[piece], end, x, piece);
        }
    pieces_scale(t, x);
}

// The pieces are what a ring brings step by step, from the ranks before the query's (`way` -1) or
// behind it (1).
static void steps_fill(struct trial *t, int way, struct pieces *x)
{
    int members = team_size(t->c), teams = t->c->world_size / members;
    x->count = teams;
    x->tile = 0;
    x->backwards = false;
    pieces_clear(t, x);
    for (int i = 0; i < t->panel_count; i++) {
        const struct chunks *chunks = &t->panels[i].k_chunks;
        for (int chunk = 0; chunk < chunks->count; chunk++) {
            int distance = chunks->ranks[chunk] / members - t->in->rank / members;
            int step = (way * distance + 2 * teams) % teams;
            piece_add(t, i, chunks->begin[chunk], chunks->begin[chunk + 1], x, step);
        }
    }
    pieces_scale(t, x);
}

// ---- a missing tile -----------------------------------------------------------------------------

// Fills `values` with a row that has one piece not at all and another one twice (-1: none), and
// returns its LSE. The sums have no term that cancels another.
static double row_of(const struct trial *t, const struct pieces *x, int never, int twice, int row,
                     double *values)
{
    bool dq = t->in->tensor == TENSOR_DQ;
    double sum = 0;
    memset(values, 0, (size_t)t->dim * sizeof(double));
    for (int piece = 0; piece < x->count; piece++) {
        int64_t at = (int64_t)piece * t->rows + row;
        double times = piece == never ? 0 : piece == twice ? 2 : 1;
        sum += times * x->weights[at];
        for (int k = 0; k < t->dim; k++)
            values[k] += times * x->values[at * t->dim + k];
    }
    for (int k = 0; k < t->dim && !dq; k++)
        values[k] = sum > 0 ? values[k] / sum : 0;
    return sum > 0 ? t->lse_right[row] + log(sum) : -INFINITY;
}

// Energy of the difference of two rows.
static double apart(const struct trial *t, const double *a, const double *b)
{
    double sum = 0;
    for (int k = 0; k < t->dim; k++)
        sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sum;
}

// Returns the piece whose absence from some rows explains the most error; -1: none.
static int missing_piece(const struct trial *t, const struct pieces *x)
{
    double most = 0, values[HEAD_DIM_MAX];
    int best = -1;
    for (int piece = 0; piece < x->count; piece++) {
        double gain = 0;
        for (int row = 0; row < t->rows; row++) {
            const double *got = t->got + row * t->dim, *right = t->right + row * t->dim;
            int64_t at = (int64_t)piece * t->rows + row;
            double rest = t->in->tensor == TENSOR_DQ ? 1 : fmax(1 - x->weights[at], 1e-12);
            if (x->weights[at] < 1e-7)
                continue;
            for (int k = 0; k < t->dim; k++)
                values[k] = (right[k] - x->values[at * t->dim + k]) / rest;
            gain += fmax(0, apart(t, got, right) - apart(t, got, values));
        }
        if (gain > most) {
            most = gain;
            best = piece;
        }
    }
    return best;
}

// Offers rows without one tile. A row that is nearer to its right values keeps them.
static void try_missing_tile(struct trial *t, const struct pieces *x)
{
    int piece = missing_piece(t, x);
    if (piece < 0)
        return;
    for (int row = 0; row < t->rows; row++)
        t->lse_tried[row] = row_of(t, x, piece, -1, row, t->tried + (int64_t)row * t->dim);
    struct some_rows rows = trial_some_rows(t);
    const char *where = t->in->tensor == TENSOR_DQ ? "dq" : "the softmax";
    if (rows.wrong == 0)
        return;
    t->partly = rows.wrong < rows.shown;
    if (t->partly)
        trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                    "keys %lld to %lld are missing from %s in %d of %d examined rows that see "
                    "them, at positions %lld to %lld",
                    (long long)x->begin[piece], (long long)x->end[piece] - 1, where, rows.wrong,
                    rows.shown, (long long)rows.first, (long long)rows.last);
    else
        trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                    "keys %lld to %lld are missing from %s: a tile of %d",
                    (long long)x->begin[piece], (long long)x->end[piece] - 1, where, (int)x->tile);
    t->partly = false;
}

// ---- sums that are not scaled -------------------------------------------------------------------

enum unscaled { UNSCALED_BOTH, UNSCALED_OUT, UNSCALED_SUM, UNSCALED_WAYS };

// Computes one row whose earlier sums keep their scale when the largest logit grows. P of a piece
// is exp(logit - LSE); the kernel has exp(logit - largest so far).
static void row_unscaled(struct trial *t, const struct pieces *x, enum unscaled way, int row)
{
    double top = -INFINITY, sum = 0, lse = t->lse_right[row], *out = t->tried + row * t->dim;
    memset(out, 0, (size_t)t->dim * sizeof(double));
    for (int i = 0; i < x->count; i++) {
        int64_t at = (int64_t)(x->backwards ? x->count - 1 - i : i) * t->rows + row;
        if (!(x->weights[at] > 0))
            continue;
        top = fmax(top, x->tops[at]);
        double factor = exp(lse - top);
        sum += factor * x->weights[at];
        for (int k = 0; k < t->dim; k++)
            out[k] += factor * x->values[at * t->dim + k];
    }
    if (!(sum > 0)) // the row sees no key
        return;
    double right = exp(lse - top);
    t->lse_tried[row] = way == UNSCALED_OUT ? lse : top + log(sum);
    for (int k = 0; k < t->dim; k++)
        out[k] = way == UNSCALED_BOTH  ? out[k] / sum
                 : way == UNSCALED_OUT ? out[k] / right
                                       : t->right[row * t->dim + k] * right / sum;
}

static void try_unscaled(struct trial *t, const struct pieces *x)
{
    static const char *const what[] = {"sums are not scaled",
                                       "out is not scaled, as the denominator is,",
                                       "denominator is not scaled, as out is,"};
    char pieces[48] = "ring steps";
    if (x->tile)
        snprintf(pieces, sizeof(pieces), "tiles of %d keys%s", (int)x->tile,
                 x->backwards ? " from the last on" : "");
    for (int way = 0; way < UNSCALED_WAYS; way++) {
        trial_keep_lse(t);
        for (int row = 0; row < t->rows; row++)
            row_unscaled(t, x, (enum unscaled)way, row);
        trial_offer(t, DIAGNOSIS_MERGE, t->tried,
                    "the earlier %s by exp(max before - max after) when the largest logit of a row "
                    "grows: %s",
                    what[way], pieces);
    }
}

// ---- a slot that is attended twice --------------------------------------------------------------

// Offers rows with the keys of one ring step twice, and without those of another. The pieces are in
// the order of the ranks from the query's on.
static void try_twice(struct trial *t, const struct pieces *x, int twice, int never)
{
    int members = team_size(t->c), own = t->in->rank / members;
    for (int row = 0; row < t->rows; row++)
        t->lse_tried[row] = row_of(t, x, never, twice, row, t->tried + row * t->dim);
    trial_offer(t, DIAGNOSIS_STALE_KEYS, t->tried,
                "the keys of rank %d are in the softmax twice, those of rank %d are not: a ring "
                "step attends the slot of another again",
                (own + twice) % x->count * members, (own + never) % x->count * members);
}

static void try_slots(struct trial *t, const struct pieces *x)
{
    for (int twice = 0; twice < x->count && x->count <= SLOTS_MAX; twice++)
        for (int never = 0; never < x->count && !trial_over(t); never++)
            if (twice != never)
                try_twice(t, x, twice, never);
}

// ---- the LSE of each ring step ------------------------------------------------------------------

// Offers rows of dq whose P is normalized over the keys of its ring step.
static void try_own_lse(struct trial *t, const struct pieces *x)
{
    memset(t->tried, 0, (size_t)(t->rows * t->dim) * sizeof(double));
    for (int64_t at = 0; at < (int64_t)x->count * t->rows; at++)
        for (int k = 0; k < t->dim && x->weights[at] > 1e-30; k++)
            t->tried[at % t->rows * t->dim + k] += x->values[at * t->dim + k] / x->weights[at];
    trial_keep_lse(t);
    trial_offer(t, DIAGNOSIS_LSE, t->tried,
                "each ring step of the backward pass uses the LSE of its own keys instead of the "
                "final one");
}

// ---- sums that are overwritten ------------------------------------------------------------------

// Which pieces a row has.
enum left {
    LEFT_LAST,        // the last one that it sees
    LEFT_LAST_SUM,    // the same, and out is divided by the sum of this piece
    LEFT_LAST_OF_EACH // of the keys of each rank the last one that it sees
};

// Adds to a row the last piece that it sees, of one rank (-1: of all). Returns the sum of its
// weights.
static double last_add(struct trial *t, const struct pieces *x, int rank, int row)
{
    const struct chunks *chunks = &t->panels[0].k_chunks;
    int64_t best = -1;
    for (int i = 0; i < x->count; i++) {
        int piece = x->backwards ? x->count - 1 - i : i;
        bool other = rank >= 0 && chunks->ranks[chunks_find(chunks, x->begin[piece])] != rank;
        int64_t at = (int64_t)piece * t->rows + row;
        best = x->weights[at] > 0 && !other ? at : best;
    }
    for (int k = 0; k < t->dim && best >= 0; k++)
        t->tried[row * t->dim + k] += x->values[best * t->dim + k];
    return best >= 0 ? x->weights[best] : 0;
}

static void row_left(struct trial *t, const struct pieces *x, enum left left, int row)
{
    t->lse_tried[row] = t->lse_right[row];
    memset(t->tried + row * t->dim, 0, (size_t)t->dim * sizeof(double));
    if (left == LEFT_LAST_OF_EACH) {
        for (int rank = 0; rank < t->c->world_size; rank++)
            last_add(t, x, rank, row);
        return;
    }
    double sum = last_add(t, x, -1, row);
    if (left != LEFT_LAST_SUM || !(sum > 0))
        return;
    for (int k = 0; k < t->dim; k++)
        t->tried[row * t->dim + k] /= sum;
    t->lse_tried[row] += log(sum);
}

static void try_left(struct trial *t, const struct pieces *x, enum left left)
{
    const char *name = report_tensor_name(t->in->tensor);
    for (int row = 0; row < t->rows; row++)
        row_left(t, x, left, row);
    for (int i = 0; i < (left == LEFT_LAST_SUM ? 2 : 1); i++) { // with its LSE, with the right one
        if (x->tile)
            trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                        "each row of %s has only the %s tile of %d keys that it sees%s: a tile "
                        "overwrites what those before it have added",
                        name, x->backwards ? "first" : "last", (int)x->tile,
                        left == LEFT_LAST_OF_EACH ? " of each rank" : "");
        else
            trial_offer(t, DIAGNOSIS_MISSING_KEYS, t->tried,
                        "each row of %s has only the last ring step in which it sees a key: a step "
                        "overwrites what those before it have added",
                        name);
        trial_keep_lse(t);
    }
}

// Tries sums that are overwritten instead of added up.
static void try_overwritten(struct trial *t, const struct pieces *x)
{
    try_left(t, x, LEFT_LAST);
    if (x->tile && t->c->world_size > 1)
        try_left(t, x, LEFT_LAST_OF_EACH);
    if (t->in->tensor == TENSOR_OUT)
        try_left(t, x, LEFT_LAST_SUM);
}

// ---- all ----------------------------------------------------------------------------------------

static void try_tiles(struct trial *t, struct pieces *x)
{
    bool forward = t->in->tensor == TENSOR_OUT && t->c->softmax == SOFTMAX_VANILLA;
    for (int64_t tile = TILE_LEAST; tile <= TILE_MOST && !trial_over(t); tile *= 2) {
        if (!tiles_list(t, tile, x))
            continue;
        tiles_fill(t, x);
        if (t->c->softmax == SOFTMAX_VANILLA || t->in->tensor == TENSOR_DQ)
            try_missing_tile(t, x);
        for (int backwards = 0; backwards < 2; backwards++) {
            x->backwards = backwards;
            if (forward || t->in->tensor == TENSOR_DQ)
                try_overwritten(t, x);
            if (forward)
                try_unscaled(t, x);
        }
    }
}

static void try_steps(struct trial *t, struct pieces *x)
{
    bool ring = t->c->world_size > team_size(t->c) && t->in->rank >= 0;
    bool vanilla = t->c->softmax == SOFTMAX_VANILLA;
    for (int way = -1; way <= 1 && ring && vanilla && !trial_over(t); way += 2) {
        steps_fill(t, way, x);
        try_overwritten(t, x);
        if (t->in->tensor == TENSOR_DQ)
            try_own_lse(t, x);
        else
            try_unscaled(t, x);
        if (t->in->tensor == TENSOR_OUT && way == 1)
            try_slots(t, x);
    }
}

void try_online(struct trial *t)
{
    int64_t most = 0, pieces = t->c->world_size * 2;
    if (t->in->tensor != TENSOR_OUT && t->in->tensor != TENSOR_DQ)
        return;
    for (int i = 0; i < t->panel_count; i++) {
        struct variant right = variant_none(&t->panels[i]);
        variant_gradient(&t->panels[i], &right, t->panels[i].lse, t->panels[i].delta, true);
        most = t->panels[i].keys > most ? t->panels[i].keys : most;
    }
    pieces += most / TILE_LEAST + 1;
    pieces = pieces < PIECES_MAX ? pieces : PIECES_MAX;
    struct pieces *x = calloc(1, sizeof(*x));
    double *memory = calloc((size_t)(pieces * t->rows * (t->dim + 2)), sizeof(double));
    if (x && memory) {
        x->values = memory;
        x->weights = memory + pieces * t->rows * t->dim;
        x->tops = x->weights + pieces * t->rows;
        try_steps(t, x); // before tiles that are chunks
        try_tiles(t, x);
    }
    free(memory);
    free(x);
}
