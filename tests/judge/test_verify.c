// SPDX-License-Identifier: Apache-2.0
// Verification of one rank: its rows, its padding, and the sums over queries.
#include "tests/support/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/complete.h"
#include "judge/cpu/reference.h"
#include "judge/cpu/verify.h"
#include "judge/tiles.h"
#include "judge/totals.h"
#include "tests/support/cases.h"
#include "tests/support/definition.h"

// A world of one rank whose results equal the reference; tests change them.
struct desk {
    struct cp_case c;
    struct arena arena;
    struct progress progress;
    struct span spans[2][16];
    float *out, *lse, *dq, *dk, *dv;
    float *dbias, *dsink, *max_logit;
    struct rank_report report;
};

// Memory of a result: zeros if the case has padding, otherwise NaN.
static float *floats(const struct cp_case *c, int64_t count)
{
    bool padding = !case_is_even(c, SIDE_Q) || !case_is_even(c, SIDE_KV);
    float *data = malloc((size_t)count * sizeof(float) + 1);
    memset(data, padding ? 0 : 0xff, (size_t)count * sizeof(float));
    return data;
}

// Limit of the work of the next verdicts; 0: none.
static double desk_work;

static void desk_case(struct desk *d, enum case_format format, enum case_sharding sharding)
{
    case_init(&d->c);
    d->c.world_size = 1;
    d->c.dtype = DTYPE_FP32;
    d->c.batch = 2;
    d->c.heads = 4;
    d->c.kv_heads = 2;
    d->c.head_dim_qk = 6;
    d->c.head_dim_v = 4;
    d->c.seqlen_q = 33;
    d->c.seqlen_kv = 45;
    d->c.mask = MASK_CAUSAL;
    d->c.format = format;
    d->c.sharding = sharding;
}

static int64_t desk_row(const struct cp_case *c, enum shard_side side, int sequence,
                        int64_t position)
{
    if (c->format == FORMAT_SBHD)
        return position * c->batch + sequence;
    for (int before = 0; before < sequence; before++)
        position += definition_occupied(c, side, before);
    return position;
}

static void scatter(const struct cp_case *c, enum shard_side side, float *tensor, int dim,
                    int sequence, int head, const double *values)
{
    int heads = side == SIDE_Q ? c->heads : c->kv_heads;
    for (int64_t p = 0; p < definition_length(c, side, sequence); p++)
        for (int i = 0; i < dim; i++)
            tensor[(desk_row(c, side, sequence, p) * heads + head) * dim + i] =
                (float)values[p * dim + i];
}

// Fills the sums over the queries of a sequence and head. The bias has a row for each query.
static void desk_fill_sums(struct desk *d, int s, int h, const double *dbias, double dsink,
                           double max_logit)
{
    const struct cp_case *c = &d->c;
    int64_t rows = shard_rows(c, SIDE_Q, 0), columns = c->seqlen_kv;
    for (int64_t i = 0; i < definition_length(c, SIDE_Q, s) * columns; i++) {
        int64_t row = h * rows + desk_row(c, SIDE_Q, s, i / columns);
        d->dbias[row * columns + i % columns] = (float)dbias[i];
    }
    d->dsink[h] += (float)dsink;
    d->max_logit[h] = fmaxf(d->max_logit[h], (float)max_logit);
}

