// SPDX-License-Identifier: Apache-2.0
// Compares the CPU's attention kernels with the fp64 reference, and tests the elementwise
// operations of the CPU backend.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/tile.h"
#include "tests/kernels/scene.h"
#include "tests/support/runner.h"

// After the rounding of the inputs, all arithmetic is fp32 (24 bits). Logits of sharp inputs reach
// about 25, where half a unit in the last place is 1e-6. Such an error changes a probability by a
// relative 1e-6; a few of them add up. Largest observed errors: 2e-6 for O and gradients, 5e-7 for
// LSE.
#define LSE_TOLERANCE 1e-6

#define FREE         WINDOW_UNBOUNDED
#define BF16         DTYPE_BF16
#define FP16         DTYPE_FP16
#define FP32         DTYPE_FP32
#define BOTTOM_RIGHT MASK_CAUSAL_BOTTOM_RIGHT
static const struct scene_sample samples[] = {
    // Lengths around the sizes of blocks and tiles.
    {1, 1, MASK_NONE, FREE, FREE, 1, 1, 1, 1, FP32, 1, 1, 1},
    {1, TILE_KEYS + 1, MASK_NONE, FREE, FREE, 2, 2, 64, 64, FP32, 1, 1, 1},
    {TILE_ROWS + 1, 1, MASK_NONE, FREE, FREE, 2, 2, 64, 64, FP32, 1, 1, 1},
    {TILE_ROWS - 1, TILE_KEYS - 1, MASK_NONE, FREE, FREE, 2, 2, 32, 32, FP32, 1, 1, 1},
    {TILE_ROWS, TILE_KEYS, MASK_NONE, FREE, FREE, 2, 2, 32, 32, FP32, 1, 1, 1},
    {TILE_ROWS + 1, TILE_KEYS + 1, MASK_NONE, FREE, FREE, 2, 2, 32, 32, FP32, 1, 1, 1},
    {TILE_ROWS * 2 + 100, TILE_KEYS * 2 + 100, MASK_NONE, FREE, FREE, 1, 1, 128, 128, BF16, 1, 1,
     1},
    {0, 7, MASK_NONE, FREE, FREE, 2, 2, 8, 8, BF16, 1, 1, 1},
    {7, 0, MASK_NONE, FREE, FREE, 2, 2, 8, 8, BF16, 1, 1, 1},
    // Head dimensions, element types, row strides.
    {65, 70, MASK_CAUSAL, FREE, FREE, 2, 2, 1, 33, BF16, 1, 1, 1},
    {65, 70, MASK_CAUSAL, FREE, FREE, 2, 2, 33, 1, FP16, 2, 2, 2},
    {130, 130, MASK_CAUSAL, FREE, FREE, 2, 2, 192, 128, BF16, 3, 2, 2},
    {130, 130, MASK_CAUSAL, FREE, FREE, 2, 2, 256, 256, FP16, 2, 1, 2},
    // Causal, cut into spans, both alignments, equal and unequal numbers of queries and keys.
    {TILE_ROWS + 1, TILE_ROWS + 1, MASK_CAUSAL, FREE, FREE, 2, 2, 64, 64, BF16, 1, 1, 1},
    {1201, 1201, MASK_CAUSAL, FREE, FREE, 2, 2, 64, 64, FP32, 1, 4, 5},
    {300, 700, MASK_CAUSAL, FREE, FREE, 2, 2, 32, 32, BF16, 1, 3, 3},
    {300, 700, BOTTOM_RIGHT, FREE, FREE, 2, 2, 32, 32, BF16, 1, 3, 3},
    {700, 300, MASK_CAUSAL, FREE, FREE, 2, 2, 32, 32, BF16, 1, 3, 3},
    {700, 300, BOTTOM_RIGHT, FREE, FREE, 2, 2, 32, 32, BF16, 1, 3, 3}, // 400 queries see no key
    {3, 2, MASK_CAUSAL, FREE, FREE, 2, 2, 16, 16, BF16, 1, 6, 6},      // empty spans
    // Windows, narrower and wider than a tile.
    {1100, 1100, MASK_CAUSAL, 100, FREE, 2, 2, 32, 32, FP16, 1, 3, 2},
    {1000, 1000, MASK_NONE, 30, 7, 2, 2, 32, 32, FP16, 1, 2, 3},
    {1500, 1500, MASK_NONE, 800, 5, 1, 1, 32, 32, BF16, 1, 1, 1},
    {400, 100, MASK_NONE, 20, 0, 2, 2, 32, 32, BF16, 1, 2, 2},              // last 280 see no key
    {400, 100, MASK_NONE_BOTTOM_RIGHT, 20, 0, 2, 2, 32, 32, BF16, 1, 2, 2}, // first 300
    {300, 700, MASK_NONE_BOTTOM_RIGHT, 40, 9, 2, 2, 32, 32, BF16, 1, 2, 3},
    {90, 90, MASK_CAUSAL, 0, FREE, 2, 2, 32, 32, BF16, 1, 2, 2},
    // GQA. Query heads per key head: a divisor of TILE_ROWS, no divisor, more than TILE_ROWS.
    {300, 300, MASK_CAUSAL, FREE, FREE, 8, 2, 64, 64, BF16, 1, 2, 2},
    {200, 333, BOTTOM_RIGHT, 50, FREE, 12, 4, 32, 16, FP16, 2, 2, 2},
    {129, 129, MASK_NONE, FREE, FREE, 7, 1, 32, 32, FP32, 1, 1, 2},
    {3, 9, BOTTOM_RIGHT, FREE, FREE, TILE_ROWS + 44, 1, 4, 4, BF16, 1, 1, 1},
};
#define SAMPLE_COUNT ((int)(sizeof(samples) / sizeof(samples[0])))

