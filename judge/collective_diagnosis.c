// SPDX-License-Identifier: Apache-2.0
#include "judge/collective_diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "judge/collective_blocks.h"
#include "judge/collective_numbers.h"

// A mistake must explain at least the fraction EXPLAINED_MIN of the examined wrong elements, and it
// must predict at least BAD_MIN of them. Shifts of up to SHIFT_MAX elements are tried.
#define EXPLAINED_MIN 0.9
#define BAD_MIN       2
#define SHIFT_MAX     8

struct search {
    const struct collective *c;
    struct collective_view v;
    const struct collective_sample *sample;
    bool bad[COLLECTIVE_SAMPLES]; // sampled elements that are wrong
    int bad_count;
    int memory; // the byte that filled the receive before the run
    const struct figures *figures;
};

// A mistake with its parameters. number: a rank, shift, reduction, divisor or block, depending on
// the mistake. other: the second one of two swapped blocks.
struct hypothesis {
    enum collective_mistake mistake;
    int number, other;
};

// ---- the sample ---------------------------------------------------------------------------------

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

void collective_sample_choose(const struct collective_view *v, int64_t first_bad,
                              struct collective_sample *sample)
{
    int64_t count = v->first[v->blocks], all[COLLECTIVE_SAMPLES];
    int chosen = 0;
    first_bad = first_bad < 0 ? 0 : first_bad;
    for (int i = 0; i < COLLECTIVE_SAMPLES / 4; i++)
        if (first_bad + i < count)
            all[chosen++] = first_bad + i;
    int spread = COLLECTIVE_SAMPLES - chosen;
    for (int i = 0; i < spread; i++) // this step hits different places of blocks
        all[chosen++] = (int64_t)((double)i / spread * (double)count);
    qsort(all, (size_t)chosen, sizeof(*all), by_value);
    sample->count = 0;
    for (int i = 0; i < chosen; i++)
        if (i == 0 || all[i] != all[i - 1])
            sample->index[sample->count++] = all[i];
}

// ---- elements with a mistake --------------------------------------------------------------------

static bool equal(const struct search *s, union view_number got, union view_number is, double bound)
{
    if (!view_is_real(&s->v))
        return got.whole == is.whole;
    if (!isfinite(got.real) || !isfinite(is.real))
        return got.real == is.real || (isnan(got.real) && isnan(is.real));
    return fabs(got.real - is.real) <= bound;
}

// Reduces element `index` of all sends, that of each rank times[rank] times, and divides it.
static union view_number reduced(const struct search *s, int64_t index, int reduction,
                                 const int *times, int divisor)
{
    union view_number sum = {.whole = 0};
    bool started = false;
    for (int rank = 0; rank < s->c->world_size; rank++)
        for (int i = 0; i < times[rank]; i++) {
            union view_number x = view_drawn(&s->v, rank, index);
            sum = started ? collective_numbers_combined(&s->v, reduction, sum, x) : x;
            started = true;
        }
    if (view_is_real(&s->v))
        sum.real /= divisor;
    else
        sum.whole /= divisor;
    return sum;
}

// An element of memory that is filled with a byte.
static union view_number filled(const struct search *s, int byte)
{
    unsigned char memory[8];
    memset(memory, byte, sizeof(memory));
    return collective_element(&s->v, memory, 0);
}

static int right_divisor(const struct search *s)
{
    return s->v.reduction == REDUCTION_AVG ? s->c->world_size : 1;
}

static union view_number of_reduction(const struct search *s, const struct hypothesis *h,
                                      int64_t index)
{
    int times[WORLD_SIZE_MAX], reduction = s->v.reduction, divisor = right_divisor(s);
    for (int rank = 0; rank < s->c->world_size; rank++)
        times[rank] = h->mistake != MISTAKE_RANK_ALONE;
    if (h->mistake == MISTAKE_RANK_MISSING)
        times[h->number] = 0;
    if (h->mistake == MISTAKE_RANK_TWICE)
        times[h->number] = 2;
    if (h->mistake == MISTAKE_RANK_ALONE)
        times[h->number] = 1;
    if (h->mistake == MISTAKE_REDUCTION)
        reduction = h->number;
    if (h->mistake == MISTAKE_NOT_DIVIDED || h->mistake == MISTAKE_REDUCTION)
        divisor = 1;
    if (h->mistake == MISTAKE_DIVISOR)
        divisor = h->number;
    union view_number result = reduced(s, index, reduction, times, divisor);
    if (h->mistake == MISTAKE_WORLD_FACTOR && view_is_real(&s->v))
        result.real *= h->number > 0 ? s->c->world_size : 1.0 / s->c->world_size;
    else if (h->mistake == MISTAKE_WORLD_FACTOR)
        result.whole =
            h->number > 0
                ? view_truncated(&s->v, (uint64_t)result.whole * (uint64_t)s->c->world_size)
                : result.whole / s->c->world_size;
    return result;
}

