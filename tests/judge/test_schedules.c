// SPDX-License-Identifier: Apache-2.0
// Rows of kernels and rings with one mistake in their tiles, steps, heads or chunks, and what the
// diagnosis says of them. Everything is computed from the definition, pair by pair.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "tests/support/runner.h"

enum { TOKENS = 256, DIM = 32, HEADS = 8, RANKS = 4, TILE = 32, ROWS = 14, LEFT = 40 };

// The attention of a case, with the mistake in P.
struct attention {
    struct cp_case c;
    int rank; // that delivers the rows
    int group;
    float q[HEADS][TOKENS][DIM], k[HEADS][TOKENS][DIM], v[HEADS][TOKENS][DIM],
        d_out[HEADS][TOKENS][DIM];
    double p[HEADS][TOKENS][TOKENS], dp[HEADS][TOKENS][TOKENS];
    double lse[HEADS][TOKENS], delta[HEADS][TOKENS];
};

// Rank of a token.
static int owner(const struct attention *a, int token)
{
    int world = a->c.world_size, chunk = token / (TOKENS / (2 * world));
    if (a->c.sharding == SHARDING_CONTIGUOUS)
        return chunk / 2;
    return chunk < world ? chunk : 2 * world - 1 - chunk;
}

// The token of the other chunk of the same rank at the same place.
static int other_chunk(const struct attention *a, int token)
{
    int len = TOKENS / (2 * a->c.world_size), chunk = token / len;
    return (2 * a->c.world_size - 1 - chunk) * len + token % len;
}

static int step(const struct attention *a, int query, int key)
{
    return (owner(a, query) - owner(a, key) + a->c.world_size) % a->c.world_size;
}

// ---- mistakes -----------------------------------------------------------------------------------

// True if a query sees a key.
typedef bool sees(const struct attention *a, int i, int j);

static bool causal(const struct attention *a, int i, int j)
{
    (void)a;
    return j <= i;
}

static bool open_tiles(const struct attention *a, int i, int j)
{
    (void)a;
    return j < (i / TILE + 1) * TILE;
}

static bool open_tile_2(const struct attention *a, int i, int j)
{
    return i / TILE == 2 ? open_tiles(a, i, j) : j <= i;
}

static bool open_own_tiles(const struct attention *a, int i, int j)
{
    return step(a, i, j) == 0 ? open_tiles(a, i, j) : j <= i;
}

static bool no_tiles(const struct attention *a, int i, int j)
{
    (void)a;
    return j < i / TILE * TILE;
}

static bool last_tiles_masked(const struct attention *a, int i, int j)
{
    (void)a;
    return j <= i || j < (i / 128 + 1) * 128 - TILE;
}

static bool window(const struct attention *a, int i, int j)
{
    return j <= i && j >= i - (int)a->c.window_left;
}

static bool half_window(const struct attention *a, int i, int j)
{
    (void)a;
    return j <= i && j >= i - LEFT / 2;
}

static bool double_window(const struct attention *a, int i, int j)
{
    (void)a;
    return j <= i && j >= i - 2 * LEFT;
}

static bool window_of_zero(const struct attention *a, int i, int j)
{
    (void)a;
    return j >= i && j <= i + LEFT;
}

static bool open_window(const struct attention *a, int i, int j)
{
    (void)a;
    return j <= i && j >= (i / 64 * 64 - LEFT + TOKENS) / 16 * 16 - TOKENS;
}

// As if each rank held consecutive tokens.
static bool in_order(const struct attention *a, int i, int j)
{
    int len = TOKENS / (2 * RANKS), at[2];
    for (int side = 0; side < 2; side++) {
        int token = side ? j : i, half = token / len >= RANKS;
        at[side] = 2 * len * owner(a, token) + half * len + token % len;
    }
    return at[1] <= at[0];
}

