// SPDX-License-Identifier: Apache-2.0
// Compares the CUDA forward with the CPU backend: random problems of every dtype, head dim, mask
// and layout. Memory that must not be read or written holds NaN.
#include <math.h>

#include "tests/cuda/forward_trial.h"
#include "tests/cuda/harness.h"

static void drawn_problems(enum case_dtype dtype, int count)
{
    for (int i = harness_small() ? count * 9 / 10 : 0; i < count; i++) {
        struct trial t = trial_draw(dtype);
        if (!trial_check(&t))
            return;
    }
}

// Rows of other sequences and of padding are NaN and must not affect a result.
static void plain_problems(void)
{
    for (int i = harness_small() ? 290 : 0; i < 300; i++) {
        struct trial t = trial_draw_plain((enum case_dtype)(DTYPE_BF16 + i % 2));
        if (!trial_check(&t))
            return;
    }
}

// Sequences of random lengths, one slice each, with a row of NaN between them.
static struct trial trial_of_many(const int32_t width[2], int32_t heads, int64_t left,
                                  int64_t right)
{
    struct trial t = trial_of(DTYPE_BF16, width[0], width[1], 0, 0);
    struct problem *p = &t.problem;
    p->shape.heads = harness_small() ? 2 : heads;
    p->shape.kv_heads = p->shape.heads / 2;
    p->shape.group = 2;
    p->q_rows = p->kv_rows = 0;
    p->slice_count = harness_small() ? 2 : PROBLEM_SLICES_MAX;
    for (int s = 0; s < p->slice_count; s++) {
        int64_t q_len = harness_between(1, 700), kv_len = harness_between(1, 500);
        p->slices[s] = (struct slice){.q_row = p->q_rows,
                                      .q_len = q_len,
                                      .kv_row = p->kv_rows,
                                      .kv_len = kv_len,
                                      .offset = q_len - kv_len,
                                      .left = left,
                                      .right = right};
        p->q_rows += q_len + 1;
        p->kv_rows += kv_len + 1;
    }
    p->shape.q_rows = p->q_rows;
    return t;
}

static const int32_t many_widths[][2] = {{128, 128}, {64, 64}, {192, 128}, {256, 256}};

// More tiles than there are multiprocessors.
static void many_tiles(void)
{
    for (int i = 0; i < (harness_small() ? 1 : 8); i++) {
        struct trial t = trial_of_many(many_widths[i % 4], 16, i < 4 ? SLICE_UNBOUNDED : 200,
                                       i % 2 ? SLICE_UNBOUNDED : 0);
        if (!trial_check(&t))
            return;
    }
}

// many_tiles() with a bias, a softcap, or both. Rows of the bias are aligned to 16 bytes or not;
// with a window, a tile's part of the bias begins at any column. None, some or all blocks of the
// bias contain -inf. The cap is far above, above or among the scores.
static void many_tiles_with_features(void)
{
    static const int hiding[] = {0, 30000, 10};
    static const double caps[] = {30, 7, 1.5};
    for (int i = 0; i < (harness_small() ? 6 : 36); i++) {
        struct trial t = trial_of_many(many_widths[i / 3 % 4], 8, i < 12 ? SLICE_UNBOUNDED : 300,
                                       i % 2 ? SLICE_UNBOUNDED : 0);
        struct problem *p = &t.problem;
        t.wants_max = true;
        t.hiding = hiding[i / 12];
        if (i % 3 != 0)
            p->shape.softcap = caps[i / 6 % 3];
        if (i % 3 != 1) {
            p->shape.bias_row_step = 1;
            p->shape.bias_row_stride = i % 3 == 0 || i == 5 ? 504 : 503;
            p->shape.bias_head_stride = 701 * p->shape.bias_row_stride;
            p->bias_count = p->shape.heads * p->shape.bias_head_stride;
        }
        if (!trial_check(&t))
            return;
    }
}

// The short polynomial of a softcap may change P and LSE a little, but not the largest logit.
static void largest_logits_of_a_cap(void)
{
    static const double caps[] = {30, 11.5};
    for (int i = 0; i < (harness_small() ? 2 : 8); i++) {
        struct trial t = trial_of_many(many_widths[i / 2 % 4], 8, SLICE_UNBOUNDED, SLICE_UNBOUNDED);
        t.problem.shape.softcap = caps[i % 2];
        t.wants_max = true;
        t.max_admitted = 3e-6;
        if (!trial_check(&t))
            return;
    }
}

