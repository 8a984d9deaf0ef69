// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/panel.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "judge/diagnosis.h"
#include "judge/inputs.h"

// ---- chunks -------------------------------------------------------------------------------------

void chunks_init(struct chunks *x, const struct cp_case *c, enum shard_side side, int32_t sequence)
{
    int64_t occupied = case_occupied(c, side, sequence), length = case_length(c, side, sequence);
    int per_rank = shard_chunks_per_rank(c);
    x->count = per_rank * c->world_size;
    for (int rank = 0; rank < c->world_size; rank++)
        for (int i = 0; i < per_rank; i++) {
            int chunk = shard_chunk_of(c, rank, i);
            int64_t begin, end;
            shard_chunk(occupied, x->count, chunk, &begin, &end);
            x->begin[chunk] = begin < length ? begin : length;
            x->ranks[chunk] = rank;
            x->halves[chunk] = i;
        }
    x->begin[x->count] = length;
}

int chunks_find(const struct chunks *x, int64_t position)
{
    int low = 0, high = x->count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (x->begin[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t chunks_place(const struct chunks *x, const struct cp_case *c, int64_t position)
{
    int chunk = chunks_find(x, position);
    int64_t place = position - x->begin[chunk];
    if (x->halves[chunk] == 1) {
        int first = shard_chunk_of(c, x->ranks[chunk], 0);
        place += x->begin[first + 1] - x->begin[first];
    }
    return place;
}

// ---- memory -------------------------------------------------------------------------------------

// True if the columns have the same inputs as those of setup.like.
static bool same_columns(const struct panel *p)
{
    const struct panel_setup *s = &p->setup;
    if (!s->like || s->misread != MISREAD_NOTHING || s->like->setup.side != s->side ||
        s->like->setup.sequence != s->sequence)
        return false;
    return s->side == SIDE_Q ? s->like->setup.key_head == s->key_head
                             : s->like->setup.head == s->head && s->like->setup.modulo == s->modulo;
}

static bool lay_out(struct panel *p)
{
    const struct cp_case *c = p->c;
    bool own = !same_columns(p);
    int64_t scores = p->rows * p->columns, columns = own ? p->columns : 0;
    int64_t statistics = p->setup.side == SIDE_Q ? p->rows : p->columns;
    int64_t sizes[] = {p->rows * c->head_dim_qk,
                       p->rows * c->head_dim_v,
                       scores,
                       scores,
                       scores,
                       scores,
                       scores,
                       statistics,
                       statistics,
                       columns * c->head_dim_qk,
                       columns * c->head_dim_v};
    double **places[] = {&p->row_qk, &p->row_v, &p->products, &p->dp,     &p->p,    &p->ds,
                         &p->slope,  &p->lse,   &p->delta,    &p->col_qk, &p->col_v};
    int64_t total = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        total += sizes[i];
    p->memory = malloc((size_t)total * sizeof(double));
    if (!p->memory)
        return false;
    double *next = p->memory;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        *places[i] = next;
        next += sizes[i];
    }
    if (!own) {
        p->col_qk = p->setup.like->col_qk;
        p->col_v = p->setup.like->col_v;
    }
    return true;
}

// True if the panel is within the bounds of judge/diagnosis.h.
static bool affordable(const struct panel *p)
{
    int64_t d = p->c->head_dim_qk + p->c->head_dim_v;
    return p->columns > 0 && p->rows * p->columns <= DIAGNOSIS_PAIRS_MAX &&
           p->columns * d <= DIAGNOSIS_ELEMENTS_MAX;
}

void panel_fini(struct panel *p)
{
    free(p->memory);
    p->memory = NULL;
}

// ---- inputs -------------------------------------------------------------------------------------

static void rows_load(struct panel *p, enum input_tensor tensor, int head, double *rows)
{
    const struct panel_setup *s = &p->setup;
    const int64_t *positions = s->taken ? s->taken : s->positions;
    int d = input_head_dim(p->c, tensor);
    float values[HEAD_DIM_MAX];
    for (int i = 0; i < p->rows; i++) {
        input_token_head(p->c, tensor, s->sequence, positions[i], head, values);
        for (int k = 0; k < d; k++)
            *rows++ = values[k];
    }
}

static void column_load(const struct panel *p, enum input_tensor tensor, int32_t sequence,
                        int64_t position, int head, double *column)
{
    float values[HEAD_DIM_MAX];
    input_token_head(p->c, tensor, sequence, position, head, values);
    for (int k = 0; k < input_head_dim(p->c, tensor); k++)
        column[k] = values[k];
}

static void columns_load(const struct panel *p, enum input_tensor tensor, int head, int64_t first,
                         int64_t count, double *columns)
{
    int d = input_head_dim(p->c, tensor);
    for (int64_t i = 0; i < count; i++)
        column_load(p, tensor, p->setup.sequence, i, head, columns + (first + i) * d);
}

int panel_column_head(const struct panel *p, int64_t column)
{
    int i = (int)(column / p->queries);
    return p->setup.modulo ? i * p->c->kv_heads + p->setup.head : p->setup.head * p->group + i;
}

// Loads the extra keys: the last key of the previous sequence in the memory of each rank. It lies
// in front of the sequence's first key if sequences are packed without padding.
static void extra_load(struct panel *p)
{
    const struct cp_case *c = p->c;
    int32_t before = p->setup.sequence - 1;
    for (int i = 0; i < p->extra; i++) {
        struct chunks chunks;
        chunks_init(&chunks, c, SIDE_KV, before);
        int last = shard_chunk_of(c, p->extra_rank[i], shard_chunks_per_rank(c) - 1);
        int64_t position = chunks.begin[last + 1] - 1, column = p->keys + i;
        column_load(p, INPUT_K, before, position, p->setup.key_head,
                    p->col_qk + column * c->head_dim_qk);
        column_load(p, INPUT_V, before, position, p->setup.key_head,
                    p->col_v + column * c->head_dim_v);
    }
}

static void extra_count(struct panel *p)
{
    const struct cp_case *c = p->c;
    int32_t before = p->setup.sequence - 1;
    if (c->format != FORMAT_THD || before < 0 ||
        case_length(c, SIDE_KV, before) != case_occupied(c, SIDE_KV, before))
        return;
    for (int rank = 0; rank < c->world_size; rank++) {
        int64_t begin, end;
        shard_chunk(case_occupied(c, SIDE_KV, before), c->world_size * shard_chunks_per_rank(c),
                    shard_chunk_of(c, rank, shard_chunks_per_rank(c) - 1), &begin, &end);
        if (begin < end)
            p->extra_rank[p->extra++] = rank;
    }
}

// True if the key is among those that setup.misread_own selects.
static bool is_misread(const struct panel *p, int64_t key)
{
    int rank = p->k_chunks.ranks[chunks_find(&p->k_chunks, key)], own = p->setup.misread_own;
    return own >= 0 ? rank == own : rank != ~own;
}

// Replaces the token and head of a key by those that are read if the memory of its rank is read
// with heads and rows exchanged. Leaves them as they are unless the format is BSHD without padding.
static void transposed(const struct panel *p, int64_t key, int32_t *sequence, int64_t *position,
                       int *head)
{
    const struct cp_case *c = p->c;
    const struct chunks *x = &p->k_chunks;
    int chunk = chunks_find(x, key), rank = x->ranks[chunk];
    int first = shard_chunk_of(c, rank, 0), second = shard_chunk_of(c, rank, 1);
    int64_t first_len = x->begin[first + 1] - x->begin[first];
    int64_t tokens = shard_tokens(c, SIDE_KV, rank, 0), rows = tokens * c->batch;
    int64_t row = *sequence * tokens + key - x->begin[chunk] + (x->halves[chunk] ? first_len : 0);
    if (c->format != FORMAT_BSHD || !case_is_even(c, SIDE_KV))
        return;
    bool rows_first = p->setup.misread == MISREAD_ROWS_FIRST;
    int64_t flat = rows_first ? row * c->kv_heads + *head : *head * rows + row;
    int64_t place = rows_first ? flat % rows : flat / c->kv_heads;
    *head = (int)(rows_first ? flat / rows : flat % c->kv_heads);
    *sequence = (int32_t)(place / tokens);
    place %= tokens;
    *position = place < first_len ? x->begin[first] + place : x->begin[second] + place - first_len;
}

static void misread_load(struct panel *p, int64_t key)
{
    const struct cp_case *c = p->c;
    int32_t sequence = p->setup.sequence;
    int64_t position = key;
    int head = p->setup.key_head;
    bool keys = p->setup.misread == MISREAD_V_IS_K, values = p->setup.misread == MISREAD_K_IS_V;
    if (!keys && !values)
        transposed(p, key, &sequence, &position, &head);
    column_load(p, values ? INPUT_V : INPUT_K, sequence, position, head,
                p->col_qk + key * c->head_dim_qk);
    column_load(p, keys ? INPUT_K : INPUT_V, sequence, position, head,
                p->col_v + key * c->head_dim_v);
}

static void query_columns_load(struct panel *p)
{
    columns_load(p, INPUT_K, p->setup.key_head, 0, p->keys, p->col_qk);
    columns_load(p, INPUT_V, p->setup.key_head, 0, p->keys, p->col_v);
    for (int64_t key = 0; key < p->keys && p->setup.misread != MISREAD_NOTHING; key++)
        if (is_misread(p, key))
            misread_load(p, key);
    extra_load(p);
}

static void key_columns_load(struct panel *p)
{
    for (int i = 0; i < p->group; i++) {
        int head = panel_column_head(p, i * p->queries);
        columns_load(p, INPUT_Q, head, i * p->queries, p->queries, p->col_qk);
        columns_load(p, INPUT_DO, head, i * p->queries, p->queries, p->col_v);
    }
}

static void inputs_load(struct panel *p)
{
    const struct panel_setup *s = &p->setup;
    bool queries = s->side == SIDE_Q;
    rows_load(p, queries ? INPUT_Q : INPUT_K, queries ? s->query_head : s->head, p->row_qk);
    rows_load(p, queries ? INPUT_DO : INPUT_V, queries ? s->query_head : s->head, p->row_v);
    if (same_columns(p))
        return;
    if (queries)
        query_columns_load(p);
    else
        key_columns_load(p);
}

// ---- products -----------------------------------------------------------------------------------

static void multiply(const struct panel *p, const double *rows, const double *columns, int d,
                     double *products)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->rows, (int)p->columns, d, 1, rows, d,
                columns, d, 0, products, (int)p->columns);
}

