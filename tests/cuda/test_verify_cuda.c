// SPDX-License-Identifier: Apache-2.0
// Verification on the device: right results of random cases pass; wrong elements are found.
// Ranks are threads that share the device.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/verify_workers.h"
#include "tests/support/generate.h"

// ---- figures ------------------------------------------------------------------------------------

static void figures_note(const char *name, const struct figures *f)
{
    harness_note(
        "  %-4s %-9s chunk %d broken %2d elements %lld bad %lld nonfinite %lld rmse %.3g of "
        "%.3g slope %.2g max %.3g element %.3g row %.3g at %d/%d/%lld first %d/%d/%lld/%d "
        "%g for %g",
        name, report_tensor_name(f->tensor), f->chunk, f->broken, (long long)f->elements,
        (long long)f->mismatches, (long long)f->nonfinite, f->rmse_rel, f->rmse_limit, f->slope,
        f->max_abs, f->worst_element, f->worst_row_rel, f->worst_row.sequence, f->worst_row.head,
        (long long)f->worst_row.position, f->first_bad.sequence, f->first_bad.head,
        (long long)f->first_bad.position, f->first_bad.dim, f->first_bad_got,
        f->first_bad_expected);
}

// True if all elements are judged and, unless a rule is broken, each figure is within its limit.
// Padding has no limits.
static bool figures_agree(const struct figures *f)
{
    bool kept = f->rmse_rel <= f->rmse_limit && f->worst_row_rel <= f->worst_row_limit &&
                f->worst_element <= 1 && f->mismatches == 0 && f->nonfinite == 0;
    return f->judged == f->elements && (f->broken != 0 || f->chunk == CHUNK_PADDING || kept);
}

static void report_check(const struct rank *rank, const char *what, const char *text)
{
    const struct rank_report *report = &rank->report;
    bool pass = true, agree = true;
    for (int i = 0; i < report->figures_count; i++) {
        const struct figures *f = &report->figures[i];
        pass = pass && f->broken == 0;
        agree = agree && figures_agree(f);
        if (!figures_agree(f))
            figures_note("odd", f);
    }
    EXPECT(agree && pass == report->pass, "%s, rank %d of %s", what, rank->number, text);
}

// Bit mask of the rules that any figure of any rank breaks.
static int broken(const struct sample *s)
{
    int rules = 0;
    for (int r = 0; r < s->c.world_size; r++)
        for (int i = 0; i < s->ranks[r].report.figures_count; i++)
            rules |= s->ranks[r].report.figures[i].broken;
    return rules;
}

static void broken_note(const struct sample *s)
{
    char text[512];
    case_describe(&s->c, text, sizeof(text));
    harness_note("%s", text);
    for (int r = 0; r < s->c.world_size; r++)
        for (int i = 0; i < s->ranks[r].report.figures_count; i++)
            if (s->ranks[r].report.figures[i].broken)
                figures_note("fail", &s->ranks[r].report.figures[i]);
}

static void sample_expect(struct sample *s, const char *what)
{
    char text[512];
    sample_judge(s);
    case_describe(&s->c, text, sizeof(text));
    for (int r = 0; r < s->c.world_size; r++)
        report_check(&s->ranks[r], what, text);
}

// ---- changed results ----------------------------------------------------------------------------

static enum case_dtype dtype_of(const struct sample *s, int tensor)
{
    bool single = tensor == LSE || tensor == DSINK || tensor == MAX_LOGIT;
    return single ? DTYPE_FP32 : s->c.dtype;
}

// Draws a rank, and returns a random tensor of it that has elements; -1: none found.
static int any_tensor(const struct sample *s, int *rank)
{
    for (int tries = 0; tries < 100; tries++) {
        int tensor = (int)harness_below(TENSORS);
        *rank = (int)harness_below(s->c.world_size);
        if (s->ranks[*rank].bytes[tensor] > 0)
            return tensor;
    }
    return -1;
}

static int64_t elements(const struct sample *s, int rank, int tensor)
{
    return (int64_t)s->ranks[rank].bytes[tensor] / dtype_bytes(dtype_of(s, tensor));
}

// These functions return true if they have changed a number. A NaN is the LSE of padding, and is
// not changed.
static bool value_put(struct sample *s, int rank, int tensor, int64_t at, float value)
{
    enum case_dtype dtype = dtype_of(s, tensor);
    void *data = s->ranks[rank].host[tensor];
    float before = dtype_load(dtype, data, at);
    if (isnan(before))
        return false;
    dtype_store(dtype, data, at, value);
    float after = dtype_load(dtype, data, at);
    return !(before == after);
}

