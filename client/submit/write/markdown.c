// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/markdown.h"

#include <string.h>

// Escapes the text so that it is neither Markdown nor HTML and stays in its cell.
static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '\n')
            fputs("<br>", out);
        else if (strchr("\\`*_[]|#~", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static bool is_named(const struct outcome *o)
{
    return o->kind == OUTCOME_FAIL || o->kind == OUTCOME_ERROR || o->first;
}

static void put_row(FILE *out, const char *id, const struct outcome *o)
{
    const char *text = o->first ? o->first : o->sentence ? o->sentence : "";
    fputs("| ", out);
    put_escaped(out, id);
    fprintf(out, " | %s | ", o->first ? "flaky" : outcome_name(o->kind));
    put_escaped(out, text);
    if (o->diagnosis) {
        fputs("<br>", out);
        put_escaped(out, o->diagnosis);
    }
    fputs(" |\n", out);
}

bool markdown_write(FILE *out, const struct markdown_summary *summary)
{
    int named = 0;
    fputs("### ", out);
    put_escaped(out, summary->title);
    fputs("\n\n", out);
    put_escaped(out, summary->sum);
    fputs("\n\n", out);
    for (int i = 0; i < summary->list->count; i++) {
        if (!is_named(&summary->outcomes[i]) || named++ >= MARKDOWN_ROWS_MAX)
            continue;
        if (named == 1)
            fputs("| case | verdict | what it says |\n|---|---|---|\n", out);
        put_row(out, summary->list->cases[i].id, &summary->outcomes[i]);
    }
    if (named > MARKDOWN_ROWS_MAX)
        fprintf(out, "\nand %d more\n", named - MARKDOWN_ROWS_MAX);
    if (named > 0)
        fputc('\n', out);
    return fflush(out) == 0 && !ferror(out);
}