// Tiles of one length, a few more than there are multiprocessors. The work list cuts the last ones
// smaller.
static void nearly_empty_rounds(void)
{
    for (int i = 0; i < 6; i++) {
        const int32_t *width = many_widths[i % 3];
        struct trial t = trial_of(DTYPE_BF16, width[0], width[1], 700, 300);
        struct problem *p = &t.problem;
        p->shape.heads = p->shape.kv_heads = harness_small() ? 2 : 36;
        if (i >= 3) {
            p->shape.bias_row_step = 1;
            p->shape.bias_row_stride = 304;
            p->shape.bias_head_stride = 701 * p->shape.bias_row_stride;
            p->bias_count = p->shape.heads * p->shape.bias_head_stride;
        }
        if (!trial_check(&t))
            return;
    }
}

static void drawn_bf16(void)
{
    drawn_problems(DTYPE_BF16, 150);
}

static void drawn_fp16(void)
{
    drawn_problems(DTYPE_FP16, 100);
}

static void drawn_fp32(void)
{
    drawn_problems(DTYPE_FP32, 80);
}

// Every d_qk, aligned or not, with d_v = HEAD_DIM_MAX + 1 - d_qk and with d_v = d_qk.
static void every_width(void)
{
    for (int32_t d = 1; d <= HEAD_DIM_MAX; d += harness_small() ? 37 : 1) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + d % 3);
        struct trial t = trial_of(dtype, d, HEAD_DIM_MAX + 1 - d, 5, 70);
        struct trial square = trial_of(dtype, d, d, 70, 5);
        if (!trial_check(&t) || !trial_check(&square))
            return;
    }
}

// Lengths at and next to the edges of tiles, causal or not, for the tiles of every head dim.
static void edges(void)
{
    static const int32_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
    static const int64_t lengths[] = {1,   31,  32,  33,  63,  64,  65,  79,  80,  81,
                                      127, 128, 129, 159, 160, 161, 191, 192, 193, 385};
    int count = (int)(sizeof(lengths) / sizeof(*lengths));
    for (int i = 0; i < count * count; i += harness_small() ? 17 : 1) {
        const int32_t *width = widths[i % 4];
        struct trial t =
            trial_of(DTYPE_BF16, width[0], width[1], lengths[i / count], lengths[i % count]);
        if (i / 4 % 2 == 0)
            t.problem.slices[0].right = 0;
        if (i / 8 % 3 == 0)
            t.problem.slices[0].left = ONE_OF(0, 1, 63, 79, 80, 100);
        if (!trial_check(&t))
            return;
    }
}

// The maximum of every row grows with every key, by more or less than the threshold above which
// kernels rescale the accumulator.
static void rising_logits(void)
{
    for (int i = 0; i < 6; i++) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + i % 3);
        struct trial t = trial_of(dtype, 128, 128, 70, 700);
        t.rising = true;
        t.problem.magnitude = i < 3 ? 1 : 8;
        trial_check(&t);
    }
}

// All logits of a row are below 0, and rise or fall with the key. Some are so low that weights
// relative to 0 would vanish; some rise so steeply that weights relative to the smallest logit of a
// block would overflow.
static void logits_below_zero(void)
{
    static const int32_t widths[] = {64, 96, 128, 256};
    static const float slopes[] = {1, 40, -40, -120};
    for (int i = 0; i < 24; i++) {
        enum case_dtype dtype = (enum case_dtype)(DTYPE_BF16 + i % 2);
        int32_t d = widths[i / 2 % 4];
        struct trial t = trial_of(dtype, d, d, 200, 700);
        t.rising = true;
        t.problem.magnitude = slopes[i / 6];
        t.depth = fmax(slopes[i / 6], 0) + 1 + i % 3 * 5;
        t.wants_max = i / 2 % 2 == 1;
        t.problem.shape.softcap = i % 5 == 4 ? 300 : 0;
        if (!trial_check(&t))
            return;
    }
}

// Scores of a block may exceed those of earlier blocks by so much that weights relative to the old
// maximum overflow, in some rows or in all. Some rows see no key of their first blocks.
static void sudden_maxima(void)
{
    static const float magnitudes[] = {30, 100, 300, 1000};
    for (int i = 0; i < (harness_small() ? 4 : 16); i++) {
        struct trial t = trial_of_many(many_widths[i % 4], 8, i % 3 == 0 ? 200 : SLICE_UNBOUNDED,
                                       i % 3 == 1 ? 0 : SLICE_UNBOUNDED);
        struct problem *p = &t.problem;
        p->shape.dtype = i / 3 % 2 ? DTYPE_FP16 : DTYPE_BF16;
        p->magnitude = magnitudes[(i + i / 4) % 4];
        t.prior = (enum prior)(i / 2 % PRIORS);
        if (i % 5 == 4) {
            p->shape.bias_row_step = 1;
            p->shape.bias_row_stride = 504;
            p->shape.bias_head_stride = 701 * p->shape.bias_row_stride;
            p->bias_count = p->shape.heads * p->shape.bias_head_stride;
            t.hiding = i % 2 ? 0 : 10;
        }
        if (!trial_check(&t))
            return;
    }
}