// In a case where it does, as if each rank held two chunks of zigzag.
static bool in_zigzag(const struct attention *a, int i, int j)
{
    int len = TOKENS / (2 * RANKS), at[2];
    (void)a;
    for (int side = 0; side < 2; side++) {
        int token = side ? j : i, rank = token / (2 * len), place = token % (2 * len);
        at[side] = place < len ? rank * len + place : (2 * RANKS - 1 - rank) * len + place - len;
    }
    return at[1] <= at[0];
}

static bool last_step_alone(const struct attention *a, int i, int j)
{
    return j <= i && step(a, i, j) == a->c.world_size - 1;
}

static bool queries_exchanged(const struct attention *a, int i, int j)
{
    return j <= other_chunk(a, i);
}

static bool keys_exchanged(const struct attention *a, int i, int j)
{
    return other_chunk(a, j) <= i;
}

// True if the pair's contribution is in the result.
typedef bool takes(const struct attention *a, int head, int i, int j);

static bool last_step(const struct attention *a, int head, int i, int j)
{
    (void)head;
    return step(a, i, j) == a->c.world_size - 1;
}

static bool last_tile_of_keys(const struct attention *a, int head, int i, int j)
{
    (void)a, (void)head;
    return j / TILE == i / TILE;
}

// The chunks of a rank are tiles. The last one that a query sees.
static bool last_tile_of_each(const struct attention *a, int head, int i, int j)
{
    (void)head;
    int other = other_chunk(a, j);
    return other / TILE < j / TILE || other / TILE > i / TILE;
}

static bool last_tile_of_queries(const struct attention *a, int head, int i, int j)
{
    (void)a, (void)head, (void)j;
    return i / TILE == (TOKENS - 1) / TILE;
}

static bool queries_of_rank_2(const struct attention *a, int head, int i, int j)
{
    (void)head, (void)j;
    return owner(a, i) == 2;
}

static bool head_1_of_group(const struct attention *a, int head, int i, int j)
{
    (void)i, (void)j;
    return head % a->group == 1;
}

// The share of a pair in delta: a factor of its P.
typedef double counts(const struct attention *a, int head, int i, int j);

static double weight_of_step(const struct attention *a, int head, int i, int of)
{
    double sum = 0;
    for (int j = 0; j < TOKENS; j++)
        sum += step(a, i, j) == of ? a->p[head][i][j] : 0;
    return sum;
}

static double first_step_alone(const struct attention *a, int head, int i, int j)
{
    return step(a, i, j) == 0 ? 1 / weight_of_step(a, head, i, 0) : 0;
}

static double first_step_scaled(const struct attention *a, int head, int i, int j)
{
    (void)head;
    return step(a, i, j) == 0;
}

static double not_the_last_step(const struct attention *a, int head, int i, int j)
{
    (void)head;
    return step(a, i, j) != a->c.world_size - 1;
}

static double undivided(const struct attention *a, int head, int i, int j)
{
    double most = 0;
    (void)j;
    for (int key = 0; key < TOKENS; key++)
        most = fmax(most, a->p[head][i][key]);
    return 1 / most;
}

// The head, or the token, whose row is delivered.
typedef int taken(const struct attention *a, int x);

static int groups_exchanged(const struct attention *a, int head)
{
    return head % 2 * (HEADS / 2) + head / 2 + 0 * a->rank;
}

static int groups_reversed(const struct attention *a, int head)
{
    return (HEADS / 2 - 1 - head / 2) * 2 + head % 2 + 0 * a->rank;
}

static int groups_rotated(const struct attention *a, int head)
{
    return (head + 2) % HEADS + 0 * a->rank;
}

static int next_head(const struct attention *a, int head)
{
    return (head + 1) % HEADS + 0 * a->rank;
}

static int one_swap(const struct attention *a, int head)
{
    (void)a;
    return head == 0 ? 3 : head == 3 ? 0 : head;
}

static int row_of_rank_3(const struct attention *a, int token)
{
    int len = TOKENS / (2 * a->c.world_size), chunk = token / len;
    return (chunk < a->c.world_size ? 3 : 4) * len + token % len;
}