static void check_errors(const struct scene *s)
{
    struct scene_errors errors = scene_compare(s);
    double tolerance = scene_tolerance(s->c.dtype);
    ck_assert_double_le(errors.o, tolerance);
    ck_assert_double_le(errors.lse, LSE_TOLERANCE);
    ck_assert_double_le(errors.dq, tolerance);
    ck_assert_double_le(errors.dk, tolerance);
    ck_assert_double_le(errors.dv, tolerance);
}

START_TEST(agrees_with_the_reference)
{
    struct scene s;
    scene_init(&s, &samples[_i]);
    struct attention_backend *backend = scene_backend();
    scene_run(&s, backend, _i % 2 == 0);
    check_errors(&s);
    ck_assert_int_eq(scene_touched(&s), 0);
    backend_cpu.destroy(backend);
    scene_fini(&s);
}
END_TEST

START_TEST(every_variant_agrees)
{
    static const struct scene_sample sample = {300, 300, MASK_CAUSAL, 170, FREE, 4, 2,
                                               48,  33,  DTYPE_BF16,  1,   2,    3};
    const struct vector_ops *variants[VECTOR_VARIANTS_MAX];
    vector_list(variants);
    for (int i = 0; variants[i]; i++) {
        struct scene s;
        scene_init(&s, &sample);
        struct attention_backend *backend = scene_backend();
        backend->vector = variants[i];
        scene_run(&s, backend, true);
        check_errors(&s);
        backend_cpu.destroy(backend);
        scene_fini(&s);
    }
}
END_TEST

// Computes the same attention as one slice (a), as several slices in one call (b), and with one
// call per slice (c). b and c have the same bits; a and b differ by fp32 rounding errors.
START_TEST(pieces_add_up)
{
    struct scene_sample whole = {500, 500, MASK_CAUSAL, FREE, FREE, 4, 2,
                                 64,  32,  DTYPE_BF16,  1,    1,    1};
    struct scene_sample cut = whole;
    cut.k_spans = _i;
    struct scene a, b, c;
    scene_init(&a, &whole);
    scene_init(&b, &cut);
    scene_init(&c, &cut);
    struct attention_backend *backend = scene_backend();
    scene_run(&a, backend, true);
    scene_run(&b, backend, true);
    scene_run(&c, backend, false);
    ck_assert_double_le(scene_difference(b.o, a.o, a.q.rows * 4 * 32), SCENE_TOLERANCE);
    ck_assert_double_le(scene_difference(b.lse, a.lse, a.q.rows * 4), LSE_TOLERANCE);
    ck_assert_double_le(scene_difference(b.dq, a.dq, a.q.rows * 4 * 64), SCENE_TOLERANCE);
    ck_assert_mem_eq(c.o, b.o, (size_t)(b.q.rows * 4 * 32) * sizeof(float));
    ck_assert_mem_eq(c.lse, b.lse, (size_t)(b.q.rows * 4) * sizeof(float));
    ck_assert_mem_eq(c.dq, b.dq, (size_t)(b.q.rows * 4 * 64) * sizeof(float));
    ck_assert_mem_eq(c.dk, b.dk, (size_t)(b.k.rows * 2 * 64) * sizeof(float));
    ck_assert_mem_eq(c.dv, b.dv, (size_t)(b.k.rows * 2 * 32) * sizeof(float));
    check_errors(&c);
    backend_cpu.destroy(backend);
    scene_fini(&a);
    scene_fini(&b);
    scene_fini(&c);
}
END_TEST

