// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/report_page.h"

#include <math.h>
#include <string.h>

#include "client/submit/outcome/changes.h"
#include "client/submit/outcome/totals.h"
#include "client/submit/write/report_style.h"
#include "common/duration.h"
#include "common/plural.h"

// ---- text -------------------------------------------------------------------------------------

static void put(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fputc(*text, out);
    }
}

// A string literal of a script; escapes what would end the string, the script or the line.
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 0x7f || strchr("\"\\<>&", c))
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void put_time(FILE *out, uint64_t ns)
{
    char text[DURATION_TEXT_MAX];
    fputs(ns ? duration_format(ns, text, sizeof(text)) : "-", out);
}

static void put_used(FILE *out, const struct outcome *o)
{
    if (!o->tensor[0])
        fputs("-", out);
    else if (o->used <= 99)
        fprintf(out, "%.0f %%", 100 * o->used);
    else
        fputs("beyond", out);
}

// CSS class of an outcome's cell and word.
static const char *class_of(const struct outcome *o)
{
    static const char *const classes[OUTCOME_KINDS] = {
        [OUTCOME_NOT_RUN] = "n", [OUTCOME_PASS] = "p",     [OUTCOME_FAIL] = "f",
        [OUTCOME_ERROR] = "e",   [OUTCOME_EXCLUDED] = "n", [OUTCOME_UNVERIFIED] = "u"};
    return o->first ? "k" : classes[o->kind];
}

static const char *word_of(const struct outcome *o)
{
    return o->first ? "flaky" : outcome_name(o->kind);
}

static bool is_bad(const struct outcome *o)
{
    return o->kind == OUTCOME_FAIL || o->kind == OUTCOME_ERROR;
}

// ---- the sum ----------------------------------------------------------------------------------

static void put_sum(FILE *out, const struct report_page *page)
{
    struct totals totals = {0};
    static const enum outcome_kind order[] = {OUTCOME_PASS,    OUTCOME_FAIL,
                                              OUTCOME_ERROR,   OUTCOME_UNVERIFIED,
                                              OUTCOME_NOT_RUN, OUTCOME_EXCLUDED};
    for (int i = 0; i < page->run->count; i++)
        totals_add(&totals, &page->run->entries[i].outcome);
    fprintf(out, "<p class=sum><b>%d</b> case%s", page->run->count, plural(page->run->count));
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (totals.kinds[order[i]])
            fprintf(out, " <span class=%s>%d %s</span>",
                    class_of(&(struct outcome){.kind = order[i]}), totals.kinds[order[i]],
                    outcome_name(order[i]));
    if (totals.flaky)
        fprintf(out, " <span class=k>%d flaky</span>", totals.flaky);
    fputs("</p>\n", out);
}

// ---- verdicts ---------------------------------------------------------------------------------

static size_t group_length(const char *id)
{
    return strcspn(id, "/");
}

static bool same_group(const char *a, const char *b)
{
    size_t length = group_length(a);
    return length == group_length(b) && strncmp(a, b, length) == 0;
}

// Writes a row of cells for each group of ids with the same first part. The script finds the case
// of a cell by the cell's number.
static void put_verdicts(FILE *out, const struct report_page *page)
{
    const struct record *run = page->run;
    fputs("<h2>Verdicts</h2>\n<p class=key><i class=p></i>pass <i class=k></i>flaky <i "
          "class=f></i>fail <i class=e></i>error <i class=u></i>unverified <i class=n></i>not run"
          "</p>\n<div id=grid>\n",
          out);
    for (int first = 0, last; first < run->count; first = last) {
        int bad = 0;
        for (last = first;
             last < run->count && same_group(run->entries[first].id, run->entries[last].id); last++)
            bad += is_bad(&run->entries[last].outcome);
        char group[128];
        snprintf(group, sizeof(group), "%.*s", (int)group_length(run->entries[first].id),
                 run->entries[first].id);
        fputs("<div class=row><span>", out);
        put(out, group);
        if (bad)
            fprintf(out, " <b class=f>%d</b>", bad);
        fputs("</span><div>", out);
        for (int i = first; i < last; i++)
            fprintf(out, "<i class=%s></i>", class_of(&run->entries[i].outcome));
        fputs("</div></div>\n", out);
    }
    fputs("</div>\n<p id=told class=dim>Point at a case.</p>\n", out);
}