// The key head that a query head reads.
static int modulo(const struct attention *a, int head)
{
    return head % a->c.kv_heads;
}

// How often the pair's contribution is in the result.
static double remote_unscaled(const struct attention *a, int head, int i, int j)
{
    (void)head;
    return step(a, i, j) == 0 ? 1 : 1 / case_scale(&a->c);
}

static double own_five_times(const struct attention *a, int head, int i, int j)
{
    (void)head;
    return step(a, i, j) == 0 ? 5 : 1;
}

enum of { ONE, RING, CONTIGUOUS, GROUPS, WINDOWED };

static const struct mistake {
    enum of of;
    enum report_tensor tensor;
    sees *sees;
    taken *key_head;
    takes *takes;
    counts *counts;
    taken *head, *row;
    taken *value; // the key whose V is read
    counts *times;
    bool of_own_lse; // P of the keys that are taken adds up to 1
    bool unknown;    // the order of the ring's steps
    const char *says;
} mistakes[] = {
    {ONE, TENSOR_OUT, .says = ""},
    {RING, TENSOR_DQ, .says = ""},
    {GROUPS, TENSOR_DK, .says = ""},
    {WINDOWED, TENSOR_OUT, .says = ""},
    // tiles of the mask
    {ONE, TENSOR_OUT, open_tiles,
     .says = "the tiles at the diagonal are not masked: a query sees its whole tile of 32"},
    {ONE, TENSOR_LSE, open_tiles,
     .says = "the tiles at the diagonal are not masked: a query sees its whole tile of 32"},
    {ONE, TENSOR_OUT, open_tile_2,
     .says = "the tiles at the diagonal are not masked: a query sees its whole tile of 32 in 3 of "
             "34 examined rows that it changes, at positions 64 to 75"},
    {RING, TENSOR_OUT, open_own_tiles,
     .says = "the tiles at the diagonal are not masked: a query sees its whole tile of 32"},
    {ONE, TENSOR_OUT, no_tiles,
     .says = "the tiles at the diagonal are left out: a query sees no key of its tile of 32"},
    {ONE, TENSOR_OUT, last_tiles_masked,
     .says = "only the last tile of keys at the diagonal is masked: a query sees the whole tiles "
             "before it, with tiles of 128 queries and 32 keys"},
    {WINDOWED, TENSOR_OUT, open_window,
     .says = "the tiles at the left edge of the window are not masked: a query sees them whole, "
             "with tiles of 64 queries and 16 keys"},
    // windows
    {WINDOWED, TENSOR_OUT, half_window, .says = "the window has half its size on the left"},
    {WINDOWED, TENSOR_OUT, double_window, .says = "the window has twice its size on the left"},
    {WINDOWED, TENSOR_OUT, window_of_zero,
     .says = "the left and the right bound of the window are exchanged"},
    // chunks
    {RING, TENSOR_OUT, queries_exchanged,
     .says = "queries are masked as if the two chunks of rank 1 were exchanged"},
    {RING, TENSOR_OUT, keys_exchanged,
     .says = "the two chunks of keys of every rank are exchanged"},
    {RING, TENSOR_OUT, .value = other_chunk,
     .says = "the two chunks of values (not of keys) of every rank are exchanged"},
    {RING, TENSOR_OUT, in_order,
     .says = "queries and keys are masked as if each rank held consecutive tokens, not the two "
             "chunks of zigzag"},
    {CONTIGUOUS, TENSOR_OUT, in_zigzag,
     .says = "queries and keys are masked as if each rank held the two chunks of zigzag, not "
             "consecutive tokens"},
    {RING, TENSOR_OUT, .row = other_chunk,
     .says = "the rows of out of the two chunks of rank 1 are exchanged"},
    {RING, TENSOR_DV, .row = row_of_rank_3,
     .says = "dv has the contributions to the keys of rank 3"},
    {RING, TENSOR_DQ, .row = row_of_rank_3,
     .says = "the rows of dq are those of rank 3 at the same places"},
    // sums that are overwritten
    {RING, TENSOR_DQ, .takes = last_step,
     .says = "dq has only keys 64 to 95 and 160 to 191 (rank 2, ring step 0)"},
    {RING, TENSOR_OUT, .takes = last_step,
     .says = "out has only keys 64 to 95 and 160 to 191 (rank 2, ring step 3)"},
    {RING, TENSOR_LSE, last_step_alone,
     .says = "lse has only keys 64 to 95 and 160 to 191 (rank 2, ring step 3)"},
    {RING, TENSOR_DQ, .takes = last_step, .unknown = true,
     .says = "dq has only keys 64 to 95 and 160 to 191 (rank 2, for rows of rank 1)"},
    {ONE, TENSOR_DQ, .takes = last_tile_of_keys,
     .says = "each row of dq has only the last tile of 32 keys that it sees: a tile overwrites"},
    {ONE, TENSOR_OUT, .takes = last_tile_of_keys,
     .says = "each row of out has only the last tile of 32 keys that it sees: a tile overwrites"},
    {ONE, TENSOR_OUT, .takes = last_tile_of_keys, .of_own_lse = true,
     .says = "each row of out has only the last tile of 32 keys that it sees: a tile overwrites"},
    {RING, TENSOR_DQ, .takes = last_tile_of_each,
     .says = "each row of dq has only the last tile of 32 keys that it sees of each rank"},
    {ONE, TENSOR_DV, .takes = last_tile_of_queries,
     .says = "each row of dv has only the last tile of 32 queries that sees it: a tile overwrites"},
    {ONE, TENSOR_DK, .takes = last_tile_of_queries,
     .says = "each row of dk has only the last tile of 32 queries that sees it: a tile overwrites"},
    {RING, TENSOR_DV, .takes = queries_of_rank_2,
     .says = "dv has only the contribution of the queries of rank 2: the rest is overwritten"},
    {GROUPS, TENSOR_DK, .takes = head_1_of_group,
     .says = "dk has only the contribution of query head 1 of each group: the rest is overwritten"},
    // factors of some contributions
    {RING, TENSOR_DQ, .times = remote_unscaled,
     .says =
         "what the keys of other ranks add to dq is 5.657 times what it should be (the scale of "
         "the softmax is missing)"},
    {RING, TENSOR_DK, .times = remote_unscaled,
     .says = "what the queries of other ranks add to dk is 5.657 times what it should be (the"},
    {RING, TENSOR_DV, .times = own_five_times,
     .says = "what the queries of the own rank add to dv is 5 times what it should be"},
    // delta
    {RING, TENSOR_DQ, .counts = first_step_alone,
     .says = "delta = rowsum(dO * O) is computed from the O of the keys of rank 1 alone"},
    {RING, TENSOR_DQ, .counts = first_step_scaled,
     .says = "delta = rowsum(dO * O) is the part of the keys of rank 1 alone"},
    {RING, TENSOR_DQ, .counts = not_the_last_step,
     .says = "delta = rowsum(dO * O) lacks the part of the keys of rank 2"},
    {RING, TENSOR_DQ, .counts = undivided,
     .says = "O that is not divided by the sum of the softmax"},
    // heads
    {RING, TENSOR_OUT, .head = groups_exchanged,
     .says = "out of head h is that of head h % 2 * 4 + h / 2, of 8 heads"},
    {RING, TENSOR_DQ, .head = groups_exchanged,
     .says = "dq of head h is that of head h % 2 * 4 + h / 2, of 8 heads"},
    {RING, TENSOR_DK, .head = groups_exchanged,
     .says = "dk of head h is that of head h % 2 * 4 + h / 2, of 8 heads"},
    {RING, TENSOR_OUT, .head = groups_reversed,
     .says = "out of head h is that of head h % 2 + 2 * (3 - h / 2): groups in reverse order"},
    {RING, TENSOR_OUT, .head = groups_rotated, .says = "out of head h is that of head (h + 2) % 8"},
    {RING, TENSOR_OUT, .head = one_swap,
     .says = "out of head 0 is that of head 3, 3 is that of head 0"},
    {RING, TENSOR_OUT, .key_head = groups_exchanged,
     .says = "the queries of key head h read key head h % 2 * 4 + h / 2, of 8 heads"},
    {RING, TENSOR_DV, .head = next_head, .says = "dv of a key head is that of the head after it"},
    {GROUPS, TENSOR_OUT, .key_head = modulo,
     .says = "query head h reads key head h % 2 instead of h / 4"},
};

