// SPDX-License-Identifier: Apache-2.0
#include "judge/linear_sample.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "judge/dtype.h"
#include "judge/linear_view.h"

// Maximum numbers of sampled tokens, of features of a rank, and of other columns. In large layers
// there are fewer, to limit work and memory.
#define SOME_MAX    16 // tokens; features
#define COLUMNS_MAX 128
#define COLUMNS_MIN 8
#define WORK_MAX    1e11      // FLOPs
#define DRAW_WORK   30        // FLOPs that take as long as drawing an element
#define BLOCK       128       // maximum number of features and of tokens in a product
#define BLOCK_DRAWN (1 << 22) // elements of the inputs of a product

// ---- sizes --------------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t linear_sample_features(const struct linear_sample *m, int rank)
{
    return share_count(m->sizes.middle, rank, m->l->world_size);
}

// Size of the dimension that is not divided among ranks: columns of x and w1, or of y and dy. 0:
// the result has only features.
static int64_t wide_of(const struct linear_sample *m)
{
    bool in = m->tensor == LINEAR_DX || m->tensor == LINEAR_DW1;
    bool none = m->tensor == LINEAR_DB1 || (!m->is_sum && !m->of_all_tokens);
    return none ? 0 : in ? m->sizes.in : m->sizes.out;
}

static bool has_features(const struct linear_sample *m)
{
    return !m->is_sum && m->tensor != LINEAR_DB2;
}

static void sizes_set(struct linear_sample *m, int64_t tokens, int64_t features, int64_t columns)
{
    int ranks = m->l->world_size;
    int64_t own = linear_sample_features(m, m->rank);
    int64_t held = m->is_sum ? linear_view_tokens(m->l, m->rank).count : m->l->tokens;
    m->tokens = m->of_all_tokens ? m->l->tokens : least(tokens, held);
    m->features = has_features(m) ? least(features, own) : 0;
    m->columns = least(columns, wide_of(m));
    m->known_tokens = m->of_all_tokens ? m->tokens : m->tokens * least(ranks, SAMPLE_PAIRS + 1);
    m->known_features = m->is_sum ? m->sizes.middle : m->features * least(ranks, SAMPLE_OTHERS + 1);
}

// Number of doubles that the sample stores.
static int64_t elements_of(const struct linear_sample *m)
{
    int64_t gates = m->gates, known = m->known_tokens * m->known_features;
    int64_t between = m->tokens * gates * (m->is_sum ? m->known_features : m->features);
    int64_t beside = m->of_all_tokens ? 2 * m->tokens * m->columns : 0;
    int64_t weights = m->is_sum ? gates * m->known_features * m->columns : 0;
    return known * gates * m->needs_h + known * m->needs_d + between + beside + weights +
           gates * m->known_features + m->columns;
}

// FLOPs to compute the sample.
static double work_of(const struct linear_sample *m)
{
    double h = m->needs_h ? (double)(m->gates * m->sizes.in) : 0;
    double d = m->needs_d ? (double)m->sizes.out : 0;
    double tokens = (double)m->known_tokens, features = (double)m->known_features;
    return DRAW_WORK * (features + tokens) * (h + d) + 2 * tokens * features * (h + d) +
           DRAW_WORK * (double)elements_of(m);
}

// Chooses the largest sizes within the limits. False: even the smallest exceed them.
static bool sizes_choose(struct linear_sample *m)
{
    int64_t some = SOME_MAX, columns = COLUMNS_MAX;
    sizes_set(m, some, some, columns);
    while (elements_of(m) > LINEAR_SAMPLE_MAX || work_of(m) > WORK_MAX) {
        if (some == 1 && columns == COLUMNS_MIN)
            return false;
        some = some > 1 ? some / 2 : 1;
        columns = columns > COLUMNS_MIN ? columns / 2 : COLUMNS_MIN;
        sizes_set(m, some, some, columns);
    }
    return true;
}

// ---- which tokens, features and columns ---------------------------------------------------------

int linear_sample_owner(const struct linear_sample *m, int64_t token)
{
    int ranks = m->l->world_size;
    int64_t each = m->l->tokens / ranks, more = m->l->tokens % ranks;
    if (token < more * (each + 1))
        return (int)(token / (each + 1));
    return (int)(more + (token - more * (each + 1)) / each);
}