static void put_bad(FILE *out, const struct report_page *page)
{
    int named = 0;
    for (int i = 0; i < page->run->count; i++) {
        const struct record_entry *entry = &page->run->entries[i];
        const struct outcome *o = &entry->outcome;
        if (!is_bad(o) && !o->first)
            continue;
        if (named++ == 0)
            fputs("<h2>What did not pass, or not at once</h2>\n", out);
        if (named > REPORT_PAGE_NAMED_MAX)
            continue;
        fprintf(out, "<details><summary><b class=%s>%s</b> ", class_of(o), word_of(o));
        put(out, entry->id);
        fputs("</summary><p>", out);
        put(out, o->first ? o->first : o->sentence ? o->sentence : "");
        if (o->diagnosis) {
            fputs("</p><p>diagnosis: ", out);
            put(out, o->diagnosis);
        }
        fputs("</p><pre>", out);
        put(out, entry->command ? entry->command : "");
        fputs("</pre></details>\n", out);
    }
    if (named > REPORT_PAGE_NAMED_MAX)
        fprintf(out, "<p class=dim>and %d more, which the table below has</p>\n",
                named - REPORT_PAGE_NAMED_MAX);
}

// ---- bars -------------------------------------------------------------------------------------

#define BINS_MAX 32

struct bars {
    int good[BINS_MAX], bad[BINS_MAX], bins;
    char label[BINS_MAX][DURATION_TEXT_MAX]; // below a bin; "" for none
};

static void put_bars(FILE *out, const struct bars *bars, const char *what)
{
    int most = 1, width = 720 / bars->bins;
    for (int i = 0; i < bars->bins; i++)
        if (bars->good[i] + bars->bad[i] > most)
            most = bars->good[i] + bars->bad[i];
    fprintf(out, "<svg viewBox='-14 0 748 200' role=img aria-label='%s'>\n", what);
    for (int i = 0; i < bars->bins; i++) {
        double good = 150.0 * bars->good[i] / most, bad = 150.0 * bars->bad[i] / most;
        int x = i * width;
        if (bars->good[i])
            fprintf(out, "<rect class=bp x=%d y=%.1f width=%d height=%.1f />", x + 1,
                    170 - fmax(good, 1), width - 2, fmax(good, 1));
        if (bars->bad[i])
            fprintf(out, "<rect class=bf x=%d y=%.1f width=%d height=%.1f />", x + 1,
                    170 - good - fmax(bad, 1), width - 2, fmax(bad, 1));
        if (bars->good[i] + bars->bad[i])
            fprintf(out, "<text x=%d y=%.1f text-anchor=middle class=c>%d</text>", x + width / 2,
                    166 - good - bad, bars->good[i] + bars->bad[i]);
        fprintf(out, "<text x=%d y=188 text-anchor=middle>%s</text>\n", x + width / 2,
                bars->label[i]);
    }
    fputs("</svg>\n", out);
}

// Bins of a twentieth of the limit each, and one for errors beyond it.
static void put_errors(FILE *out, const struct report_page *page)
{
    struct bars bars = {.bins = 21};
    int any = 0;
    for (int i = 0; i < page->run->count; i++) {
        const struct outcome *o = &page->run->entries[i].outcome;
        if (!o->tensor[0])
            continue;
        int bin = o->used < 1 ? (int)(20 * o->used) : 20;
        (is_bad(o) ? bars.bad : bars.good)[bin]++;
        any++;
    }
    for (int i = 0; i < 20; i += 2)
        snprintf(bars.label[i], sizeof(bars.label[i]), "%d %%", 5 * i);
    strcpy(bars.label[20], "&gt; 100");
    if (!any)
        return;
    fputs("<h2>Largest error of each case, as part of its limit</h2>\n", out);
    put_bars(out, &bars, "cases by the part of their limit that the largest error takes");
}

