// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/draw.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "judge/philox.h"
#include "kernels/dtype.h"
#include "kernels/vector.h"
#include "plan/weight.h"
#include "tests/support/runner.h"

// ---- the generator ------------------------------------------------------------------------------

struct known_answer {
    uint32_t counter[4], key[2], block[4];
};

// The vectors published with the Random123 library for philox 4x32, 10 rounds.
static const struct known_answer known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(philox_gives_the_published_blocks)
{
    const struct known_answer *known = &known_answers[_i];
    struct philox_block counter;
    memcpy(counter.word, known->counter, sizeof(counter.word));
    uint64_t key = (uint64_t)known->key[1] << 32 | known->key[0];
    struct philox_block block = philox_block(counter, key);
    ck_assert_mem_eq(block.word, known->block, sizeof(block.word));
}
END_TEST

// One element, from the definition in judge/inputs.h.
static float element(const struct input_draw *draw, uint64_t index)
{
    if (draw->period > 0 && index % draw->period == 0)
        return draw->constant;
    struct philox_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), draw->tensor, 0}};
    int sum = (int)philox_half_sum(philox_block(counter, draw->seed));
    float x = (float)(sum - INPUT_SUM_MEAN) * INPUT_SUM_UNIT;
    x = x > draw->limit ? draw->limit : x < -draw->limit ? -draw->limit : x;
    return x * draw->factor;
}

// Indices of first elements: small ones, some whose low word overflows inside a vector, large ones.
static const uint64_t firsts[] = {
    0, 1, 12345, UINT64_C(0xfffffff0), UINT64_C(0xffffffffffff), (UINT64_C(1) << 56) - 9};

START_TEST(draw_follows_the_definition)
{
    const struct draw_ops *variants[DRAW_VARIANTS_MAX];
    draw_list(variants);
    struct input_draw draws[] = {
        {.seed = 0, .tensor = INPUT_Q, .limit = INFINITY, .factor = 1},
        {.seed = UINT64_C(0xfedcba9876543210), .tensor = INPUT_DO, .limit = 1, .factor = 1},
        {.seed = UINT64_MAX, .tensor = INPUT_K, .limit = INFINITY, .factor = 2.7182817f},
        {.seed = 5, .tensor = INPUT_Q, .limit = INFINITY, .factor = 1, .period = 1, .constant = 3},
        {.seed = 5, .tensor = INPUT_K, .limit = 1, .factor = 1, .period = 7, .constant = -3}};
    float values[44];
    for (int v = 0; variants[v]; v++)
        for (int d = 0; d < 5; d++)
            for (int count = 0; count <= 40; count++) {
                uint64_t first = firsts[(v + d + count) % 6];
                for (int i = 0; i < 44; i++)
                    values[i] = -77;
                variants[v]->draw(&draws[d], first, count, values);
                int wrong = 0;
                for (int i = 0; i < 44; i++)
                    wrong +=
                        values[i] != (i < count ? element(&draws[d], first + (uint64_t)i) : -77);
                ck_assert_msg(wrong == 0, "%s, draw %d, count %d: %d wrong", variants[v]->name, d,
                              count, wrong);
            }
}
END_TEST

// ---- the tensors of a case ----------------------------------------------------------------------

static const enum input_tensor tensors[] = {INPUT_Q, INPUT_K, INPUT_V, INPUT_DO};

// 3 sequences of 7 queries and 5 keys, 6 heads on 2, dimensions 33 and 20.
static struct cp_case small_case(enum case_dtype dtype)
{
    struct cp_case c;
    case_init(&c);
    c.dtype = dtype;
    c.batch = 3;
    c.seqlen_q = 7;
    c.seqlen_kv = 5;
    c.heads = 6;
    c.kv_heads = 2;
    c.head_dim_qk = 33;
    c.head_dim_v = 20;
    return c;
}

