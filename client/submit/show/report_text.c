// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/report_text.h"

#include "client/submit/show/table.h"
#include "common/plural.h"

void report_text_totals(FILE *out, const struct record *run)
{
    static const struct {
        enum outcome_kind kind;
        const char *words;
    } parts[] = {{OUTCOME_PASS, "passed"},
                 {OUTCOME_FAIL, "failed"},
                 {OUTCOME_ERROR, "could not be run"},
                 {OUTCOME_UNVERIFIED, "run without verification"},
                 {OUTCOME_NOT_RUN, "not run"},
                 {OUTCOME_EXCLUDED, "excluded"}};
    int counts[OUTCOME_KINDS] = {0}, flaky = 0, wrong = 0;
    const char *joint = ":";
    for (int i = 0; i < run->count; i++) {
        counts[run->entries[i].outcome.kind]++;
        flaky += run->entries[i].outcome.first != NULL;
        wrong += run->entries[i].outcome.was_wrong;
    }
    fprintf(out, "%d case%s", run->count, plural(run->count));
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (counts[parts[i].kind] == 0)
            continue;
        fprintf(out, "%s %d %s", joint, counts[parts[i].kind], parts[i].words);
        joint = ",";
    }
    if (flaky)
        fprintf(out, ", %d of them flaky", flaky);
    if (wrong)
        fprintf(out, " (%d with a wrong result first)", wrong);
    fputc('\n', out);
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
