// SPDX-License-Identifier: Apache-2.0
// Shards of random cases compared with the second definition in tests/plan/layout.h: every token
// and every position of padding is on the documented rank, chunk and row.
#include <string.h>

#include "plan/shard.h"
#include "tests/plan/layout.h"
#include "tests/support/runner.h"

#define SEEDS     10000
#define SPANS_MAX (2 * GENERATE_BATCH_MAX)

// An assertion for inner loops. Each of Check's own assertions writes to a file.
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("seed %llu: %s", (unsigned long long)seed, #condition);                   \
    } while (0)

static uint64_t seed;
static struct cp_case c;
static struct layout layout;
static int met[GENERATE_BATCH_MAX][LAYOUT_OCCUPIED_MAX];

static void expect_span(const struct span *span, int rank, bool padding)
{
    EXPECT(span->len > 0);
    for (int64_t t = 0; t < span->len; t++) {
        int64_t position = span->position + t;
        EXPECT(position < layout.occupied[span->sequence]);
        EXPECT((position >= layout.length[span->sequence]) == padding);
        const struct place *place = &layout.places[span->sequence][position];
        EXPECT(place->rank == rank);
        EXPECT(place->chunk == span->chunk);
        EXPECT(place->row == span->row + t * shard_row_step(&c));
        met[span->sequence][position]++;
    }
}

// Sequence by sequence, in ascending position.
static void expect_spans(const struct span *spans, int count, int rank, bool padding)
{
    EXPECT(count <= shard_spans_max(&c));
    for (int n = 0; n < count; n++) {
        const struct span *last = n > 0 ? &spans[n - 1] : NULL;
        EXPECT(!last || spans[n].sequence >= last->sequence);
        EXPECT(!last || spans[n].sequence > last->sequence ||
               spans[n].position >= last->position + last->len);
        expect_span(&spans[n], rank, padding);
    }
}

static int64_t expect_rank(enum shard_side side, int rank)
{
    struct span spans[SPANS_MAX];
    expect_spans(spans, shard_spans(&c, side, rank, spans), rank, false);
    expect_spans(spans, shard_padding(&c, side, rank, spans), rank, true);
    for (int s = 0; s < c.batch; s++)
        EXPECT(shard_tokens(&c, side, rank, s) == layout.tokens[rank][s]);
    EXPECT(shard_rows(&c, side, rank) == layout.rows[rank]);
    return layout.rows[rank];
}

static void expect_side(enum shard_side side)
{
    int64_t most = 0;
    layout_make(&c, side, &layout);
    memset(met, 0, sizeof met);
    for (int rank = 0; rank < c.world_size; rank++) {
        int64_t rows = expect_rank(side, rank);
        most = rows > most ? rows : most;
    }
    EXPECT(shard_rows_max(&c, side) == most);
    for (int s = 0; s < c.batch; s++)
        for (int64_t i = 0; i < LAYOUT_OCCUPIED_MAX; i++)
            EXPECT(met[s][i] == (i < layout.occupied[s]));
}

START_TEST(every_token_is_at_its_documented_place)
{
    for (seed = 0; seed < SEEDS; seed++) {
        generate_case(seed, LAYOUT_RANKS_MAX, LAYOUT_LENGTH_MAX, &c);
        expect_side(SIDE_Q);
        expect_side(SIDE_KV);
    }
}
END_TEST

// The definition itself: each row of a rank has one token.
START_TEST(the_definition_uses_each_row_once)
{
    for (seed = 0; seed < SEEDS; seed++) {
        bool used[LAYOUT_RANKS_MAX][GENERATE_BATCH_MAX * LAYOUT_OCCUPIED_MAX] = {{false}};
        generate_case(seed, LAYOUT_RANKS_MAX, LAYOUT_LENGTH_MAX, &c);
        layout_make(&c, SIDE_KV, &layout);
        for (int s = 0; s < c.batch; s++)
            for (int64_t i = 0; i < layout.occupied[s]; i++) {
                const struct place *place = &layout.places[s][i];
                EXPECT(place->row >= 0 && place->row < layout.rows[place->rank]);
                EXPECT(!used[place->rank][place->row]);
                used[place->rank][place->row] = true;
            }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_test(t, every_token_is_at_its_documented_place);
    tcase_add_test(t, the_definition_uses_each_row_once);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