START_TEST(elements_are_indexed_globally)
{
    struct cp_case c = small_case((enum case_dtype)_i);
    for (int t = 0; t < 4; t++) {
        bool query_side = tensors[t] == INPUT_Q || tensors[t] == INPUT_DO;
        bool logit_side = tensors[t] == INPUT_Q || tensors[t] == INPUT_K;
        uint64_t length = query_side ? 7 : 5, heads = query_side ? 6 : 2;
        uint64_t d = logit_side ? 33 : 20;
        uint64_t first = ((2 * length + 4) * heads + 1) * d; // sequence 2, position 4, head 1
        struct input_draw draw = input_draw_of(&c, tensors[t]);
        float values[HEAD_DIM_MAX];
        input_token_head(&c, tensors[t], 2, 4, 1, values);
        for (uint64_t i = 0; i < d; i++) {
            float expected = element(&draw, first + i);
            uint32_t rounded;
            dtype_store(c.dtype, &rounded, 0, expected);
            ck_assert_float_eq(values[i], dtype_load(c.dtype, &rounded, 0));
        }
    }
}
END_TEST

// All shapes of a bias; true: it has this dimension.
static const struct {
    enum case_bias bias;
    bool batch, heads, rows;
} bias_shapes[] = {{BIAS_111S, false, false, false}, {BIAS_11SS, false, false, true},
                   {BIAS_1H1S, false, true, false},  {BIAS_1HSS, false, true, true},
                   {BIAS_B11S, true, false, false},  {BIAS_B1SS, true, false, true},
                   {BIAS_BH1S, true, true, false},   {BIAS_BHSS, true, true, true}};

START_TEST(broadcast_dimensions_share_a_bias)
{
    const int batch = 3, heads = 6, sequence = 2, head = 4;
    const int64_t rows = 7, columns = 1500, position = 5, first = 3, count = 1400;
    static float values[1400], row[1400];
    for (int b = 0; b < 8; b++) {
        struct cp_case c = small_case((enum case_dtype)_i);
        c.batch = batch;
        c.heads = heads;
        c.seqlen_q = rows;
        c.seqlen_kv = columns;
        c.inputs = b % 2 ? INPUTS_TE : INPUTS_SHARP; // never clamped
        c.bias = bias_shapes[b].bias;
        uint64_t index = bias_shapes[b].batch ? sequence : 0;
        index = bias_shapes[b].heads ? index * heads + head : index;
        index = bias_shapes[b].rows ? index * rows + position : index;
        struct input_draw draw = {
            .seed = c.seed, .tensor = INPUT_BIAS, .limit = INFINITY, .factor = 1};
        int wrong = 0;
        input_bias(&c, sequence, head, position, first, count, values);
        input_bias_row(&c, sequence, head, position, first, count, row);
        for (int64_t i = 0; i < count; i++) {
            uint32_t rounded;
            dtype_store(c.dtype, &rounded, 0, element(&draw, index * columns + first + i));
            wrong += values[i] != dtype_load(c.dtype, &rounded, 0);
            wrong += values[i] != dtype_load(c.dtype, row, i);
        }
        ck_assert_int_eq(wrong, 0);
    }
}
END_TEST

START_TEST(sinks_follow_the_softmax)
{
    struct cp_case c = small_case(DTYPE_BF16);
    ck_assert_float_eq(input_sink(&c, 1), -INFINITY);
    c.softmax = SOFTMAX_OFF_BY_ONE;
    ck_assert_float_eq(input_sink(&c, 1), 0);
    c.softmax = SOFTMAX_LEARNABLE;
    struct input_draw draw = {.seed = c.seed, .tensor = INPUT_SINK, .limit = INFINITY, .factor = 2};
    ck_assert_int_gt(weight_sink(&c), 0);
    for (int head = 0; head < c.heads; head++)
        ck_assert_float_eq(input_sink(&c, head),
                           element(&draw, (uint64_t)head) + (float)weight_sink(&c));
    c.inputs = INPUTS_TE;
    ck_assert_float_eq(input_sink(&c, 1), 0);
}
END_TEST

START_TEST(a_row_holds_its_heads)
{
    struct cp_case c = small_case((enum case_dtype)_i);
    c.heads = 60; // the row is longer than the block that is drawn at a time
    for (int t = 0; t < 4; t++) {
        float row[60 * 33], head[HEAD_DIM_MAX];
        input_row(&c, tensors[t], 1, 3, row);
        int heads = input_heads(&c, tensors[t]), d = input_head_dim(&c, tensors[t]), wrong = 0;
        for (int h = 0; h < heads; h++) {
            input_token_head(&c, tensors[t], 1, 3, h, head);
            for (int i = 0; i < d; i++)
                wrong += dtype_load(c.dtype, row, h * d + i) != head[i];
        }
        ck_assert_int_eq(wrong, 0);
    }
}
END_TEST

