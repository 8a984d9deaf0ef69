// SPDX-License-Identifier: Apache-2.0
// Collectives of zeros of either sign, infinities, NaN and denormals. Plans compute the bits of
// IEEE 754-2019. The judge accepts exactly the results that a standard permits.
#include "tests/support/runner.h"

#include <math.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/rank/collective_scene.h"

#define COUNT 400

static const int worlds[] = {2, 3, 8};
static const enum collective_element elements[] = {ELEMENT_FP32, ELEMENT_FP16, ELEMENT_BF16};

static struct collective special(int world, enum collective_element dtype)
{
    struct collective c = scene_usual();
    c.world_size = world;
    c.dtype = dtype;
    c.count = COUNT;
    c.specials = true;
    return c;
}

// ---- elements -----------------------------------------------------------------------------------

static enum case_dtype dtype_of(const struct collective *c)
{
    return c->dtype == ELEMENT_FP16   ? DTYPE_FP16
           : c->dtype == ELEMENT_BF16 ? DTYPE_BF16
                                      : DTYPE_FP32;
}

static uint32_t bits_of(const struct collective *c, const void *data, int64_t i)
{
    return c->dtype == ELEMENT_FP32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

static void bits_set(const struct collective *c, void *data, int64_t i, uint32_t bits)
{
    if (c->dtype == ELEMENT_FP32)
        ((uint32_t *)data)[i] = bits;
    else
        ((uint16_t *)data)[i] = (uint16_t)bits;
}

static uint32_t sign_bit(const struct collective *c)
{
    return c->dtype == ELEMENT_FP32 ? 0x80000000u : 0x8000u;
}

// The elements of all ranks at an index.
struct met {
    float x[WORLD_SIZE_MAX];
    int count, nans;
    bool zero, minus_zero;
};

static struct met met_at(const struct scene *s, int64_t index)
{
    struct met m = {.count = s->c.world_size};
    for (int rank = 0; rank < m.count; rank++) {
        float x = m.x[rank] = dtype_load(dtype_of(&s->c), s->send[rank], index);
        m.nans += isnan(x);
        m.zero = m.zero || (x == 0 && !signbit(x));
        m.minus_zero = m.minus_zero || (x == 0 && signbit(x));
    }
    return m;
}

static bool before(float a, float b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

// The least or the largest of the numbers; NaN: there is none.
static float number_of(const struct met *m, bool least)
{
    float most = NAN;
    for (int i = 0; i < m->count; i++)
        if (!isnan(m->x[i]) &&
            (isnan(most) || (least ? before(m->x[i], most) : before(most, m->x[i]))))
            most = m->x[i];
    return most;
}

// Another number than number_of(); NaN: there is none.
static float other_number(const struct met *m, bool least)
{
    float most = number_of(m, least);
    for (int i = 0; i < m->count; i++)
        if (!isnan(m->x[i]) && m->x[i] != most)
            return m->x[i];
    return NAN;
}

// ---- computation --------------------------------------------------------------------------------

static void ieee_compare(const struct collective *c, int *zeros, int *nans)
{
    struct scene *s = scene_create(c);
    bool least = c->reduction == REDUCTION_MIN;
    scene_execute(s);
    for (int rank = 0; rank < c->world_size; rank++)
        for (int64_t i = 0; i < collective_receive_count(c, rank); i++) {
            int64_t at = c->operation == COLLECTIVE_REDUCE_SCATTER ? rank * c->count + i : i;
            struct met m = met_at(s, at);
            uint32_t right;
            dtype_store(dtype_of(c), &right, 0, m.nans ? NAN : number_of(&m, least));
            ck_assert_msg(bits_of(c, s->receive[rank], i) == bits_of(c, &right, 0),
                          "%s: element %d of rank %d is 0x%x and not 0x%x", scene_text(c), (int)i,
                          rank, bits_of(c, s->receive[rank], i), bits_of(c, &right, 0));
            *zeros += m.zero && m.minus_zero && !m.nans;
            *nans += m.nans > 0 && m.nans < m.count;
        }
    scene_destroy(s);
}

START_TEST(minima_and_maxima_are_those_of_ieee_754)
{
    static const enum collective_operation operations[] = {
        COLLECTIVE_ALL_REDUCE, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_REDUCE};
    struct collective c = special(worlds[_i / 3], elements[_i % 3]);
    int zeros = 0, nans = 0;
    for (int o = 0; o < 3; o++)
        for (int a = ALGORITHM_AUTO; a < ALGORITHM_NCCL; a++)
            for (int r = REDUCTION_MIN; r <= REDUCTION_MAX; r++) {
                c.operation = operations[o];
                c.algorithm = (enum collective_algorithm)a;
                c.reduction = (enum collective_reduction)r;
                if (scene_is_possible(&c))
                    ieee_compare(&c, &zeros, &nans);
            }
    ck_assert_int_gt(zeros, 100);
    ck_assert_int_gt(nans, 100);
}
END_TEST

START_TEST(all_are_right)
{
    struct collective c = special(worlds[_i / 3], elements[_i % 3]);
    int made = 0;
    for (int o = COLLECTIVE_ALL_REDUCE; o < COLLECTIVE_OPERATIONS; o++)
        for (int a = ALGORITHM_AUTO; a < ALGORITHM_NCCL; a++)
            for (int r = REDUCTION_SUM; r < REDUCTIONS; r++) {
                c.operation = (enum collective_operation)o;
                c.algorithm = (enum collective_algorithm)a;
                c.reduction = (enum collective_reduction)r;
                c.in_place = (o + a + r) % 2;
                if (!scene_is_possible(&c))
                    continue;
                struct scene *s = scene_create(&c);
                scene_execute(s);
                ck_assert_msg(scene_broken(s) == 0, "%s: rules 0x%x", scene_text(&c),
                              (unsigned)scene_broken(s));
                scene_destroy(s);
                made++;
            }
    ck_assert_int_gt(made, 20);
}
END_TEST

// ---- judgement ----------------------------------------------------------------------------------

static int64_t wrong_count(const struct scene *s, int64_t *first)
{
    struct figures f = {.first_bad = {.position = -1}};
    collective_judge_receive(&s->c, 0, s->receive[0], &f);
    *first = f.first_bad.position;
    ck_assert_int_eq(f.broken != 0, f.mismatches > 0);
    return f.mismatches;
}

// Replaces an element of rank 0 by these bits, judges the result, and restores the element.
static void expect(struct scene *s, int64_t i, uint32_t bits, bool right, const char *what)
{
    uint32_t kept = bits_of(&s->c, s->receive[0], i);
    int64_t first;
    bits_set(&s->c, s->receive[0], i, bits);
    int64_t wrong = wrong_count(s, &first);
    ck_assert_msg(wrong == !right, "%s: %s: 0x%x for 0x%x is %s", scene_text(&s->c), what, bits,
                  kept, right ? "refused" : "accepted");
    ck_assert_int_eq(first, right ? -1 : i);
    bits_set(&s->c, s->receive[0], i, kept);
}

static void expect_number(struct scene *s, int64_t i, float number, bool right, const char *what)
{
    uint32_t bits;
    dtype_store(dtype_of(&s->c), &bits, 0, number);
    expect(s, i, bits_of(&s->c, &bits, 0), right, what);
}

static void extremes_judge(struct scene *s, int seen[6])
{
    bool least = s->c.reduction == REDUCTION_MIN;
    for (int64_t i = 0; i < COUNT; i++) {
        struct met m = met_at(s, i);
        float number = number_of(&m, least), other = other_number(&m, least);
        uint32_t bits = bits_of(&s->c, s->receive[0], i);
        bool zero = number == 0, both = m.zero && m.minus_zero;
        if (!m.nans && zero && both)
            expect(s, i, bits ^ sign_bit(&s->c), true, "either zero"), seen[0]++;
        if (!m.nans && zero && !both)
            expect(s, i, bits ^ sign_bit(&s->c), false, "a zero of no rank"), seen[1]++;
        if (m.nans && !isnan(number))
            expect_number(s, i, number, true, "the number beside a NaN"), seen[2]++;
        if (m.nans && !isnan(number))
            expect(s, i, bits ^ 1, true, "another NaN");
        if (m.nans && !isnan(other))
            expect_number(s, i, other, false, "another number beside a NaN"), seen[3]++;
        if (!m.nans && i % 8 == 0)
            expect_number(s, i, NAN, false, "NaN of numbers"), seen[4]++;
        if (m.nans == m.count)
            expect_number(s, i, 1, false, "a number of NaN"), seen[5]++;
    }
}

START_TEST(minima_and_maxima_of_every_standard_pass)
{
    int seen[6] = {0};
    for (int w = 0; w < 3; w++)
        for (int r = REDUCTION_MIN; r <= REDUCTION_MAX; r++) {
            struct collective c = special(worlds[w], elements[_i]);
            c.reduction = (enum collective_reduction)r;
            struct scene *s = scene_create(&c);
            scene_execute(s);
            extremes_judge(s, seen);
            scene_destroy(s);
        }
    for (int i = 0; i < 6; i++)
        ck_assert_msg(seen[i] > 0, "%d was not tried", i);
}
END_TEST

START_TEST(copied_elements_keep_their_bits)
{
    struct collective c = special(worlds[_i / 3], elements[_i % 3]);
    int zeros = 0, nans = 0;
    c.operation = COLLECTIVE_BROADCAST;
    struct scene *s = scene_create(&c);
    scene_execute(s);
    for (int64_t i = 0; i < COUNT; i++) {
        uint32_t bits = bits_of(&c, s->receive[0], i);
        float x = dtype_load(dtype_of(&c), s->receive[0], i);
        zeros += x == 0;
        nans += isnan(x);
        if (x == 0 || isnan(x))
            expect(s, i, bits ^ sign_bit(&c), false, "another sign");
        if (isnan(x))
            expect(s, i, bits ^ 1, false, "another NaN");
        if (isnan(x) || isinf(x))
            expect_number(s, i, 0, false, "zero");
        if (isinf(x))
            expect(s, i, bits ^ sign_bit(&c), false, "the other infinity");
    }
    ck_assert(zeros > 0 && nans > 0);
    scene_destroy(s);
}
END_TEST

START_TEST(sums_have_their_infinities_and_nans)
{
    struct collective c = special(worlds[_i / 3], elements[_i % 3]);
    int nans = 0, infinities = 0;
    struct scene *s = scene_create(&c);
    scene_execute(s);
    for (int64_t i = 0; i < COUNT; i++) {
        float x = dtype_load(dtype_of(&c), s->receive[0], i);
        nans += isnan(x);
        infinities += isinf(x);
        if (isnan(x))
            expect_number(s, i, INFINITY, false, "no NaN");
        if (isnan(x))
            expect(s, i, bits_of(&c, s->receive[0], i) ^ 1, true, "another NaN");
        if (isinf(x))
            expect_number(s, i, -x, false, "the other infinity");
        if (isinf(x))
            expect_number(s, i, NAN, false, "NaN");
        if (!isnan(x) && !isinf(x) && i % 8 == 0)
            expect_number(s, i, INFINITY, false, "an infinity");
    }
    ck_assert(nans > 0 && infinities > 0);
    scene_destroy(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective_specials");
    TCase *tcase = tcase_create("specials");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, minima_and_maxima_are_those_of_ieee_754, 0, 9);
    tcase_add_loop_test(tcase, all_are_right, 0, 9);
    tcase_add_loop_test(tcase, minima_and_maxima_of_every_standard_pass, 0, 3);
    tcase_add_loop_test(tcase, copied_elements_keep_their_bits, 0, 9);
    tcase_add_loop_test(tcase, sums_have_their_infinities_and_nans, 0, 9);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