// Four bins for each power of ten of the time, from 100 us on.
static void put_times(FILE *out, const struct report_page *page)
{
    struct bars bars = {.bins = 28};
    int any = 0;
    for (int i = 0; i < page->run->count; i++) {
        const struct outcome *o = &page->run->entries[i].outcome;
        if (!o->run_ns)
            continue;
        int bin = (int)floor(4 * log10((double)o->run_ns / 1e5));
        bin = bin < 0 ? 0 : bin >= bars.bins ? bars.bins - 1 : bin;
        (is_bad(o) ? bars.bad : bars.good)[bin]++;
        any++;
    }
    uint64_t ns = 100000;
    for (int i = 0; i < bars.bins; i += 4, ns *= 10)
        duration_ask(ns, bars.label[i], sizeof(bars.label[i]));
    if (!any)
        return;
    fputs("<h2>Time of each case, from its start to its verdict</h2>\n", out);
    put_bars(out, &bars, "cases by the time they ran");
}

// ---- cases nearest to their limits, and longest cases -----------------------------------------

typedef double rank_fn(const struct outcome *o);

static double by_used(const struct outcome *o)
{
    return o->tensor[0] && o->kind == OUTCOME_PASS ? o->used : -1;
}

static double by_time(const struct outcome *o)
{
    return o->run_ns ? (double)o->run_ns : -1;
}

// Returns the entry after `than` in descending order of `rank`, or the first for -1. -1: there are
// no more. Entries with a negative `rank` are left out.
static int next_of(const struct record *run, rank_fn *rank, int than)
{
    int best = -1;
    for (int i = 0; i < run->count; i++) {
        double value = rank(&run->entries[i].outcome);
        double bound = than < 0 ? INFINITY : rank(&run->entries[than].outcome);
        bool behind = than < 0 || value < bound || (value == bound && i > than);
        if (value >= 0 && behind && (best < 0 || value > rank(&run->entries[best].outcome)))
            best = i;
    }
    return best;
}

static void put_row(FILE *out, const struct record_entry *entry)
{
    const struct outcome *o = &entry->outcome;
    fputs("<tr><td>", out);
    put(out, entry->id);
    fprintf(out, "</td><td class=%s>%s</td><td>", class_of(o), word_of(o));
    put_used(out, o);
    fputs("</td><td>", out);
    put(out, o->rule);
    fputs("</td><td>", out);
    put(out, o->tensor);
    fputs("</td><td>", out);
    put_time(out, o->forward_ns);
    fputs("</td><td>", out);
    put_time(out, o->backward_ns);
    fputs("</td><td>", out);
    put_time(out, o->run_ns);
    fputs("</td></tr>\n", out);
}

#define HEAD                                                                                       \
    "<thead><tr><th>case<th>verdict<th>of limit<th>rule<th>tensor<th>forward<th>backward<th>ran"   \
    "</thead>"

static void put_top(FILE *out, const struct report_page *page, rank_fn *rank, const char *title)
{
    int at = next_of(page->run, rank, -1);
    if (at < 0)
        return;
    fprintf(out, "<h3>%s</h3>\n<div class=wide><table>" HEAD "<tbody>\n", title);
    for (int i = 0; i < REPORT_PAGE_TOP && at >= 0; i++, at = next_of(page->run, rank, at))
        put_row(out, &page->run->entries[at]);
    fputs("</table></div>\n", out);
}

// ---- the earlier run --------------------------------------------------------------------------

static void put_change(FILE *out, const struct record_entry *now, const struct record_entry *then)
{
    fputs("<tr><td>", out);
    put(out, now->id);
    fprintf(out, "</td><td class=%s>%s</td><td class=%s>%s</td><td>", class_of(&then->outcome),
            word_of(&then->outcome), class_of(&now->outcome), word_of(&now->outcome));
    put(out, now->outcome.sentence ? now->outcome.sentence : "");
    fputs("</td></tr>\n", out);
}

static void put_changed(FILE *out, const struct report_page *page)
{
    int changed = 0;
    fputs("<div class=wide><table class=says><thead><tr><th>case<th>was<th>is<th>what it says"
          "</thead><tbody>\n",
          out);
    for (int i = 0; i < page->run->count; i++) {
        const struct record_entry *now = &page->run->entries[i];
        const struct record_entry *then = record_find(page->earlier, now->id);
        if (!then || then->outcome.kind == now->outcome.kind)
            continue;
        if (changed++ < REPORT_PAGE_NAMED_MAX)
            put_change(out, now, then);
    }
    fputs("</table></div>\n", out);
    if (changed > REPORT_PAGE_NAMED_MAX)
        fprintf(out, "<p class=dim>and %d more</p>\n", changed - REPORT_PAGE_NAMED_MAX);
}