// The reference of one sequence and key head, and of the query heads that share it.
static void desk_fill_head(struct desk *d, int s, int k)
{
    const struct cp_case *c = &d->c;
    struct error error;
    int64_t q = definition_length(c, SIDE_Q, s), kv = definition_length(c, SIDE_KV, s);
    int64_t rows = shard_rows(c, SIDE_Q, 0), stride = q;
    int group = c->heads / c->kv_heads;
    double *wide = calloc((size_t)(q + kv + 1) * (HEAD_DIM_MAX * 2), sizeof *wide);
    double *lse = calloc((size_t)(2 * group * stride) + 1, sizeof *lse),
           *delta = lse + group * stride;
    double *first = wide, *second = wide + (q + kv) * HEAD_DIM_MAX;
    for (int h = k * group; h < (k + 1) * group; h++) {
        double *lse_h = lse + (h - k * group) * stride;
        double dsink = 0, squares = 0, max_logit = -INFINITY;
        double *dbias = calloc((size_t)(q * c->seqlen_kv) + 1, sizeof *dbias);
        const struct reference_sums sums = {.max_logit = &max_logit,
                                            .dsink =
                                                c->softmax == SOFTMAX_LEARNABLE ? &dsink : NULL,
                                            .dsink_squares = &squares,
                                            .dbias = dbias,
                                            .dbias_stride = c->seqlen_kv};
        ck_assert_int_eq(reference_queries(c, s, h, 0, q, first, lse_h,
                                           delta + (h - k * group) * stride, second, NULL, &sums,
                                           &error),
                         STATUS_OK);
        scatter(c, SIDE_Q, d->out, c->head_dim_v, s, h, first);
        scatter(c, SIDE_Q, d->dq, c->head_dim_qk, s, h, second);
        for (int64_t p = 0; p < q; p++)
            d->lse[h * rows + desk_row(c, SIDE_Q, s, p)] = (float)lse_h[p];
        desk_fill_sums(d, s, h, dbias, dsink, max_logit);
        free(dbias);
    }
    ck_assert_int_eq(reference_keys(c, s, k, 0, kv, lse, delta, first, second, NULL, &error),
                     STATUS_OK);
    scatter(c, SIDE_KV, d->dk, c->head_dim_qk, s, k, first);
    scatter(c, SIDE_KV, d->dv, c->head_dim_v, s, k, second);
    free(wide);
    free(lse);
}

// With one rank a sequence is contiguous in memory for every sharding.
static void desk_fill(struct desk *d)
{
    for (int s = 0; s < d->c.batch; s++)
        for (int k = 0; k < d->c.kv_heads; k++)
            desk_fill_head(d, s, k);
}

static void desk_init(struct desk *d)
{
    const struct cp_case *c = &d->c;
    int64_t q_rows = shard_rows(c, SIDE_Q, 0), kv_rows = shard_rows(c, SIDE_KV, 0);
    arena_init(&d->arena);
    d->out = floats(c, q_rows * c->heads * c->head_dim_v);
    d->lse = floats(c, q_rows * c->heads);
    d->dq = floats(c, q_rows * c->heads * c->head_dim_qk);
    d->dk = floats(c, kv_rows * c->kv_heads * c->head_dim_qk);
    d->dv = floats(c, kv_rows * c->kv_heads * c->head_dim_v);
    d->dbias = calloc((size_t)(q_rows * c->heads * c->seqlen_kv) + 1, sizeof(float));
    d->dsink = calloc((size_t)c->heads, sizeof(float));
    d->max_logit = calloc((size_t)c->heads, sizeof(float));
    for (int head = 0; head < c->heads; head++)
        d->max_logit[head] = -INFINITY;
    desk_fill(d);
}

static void desk_fini(struct desk *d)
{
    arena_fini(&d->arena);
    free(d->out);
    free(d->lse);
    free(d->dq);
    free(d->dk);
    free(d->dv);
    free(d->dbias);
    free(d->dsink);
    free(d->max_logit);
}

static bool desk_judge(struct desk *d)
{
    struct error error;
    size_t total = 0;
    struct verification v = {
        .c = &d->c,
        .spans = {d->spans[0], d->spans[1]},
        .results = {.out = d->out,
                    .dq = d->dq,
                    .dk = d->dk,
                    .dv = d->dv,
                    .lse = d->lse,
                    .dbias = d->c.bias != BIAS_NONE ? d->dbias : NULL,
                    .dsink = d->c.softmax == SOFTMAX_LEARNABLE ? d->dsink : NULL,
                    .max_logit = d->c.max_logit ? d->max_logit : NULL},
        .arena = &d->arena,
        .work = desk_work,
        .progress = &d->progress};
    for (int side = 0; side < 2; side++)
        v.span_count[side] = shard_spans(&d->c, (enum shard_side)side, 0, d->spans[side]);
    ck_assert_int_eq(verify_reserve(&d->c, 0, &total, &error), STATUS_OK);
    ck_assert_int_eq(arena_reserve(&d->arena, total, &error), STATUS_OK);
    ck_assert_int_eq(verify_run(&v, &d->report, &error), STATUS_OK);
    return d->report.pass;
}

