// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/report_text.h"

#include "client/submit/outcome/totals.h"
#include "client/submit/show/table.h"
#include "common/plural.h"

void report_text_totals(FILE *out, const struct record *run)
{
    struct totals totals = {0};
    char text[TOTALS_TEXT_MAX];
    for (int i = 0; i < run->count; i++)
        totals_add(&totals, &run->entries[i].outcome);
    fprintf(out, "%d case%s%s%s\n", run->count, plural(run->count), run->count ? ": " : "",
            totals_format(&totals, text));
}

static const char *word_of(const struct outcome *o)
{
    return o->first ? "flaky" : outcome_name(o->kind);
}

static void add_row(struct table *table, const struct record_entry *now,
                    const struct record_entry *then)
{
    const struct outcome *o = &now->outcome;
    bool changed = then->outcome.kind != o->kind;
    table_row(table);
    table_cell(table, PAINT_PLAIN, "%s", now->id);
    table_cell(table, PAINT_PLAIN, "%s", word_of(&then->outcome));
    table_cell(table, changes_is_worse(now, then) ? PAINT_BAD : PAINT_PLAIN, "%s", word_of(o));
    table_cell(table, PAINT_PLAIN, "%s",
               !changed       ? "other bits"
               : o->diagnosis ? o->diagnosis
               : o->sentence  ? o->sentence
                              : "");
}

static void print_changed(FILE *out, const struct record *run, const struct record *earlier)
{
    struct table *table = table_create(out, "CASE WAS IS WHAT_IT_SAYS");
    int named = 0;
    for (int i = 0; i < run->count; i++) {
        const struct record_entry *now = &run->entries[i], *then = record_find(earlier, now->id);
        if (!then ||
            (then->outcome.kind == now->outcome.kind && !changes_has_other_bits(now, then)))
            continue;
        if (named++ < REPORT_TEXT_NAMED_MAX)
            add_row(table, now, then);
    }
    table_print(table, "");
    table_destroy(table);
    if (named > REPORT_TEXT_NAMED_MAX)
        fprintf(out, "and %d more\n", named - REPORT_TEXT_NAMED_MAX);
}

void report_text_changes(FILE *out, const struct record *run, const struct record *earlier,
                         const char *earlier_name, const struct changes *changes)
{
    print_changed(out, run, earlier);
    fprintf(
        out,
        "beside %s: %d verdict%s changed, %d of them for the worse, %d the same, %d new, %d gone; "
        "the results of %d have other bits\n",
        earlier_name, changes->changed, plural(changes->changed), changes->worse, changes->same,
        changes->fresh, changes->gone, changes->digests);
    if (changes->timed > 0)
        fprintf(
            out,
            "time of a case that passed in both: median %.2f times, a tenth took less than %.2f, "
            "a tenth more than %.2f\n",
            changes->ratios[changes->timed / 2], changes->ratios[changes->timed / 10],
            changes->ratios[changes->timed - 1 - changes->timed / 10]);
}