static void put_changes_sum(FILE *out, const struct report_page *page, const struct changes *c)
{
    fprintf(out,
            "<p>%d verdict%s changed, %d the same, %d new, %d gone; the results of %d have "
            "other bits.</p>\n",
            c->changed, plural(c->changed), c->same, c->fresh, c->gone, c->digests);
    if (c->timed == 0)
        return;
    fputs("<p>Time beside that of ", out);
    put(out, page->earlier_name);
    fprintf(out,
            ", over %d case%s that passed in both: median %.2f times, a tenth took less than %.2f, "
            "a tenth more than %.2f.</p>\n",
            c->timed, plural(c->timed), c->ratios[c->timed / 2], c->ratios[c->timed / 10],
            c->ratios[c->timed - 1 - c->timed / 10]);
}

static bool put_earlier(FILE *out, const struct report_page *page)
{
    struct changes c;
    if (!page->earlier)
        return true;
    if (changes_init(&c, page->run, page->earlier))
        return false;
    fputs("<h2>Beside ", out);
    put(out, page->earlier_name);
    fputs("</h2>\n", out);
    put_changes_sum(out, page, &c);
    if (c.changed)
        put_changed(out, page);
    changes_fini(&c);
    return true;
}

// ---- all cases --------------------------------------------------------------------------------

// Writes the script's table. A row has id, class, word, part of the limit, rule, tensor, times in
// ns.
static void put_data(FILE *out, const struct report_page *page)
{
    fputs("<script>const cases=[\n", out);
    for (int i = 0; i < page->run->count; i++) {
        const struct record_entry *entry = &page->run->entries[i];
        const struct outcome *o = &entry->outcome;
        fputc('[', out);
        put_string(out, entry->id);
        fprintf(out, ",\"%s\",\"%s\",%.4g,", class_of(o), word_of(o),
                o->tensor[0] && isfinite(o->used) ? o->used
                : o->tensor[0]                    ? 1e9
                                                  : -1);
        put_string(out, o->rule);
        fputc(',', out);
        put_string(out, o->tensor);
        fprintf(out, ",%.9g,%.9g,%.9g],\n", (double)o->forward_ns, (double)o->backward_ns,
                (double)o->run_ns);
    }
    fputs("];\n", out);
    fputs(report_script, out);
    fputs("</script>\n", out);
}

static bool put_cases(FILE *out, const struct report_page *page)
{
    put_verdicts(out, page);
    put_bad(out, page);
    bool complete = put_earlier(out, page);
    put_errors(out, page);
    put_top(out, page, by_used, "Nearest to their limits");
    put_times(out, page);
    put_top(out, page, by_time, "Longest");
    fputs("<h2>All cases</h2>\n<p><input id=find placeholder='words of an id, or pass, fail, "
          "error'> <span id=shown class=dim></span></p>\n<div class=wide><table id=all>" HEAD
          "<tbody></table></div>\n</main>\n",
          out);
    put_data(out, page);
    return complete;
}

static bool put_no_case(FILE *out, const struct report_page *page)
{
    fputs("<p>The record has no case. It is of a run that ended before its first answer, or of "
          "matrix --last-failed when no case had failed.</p>\n",
          out);
    bool complete = put_earlier(out, page);
    fputs("</main>\n", out);
    return complete;
}

bool report_page_write(FILE *out, const struct report_page *page)
{
    fputs("<!DOCTYPE html>\n<html lang=en><meta charset=utf-8>\n<meta name=viewport "
          "content='width=device-width'>\n<title>",
          out);
    put(out, page->name);
    fprintf(out, "</title>\n<style>%s</style>\n<main>\n<h1>", report_style);
    put(out, page->name);
    fputs("</h1>\n", out);
    put_sum(out, page);
    bool complete = page->run->count > 0 ? put_cases(out, page) : put_no_case(out, page);
    return complete && fflush(out) == 0 && !ferror(out);
}