// Judges; only the figures of this element's tensor and chunk may be broken, and they name it.
static void assert_only(struct desk *d, enum report_tensor tensor, struct element where)
{
    enum shard_side side = tensor == TENSOR_DK || tensor == TENSOR_DV ? SIDE_KV : SIDE_Q;
    int64_t occupied = definition_occupied(&d->c, side, where.sequence);
    int chunk = d->c.sharding == SHARDING_ZIGZAG && where.position >= occupied / 2;
    ck_assert(!desk_judge(d));
    for (int i = 0; i < d->report.figures_count; i++) {
        const struct figures *f = &d->report.figures[i];
        if (f->tensor != (int)tensor || f->chunk != chunk) {
            ck_assert_int_eq(f->broken, 0);
            continue;
        }
        ck_assert_int_eq(f->mismatches, 1);
        ck_assert_int_eq(f->first_bad.sequence, where.sequence);
        ck_assert_int_eq(f->first_bad.head, where.head);
        ck_assert_int_eq(f->first_bad.dim, where.dim);
        ck_assert_int_eq(f->first_bad.position, where.position);
        ck_assert_int_eq(f->worst_row.sequence, where.sequence);
        ck_assert_int_eq(f->worst_row.head, where.head);
        ck_assert_int_eq(f->worst_row.position, where.position);
    }
}

// Changes one element, expects the verdict to find it, and restores it.
static void dent(struct desk *d, float *value, enum report_tensor tensor, struct element where)
{
    float kept = *value;
    *value += 3;
    assert_only(d, tensor, where);
    *value = kept;
}

static void desk_dents(struct desk *d)
{
    const struct cp_case *c = &d->c;
    int64_t rows = shard_rows(c, SIDE_Q, 0);
    for (int k = 0; k < 12; k++) {
        struct element w = {.sequence = k % c->batch, .head = k % 4, .dim = k % 4}, of_lse;
        int64_t q = definition_length(c, SIDE_Q, w.sequence);
        int64_t kv = definition_length(c, SIDE_KV, w.sequence);
        w.position = q > 0 ? 11 * k % q : 0;
        int64_t row = desk_row(c, SIDE_Q, w.sequence, w.position);
        of_lse = w;
        of_lse.dim = 0;
        if (q > 0) {
            dent(d, &d->out[(row * c->heads + w.head) * c->head_dim_v + w.dim], TENSOR_OUT, w);
            dent(d, &d->dq[(row * c->heads + w.head) * c->head_dim_qk + w.dim], TENSOR_DQ, w);
        }
        if (q > 0 && kv > 0)
            dent(d, &d->lse[w.head * rows + row], TENSOR_LSE, of_lse);
        if (kv == 0)
            continue;
        w.head = k % 2;
        w.position = 13 * k % kv;
        row = desk_row(c, SIDE_KV, w.sequence, w.position);
        dent(d, &d->dk[(row * c->kv_heads + w.head) * c->head_dim_qk + w.dim], TENSOR_DK, w);
        dent(d, &d->dv[(row * c->kv_heads + w.head) * c->head_dim_v + w.dim], TENSOR_DV, w);
    }
}

START_TEST(every_element_is_found_in_its_place)
{
    static struct desk d;
    for (int variant = 0; variant < 4; variant++) {
        desk_case(&d, variant & 1 ? FORMAT_SBHD : FORMAT_BSHD,
                  variant & 2 ? SHARDING_CONTIGUOUS : SHARDING_ZIGZAG);
        desk_init(&d);
        ck_assert(desk_judge(&d));
        ck_assert_int_eq(d.report.figures_count, variant & 2 ? 5 : 10);
        desk_dents(&d);
        ck_assert(desk_judge(&d));
        desk_fini(&d);
    }
}
END_TEST

// Sequences of different lengths: chunks have different numbers of rows.
START_TEST(every_element_of_uneven_sequences_is_found)
{
    static struct desk d;
    for (int variant = 0; variant < 6; variant++) {
        desk_case(&d, (enum case_format)(FORMAT_BSHD + variant / 2),
                  variant % 2 ? SHARDING_CONTIGUOUS : SHARDING_ZIGZAG);
        d.c.batch = 4;
        cases_set(&d.c, "lengths_q", "33,7,0,20");
        cases_set(&d.c, "lengths_kv", "3,45,2,31");
        if (d.c.format == FORMAT_THD) {
            cases_set(&d.c, "padded_q", "40,12,3,20");
            cases_set(&d.c, "padded_kv", "3,48,9,31");
        }
        desk_init(&d);
        ck_assert(desk_judge(&d));
        desk_dents(&d);
        ck_assert(desk_judge(&d));
        desk_fini(&d);
    }
}
END_TEST