static void add(const struct panel *p, const double *w, const double *columns, int d, int64_t begin,
                int64_t end, double *out)
{
    if (begin < end)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, p->rows, d, (int)(end - begin), 1,
                    w + begin, (int)p->columns, columns + begin * d, d, 1, out, d);
}

void panel_products(struct panel *p, const double *row_qk)
{
    multiply(p, row_qk, p->col_qk, p->c->head_dim_qk, p->products);
}

void panel_add_qk(struct panel *p, const double *w, int64_t begin, int64_t end, double *out)
{
    add(p, w, p->col_qk, p->c->head_dim_qk, begin, end, out);
}

void panel_add_v(struct panel *p, const double *w, int64_t begin, int64_t end, double *out)
{
    add(p, w, p->col_v, p->c->head_dim_v, begin, end, out);
}

bool panel_init(struct panel *p, const struct panel_setup *setup)
{
    const struct cp_case *c = setup->c;
    *p = (struct panel){.setup = *setup,
                        .c = c,
                        .rows = setup->count,
                        .queries = case_length(c, SIDE_Q, setup->sequence),
                        .keys = case_length(c, SIDE_KV, setup->sequence),
                        .group = setup->side == SIDE_Q ? 1 : c->heads / c->kv_heads};
    if (setup->side == SIDE_Q)
        extra_count(p);
    p->columns = setup->side == SIDE_Q ? p->keys + p->extra : p->group * p->queries;
    chunks_init(&p->q_chunks, c, SIDE_Q, setup->sequence);
    chunks_init(&p->k_chunks, c, SIDE_KV, setup->sequence);
    if (!affordable(p) || !lay_out(p))
        return false;
    blas_prepare();
    inputs_load(p);
    panel_products(p, p->row_qk);
    multiply(p, p->row_v, p->col_v, c->head_dim_v, p->dp);
    return true;
}