// ---- attention ----------------------------------------------------------------------------------

static void case_of(enum of of, struct cp_case *c)
{
    struct error error;
    case_init(c);
    c->world_size = of == RING || of == CONTIGUOUS ? RANKS : 1;
    c->sharding = of == CONTIGUOUS ? SHARDING_CONTIGUOUS : c->sharding;
    c->batch = 1;
    c->heads = HEADS;
    c->kv_heads = of == GROUPS ? 2 : HEADS;
    c->head_dim_qk = c->head_dim_v = DIM;
    c->seqlen_q = c->seqlen_kv = TOKENS;
    c->window_left = of == WINDOWED ? LEFT : c->window_left;
    ck_assert_msg(case_check(c, &error) == STATUS_OK, "%s", error.text);
}

static double product(const float *x, const float *y)
{
    double sum = 0;
    for (int k = 0; k < DIM; k++)
        sum += (double)x[k] * y[k];
    return sum;
}

// Fills a row of P and dP, LSE and delta. In a gradient LSE and delta are right.
static void row_fill(struct attention *a, const struct mistake *m, int head, int i)
{
    sees *right = a->c.window_left >= 0 ? window : causal, *seen = m->sees ? m->sees : right;
    int g = m->key_head ? m->key_head(a, head) : head / a->group;
    double sum = 0, scale = case_scale(&a->c), *p = a->p[head][i];
    for (int j = 0; j < TOKENS; j++) {
        p[j] = seen(a, i, j) ? exp(product(a->q[head][i], a->k[g][j]) * scale) : 0;
        a->dp[head][i][j] = product(a->d_out[head][i], a->v[g][j]);
        sum += p[j];
    }
    a->lse[head][i] = log(sum);
    for (int j = 0; j < TOKENS && sum > 0; j++)
        p[j] /= sum;
    for (int j = 0; j < TOKENS; j++)
        a->delta[head][i] += p[j] * a->dp[head][i][j] * (m->counts ? m->counts(a, head, i, j) : 1);
}