static void check_same_bits(const struct scene *a, const struct scene *b)
{
    const struct cp_case *c = &a->c;
    size_t q_rows = (size_t)(a->q.rows * c->heads), k_rows = (size_t)(a->k.rows * c->kv_heads);
    size_t qk_bytes = (size_t)c->head_dim_qk * sizeof(float);
    size_t v_bytes = (size_t)c->head_dim_v * sizeof(float);
    ck_assert_mem_eq(a->o, b->o, q_rows * v_bytes);
    ck_assert_mem_eq(a->lse, b->lse, q_rows * sizeof(float));
    ck_assert_mem_eq(a->dq, b->dq, q_rows * qk_bytes);
    ck_assert_mem_eq(a->dk, b->dk, k_rows * qk_bytes);
    ck_assert_mem_eq(a->dv, b->dv, k_rows * v_bytes);
}

// A repetition gives the same bits, on a backend that has computed other shapes before, and with
// other alignments of the tensors.
START_TEST(repeats_are_identical)
{
    const struct scene_sample *sample = &samples[_i];
    struct scene first, again;
    scene_init(&first, sample);
    struct attention_backend *backend = scene_backend();
    scene_run(&first, backend, true);
    backend_cpu.destroy(backend);

    backend = scene_backend();
    for (int i = 9; i < 13; i++) {
        struct scene other;
        scene_init(&other, &samples[i]);
        scene_run(&other, backend, true);
        scene_fini(&other);
    }
    void *ballast = malloc(100);
    scene_init(&again, sample);
    scene_run(&again, backend, true);
    check_same_bits(&first, &again);
    free(ballast);
    backend_cpu.destroy(backend);
    scene_fini(&first);
    scene_fini(&again);
}
END_TEST

// A query that sees no key keeps its O, LSE and dQ, whatever their values.
START_TEST(rows_that_see_nothing_stay)
{
    static const struct scene_sample sample = {20, 5, BOTTOM_RIGHT, FREE, FREE, 2, 2,
                                               8,  8, BF16,         1,    1,    1};
    struct scene s;
    scene_init(&s, &sample);
    for (int64_t row = 0; row < s.q.rows; row++)
        for (int head = 0; head < 2; head++) {
            s.lse[head * s.q.rows + row] = 1.5f;
            for (int e = 0; e < 8; e++)
                s.o[(row * 2 + head) * 8 + e] = s.dq[(row * 2 + head) * 8 + e] = -0.75f;
        }
    struct attention_backend *backend = scene_backend();
    scene_run(&s, backend, true);
    int blind_written = 0, seeing_written = 0;
    for (int64_t i = 0; i < 20; i++) {
        int64_t row = scene_row(&s.q, i);
        int *written = i < 15 ? &blind_written : &seeing_written; // the last 5 queries see a key
        for (int e = 0; e < 16; e++)
            *written += s.o[row * 16 + e] != -0.75f && s.dq[row * 16 + e] != -0.75f;
        *written += s.lse[row] != 1.5f;
    }
    ck_assert_int_eq(blind_written, 0);
    ck_assert_int_eq(seeing_written, 5 * 17);
    backend_cpu.destroy(backend);
    scene_fini(&s);
}
END_TEST

// An empty band, and a band to the right of the diagonal.
START_TEST(bands_off_the_diagonal)
{
    static const struct scene_sample sample = {40, 60, MASK_NONE, FREE, FREE, 2, 1,
                                               8,  8,  FP32,      1,    2,    2};
    struct attention_backend *backend = scene_backend();
    for (int empty = 0; empty < 2; empty++) {
        struct scene s;
        scene_init(&s, &sample);
        for (int i = 0; i < s.slice_count; i++) {
            s.slices[i].left = empty ? -5 : -3; // 3 <= key - query <= 6
            s.slices[i].right = empty ? 2 : 6;
        }
        scene_run(&s, backend, true);
        ck_assert_int_eq(scene_touched(&s), 0);
        int seen = 0;
        for (int64_t i = 0; i < 40; i++)
            seen += s.lse[scene_row(&s.q, i)] != -INFINITY && s.o[scene_row(&s.q, i) * 16] != 0;
        ck_assert_int_eq(seen, empty ? 0 : 40);
        int unseen = 0;
        for (int64_t j = 0; j < 60; j++)
            unseen += s.dv[scene_row(&s.k, j) * 8] == 0;
        ck_assert_int_eq(unseen, empty ? 60 : 60 - 43);
        scene_fini(&s);
    }
    backend_cpu.destroy(backend);
}
END_TEST