static union view_number right_of(const struct search *s, const struct collective_view *v,
                                  int64_t index)
{
    struct view_origin origin = view_origin_of(v, index);
    union view_number result;
    if (view_is_real(&s->v))
        result.real = view_right_real(v, origin).value;
    else
        result.whole = view_right_whole(v, origin);
    return result;
}

static bool is_reduced(const struct search *s)
{
    return s->v.source[0] < 0;
}

// ---- other places -------------------------------------------------------------------------------

static bool of_other_place(const struct search *s, const struct hypothesis *h, int64_t index,
                           union view_number *is)
{
    const struct collective_view *v = &s->v;
    int block = 0, blocks = v->blocks, own = v->rank;
    while (index >= v->first[block + 1])
        block++;
    int64_t within = index - v->first[block], n = v->first[1];
    int from = h->mistake == MISTAKE_ROTATED ? (block + h->number) % blocks : blocks - 1 - block;
    if (h->mistake == MISTAKE_OWN_SEND)
        *is = view_drawn(v, own, v->at[block] == 0 && blocks > 1 && v->at[1] == 0 ? within : index);
    else if (h->mistake == MISTAKE_INTERLEAVED)
        *is = view_drawn(v, v->source[index % blocks], v->at[index % blocks] + index / blocks);
    else if (within < v->first[from + 1] - v->first[from])
        *is = view_drawn(v, v->source[from], v->at[from] + within);
    else
        return false;
    return n > 0;
}

// Predicts element number `sampled` of the sample. False: the hypothesis predicts none there.
static bool element_of(const struct search *s, const struct hypothesis *h, int sampled,
                       union view_number *is)
{
    int64_t index = s->sample->index[sampled];
    struct view_origin origin = view_origin_of(&s->v, index);
    struct collective_view other;
    int64_t count = s->v.first[s->v.blocks];
    switch (h->mistake) {
    case MISTAKE_UNTOUCHED:
        *is = filled(s, s->memory);
        return true;
    case MISTAKE_ZERO:
        *is = filled(s, 0);
        return true;
    case MISTAKE_WRONG_RANK:
        *is = view_drawn(&s->v, h->number, origin.index);
        return true;
    case MISTAKE_BLOCKS_SWAPPED: {
        int block = index >= s->v.first[h->other]       ? h->other
                    : index < s->v.first[h->number + 1] ? h->number
                                                        : -1;
        if (block < 0 || index >= s->v.first[block + 1] || index < s->v.first[block])
            return false;
        int from = block == h->number ? h->other : h->number;
        *is = view_drawn(&s->v, s->v.source[from], s->v.at[from] + index - s->v.first[block]);
        return true;
    }
    case MISTAKE_WRONG_BLOCK:
        collective_view_set(&other, s->c, h->number);
        if (index >= other.first[other.blocks])
            return false;
        *is = right_of(s, &other, index);
        return true;
    case MISTAKE_SHIFTED:
        if (index + h->number < 0 || index + h->number >= count)
            return false;
        *is = right_of(s, &s->v, index + h->number);
        return true;
    case MISTAKE_ROTATED:
    case MISTAKE_REVERSED:
    case MISTAKE_OWN_SEND:
    case MISTAKE_INTERLEAVED:
        return of_other_place(s, h, index, is);
    case MISTAKE_ZERO_SIGN:
    case MISTAKE_DENORMAL:
    case MISTAKE_NARROW_INPUT:
    case MISTAKE_NARROW_SUM:
    case MISTAKE_LOWER_HALF:
    case MISTAKE_SATURATED:
    case MISTAKE_FLOATING:
    case MISTAKE_SIGNED:
    case MISTAKE_AVERAGE_ROUNDS:
        return collective_numbers_predict(&s->v, h->mistake, h->number, index,
                                          s->sample->got[sampled], is);
    case MISTAKE_UNREDUCED:
        *is = view_drawn(&s->v, h->number, origin.index);
        return true;
    default:
        *is = of_reduction(s, h, origin.index);
        return true;
    }
}