// Chunks with more rows than VERIFY_BLOCK_ROWS, the number that is judged at a time.
START_TEST(long_chunks_are_judged_in_blocks)
{
    static struct desk d;
    desk_case(&d, FORMAT_BSHD, SHARDING_CONTIGUOUS);
    d.c.batch = d.c.heads = d.c.kv_heads = 1;
    d.c.seqlen_q = d.c.seqlen_kv = 2 * VERIFY_BLOCK_ROWS + 7;
    desk_init(&d);
    ck_assert(desk_judge(&d));
    ck_assert_int_eq(d.report.figures[0].elements, d.c.seqlen_q * d.c.head_dim_v);
    static const int64_t places[] = {0, VERIFY_BLOCK_ROWS - 1, VERIFY_BLOCK_ROWS,
                                     2 * VERIFY_BLOCK_ROWS + 6};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct element where = {.position = places[i], .dim = 1};
        dent(&d, &d.out[places[i] * d.c.head_dim_v + 1], TENSOR_OUT, where);
        dent(&d, &d.dv[places[i] * d.c.head_dim_v + 1], TENSOR_DV, where);
    }
    desk_fini(&d);
}
END_TEST

START_TEST(forward_only_is_judged)
{
    static struct desk d;
    desk_case(&d, FORMAT_BSHD, SHARDING_ZIGZAG);
    desk_init(&d);
    d.c.training = false;
    ck_assert(desk_judge(&d));
    ck_assert_int_eq(d.report.figures_count, 4);
    d.dq[0] = NAN;
    ck_assert(desk_judge(&d));
    d.out[0] = NAN;
    ck_assert(!desk_judge(&d));
    desk_fini(&d);
}
END_TEST

// Returns the broken figures. Fails the test if several are broken.
static const struct figures *only_broken(struct desk *d)
{
    const struct figures *broken = NULL;
    ck_assert(!desk_judge(d));
    for (int i = 0; i < d->report.figures_count; i++) {
        if (d->report.figures[i].broken == 0)
            continue;
        ck_assert_ptr_null(broken);
        broken = &d->report.figures[i];
    }
    return broken;
}

START_TEST(padding_must_be_zero)
{
    static const int32_t lengths[] = {30, 21}, key_lengths[] = {40, 45};
    static struct desk d;
    for (int variant = 0; variant < 4; variant++) {
        desk_case(&d, variant & 1 ? FORMAT_SBHD : FORMAT_BSHD,
                  variant & 2 ? SHARDING_CONTIGUOUS : SHARDING_ZIGZAG);
        case_list_set(&d.c, LIST_LENGTHS_Q, lengths, 2);
        case_list_set(&d.c, LIST_LENGTHS_KV, key_lengths, 2);
        desk_init(&d);
        ck_assert(desk_judge(&d));
        struct {
            float *data;
            int tensor, heads, dim;
            enum shard_side side;
        } tensors[] = {{d.out, TENSOR_OUT, 4, 4, SIDE_Q},
                       {d.dq, TENSOR_DQ, 4, 6, SIDE_Q},
                       {d.dk, TENSOR_DK, 2, 6, SIDE_KV},
                       {d.dv, TENSOR_DV, 2, 4, SIDE_KV}};
        for (int t = 0; t < 4; t++) {
            int sequence = t < 2;
            int64_t position = t < 2 ? 21 + 4 * t : 40 + t;
            int64_t row = desk_row(&d.c, tensors[t].side, sequence, position);
            float *element = tensors[t].data + (row * tensors[t].heads + 1) * tensors[t].dim + 3;
            *element = t == 2 ? NAN : 1e-30F;
            const struct figures *f = only_broken(&d);
            ck_assert_int_eq(f->tensor, tensors[t].tensor);
            ck_assert_int_eq(f->chunk, CHUNK_PADDING);
            ck_assert_int_eq(f->broken, RULE_PADDING);
            ck_assert_int_eq(f->elements, (t < 2 ? 3 + 12 : 5) * tensors[t].heads * tensors[t].dim);
            ck_assert_int_eq(f->mismatches, 1);
            ck_assert_int_eq(f->nonfinite, t == 2);
            ck_assert_int_eq(f->first_bad.sequence, sequence);
            ck_assert_int_eq(f->first_bad.position, position);
            ck_assert_int_eq(f->first_bad.head, 1);
            ck_assert_int_eq(f->first_bad.dim, 3);
            *element = -0.0F;
            ck_assert(desk_judge(&d));
        }
        desk_fini(&d);
    }
}
END_TEST

