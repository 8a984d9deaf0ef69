// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/progress.h"

#include <string.h>

#include "client/submit/show/terminal.h"
#include "common/duration.h"

#define BAR_CELLS 20

void progress_init(struct progress *p, FILE *out, int total, uint64_t now_ns)
{
    *p = (struct progress){
        .out = out, .live = terminal_redraws(out), .total = total, .start_ns = now_ns};
}

void progress_text(const struct progress *p, uint64_t now_ns, const char *what, int columns,
                   char *text, size_t size)
{
    char bar[BAR_CELLS + 1], left[DURATION_TEXT_MAX] = "", rate[32] = "";
    int filled = p->total > 0 ? p->done * BAR_CELLS / p->total : 0;
    memset(bar, '.', BAR_CELLS);
    memset(bar, '=', (size_t)filled);
    bar[BAR_CELLS] = '\0';
    uint64_t elapsed_ns = now_ns - p->start_ns;
    if (p->done > 0 && elapsed_ns > 0) {
        double per_second = p->done / ((double)elapsed_ns / 1e9);
        double left_ns = (double)elapsed_ns / p->done * (p->total - p->done);
        snprintf(rate, sizeof(rate), per_second < 10 ? ", %.2f/s" : ", %.0f/s", per_second);
        if (p->done < p->total)
            duration_format((uint64_t)left_ns, left, sizeof(left));
    }
    char counts[80] = "", errors[32] = "";
    if (p->errors > 0)
        snprintf(errors, sizeof(errors), ", %d not run", p->errors);
    if (!p->runs)
        snprintf(counts, sizeof(counts), ": %d passed, %d failed%s", p->passed, p->failed, errors);
    snprintf(text, size, "[%s] %d/%d%s%s%s%s%s%s%s", bar, p->done, p->total, counts, rate,
             left[0] ? ", " : "", left, left[0] ? " left" : "", what[0] ? " | " : "", what);
    if (columns > 0 && (size_t)columns < size && strlen(text) > (size_t)columns)
        text[columns] = '\0';
}

void progress_draw(struct progress *p, uint64_t now_ns, const char *what)
{
    char text[512];
    if (!p->live)
        return;
    progress_text(p, now_ns, what, terminal_columns(p->out) - 1, text, sizeof(text));
    fprintf(p->out, "\r%s\033[K", text);
    fflush(p->out);
    p->shown = true;
}

void progress_clear(struct progress *p)
{
    if (!p->shown)
        return;
    fputs("\r\033[K", p->out);
    fflush(p->out);
    p->shown = false;
}