START_TEST(tensors_and_seeds_differ)
{
    struct cp_case c = small_case(DTYPE_FP32), other = c;
    other.seed++;
    float k[33], v[33], again[33], reseeded[33];
    c.head_dim_v = other.head_dim_v = 33;
    input_token_head(&c, INPUT_K, 0, 0, 0, k);
    input_token_head(&c, INPUT_V, 0, 0, 0, v);
    input_token_head(&other, INPUT_K, 0, 0, 0, reseeded);
    input_token_head(&c, INPUT_K, 0, 0, 0, again);
    ck_assert_mem_eq(k, again, sizeof(k));
    ck_assert_mem_ne(k, v, sizeof(k));
    ck_assert_mem_ne(k, reseeded, sizeof(k));
}
END_TEST

// ---- the distribution ---------------------------------------------------------------------------

struct moments {
    double mean, square, fourth, at_limit;
};

static struct moments moments_of(const struct cp_case *c, enum input_tensor tensor, int tokens)
{
    struct moments m = {0};
    float values[HEAD_DIM_MAX];
    int d = input_head_dim(c, tensor);
    double n = (double)tokens * d;
    for (int t = 0; t < tokens; t++) {
        input_token_head(c, tensor, 0, t, 0, values);
        for (int i = 0; i < d; i++) {
            double x = values[i];
            m.mean += x / n;
            m.square += x * x / n;
            m.fourth += x * x * x * x / n;
            m.at_limit += (fabs(x) == 1) / n;
        }
    }
    return m;
}

// 2^18 elements. Standard deviations: of the mean 1/512, of the second moment sqrt(2)/512, of the
// fourth about 9/512. Each tolerance is about six of them.
START_TEST(values_are_nearly_normal)
{
    struct cp_case c;
    case_init(&c);
    c.dtype = DTYPE_FP32;
    c.heads = c.kv_heads = 1;
    c.seqlen_q = c.seqlen_kv = 2048;
    struct moments m = moments_of(&c, INPUT_K, 2048);
    ck_assert_double_eq_tol(m.mean, 0, 0.012);
    ck_assert_double_eq_tol(m.square, 1, 0.017);
    ck_assert_double_eq_tol(m.fourth, 3 - 1.2 / 8, 0.11); // a sum of eight uniform numbers
    ck_assert_double_eq(m.at_limit, 0);
}
END_TEST

// A unit normal distribution clamped to [-1, 1]: the second moment is 0.516, and 31.7 % of the
// values are at the limits.
START_TEST(values_of_the_te_setting_are_clamped)
{
    struct cp_case c;
    case_init(&c);
    c.dtype = DTYPE_FP32;
    c.inputs = INPUTS_TE;
    c.heads = c.kv_heads = 1;
    c.seqlen_q = c.seqlen_kv = 2048;
    for (int t = 0; t < 4; t++) {
        struct moments m = moments_of(&c, tensors[t], 2048);
        ck_assert_double_eq_tol(m.mean, 0, 0.01);
        ck_assert_double_eq_tol(m.square, 0.516, 0.01);
        ck_assert_double_eq_tol(m.at_limit, 0.317, 0.01);
    }
}
END_TEST

// With an off-by-one softmax dimension 0 lowers all logits equally; the other dimensions are
// unchanged.
START_TEST(logits_are_lowered_alike)
{
    static const int dims[] = {2, 16, 128, 256};
    struct cp_case c;
    case_init(&c);
    c.dtype = (enum case_dtype)(DTYPE_BF16 + _i);
    c.softmax = SOFTMAX_OFF_BY_ONE;
    for (int i = 0; i < 4; i++) {
        float q[HEAD_DIM_MAX], k[HEAD_DIM_MAX];
        c.head_dim_qk = dims[i];
        for (int n = 0; n < 20; n++) {
            input_token_head(&c, INPUT_Q, n % 2, n, n % 8, q);
            input_token_head(&c, INPUT_K, n % 2, 500 - n, n % 8, k);
            double lowered = -case_scale(&c) * q[0] * k[0];
            ck_assert_double_eq_tol(lowered, weight_shift(&c), 0.1);
        }
    }
}
END_TEST