START_TEST(sums_are_judged)
{
    static struct desk d;
    for (int variant = 0; variant < 2; variant++) {
        desk_case(&d, variant ? FORMAT_SBHD : FORMAT_BSHD, SHARDING_ZIGZAG);
        d.c.softmax = SOFTMAX_LEARNABLE;
        d.c.bias = BIAS_BHSS;
        d.c.max_logit = true;
        desk_init(&d);
        ck_assert(desk_judge(&d));
        ck_assert_int_eq(d.report.figures_count, 13);
        d.dsink[2] += 1;
        const struct figures *f = only_broken(&d);
        ck_assert_int_eq(f->tensor, TENSOR_DSINK);
        ck_assert_int_eq(f->elements, 4);
        ck_assert_int_eq(f->mismatches, 1);
        ck_assert_int_eq(f->first_bad.head, 2);
        ck_assert_int_eq(f->worst_row.head, 2);
        d.dsink[2] -= 1;
        d.max_logit[3] += 0.01F;
        f = only_broken(&d);
        ck_assert_int_eq(f->tensor, TENSOR_MAX_LOGIT);
        ck_assert_int_eq(f->first_bad.head, 3);
        d.max_logit[3] -= 0.01F;
        int64_t row = desk_row(&d.c, SIDE_Q, 1, 17);
        d.dbias[(1 * 2 * 33 + row) * 45 + 5] += 1;
        f = only_broken(&d);
        ck_assert_int_eq(f->tensor, TENSOR_DBIAS);
        ck_assert_int_eq(f->elements, 4 * 2 * 33 * 45);
        ck_assert_int_eq(f->mismatches, 1);
        ck_assert_int_eq(f->first_bad.sequence, 1);
        ck_assert_int_eq(f->first_bad.head, 1);
        ck_assert_int_eq(f->first_bad.position, 17);
        ck_assert_int_eq(f->first_bad.dim, 5);
        ck_assert_int_eq(f->worst_row.position, 17);
        d.dbias[(1 * 2 * 33 + row) * 45 + 5] -= 1;
        // One row of 264, with an error as large as the row.
        for (int i = 0; i < 45; i++)
            d.dbias[(1 * 2 * 33 + row) * 45 + i] *= 2;
        f = only_broken(&d);
        ck_assert_int_eq(f->tensor, TENSOR_DBIAS);
        ck_assert_int_eq(f->broken & RULE_ROW, RULE_ROW);
        ck_assert_int_eq(f->worst_row.position, 17);
        desk_fini(&d);
    }
}
END_TEST

// One sink has a thousandth of the gradient of another; a third one has none.
START_TEST(each_sink_is_judged)
{
    struct cp_case c;
    struct figures f;
    case_init(&c);
    c.world_size = 1;
    c.heads = c.kv_heads = 3;
    double numbers[TOTALS_NUMBERS * 3] = {0};
    double *heads[WORLD_SIZE_MAX] = {numbers}, *dsink = numbers + TOTALS_DSINK * c.heads;
    float got[] = {40, -0.04F, 0};
    for (int head = 0; head < c.heads; head++) {
        dsink[head] = got[head];
        numbers[TOTALS_SINK_TERMS * c.heads + head] = got[head] * got[head];
        numbers[TOTALS_SINK_TWIN * c.heads + head] = 1e-6 * got[head] * got[head];
    }
    ck_assert_int_eq(totals_judge_dsink(&c, heads, got).broken, 0);
    got[1] = -0.0397F; // wrong by 0.75 %: more than five of its units; negligible beside got[0]
    f = totals_judge_dsink(&c, heads, got);
    ck_assert_int_eq(f.broken, RULE_ELEMENT);
    ck_assert_int_eq(f.worst_row.head, 1);
    ck_assert_int_eq(f.first_bad.head, 1);
    ck_assert_double_eq(f.first_bad_got, got[1]);
    ck_assert_double_eq_tol(f.first_bad_expected, -0.04, 1e-6);
    ck_assert_double_eq_tol(f.max_abs, 3e-4, 1e-6);
    got[1] = -0.04F;
    got[2] = 1e-6F;
    ck_assert_int_eq(totals_judge_dsink(&c, heads, got).first_bad.head, 2);
    got[2] = NAN;
    ck_assert_int_eq(totals_judge_dsink(&c, heads, got).broken, RULE_NONFINITE);
}
END_TEST