// Returns the fraction of right predictions for the wrong elements of the sample. 0 if the
// hypothesis predicts fewer than BAD_MIN or fewer than 90 % of them.
static double explained(const struct search *s, const struct hypothesis *h)
{
    int hits = 0, spoken = 0;
    for (int i = 0; i < s->sample->count; i++) {
        int64_t index = s->sample->index[i];
        union view_number is;
        if (!s->bad[i] || !element_of(s, h, i, &is))
            continue;
        double size =
            is_reduced(s) ? collective_numbers_size(&s->v, view_origin_of(&s->v, index).index) : 0;
        bool exact = h->mistake == MISTAKE_UNTOUCHED; // zeros, for example, are near the pattern
        spoken++;
        hits += equal(s, s->sample->got[i], is,
                      exact ? 0 : 2 * s->v.bound * size + 1e-12 * fabs(is.real));
    }
    // A shift predicts no elements at the ends of the receive.
    return spoken >= BAD_MIN && 10 * spoken >= 9 * s->bad_count ? (double)hits / spoken : 0;
}

// ---- the sentences ------------------------------------------------------------------------------

static const char *reduction_name(int reduction)
{
    static const char *const names[REDUCTIONS] = {[REDUCTION_SUM] = "sum",
                                                  [REDUCTION_PROD] = "product",
                                                  [REDUCTION_MIN] = "minimum",
                                                  [REDUCTION_MAX] = "maximum",
                                                  [REDUCTION_AVG] = "average"};
    return names[reduction];
}

// Truncation instead of rounding makes results smaller by 0.64 units of rounding (2^-precision), a
// value that follows from the RMS of the mantissas of these inputs. Truncations before the last
// addition lose less.
#define CUT_LEAST 0.5
#define CUT_MOST  0.8

// The sentence does not give a factor smaller than this: the elements are almost zero.
#define FACTOR_ZERO 1e-6

static void factor_sentence(const struct search *s, char *text, size_t size)
{
    double slope = s->figures->slope, cut = -ldexp(slope, view_precision(&s->v));
    if (fabs(1 + slope) < FACTOR_ZERO)
        snprintf(text, size, "every element is almost zero beside what it should be");
    else
        snprintf(text, size, "every element is about %.4g times what it should be%s", 1 + slope,
                 cut >= CUT_LEAST && cut <= CUT_MOST
                     ? ", as if bits were cut off instead of rounded to nearest"
                     : "");
}

