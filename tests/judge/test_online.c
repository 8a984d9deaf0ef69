// SPDX-License-Identifier: Apache-2.0
// Rows of a softmax over tiles of keys, or over ring steps, with a mistake, and what the diagnosis
// says of them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis.h"
#include "judge/inputs.h"
#include "tests/support/runner.h"

enum { ROWS = 24, KEYS = 256, DIM = 64, RANKS = 4, NOWHERE = KEYS };

// A kernel of one rank, or of rank 1 of a ring.
struct kernel {
    int world, tile;             // tile 0: ring steps from the ranks before the own
    bool backwards;              // takes the last tile first
    bool out_scaled, sum_scaled; // when the largest logit grows
    int lost;                    // the first key of a tile that is left out
    int lost_below;              // by queries up to this position
    const char *says;
};

static const struct kernel kernels[] = {
    {1, 64, false, true, true, NOWHERE, 0, ""},
    {1, 64, true, true, true, NOWHERE, 0, ""},
    {1, 64, false, true, true, 64, KEYS,
     "keys 64 to 127 are missing from the softmax: a tile of 64"},
    {1, 32, false, true, true, 32, 140,
     "keys 32 to 63 are missing from the softmax in 12 of 23 examined rows that see them, at "
     "positions 70 to 136"},
    {1, 32, false, false, false, NOWHERE, 0,
     "the earlier sums are not scaled by exp(max before - max after) when the largest logit of a "
     "row grows: tiles of 32 keys"},
    {1, 64, true, false, true, NOWHERE, 0,
     "the earlier out is not scaled, as the denominator is, by exp(max before - max after) when "
     "the largest logit of a row grows: tiles of 64 keys from the last on"},
    {1, 16, false, true, false, NOWHERE, 0,
     "the earlier denominator is not scaled, as out is, by exp(max before - max after) when the "
     "largest logit of a row grows: tiles of 16 keys"},
    {RANKS, 0, false, false, false, NOWHERE, 0,
     "the earlier sums are not scaled by exp(max before - max after) when the largest logit of a "
     "row grows: ring steps"},
};

static int64_t position_of(int row)
{
    return 70 + 6 * row;
}

// The piece that a key belongs to, in the order of the kernel.
static int piece_of(const struct kernel *x, int key)
{
    int chunk = key / (KEYS / (2 * RANKS)), owner = chunk < RANKS ? chunk : 2 * RANKS - 1 - chunk;
    if (x->tile == 0)
        return (1 - owner + RANKS) % RANKS; // of rank 1, with zigzag sharding
    return x->backwards ? KEYS / x->tile - 1 - key / x->tile : key / x->tile;
}

struct sums {
    double top, sum, out[DIM];
};

static void piece_add(const struct kernel *x, const struct cp_case *c, int piece, int64_t query,
                      const float *q, struct sums *s)
{
    float k[DIM], v[DIM];
    double logits[KEYS], top = s->top;
    for (int key = 0; key <= query; key++) {
        logits[key] = -INFINITY;
        bool lost = key >= x->lost && key < x->lost + x->tile && query < x->lost_below;
        if (piece_of(x, key) != piece || lost)
            continue;
        input_token_head(c, INPUT_K, 0, key, 0, k);
        logits[key] = 0;
        for (int i = 0; i < DIM; i++)
            logits[key] += (double)q[i] * k[i] * case_scale(c);
        top = fmax(top, logits[key]);
    }
    double scale = s->top > -INFINITY ? exp(s->top - top) : 1;
    s->sum *= x->sum_scaled ? scale : 1;
    for (int i = 0; i < DIM; i++)
        s->out[i] *= x->out_scaled ? scale : 1;
    s->top = top;
    for (int key = 0; key <= query; key++) {
        if (logits[key] == -INFINITY)
            continue;
        input_token_head(c, INPUT_V, 0, key, 0, v);
        s->sum += exp(logits[key] - top);
        for (int i = 0; i < DIM; i++)
            s->out[i] += exp(logits[key] - top) * v[i];
    }
}

START_TEST(mistakes_are_named)
{
    static float got[ROWS][DIM];
    const struct kernel *x = &kernels[_i];
    struct diagnosis_row rows[ROWS];
    struct finding found;
    struct cp_case c;
    case_init(&c);
    c.world_size = x->world;
    c.batch = c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = DIM;
    c.seqlen_q = c.seqlen_kv = KEYS;
    for (int row = 0; row < ROWS; row++) {
        struct sums s = {.top = -INFINITY};
        float q[DIM];
        input_token_head(&c, INPUT_Q, 0, position_of(row), 0, q);
        for (int piece = 0; piece < KEYS / 16; piece++)
            piece_add(x, &c, piece, position_of(row), q, &s);
        for (int i = 0; i < DIM; i++)
            got[row][i] = (float)(s.out[i] / s.sum);
        rows[row] = (struct diagnosis_row){
            .position = position_of(row), .got = got[row], .lse = s.top + log(s.sum)};
    }
    struct diagnosis_input in = {
        .c = &c, .rank = x->world > 1, .tensor = TENSOR_OUT, .rows = rows, .count = ROWS};
    diagnosis_find(&in, &found);
    ck_assert_str_eq(found.diagnosis.text, x->says);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("online");
    TCase *tcase = tcase_create("mistakes");
    tcase_add_loop_test(tcase, mistakes_are_named, 0, sizeof(kernels) / sizeof(*kernels));
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