static struct attention *attention_create(const struct mistake *m)
{
    struct attention *a = calloc(1, sizeof(*a));
    ck_assert_ptr_nonnull(a);
    case_of(m->of, &a->c);
    a->rank = a->c.world_size > 1;
    a->group = HEADS / a->c.kv_heads;
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < TOKENS; i++) {
            input_token_head(&a->c, INPUT_Q, 0, i, head, a->q[head][i]);
            input_token_head(&a->c, INPUT_DO, 0, i, head, a->d_out[head][i]);
            if (head >= a->c.kv_heads)
                continue;
            input_token_head(&a->c, INPUT_K, 0, i, head, a->k[head][i]);
            input_token_head(&a->c, INPUT_V, 0, i, head, a->v[head][i]);
        }
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < TOKENS; i++)
            row_fill(a, m, head, i);
    return a;
}

// Adds the contribution of a pair to a row of the tensor.
static void pair_add(const struct attention *a, const struct mistake *m, int head, int i, int j,
                     double *row)
{
    int g = m->key_head ? m->key_head(a, head) : head / a->group;
    double p = a->p[head][i][j] * (m->times ? m->times(a, head, i, j) : 1);
    double scale = case_scale(&a->c);
    double ds = p * (a->dp[head][i][j] - a->delta[head][i]) * scale;
    if (m->takes && !m->takes(a, head, i, j))
        return;
    const float *of = m->tensor == TENSOR_OUT  ? a->v[g][m->value ? m->value(a, j) : j]
                      : m->tensor == TENSOR_DQ ? a->k[g][j]
                      : m->tensor == TENSOR_DK ? a->q[head][i]
                                               : a->d_out[head][i];
    double factor = m->tensor == TENSOR_OUT || m->tensor == TENSOR_DV ? p : ds;
    for (int k = 0; k < DIM; k++)
        row[k] += factor * of[k];
}