static void sentence(const struct search *s, const struct hypothesis *h, char *text, size_t size)
{
    const char *what = is_reduced(s) ? reduction_name(s->v.reduction) : "";
    switch (h->mistake) {
    case MISTAKE_UNTOUCHED:
        snprintf(text, size, "the memory was never written");
        break;
    case MISTAKE_ZERO:
        snprintf(text, size, "the elements are zero");
        break;
    case MISTAKE_NOT_DIVIDED:
        snprintf(text, size, "the sum is not divided by the number of ranks");
        break;
    case MISTAKE_WORLD_FACTOR:
        snprintf(text, size, "the %s is %d times too %s: a factor of the number of ranks", what,
                 s->c->world_size, h->number > 0 ? "large" : "small");
        break;
    case MISTAKE_DIVISOR:
        snprintf(text, size, "the sum is divided by %d instead of %d", h->number, s->c->world_size);
        break;
    case MISTAKE_RANK_MISSING:
        snprintf(text, size, "rank %d is missing from the %s", h->number, what);
        break;
    case MISTAKE_RANK_TWICE:
        snprintf(text, size, "rank %d is in the %s twice", h->number, what);
        break;
    case MISTAKE_RANK_ALONE:
        snprintf(text, size, "only rank %d is in the %s", h->number, what);
        break;
    case MISTAKE_REDUCTION:
        snprintf(text, size, "it is the %s instead of the %s", reduction_name(h->number), what);
        break;
    case MISTAKE_WRONG_RANK:
        snprintf(text, size, "the elements are those of rank %d instead of rank %d", h->number,
                 s->v.source[0]);
        break;
    case MISTAKE_BLOCKS_SWAPPED:
        snprintf(text, size, "the blocks of ranks %d and %d are swapped", s->v.source[h->number],
                 s->v.source[h->other]);
        break;
    case MISTAKE_WRONG_BLOCK:
        snprintf(text, size, "the elements are those of rank %d's result", h->number);
        break;
    case MISTAKE_SHIFTED:
        snprintf(text, size, "the elements are %d place%s too far %s", abs(h->number),
                 plural(abs(h->number)), h->number > 0 ? "left" : "right");
        break;
    case MISTAKE_UNREDUCED:
        snprintf(text, size, "the elements are those of rank %d, not reduced", h->number);
        break;
    case MISTAKE_ROTATED:
        snprintf(text, size, "the blocks are rotated: each is that of the rank %d further",
                 h->number);
        break;
    case MISTAKE_REVERSED:
        snprintf(text, size, "the blocks are in reverse order");
        break;
    case MISTAKE_OWN_SEND:
        snprintf(text, size, "the blocks are from the send of rank %d itself", s->v.rank);
        break;
    case MISTAKE_INTERLEAVED:
        snprintf(text, size, "the elements of the ranks take turns: they are not in blocks");
        break;
    case MISTAKE_FACTOR:
        factor_sentence(s, text, size);
        break;
    default:
        collective_numbers_sentence(&s->v, h->mistake, h->number, text, size);
        break;
    }
}

// ---- the search ---------------------------------------------------------------------------------

// True if the mistake is possible, and differs from the mistakes before it. Sets the range of its
// number.
static bool range_of(const struct search *s, enum collective_mistake mistake, int *low, int *high)
{
    int world = s->c->world_size, reduction = s->v.reduction;
    bool sums = is_reduced(s) && reduction != REDUCTION_MIN && reduction != REDUCTION_MAX;
    *low = *high = 0;
    switch (mistake) {
    case MISTAKE_UNTOUCHED:
    case MISTAKE_ZERO:
        return true;
    case MISTAKE_NOT_DIVIDED:
        return reduction == REDUCTION_AVG && world > 1;
    case MISTAKE_WORLD_FACTOR:
        *high = 1;
        return sums && world > 1;
    case MISTAKE_DIVISOR:
        *low = 2;
        *high = 2 * world;
        return reduction == REDUCTION_AVG;
    case MISTAKE_RANK_MISSING:
    case MISTAKE_RANK_ALONE:
        *high = world - 1;
        return is_reduced(s) && world > 1;
    case MISTAKE_RANK_TWICE:
        *high = world - 1;
        return sums;
    case MISTAKE_REDUCTION:
        *low = REDUCTION_SUM;
        *high = REDUCTION_MAX;
        return is_reduced(s);
    case MISTAKE_WRONG_RANK:
        *high = world - 1;
        return !is_reduced(s) && s->v.blocks == 1;
    case MISTAKE_BLOCKS_SWAPPED:
        *high = s->v.blocks - 2;
        return s->v.blocks > 1;
    case MISTAKE_WRONG_BLOCK:
        *high = world - 1;
        return s->c->operation == COLLECTIVE_REDUCE_SCATTER ||
               s->c->operation == COLLECTIVE_ALL_TO_ALL ||
               s->c->operation == COLLECTIVE_ALL_TO_ALLV;
    case MISTAKE_SHIFTED:
        *low = -SHIFT_MAX;
        *high = SHIFT_MAX;
        return true;
    case MISTAKE_UNREDUCED:
        *high = world - 1;
        return reduction == REDUCTION_AVG;
    case MISTAKE_ROTATED:
        *low = 1;
        *high = s->v.blocks - 1;
        return s->v.blocks > 2;
    case MISTAKE_REVERSED:
    case MISTAKE_OWN_SEND:
        return s->v.blocks > 2 && s->c->operation != COLLECTIVE_ALL_TO_ALLV;
    case MISTAKE_INTERLEAVED:
        return s->c->operation == COLLECTIVE_ALL_GATHER && world > 1;
    default:
        return collective_numbers_possible(&s->v, mistake, low, high);
    }
}