// A row with a final LSE of -inf has no visible key. It contributes nothing, even if its D is NaN.
START_TEST(backward_skips_rows_without_lse)
{
    static const struct scene_sample sample = {9, 9, MASK_NONE, FREE, FREE, 1, 1,
                                               8, 8, FP32,      1,    1,    1};
    struct scene s;
    scene_init(&s, &sample);
    for (int64_t row = 0; row < s.q.rows; row++) {
        s.lse[row] = -INFINITY;
        s.d[row] = NAN;
    }
    struct attention_backend *backend = scene_backend();
    scene_backward(&s, backend, true);
    for (int64_t i = 0; i < 9 * 8; i++) {
        ck_assert_float_eq(s.dq[scene_row(&s.q, i / 8) * 8 + i % 8], 0);
        ck_assert_float_eq(s.dk[scene_row(&s.k, i / 8) * 8 + i % 8], 0);
        ck_assert_float_eq(s.dv[scene_row(&s.k, i / 8) * 8 + i % 8], 0);
    }
    backend_cpu.destroy(backend);
    scene_fini(&s);
}
END_TEST

// Logits far beyond the range of exp().
START_TEST(large_logits_do_not_overflow)
{
    struct scene_sample sample = {40, 40, MASK_CAUSAL, FREE, FREE, 2, 2, 64, 64, FP32, 1, 1, 3};
    struct scene s;
    scene_init(&s, &sample);
    s.c.scale = 40; // after scene_init(), which divides sharp inputs by the scale
    struct attention_shape shape = scene_shape(&s);
    ck_assert_double_eq(shape.scale, 40);
    struct attention_backend *backend = scene_backend();
    scene_forward(&s, backend, false);
    float largest = -INFINITY;
    for (int64_t i = 0; i < 40; i++) {
        int64_t row = scene_row(&s.q, i);
        largest = fmaxf(largest, s.lse[row]);
        for (int e = 0; e < 128; e++)
            ck_assert(isfinite(s.o[row * 128 + e]));
    }
    ck_assert(isfinite(largest) && largest > 1000);
    backend_cpu.destroy(backend);
    scene_fini(&s);
}
END_TEST

START_TEST(nan_in_a_named_row_is_seen)
{
    struct scene_sample sample = {6, 6, MASK_CAUSAL, FREE, FREE, 1, 1, 8, 8, FP32, 1, 1, 1};
    struct scene s;
    scene_init(&s, &sample);
    ((float *)s.k_data)[scene_row(&s.k, 4) * 8 + 3] = NAN;
    struct attention_backend *backend = scene_backend();
    scene_forward(&s, backend, true);
    for (int64_t i = 0; i < 6; i++) {
        float o = s.o[scene_row(&s.q, i) * 8], lse = s.lse[scene_row(&s.q, i)];
        ck_assert_int_eq(isnan(o) != 0, i >= 4);
        ck_assert_int_eq(isnan(lse) != 0, i >= 4);
    }
    backend_cpu.destroy(backend);
    scene_fini(&s);
}
END_TEST

// ---- elementwise operations ---------------------------------------------------------------------

START_TEST(row_dot_of_all_rows)
{
    static const int dims[] = {1, 33, 128, 256};
    struct attention_shape shape = {
        .dtype = (enum case_dtype)_i, .heads = 3, .kv_heads = 1, .d_qk = 8, .q_rows = 5};
    struct attention_backend *backend = scene_backend();
    for (int t = 0; t < 4; t++) {
        shape.d_v = dims[t];
        float o[5 * 3 * 256], d[16] = {[15] = 77};
        uint32_t d_out[5 * 3 * 256];
        for (int i = 0; i < 15 * shape.d_v; i++) {
            o[i] = sinf((float)i);
            dtype_store(shape.dtype, d_out, i, cosf((float)i * 3));
        }
        backend_cpu.row_dot(backend, &shape, d_out, o, d);
        for (int row = 0; row < 5; row++)
            for (int head = 0; head < 3; head++) {
                double sum = 0, magnitude = 0;
                for (int i = 0; i < shape.d_v; i++) {
                    int64_t at = (row * 3 + head) * shape.d_v + i;
                    double term = (double)dtype_load(shape.dtype, d_out, at) * o[at];
                    sum += term;
                    magnitude += fabs(term);
                }
                ck_assert_double_le(fabs(d[head * 5 + row] - sum), magnitude * 1e-6);
            }
        ck_assert_float_eq(d[15], 77);
    }
    backend_cpu.destroy(backend);
}
END_TEST