// Each change of a number of elements is noticed, for every tensor and for its padding.
START_TEST(incomplete_figures_are_an_error)
{
    static struct desk d;
    struct error error;
    desk_case(&d, FORMAT_THD, SHARDING_ZIGZAG);
    cases_set(&d.c, "lengths_q", "33,7");
    cases_set(&d.c, "lengths_kv", "3,45");
    cases_set(&d.c, "padded_q", "40,12");
    cases_set(&d.c, "padded_kv", "3,48");
    d.c.softmax = SOFTMAX_LEARNABLE;
    d.c.bias = BIAS_BHSS;
    d.c.max_logit = true;
    desk_init(&d);
    desk_judge(&d);
    ck_assert_int_eq(complete_check(&d.c, 0, INFINITY, true, &d.report, &error), STATUS_OK);
    ck_assert_int_eq(d.report.figures_count, 17);
    for (int i = 0; i < d.report.figures_count; i++)
        for (int change = 0; change < 5; change++) {
            struct rank_report changed = d.report;
            struct figures *f = &changed.figures[i];
            f->elements += change == 0 ? -1 : change == 1;
            f->judged -= change == 2 && f->chunk != CHUNK_PADDING;
            if (change == 2 && f->chunk == CHUNK_PADDING)
                continue;
            if (change == 3) // the same chunk twice, once without elements
                changed.figures[changed.figures_count++] =
                    (struct figures){.tensor = f->tensor, .chunk = f->chunk};
            if (change == 4) // the number of another chunk
                f->chunk = f->chunk == 0 ? 1 : 0;
            ck_assert_int_eq(complete_check(&d.c, 0, INFINITY, true, &changed, &error),
                             STATUS_INTERNAL);
            ck_assert_ptr_nonnull(
                strstr(error.text, report_tensor_name(changed.figures[i].tensor)));
        }
    d.report.figures_count = 0;
    ck_assert_int_eq(complete_check(&d.c, 0, INFINITY, true, &d.report, &error), STATUS_INTERNAL);
    desk_fini(&d);
}
END_TEST

// A sample judges fewer elements, reports their number, is complete, and detects errors in its
// tiles. The edges of spans are always in the sample.
START_TEST(a_sample_is_judged_by_the_same_rules)
{
    static struct desk d;
    struct error error;
    desk_case(&d, FORMAT_BSHD, SHARDING_ZIGZAG);
    d.c.batch = 1;
    d.c.seqlen_q = d.c.seqlen_kv = 1600;
    d.c.softmax = SOFTMAX_LEARNABLE;
    d.c.max_logit = true;
    desk_init(&d);
    desk_work = tiles_work(&d.c) / 4;
    ck_assert(desk_judge(&d));
    for (int i = 0; i < d.report.figures_count; i++) {
        const struct figures *f = &d.report.figures[i];
        bool rows = f->tensor != TENSOR_DSINK && f->tensor != TENSOR_MAX_LOGIT;
        ck_assert_int_eq(f->judged < f->elements, rows);
        ck_assert_int_gt(f->judged, 0);
    }
    ck_assert_int_eq(complete_check(&d.c, 0, desk_work, true, &d.report, &error), STATUS_OK);
    ck_assert_int_eq(complete_check(&d.c, 0, INFINITY, true, &d.report, &error), STATUS_INTERNAL);
    static const int64_t edges[] = {0, 799, 800, 1599};
    for (int i = 0; i < 4; i++) {
        int64_t row = edges[i] * d.c.heads * d.c.head_dim_v, kv = edges[i] * d.c.kv_heads;
        d.out[row] += 0.5f;
        ck_assert_msg(!desk_judge(&d), "out at %d", (int)edges[i]);
        d.out[row] -= 0.5f;
        d.dk[kv * d.c.head_dim_qk] += 0.5f;
        ck_assert(!desk_judge(&d));
        d.dk[kv * d.c.head_dim_qk] -= 0.5f;
    }
    d.dsink[1] *= 1.01f;
    ck_assert(!desk_judge(&d));
    desk_work = 0;
    desk_fini(&d);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("verify");
    TCase *t = tcase_create("verify");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_element_is_found_in_its_place);
    tcase_add_test(t, a_sample_is_judged_by_the_same_rules);
    tcase_add_test(t, every_element_of_uneven_sequences_is_found);
    tcase_add_test(t, long_chunks_are_judged_in_blocks);
    tcase_add_test(t, forward_only_is_judged);
    tcase_add_test(t, padding_must_be_zero);
    tcase_add_test(t, sums_are_judged);
    tcase_add_test(t, each_sink_is_judged);
    tcase_add_test(t, incomplete_figures_are_an_error);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