// The weight of each key is small compared with their sum, and must not be lost.
static void many_keys(void)
{
    struct trial t = trial_of(DTYPE_BF16, 128, 128, 3, harness_small() ? 2000 : 1 << 17);
    trial_check(&t);
    t = trial_of(DTYPE_FP16, 64, 64, 3, harness_small() ? 2000 : 1 << 17);
    trial_check(&t);
}

// Two keys have far higher logits than the others, and the second a little higher than the first.
// Before the second is seen, the weight of the first relative to the other keys is large, or near
// the largest number of fp32. The second is in the last block, which has a mask.
static void two_peaks(void)
{
    static const struct steep peaks[] = {
        {.peaks = {200, 290}, .heights = {60, 63}, .loud = -1},
        {.peaks = {100, 290}, .heights = {60, 63}, .loud = -1},
        {.peaks = {200, 290}, .heights = {86, 89}, .loud = -1},
        {.peaks = {100, 290}, .heights = {86, 89}, .loud = -1},
        {.peaks = {100, 200}, .heights = {200, 201}, .loud = -1},
    };
    for (int i = 0; i < 10; i++) {
        int32_t d = i % 2 ? 64 : 128;
        struct trial t = trial_of(DTYPE_BF16, d, d, 200, 300);
        t.steep = &peaks[i / 2];
        t.problem.magnitude = 100; // of the logits, for the tolerance
        trial_check(&t);
    }
}

// One row has higher logits than the others of its warp, and the row 8 below it, which belongs to
// the same thread but not to the tile, is NaN. NaN must not hide the scores that decide on the
// polynomial of a softcap.
static void caps_beside_nan(void)
{
    static const struct steep loud = {.level = 5.2, .peaks = {-1, -1}, .loud = 6};
    for (int i = 0; i < 2; i++) {
        struct trial t = trial_of((enum case_dtype)(DTYPE_BF16 + i), 64, 64, 14, 256);
        struct problem *p = &t.problem;
        p->slices[1] = p->slices[0];
        p->slices[1].q_row = 15; // row 14 is NaN
        p->slices[1].q_len = 1;
        p->slice_count = 2;
        p->shape.q_rows = p->q_rows = 17;
        p->shape.softcap = 30;
        t.steep = &loud;
        trial_check(&t);
    }
}

// A softcap far above all logits must not change them.
static void large_caps(void)
{
    static const double caps[] = {100, 300, 1e3, 1e5, 1e6};
    for (int i = 0; i < 15; i++) {
        struct trial t = trial_of((enum case_dtype)(DTYPE_BF16 + i % 3), 64, 64, 70, 300);
        t.problem.shape.softcap = caps[i / 3];
        t.problem.magnitude = i % 2 ? 1 : 8;
        t.wants_max = true;
        if (!trial_check(&t))
            return;
    }
}

static void nothing_to_do(void)
{
    struct trial t = trial_of(DTYPE_BF16, 64, 64, 0, 10);
    trial_check(&t);
    t = trial_of(DTYPE_BF16, 64, 64, 10, 0);
    trial_check(&t);
    t.problem.slice_count = 0;
    trial_check(&t);
}

static void refusals(void)
{
    struct error error;
    struct trial t = trial_of(DTYPE_BF16, HEAD_DIM_MAX + 1, 64, 1, 1);
    struct attention_forward args = {.shape = t.problem.shape};
    EXPECT(backend_cuda.attention->forward(harness_cuda, &args, &error) == STATUS_INVALID_ARGUMENT,
           "d_qk");
    t = trial_of(DTYPE_BF16, 64, 64, 1, 1);
    args.shape = t.problem.shape;
    args.shape.kv_heads = 2;
    EXPECT(backend_cuda.attention->forward(harness_cuda, &args, &error) == STATUS_INVALID_ARGUMENT,
           "kv_heads");
}

int main(int argc, char **argv)
{
    static const struct harness_test tests[] = {
        {"drawn problems in bf16", drawn_bf16},
        {"drawn problems in fp16", drawn_fp16},
        {"drawn problems in fp32", drawn_fp32},
        {"plain problems", plain_problems},
        {"many tiles", many_tiles},
        {"many tiles with features", many_tiles_with_features},
        {"largest logits of a cap", largest_logits_of_a_cap},
        {"nearly empty rounds", nearly_empty_rounds},
        {"every width", every_width},
        {"edges of tiles", edges},
        {"rising logits", rising_logits},
        {"logits below zero", logits_below_zero},
        {"sudden maxima", sudden_maxima},
        {"many keys", many_keys},
        {"two peaks", two_peaks},
        {"caps beside NaN", caps_beside_nan},
        {"large caps", large_caps},
        {"nothing to do", nothing_to_do},
        {"refusals", refusals}};
    return harness_run(tests, (int)(sizeof(tests) / sizeof(*tests)), argc, argv);
}