START_TEST(add_convert_fill)
{
    struct attention_backend *backend = scene_backend();
    for (int count = 0; count < 70; count++) {
        float a[72], b[72];
        uint16_t half[72];
        backend_cpu.fill(backend, a, -INFINITY, 72);
        backend_cpu.fill(backend, a, 1.25f, count);
        for (int i = 0; i < 72; i++)
            b[i] = 0.1f * (float)i;
        backend_cpu.add(backend, a, b, count);
        memset(half, 0x55, sizeof(half));
        backend_cpu.convert(backend, DTYPE_FP16, b, half, count);
        int wrong = 0;
        for (int i = 0; i < 72; i++) {
            uint16_t expected;
            dtype_store(DTYPE_FP16, &expected, 0, b[i]);
            wrong += a[i] != (i < count ? 1.25f : -INFINITY);
            wrong += b[i] != (i < count ? 1.25f + 0.1f * (float)i : 0.1f * (float)i);
            wrong += half[i] != (i < count ? expected : 0x5555);
        }
        ck_assert_int_eq(wrong, 0);
    }
    backend_cpu.destroy(backend);
}
END_TEST

START_TEST(shapes_that_cannot_be_served)
{
    struct attention_shape good = {.dtype = BF16,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .group = 2,
                                   .d_qk = 8,
                                   .d_v = 8,
                                   .row_step = 1,
                                   .scale = 1};
    struct attention_shape bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].d_qk = HEAD_DIM_MAX + 1;
    bad[1].d_v = 0;
    bad[2].kv_heads = 3;
    bad[3].kv_heads = 0;
    bad[4].row_step = 0;
    bad[5].row_step = INT64_C(1) << 40;
    static const char *const words[] = {
        "head dimensions are 257 and 8", "8 and 0", "do not use 3 key heads",
        "do not use 0 key heads",        "0 rows",  "1099511627776 rows"};
    struct attention_backend *backend = scene_backend();
    for (int i = 0; i < 6; i++) {
        struct error error;
        struct attention_forward forward = {.shape = bad[i]};
        struct attention_backward backward = {.shape = bad[i]};
        ck_assert_int_ne(backend_cpu.attention->forward(backend, &forward, &error), STATUS_OK);
        ck_assert_ptr_nonnull(strstr(error.text, words[i]));
        ck_assert_int_ne(backend_cpu.attention->backward(backend, &backward, &error), STATUS_OK);
    }
    backend_cpu.destroy(backend);
    backend_cpu.destroy(NULL);
}
END_TEST

static Suite *attention_suite(void)
{
    Suite *suite = suite_create("attention");
    TCase *slices = tcase_create("slices");
    tcase_set_timeout(slices, 120);
    tcase_add_loop_test(slices, agrees_with_the_reference, 0, SAMPLE_COUNT);
    tcase_add_test(slices, every_variant_agrees);
    tcase_add_loop_test(slices, pieces_add_up, 2, SCENE_SPANS_MAX + 1);
    tcase_add_loop_test(slices, repeats_are_identical, 11, 16);
    tcase_add_test(slices, rows_that_see_nothing_stay);
    tcase_add_test(slices, bands_off_the_diagonal);
    tcase_add_test(slices, backward_skips_rows_without_lse);
    tcase_add_test(slices, large_logits_do_not_overflow);
    tcase_add_test(slices, nan_in_a_named_row_is_seen);
    suite_add_tcase(suite, slices);
    TCase *elements = tcase_create("elements");
    tcase_add_loop_test(elements, row_dot_of_all_rows, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_test(elements, add_convert_fill);
    tcase_add_test(elements, shapes_that_cannot_be_served);
    suite_add_tcase(suite, elements);
    return suite;
}

int main(void)
{
    return runner_run(attention_suite());
}