static double logit_deviation(const struct cp_case *c)
{
    float q[HEAD_DIM_MAX], k[HEAD_DIM_MAX];
    double square = 0;
    int n = 0;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++, n++) {
            input_token_head(c, INPUT_Q, 0, i, 0, q);
            input_token_head(c, INPUT_K, 0, j, 0, k);
            double logit = 0;
            for (int e = c->softmax == SOFTMAX_OFF_BY_ONE; e < c->head_dim_qk; e++)
                logit += (double)q[e] * k[e];
            square += logit * logit * case_scale(c) * case_scale(c);
        }
    return sqrt(square / n);
}

// The standard deviation of the logits of 64 queries and 64 keys: about 4 with sharp inputs, about
// 0.52 with TE's.
START_TEST(sharp_logits_deviate_by_four)
{
    static const int dims[] = {16, 64, 128, 192, 256};
    struct cp_case c;
    case_init(&c);
    c.head_dim_qk = dims[_i];
    ck_assert_double_eq_tol(logit_deviation(&c), 4, 0.5);
    c.scale = 0.7;
    ck_assert_double_eq_tol(logit_deviation(&c), 4, 0.5);
    c.scale = 0;
    c.softmax = SOFTMAX_OFF_BY_ONE;
    ck_assert_double_eq_tol(logit_deviation(&c), 4, 0.5);
    c.inputs = INPUTS_TE;
    c.softmax = SOFTMAX_VANILLA;
    ck_assert_double_eq_tol(logit_deviation(&c), 0.516, 0.1);
}
END_TEST

// The smallest admitted scale gives the largest inputs. In fp16 they are finite.
START_TEST(admitted_cases_have_finite_inputs)
{
    static const int dims[] = {1, 64, 256};
    struct cp_case c;
    case_init(&c);
    c.dtype = DTYPE_FP16;
    c.head_dim_qk = c.head_dim_v = dims[_i / 2];
    c.softmax = _i % 2 ? SOFTMAX_OFF_BY_ONE : SOFTMAX_VANILLA;
    float values[HEAD_DIM_MAX], largest = 0;
    for (c.scale = 1e-6; case_check(&c, NULL) != STATUS_OK; c.scale *= 1.01)
        continue;
    for (int64_t position = 0; position < 500; position++)
        for (int head = 0; head < c.heads; head++) {
            input_token_head(&c, INPUT_Q, 0, position, head, values);
            for (int i = 0; i < c.head_dim_qk; i++)
                largest = fmaxf(largest, fabsf(values[i]));
        }
    ck_assert_float_gt(largest, 20000);
    ck_assert_float_lt(largest, 60000);
}
END_TEST

// ---- conversions --------------------------------------------------------------------------------

static const struct half_format {
    enum case_dtype dtype;
    int fraction_bits, exponent_bias, exponent_max;
} formats[] = {{DTYPE_BF16, 7, 127, 255}, {DTYPE_FP16, 10, 15, 31}};

// The value of a bit pattern by the definition of the format; NaN for NaN.
static double half_value(const struct half_format *f, unsigned int bits)
{
    int exponent = (int)(bits & 0x7fff) >> f->fraction_bits;
    int fraction = (int)bits & ((1 << f->fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == f->exponent_max)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - f->exponent_bias - f->fraction_bits);
    return sign * ldexp(fraction + (1 << f->fraction_bits),
                        exponent - f->exponent_bias - f->fraction_bits);
}