static bool element_put(struct sample *s, float value)
{
    int rank, tensor = any_tensor(s, &rank);
    return tensor >= 0 &&
           value_put(s, rank, tensor, harness_below(elements(s, rank, tensor)), value);
}

static bool scale(struct sample *s)
{
    int rank, tensor = any_tensor(s, &rank);
    bool changed = false;
    for (int64_t i = 0; tensor >= 0 && i < elements(s, rank, tensor); i++) {
        float value = dtype_load(dtype_of(s, tensor), s->ranks[rank].host[tensor], i);
        changed |= isfinite(value) && value_put(s, rank, tensor, i, value * 1.05f);
    }
    return changed;
}

// Exchanges the first and the last quarter of a tensor.
static bool swap(struct sample *s)
{
    int rank, tensor = any_tensor(s, &rank);
    int64_t all = tensor < 0 ? 0 : elements(s, rank, tensor), length = all / 4;
    bool changed = false;
    for (int64_t i = 0; i < length; i++) {
        enum case_dtype dtype = dtype_of(s, tensor);
        const void *data = s->ranks[rank].host[tensor];
        float a = dtype_load(dtype, data, i), b = dtype_load(dtype, data, all - length + i);
        changed |= value_put(s, rank, tensor, i, b);
        value_put(s, rank, tensor, all - length + i, a);
    }
    return changed;
}

// Applies `change` to the results of `count` random cases. Expects the judge to notice at least the
// fraction `part` of the changes: a tensor of few elements may be off by some percent and still be
// right.
static void changes_judge(bool (*change)(struct sample *), const char *what, int count, double part)
{
    static struct sample s;
    int noticed = 0, changed = 0;
    workers_open();
    while (changed < count) {
        struct cp_case c;
        generate_case(harness_random(), SAMPLE_WORLD_MAX, harness_small() ? 20 : 90, &c);
        sample_init(&s, &c);
        if (change(&s)) {
            sample_expect(&s, what);
            changed++;
            noticed += broken(&s) != 0;
        }
        sample_fini(&s);
    }
    workers_close();
    EXPECT(noticed >= part * count, "%s: noticed in %d of %d cases", what, noticed, count);
    harness_note("%s: %d of %d cases fail", what, noticed, count);
}

static void right_results(void)
{
    static struct sample s;
    int failed = 0, count = harness_small() ? 3 : 200;
    workers_open();
    for (int i = 0; i < count; i++) {
        struct cp_case c;
        generate_case(harness_random(), SAMPLE_WORLD_MAX, harness_small() ? 20 : 90, &c);
        sample_init(&s, &c);
        sample_expect(&s, "right results");
        failed += broken(&s) != 0;
        if (broken(&s) != 0)
            broken_note(&s);
        sample_fini(&s);
    }
    workers_close();
    EXPECT(failed == 0, "%d of %d right cases fail", failed, count);
}

static bool make_nan(struct sample *s)
{
    return element_put(s, NAN);
}

static bool make_large(struct sample *s)
{
    return element_put(s, 37);
}

static bool make_infinite(struct sample *s)
{
    return element_put(s, -INFINITY);
}

static int changes(void)
{
    return harness_small() ? 2 : 40;
}

static void nan_is_noticed(void)
{
    changes_judge(make_nan, "a NaN", changes(), 1);
}

static void one_element_is_noticed(void)
{
    changes_judge(make_large, "a wrong element", changes(), 1);
}

static void infinity_is_noticed(void)
{
    changes_judge(make_infinite, "an infinity", changes(), 1);
}

static void scale_is_noticed(void)
{
    changes_judge(scale, "5 percent", changes(), harness_small() ? 0 : 0.85);
}

static void swapped_rows_are_noticed(void)
{
    changes_judge(swap, "swapped rows", changes(), harness_small() ? 0 : 0.95);
}

static const struct harness_test tests[] = {
    {"right_results", right_results},
    {"nan_is_noticed", nan_is_noticed},
    {"one_element_is_noticed", one_element_is_noticed},
    {"infinity_is_noticed", infinity_is_noticed},
    {"scale_is_noticed", scale_is_noticed},
    {"swapped_rows_are_noticed", swapped_rows_are_noticed},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