// Lists the sampled tokens, then the tokens at the same places in other ranks.
static void tokens_list(struct linear_sample *m)
{
    int ranks = m->l->world_size;
    struct linear_share held = {0, m->l->tokens};
    if (m->is_sum)
        held = linear_view_tokens(m->l, m->rank);
    int64_t known = m->tokens;
    for (int64_t i = 0; i < m->tokens; i++) {
        m->token[i] = held.first + i * held.count / m->tokens;
        int owner = linear_sample_owner(m, m->token[i]);
        int64_t at = m->token[i] - share_first(m->l->tokens, owner, ranks);
        for (int peer = 0; peer < SAMPLE_PAIRS; peer++) {
            bool there = owner < SAMPLE_PAIRS && peer < ranks && peer != owner &&
                         at < share_count(m->l->tokens, peer, ranks);
            m->partner[i * SAMPLE_PAIRS + peer] = there ? known : i;
            if (there)
                m->token[known++] = share_first(m->l->tokens, peer, ranks) + at;
        }
    }
    m->known_tokens = known;
}

static void features_list(struct linear_sample *m)
{
    int ranks = m->l->world_size;
    int64_t own = linear_sample_features(m, m->rank), known = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t first = share_first(m->sizes.middle, rank, ranks),
                count = linear_sample_features(m, rank);
        bool there = rank == m->rank || (rank < SAMPLE_OTHERS && count == own);
        m->slot[rank] = m->is_sum || there ? known : -1;
        if (m->is_sum)
            for (int64_t i = 0; i < count; i++)
                m->feature[known++] = first + i;
        else if (there)
            for (int64_t i = 0; i < m->features; i++)
                m->feature[known++] = first + i * own / m->features;
    }
    m->known_features = known;
}

static void lists_fill(struct linear_sample *m)
{
    if (!m->of_all_tokens)
        tokens_list(m);
    features_list(m);
    for (int64_t i = 0; i < m->columns; i++)
        m->column[i] = i * wide_of(m) / m->columns;
}

// ---- data that all mistakes use -----------------------------------------------------------------

int64_t linear_sample_token(const struct linear_sample *m, int64_t i)
{
    return m->of_all_tokens ? i : m->token[i];
}

// Draws the listed elements of a row, consecutive ones together.
static void draw_list(const struct linear_sample *m, enum linear_tensor tensor, int64_t row,
                      int64_t first, const int64_t *list, int64_t count, double *values)
{
    for (int64_t i = 0; i < count;) {
        int64_t n = 1;
        while (i + n < count && list[i + n] == list[i] + n)
            n++;
        linear_draw(m->l, tensor, row, first + list[i], n, values + i);
        i += n;
    }
}

// Computes x w1', or dy w2, for a block of tokens and a block of features; at and count: first
// [token, feature] and numbers of both.
static void block_multiply(const struct linear_sample *m, bool of_d, const double *rows,
                           const double *weights, const int64_t at[2], const int64_t count[2])
{
    int64_t wide = of_d ? m->sizes.out : m->sizes.in;
    int gates = of_d ? 1 : m->gates;
    for (int gate = 0; gate < gates; gate++) {
        double *to = (of_d ? m->d : m->h) + (at[0] * gates + gate) * m->known_features + at[1];
        cblas_dgemm(CblasRowMajor, CblasNoTrans, of_d ? CblasNoTrans : CblasTrans, (int)count[0],
                    (int)count[1], (int)wide, 1, rows, (int)wide,
                    weights + (of_d ? 0 : gate * count[1] * wide), (int)(of_d ? count[1] : wide), 0,
                    to, (int)(gates * m->known_features));
    }
}

static void weights_draw(const struct linear_sample *m, bool of_d, int64_t first, int64_t count,
                         double *weights)
{
    const int64_t *list = m->feature + first;
    if (of_d) {
        for (int64_t row = 0; row < m->sizes.out; row++)
            draw_list(m, LINEAR_W2, row, 0, list, count, weights + row * count);
        return;
    }
    for (int gate = 0; gate < m->gates; gate++)
        for (int64_t i = 0; i < count; i++)
            linear_draw(m->l, LINEAR_W1, gate * m->sizes.middle + list[i], 0, m->sizes.in,
                        weights + (gate * count + i) * m->sizes.in);
}