// True if these parameters describe the right result.
static bool is_right(const struct search *s, const struct hypothesis *h)
{
    return (h->mistake == MISTAKE_SHIFTED && h->number == 0) ||
           (h->mistake == MISTAKE_DIVISOR && h->number == s->c->world_size) ||
           (h->mistake == MISTAKE_REDUCTION && h->number == s->v.reduction) ||
           (h->mistake == MISTAKE_WRONG_BLOCK && h->number == s->v.rank);
}

// Tries one hypothesis, and keeps it if it is better than the best so far.
static void try(const struct search *s, const struct hypothesis *h, struct hypothesis *best,
                double *most)
{
    double share = is_right(s, h) ? 0 : explained(s, h);
    if (share < EXPLAINED_MIN || share <= *most)
        return;
    *best = *h;
    *most = share;
}

static void try_all(const struct search *s, enum collective_mistake mistake,
                    struct hypothesis *best, double *most)
{
    int low, high;
    if (!range_of(s, mistake, &low, &high))
        return;
    for (int number = low; number <= high; number++) {
        struct hypothesis h = {.mistake = mistake, .number = number};
        if (mistake != MISTAKE_BLOCKS_SWAPPED) {
            try(s, &h, best, most);
            continue;
        }
        for (h.other = number + 1; h.other < s->v.blocks; h.other++)
            try(s, &h, best, most);
    }
}

static void bad_find(struct search *s)
{
    for (int i = 0; i < s->sample->count; i++) {
        int64_t index = s->sample->index[i];
        struct view_origin origin = view_origin_of(&s->v, index);
        union view_number got = s->sample->got[i];
        if (view_is_real(&s->v)) {
            struct view_right right = view_right_real(&s->v, origin);
            // A sum with an infinity or a NaN does not distinguish mistakes.
            bool tells = !is_reduced(s) || isfinite(collective_numbers_size(&s->v, origin.index));
            s->bad[i] = tells && !(view_used(right, got.real, true) <= 1);
        } else {
            s->bad[i] = got.whole != view_right_whole(&s->v, origin);
        }
        s->bad_count += s->bad[i];
    }
}

// A small common factor breaks only the rule slope. It is reported if the error without it is as
// small as that of right results, or if it explains nearly the whole error.
static void try_factor(const struct search *s, struct hypothesis *best, double *most)
{
    const struct figures *f = s->figures;
    double error2 = f->rmse_rel * f->rmse_rel, slope2 = f->slope * f->slope;
    bool honest = (f->broken & RULE_SLOPE) && error2 - slope2 <= f->rmse_limit * f->rmse_limit;
    bool all = f->judged >= BAD_MIN && slope2 >= EXPLAINED_MIN * error2 && slope2 > 0;
    if (best->mistake != MISTAKE_NONE || !(honest || all))
        return;
    best->mistake = MISTAKE_FACTOR;
    *most = fmin(1, slope2 / error2);
}

enum collective_mistake collective_diagnose(const struct collective *c, int rank,
                                            const struct collective_sample *sample, int memory,
                                            const struct figures *figures,
                                            struct diagnosis *diagnosis)
{
    struct search s = {.c = c, .sample = sample, .memory = memory, .figures = figures};
    struct hypothesis best = {.mistake = MISTAKE_NONE};
    double most = 0;
    collective_view_set(&s.v, c, rank);
    bad_find(&s);
    for (int m = MISTAKE_UNTOUCHED; m < MISTAKE_FACTOR && s.bad_count >= BAD_MIN; m++)
        try_all(&s, (enum collective_mistake)m, &best, &most);
    snprintf(diagnosis->name, sizeof(diagnosis->name), "receive");
    if (best.mistake == MISTAKE_NONE && s.bad_count >= BAD_MIN &&
        collective_blocks_find(&s.v, sample->count, sample->index, sample->got, s.bad, diagnosis))
        return MISTAKE_BLOCK_SUMS;
    try_factor(&s, &best, &most);
    if (best.mistake == MISTAKE_NONE) {
        diagnosis->name[0] = '\0';
        return MISTAKE_NONE;
    }
    diagnosis->explained = most;
    sentence(&s, &best, diagnosis->text, sizeof(diagnosis->text));
    return best.mistake;
}
