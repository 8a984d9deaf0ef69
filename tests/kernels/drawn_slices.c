// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/drawn_slices.h"

#include "tests/support/generate.h"

static int64_t draw_bound(uint64_t *state)
{
    return generate_below(state, 2) == 0 ? SLICE_UNBOUNDED : generate_below(state, 12);
}

void slices_draw(struct drawn_slices *drawn, uint64_t seed)
{
    *drawn = (struct drawn_slices){.count = (int32_t)generate_below(&seed, DRAWN_SLICES_MAX + 1)};
    drawn->shape.row_step = 1 + generate_below(&seed, 3);
    drawn->shape.bias_row_stride = DRAWN_BIAS_STRIDE;
    drawn->shape.bias_row_step = generate_below(&seed, 2);
    int64_t length = DRAWN_ROWS_MAX / drawn->shape.row_step;
    for (int32_t i = 0; i < drawn->count; i++) {
        int64_t residue = generate_below(&seed, drawn->shape.row_step);
        int64_t q = generate_below(&seed, length), kv = generate_below(&seed, length);
        drawn->slices[i] = (struct slice){.q_row = residue + q * drawn->shape.row_step,
                                          .q_len = generate_below(&seed, length - q + 1),
                                          .kv_row = residue + kv * drawn->shape.row_step,
                                          .kv_len = generate_below(&seed, length - kv + 1),
                                          .offset = generate_below(&seed, 41) - 20,
                                          .left = draw_bound(&seed),
                                          .right = draw_bound(&seed),
                                          .bias_row = generate_below(&seed, 9),
                                          .bias_column = generate_below(&seed, 90)};
    }
}

void slices_tally(const struct drawn_slices *drawn, struct pair_tally *tally)
{
    int64_t step = drawn->shape.row_step;
    for (int32_t n = 0; n < drawn->count; n++) {
        const struct slice *s = &drawn->slices[n];
        for (int64_t i = 0; i < s->q_len; i++) {
            int64_t begin, end;
            slice_visible(s, i, &begin, &end);
            for (int64_t j = begin; j < end; j++) {
                int64_t row = s->q_row + i * step, key = s->kv_row + j * step;
                tally->pairs[row][key]++;
                tally->bias[row][key] +=
                    (s->bias_row + i * drawn->shape.bias_row_step) * DRAWN_BIAS_STRIDE +
                    s->bias_column + j;
            }
        }
    }
}