// Fills h or d by a product with weights. Tokens are drawn once if they are one block.
static bool product_fill(struct linear_sample *m, bool of_d)
{
    int64_t wide = of_d ? m->sizes.out : m->sizes.in, block = BLOCK_DRAWN / wide;
    block = block < 1 ? 1 : least(block, BLOCK);
    double *rows = malloc((size_t)(block * wide) * sizeof(double));
    double *weights = malloc((size_t)(m->gates * block * wide) * sizeof(double));
    int64_t drawn = -1;
    for (int64_t f = 0; f < m->known_features && rows && weights; f += block) {
        int64_t features = least(block, m->known_features - f);
        weights_draw(m, of_d, f, features, weights);
        for (int64_t t = 0; t < m->known_tokens; t += block) {
            int64_t tokens = least(block, m->known_tokens - t);
            for (int64_t i = 0; i < tokens && drawn != t; i++)
                linear_draw(m->l, of_d ? LINEAR_DY : LINEAR_X, linear_sample_token(m, t + i), 0,
                            wide, rows + i * wide);
            drawn = t;
            block_multiply(m, of_d, rows, weights, (int64_t[]){t, f},
                           (int64_t[]){tokens, features});
        }
    }
    bool fine = rows && weights;
    free(rows);
    free(weights);
    return fine;
}

// Fills h or d: a product, or an input of the layer.
static bool known_fill(struct linear_sample *m, bool of_d)
{
    if ((of_d ? m->sizes.out : m->sizes.in) > 0)
        return product_fill(m, of_d);
    for (int64_t i = 0; i < m->known_tokens; i++)
        draw_list(m, of_d ? LINEAR_DY : LINEAR_X, linear_sample_token(m, i), 0, m->feature,
                  m->known_features, (of_d ? m->d : m->h) + i * m->known_features);
    return true;
}

static void inputs_fill(struct linear_sample *m)
{
    const struct linear *l = m->l;
    bool of_w1 = m->tensor == LINEAR_DX, of_x = m->tensor == LINEAR_DW1;
    for (int gate = 0; gate < m->gates && l->bias && m->sizes.in > 0; gate++)
        draw_list(m, LINEAR_B1, 0, gate * m->sizes.middle, m->feature, m->known_features,
                  m->b1 + gate * m->known_features);
    if (l->bias && m->tensor == LINEAR_Y && m->is_sum)
        draw_list(m, LINEAR_B2, 0, 0, m->column, m->columns, m->b2);
    for (int64_t i = 0; i < m->columns && m->is_sum && !of_w1; i++)
        draw_list(m, LINEAR_W2, m->column[i], 0, m->feature, m->known_features,
                  m->w + i * m->known_features);
    for (int64_t i = 0; i < m->gates * m->known_features && m->is_sum && of_w1; i++)
        draw_list(m, LINEAR_W1,
                  i / m->known_features * m->sizes.middle + m->feature[i % m->known_features], 0,
                  m->column, m->columns, m->w + i * m->columns);
    for (int64_t i = 0; i < m->tokens && m->of_all_tokens; i++)
        draw_list(m, of_x ? LINEAR_X : LINEAR_DY, i, 0, m->column, m->columns,
                  m->drawn + i * m->columns);
}

// ---- life ---------------------------------------------------------------------------------------

static double *pieces_take(double **next, int64_t count)
{
    double *piece = *next;
    *next += count;
    return piece;
}

static bool memory_take(struct linear_sample *m)
{
    int64_t tokens = m->of_all_tokens ? 0 : m->tokens, known = m->known_tokens * m->known_features;
    int64_t lists = tokens * (SAMPLE_PAIRS + 1) * 2 + m->known_features + m->columns;
    m->memory_lists = calloc((size_t)lists + 1, sizeof(int64_t));
    m->memory = calloc((size_t)elements_of(m) + 1, sizeof(double));
    if (!m->memory_lists || !m->memory)
        return false;
    m->token = m->memory_lists;
    m->partner = m->token + tokens * (SAMPLE_PAIRS + 1);
    m->feature = m->partner + tokens * SAMPLE_PAIRS;
    m->column = m->feature + m->known_features;
    double *next = m->memory;
    int64_t lines = m->of_all_tokens ? m->tokens * m->columns : 0;
    m->h = pieces_take(&next, m->needs_h ? known * m->gates : 0);
    m->d = pieces_take(&next, m->needs_d ? known : 0);
    m->between =
        pieces_take(&next, m->tokens * m->gates * (m->is_sum ? m->known_features : m->features));
    m->drawn = pieces_take(&next, lines);
    m->lines = pieces_take(&next, lines);
    m->w = pieces_take(&next, m->is_sum ? m->gates * m->known_features * m->columns : 0);
    m->b1 = pieces_take(&next, m->gates * m->known_features);
    m->b2 = pieces_take(&next, m->columns);
    return true;
}