START_TEST(every_pattern_loads_and_stores)
{
    const struct half_format *f = &formats[_i];
    int wrong = 0;
    for (unsigned int bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits, back;
        double expected = half_value(f, bits);
        float value = dtype_load(f->dtype, &half, 0);
        dtype_store(f->dtype, &back, 0, value);
        if (isnan(expected)) {
            wrong += !isnan(value) || !isnan(half_value(f, back));
            continue;
        }
        wrong += value != expected || !signbit(value) != !(bits & 0x8000) || back != half;
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

static unsigned int stored(const struct half_format *f, float value)
{
    uint16_t half;
    dtype_store(f->dtype, &half, 0, value);
    return half;
}

// Between each value and the next: numbers below the middle round down, numbers above it up, the
// middle to even. After the largest value comes infinity, as the next power of two.
START_TEST(stores_round_to_nearest_even)
{
    const struct half_format *f = &formats[_i];
    unsigned int infinity = (unsigned int)f->exponent_max << f->fraction_bits;
    int wrong = 0;
    for (unsigned int bits = 0; bits < infinity; bits++) {
        double low = half_value(f, bits);
        double next = bits + 1 < infinity
                          ? half_value(f, bits + 1)
                          : ldexp(1, f->exponent_max - f->exponent_bias); // beyond the range
        float middle = (float)((low + next) / 2);
        unsigned int even = bits & 1 ? bits + 1 : bits;
        for (unsigned int sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1 : 1;
            wrong += stored(f, s * middle) != (even | sign);
            wrong += stored(f, s * nextafterf(middle, 0)) != (bits | sign);
            wrong += stored(f, s * nextafterf(middle, INFINITY)) != ((bits + 1) | sign);
        }
    }
    ck_assert_int_eq(wrong, 0);
    ck_assert_uint_eq(stored(f, INFINITY), infinity);
    ck_assert_uint_eq(stored(f, -INFINITY), infinity | 0x8000);
    ck_assert_uint_eq(stored(f, 0x1p-149f), 0);
    ck_assert_uint_eq(stored(f, -0.0f), 0x8000);
}
END_TEST

START_TEST(nan_stays_nan)
{
    const struct half_format *f = &formats[_i];
    static const uint32_t patterns[] = {0x7fc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffc00001};
    for (int i = 0; i < 5; i++) {
        float value;
        memcpy(&value, &patterns[i], sizeof(value));
        unsigned int half = stored(f, value);
        ck_assert(isnan(half_value(f, half)));
        ck_assert_uint_eq(half & 0x8000, patterns[i] >> 31 ? 0x8000 : 0);
    }
}
END_TEST

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void fill_patterns(float *values, int count)
{
    uint32_t state = 99;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        memcpy(&values[i], &state, sizeof(state));
    }
    for (int i = 0; i + 8 < count; i += 9) // more numbers in the range of fp16
        values[i] = ldexpf(1 + (float)i / (float)count, i % 45 - 27);
}

// The variants equal dtype_store() and dtype_load() bit for bit, at lengths with and without a
// partial vector.
START_TEST(variants_convert_alike)
{
    const struct vector_ops *variants[VECTOR_VARIANTS_MAX];
    vector_list(variants);
    enum { COUNT = 100003 };
    float *values = malloc(COUNT * sizeof(float)), *back = malloc(COUNT * sizeof(float));
    uint16_t *halves = malloc(COUNT * sizeof(uint16_t));
    fill_patterns(values, COUNT);
    for (int v = 0; variants[v]; v++)
        for (int f = 0; f < 2; f++)
            for (int count = 0; count <= COUNT; count = count < 70 ? count + 1 : count + 99933) {
                enum case_dtype dtype = formats[f].dtype;
                memset(halves, 0x55, COUNT * sizeof(uint16_t));
                variants[v]->store(dtype, values, halves, count);
                int wrong = count < COUNT && halves[count] != 0x5555;
                for (int i = 0; i < count; i++)
                    wrong += halves[i] != stored(&formats[f], values[i]);
                back[count < COUNT ? count : 0] = 77;
                variants[v]->load(dtype, halves, back, count);
                wrong += count < COUNT && back[count] != 77;
                for (int i = 0; i < count; i++) {
                    float one = dtype_load(dtype, halves, i);
                    wrong += bits_of(one) != bits_of(back[i]);
                }
                ck_assert_msg(wrong == 0, "%s, format %d, count %d: %d wrong", variants[v]->name, f,
                              count, wrong);
            }
    free(values);
    free(back);
    free(halves);
}
END_TEST

// The judge's own conversions: all patterns to fp32, and fp32 numbers to 16 bits.
START_TEST(the_judge_converts_alike)
{
    enum case_dtype dtype = formats[_i].dtype;
    enum { COUNT = 0x10000 + 77 };
    float *values = malloc(COUNT * sizeof(float)), *back = malloc(COUNT * sizeof(float));
    uint16_t *halves = malloc(COUNT * sizeof(uint16_t));
    for (int i = 0; i < COUNT; i++)
        halves[i] = (uint16_t)i;
    dtype_read(dtype, halves, 7, COUNT - 7, back);
    for (int i = 7; i < COUNT; i++)
        ck_assert_uint_eq(bits_of(back[i - 7]), bits_of(dtype_load(dtype, halves, i)));
    fill_patterns(values, COUNT);
    halves[COUNT - 1] = 0x5555;
    dtype_write(dtype, values, COUNT - 1, halves);
    ck_assert_uint_eq(halves[COUNT - 1], 0x5555);
    memcpy(back, values, COUNT * sizeof(float));
    dtype_round(dtype, back, COUNT - 1);
    ck_assert_uint_eq(bits_of(back[COUNT - 1]), bits_of(values[COUNT - 1]));
    for (int i = 0; i < COUNT - 1; i++) {
        ck_assert_uint_eq(halves[i], stored(&formats[_i], values[i]));
        ck_assert_uint_eq(bits_of(back[i]), bits_of(dtype_load(dtype, halves, i)));
    }
    free(values);
    free(back);
    free(halves);
}
END_TEST

START_TEST(fp32_is_copied)
{
    float values[5] = {1, -0.0f, INFINITY, 0x1p-149f, 3.3f}, copy[5];
    vector_best()->store(DTYPE_FP32, values, copy, 5);
    ck_assert_mem_eq(values, copy, sizeof(values));
    ck_assert_int_eq(dtype_bytes(DTYPE_FP32), 4);
    ck_assert_int_eq(dtype_bytes(DTYPE_BF16), 2);
    ck_assert_int_eq(dtype_bytes(DTYPE_FP16), 2);
    dtype_store(DTYPE_FP32, copy, 4, 4.4f);
    ck_assert_float_eq(dtype_load(DTYPE_FP32, copy, 4), 4.4f);
}
END_TEST

static Suite *inputs_suite(void)
{
    Suite *suite = suite_create("inputs");
    TCase *generator = tcase_create("generator");
    tcase_add_loop_test(generator, philox_gives_the_published_blocks, 0, 3);
    tcase_add_test(generator, draw_follows_the_definition);
    suite_add_tcase(suite, generator);
    TCase *tensor = tcase_create("tensors");
    tcase_add_loop_test(tensor, elements_are_indexed_globally, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_loop_test(tensor, a_row_holds_its_heads, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_loop_test(tensor, broadcast_dimensions_share_a_bias, DTYPE_BF16, DTYPE_FP32 + 1);
    tcase_add_test(tensor, sinks_follow_the_softmax);
    tcase_add_test(tensor, tensors_and_seeds_differ);
    tcase_add_test(tensor, values_are_nearly_normal);
    tcase_add_test(tensor, values_of_the_te_setting_are_clamped);
    tcase_add_loop_test(tensor, logits_are_lowered_alike, 0, 3);
    tcase_add_loop_test(tensor, sharp_logits_deviate_by_four, 0, 5);
    tcase_add_loop_test(tensor, admitted_cases_have_finite_inputs, 0, 6);
    suite_add_tcase(suite, tensor);
    TCase *conversion = tcase_create("conversions");
    tcase_set_timeout(conversion, 60);
    tcase_add_loop_test(conversion, every_pattern_loads_and_stores, 0, 2);
    tcase_add_loop_test(conversion, stores_round_to_nearest_even, 0, 2);
    tcase_add_loop_test(conversion, nan_stays_nan, 0, 2);
    tcase_add_test(conversion, variants_convert_alike);
    tcase_add_loop_test(conversion, the_judge_converts_alike, 0, 2);
    tcase_add_test(conversion, fp32_is_copied);
    suite_add_tcase(suite, conversion);
    return suite;
}

int main(void)
{
    return runner_run(inputs_suite());
}