// Computes a row of the tensor. Returns its LSE.
static double row_compute(const struct attention *a, const struct mistake *m, int head, int token,
                          float *got)
{
    double row[DIM] = {0}, sum = 0;
    if (m->tensor == TENSOR_LSE) {
        got[0] = (float)a->lse[head][token];
        return got[0];
    }
    bool keys = m->tensor == TENSOR_DK || m->tensor == TENSOR_DV;
    for (int other = 0; other < TOKENS; other++) {
        for (int h = head * a->group; h < (head + 1) * a->group && keys; h++)
            pair_add(a, m, h, other, token, row);
        if (keys)
            continue;
        pair_add(a, m, head, token, other, row);
        sum += !m->takes || m->takes(a, head, token, other) ? a->p[head][token][other] : 0;
    }
    for (int k = 0; k < DIM; k++)
        got[k] = (float)(row[k] / (m->of_own_lse ? sum : 1));
    dtype_round(a->c.dtype, got, DIM);
    return keys ? NAN : a->lse[head][token] + (m->of_own_lse ? log(sum) : 0);
}

START_TEST(mistakes_are_named)
{
    static float got[3 * ROWS][DIM];
    const struct mistake *m = &mistakes[_i];
    struct attention *a = attention_create(m);
    struct diagnosis_row rows[3 * ROWS];
    struct finding found;
    bool keys = m->tensor == TENSOR_DK || m->tensor == TENSOR_DV;
    int heads = keys ? a->c.kv_heads : HEADS, count = 0;
    const int some[] = {0, 1, heads > 3 ? 3 : heads - 1};
    for (int n = 0; n < (heads > 2 ? 3 : 2); n++)
        for (int r = 0; r < ROWS; r++) {
            int token = r * 17 + n * 11 + 2, from_head = m->head ? m->head(a, some[n]) : some[n];
            while (owner(a, token) != a->rank) // a token of the rank
                token = (token + TOKENS / (2 * RANKS)) % TOKENS;
            int from = m->row ? m->row(a, token) : token;
            double lse = row_compute(a, m, from_head, from, got[count]);
            if (m->head || m->row)
                lse = keys ? NAN : a->lse[some[n]][token];
            rows[count] = (struct diagnosis_row){
                .head = some[n], .position = token, .got = got[count], .lse = lse};
            count++;
        }
    struct diagnosis_input in = {.c = &a->c,
                                 .rank = a->rank,
                                 .tensor = m->tensor,
                                 .rows = rows,
                                 .count = count,
                                 .steps_unknown = m->unknown,
                                 .noise = m->tensor == TENSOR_LSE ? 0 : 1.7e-3};
    diagnosis_find(&in, &found);
    printf("# %s\n", found.diagnosis.text);
    ck_assert_msg(*m->says ? strncmp(found.diagnosis.text, m->says, strlen(m->says)) == 0 ||
                                 strstr(found.diagnosis.text, m->says)
                           : found.kind == DIAGNOSIS_NONE,
                  "\"%s\" instead of \"%s\"", found.diagnosis.text, m->says);
    free(a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedules");
    TCase *tcase = tcase_create("mistakes");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, mistakes_are_named, 0, sizeof(mistakes) / sizeof(*mistakes));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