void linear_sample_destroy(struct linear_sample *m)
{
    if (!m)
        return;
    free(m->memory_lists);
    free(m->memory);
    free(m);
}

enum status linear_sample_create(const struct linear *l, int rank, enum linear_tensor tensor,
                                 struct linear_sample **sample, struct error *error)
{
    struct linear_sample *m = calloc(1, sizeof(*m));
    bool mlp = l->layer == LINEAR_MLP;
    bool fine = m != NULL;
    *sample = NULL;
    if (m) {
        *m = (struct linear_sample){.l = l, .rank = rank, .tensor = tensor};
        m->sizes = linear_sizes(l);
        m->gates = m->sizes.gates;
        m->is_sum = linear_view_is_sum(l, tensor);
        m->of_all_tokens = tensor >= LINEAR_DW1;
        m->needs_d = tensor == LINEAR_DX || tensor == LINEAR_DW1 || tensor == LINEAR_DB1;
        m->needs_h = tensor == LINEAR_Y || tensor == LINEAR_DW2 || (mlp && m->needs_d);
        if (!sizes_choose(m)) {
            linear_sample_destroy(m);
            return STATUS_OK;
        }
        fine = memory_take(m);
    }
    if (fine) {
        blas_prepare();
        lists_fill(m);
        inputs_fill(m);
        fine = (!m->needs_h || known_fill(m, false)) && (!m->needs_d || known_fill(m, true));
    }
    if (fine) {
        *sample = m;
        return STATUS_OK;
    }
    linear_sample_destroy(m);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to diagnose a layer");
}

// ---- the elements -------------------------------------------------------------------------------

int64_t linear_sample_count(const struct linear_sample *m)
{
    int64_t gates = m->gates;
    switch (m->tensor) {
    case LINEAR_Y:
    case LINEAR_DX:
        return m->tokens * (m->is_sum ? m->columns : m->features);
    case LINEAR_DW1:
        return gates * m->features * m->columns;
    case LINEAR_DB1:
        return gates * m->features;
    case LINEAR_DW2:
        return m->columns * m->features;
    default:
        return m->columns;
    }
}

// Index in the rank's tensor of sampled feature i, counted over the features of all gates.
static int64_t own_at(const struct linear_sample *m, int64_t i)
{
    int64_t own = linear_sample_features(m, m->rank), first = m->feature[m->slot[m->rank]];
    int64_t feature = m->feature[m->slot[m->rank] + i % m->features];
    return i / m->features * own + feature - first;
}

static struct linear_place place_of(const struct linear_sample *m, int64_t i)
{
    switch (m->tensor) {
    case LINEAR_Y:
    case LINEAR_DX:
        if (!m->is_sum)
            return (struct linear_place){m->token[i / m->features], own_at(m, i % m->features)};
        return (struct linear_place){m->token[i / m->columns] -
                                         linear_view_tokens(m->l, m->rank).first,
                                     m->column[i % m->columns]};
    case LINEAR_DW1:
        return (struct linear_place){own_at(m, i / m->columns), m->column[i % m->columns]};
    case LINEAR_DB1:
        return (struct linear_place){0, own_at(m, i)};
    case LINEAR_DW2:
        return (struct linear_place){m->column[i / m->features], own_at(m, i % m->features)};
    default:
        return (struct linear_place){0, m->column[i]};
    }
}

void linear_sample_read(const struct linear_sample *m, const void *data, double *values)
{
    int64_t columns = linear_shape(m->l, m->rank, m->tensor).columns;
    for (int64_t i = 0; i < linear_sample_count(m); i++) {
        struct linear_place at = place_of(m, i);
        float value;
        dtype_read(m->l->dtype, data, at.row * columns + at.column, 1, &value);
        values[i] = (double)value;
    }
}
