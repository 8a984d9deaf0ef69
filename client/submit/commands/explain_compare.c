// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/explain_compare.h"

#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/show/svg.h"
#include "client/submit/show/table.h"
#include "client/submit/show/units.h"
#include "plan/plan.h"

#define COMPARE_MAX 8

enum status explain_make_plans(const struct cp_case *c, int shown, struct plan **plans,
                               struct error *error)
{
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && !status; r++) {
        status = plan_create(c, r, &plans[r], error);
        if (!status)
            status = plan_check_alone(plans[r], error);
        if (!status && shown >= 0 && r != shown)
            plan_forget_slices(plans[r]);
    }
    return status ? status : plan_check_exchanges(plans, c->world_size, error);
}

// Copies the first word to `word`; returns the words after its comma, or NULL. A word is cut after
// 64 characters, which are more than any value of comm has.
static const char *word_take(const char *at, char word[CASE_VALUE_MAX])
{
    size_t length = strcspn(at, ",");
    snprintf(word, CASE_VALUE_MAX, "%.*s", length < 64 ? (int)length : 64, at);
    return at[length] ? at + length + 1 : NULL;
}

bool explain_check_words(const char *words, struct cp_case *about)
{
    char word[CASE_VALUE_MAX];
    struct cp_case c;
    struct error error;
    int count = 0;
    case_init(&c);
    while (words) {
        words = word_take(words, word);
        if (++count > COMPARE_MAX) {
            command_complain("--compare takes up to %d values", COMPARE_MAX);
            return false;
        }
        if (case_set(&c, "comm", word, &error) == STATUS_OK) {
            if (c.comm == COMM_A2A_P2P)
                about->comm = c.comm;
            continue;
        }
        command_complain("--compare %s: %s", word, error.text);
        return false;
    }
    return true;
}

// A value of comm, with the plans and the timeline of the case for it.
struct variant {
    char comm[CASE_VALUE_MAX];
    struct plan *plans[WORLD_SIZE_MAX];
    struct timeline *timeline;
};

static void variant_fini(struct variant *v)
{
    for (int r = 0; r < WORLD_SIZE_MAX; r++)
        plan_destroy(v->plans[r]);
    timeline_destroy(v->timeline);
}

static enum status variant_make(struct variant *v, const struct cp_case *about,
                                const struct timeline_rates *rates, struct error *error)
{
    struct cp_case c = *about;
    struct error inner;
    enum status status = case_set(&c, "comm", v->comm, &inner);
    if (c.comm != COMM_A2A_P2P && about->comm == COMM_A2A_P2P)
        c.a2a_size = CASE_A2A_SIZE_DEFAULT; // meant for the other values
    if (!status)
        status = case_check(&c, &inner);
    if (!status)
        status = explain_make_plans(&c, -1, v->plans, &inner);
    if (!status)
        status = timeline_create(v->plans, c.world_size, rates, &v->timeline, &inner);
    return status ? error_set(error, status, "--compare %s: %s", v->comm, inner.text) : STATUS_OK;
}

// The number of the rank that ends last.
static int last_of(const struct timeline *t)
{
    int last = 0;
    for (int r = 1; r < t->world_size; r++)
        if (t->ranks[r].end > t->ranks[last].end)
            last = r;
    return last;
}

static void table_show(const struct variant *list, int count)
{
    double fastest = list[0].timeline->end;
    for (int i = 1; i < count; i++)
        fastest = list[i].timeline->end < fastest ? list[i].timeline->end : fastest;
    struct table *table =
        table_create(stdout, "COMM >PREDICTED >TIMES >FORWARD >COMPUTE >IDLE >BYTES_MOVING >SENT");
    for (int i = 0; i < count; i++) {
        const struct timeline *t = list[i].timeline;
        const struct timeline_rank *r = &t->ranks[last_of(t)];
        double busy = r->busy[STREAM_COMPUTE];
        char text[UNITS_TEXT_MAX];
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", list[i].comm);
        table_cell(table, PAINT_BOLD, "%s", units_time(t->end, text));
        table_cell(table, PAINT_PLAIN, "%.2f", fastest > 0 ? t->end / fastest : 1.);
        table_cell(table, PAINT_PLAIN, "%s", units_time(r->forward_end, text));
        table_cell(table, PAINT_PLAIN, "%s", units_time(busy, text));
        table_cell(table, PAINT_PLAIN, "%s", units_time(r->end - busy, text));
        table_cell(table, PAINT_PLAIN, "%s", units_time(r->busy[STREAM_COMM], text));
        table_cell(table, PAINT_PLAIN, "%s", units_bytes(r->sent, text));
    }
    table_print(table, "");
    table_destroy(table);
}

static void picture_show(const struct variant *list, int count, const struct timeline_rates *rates,
                         FILE *svg)
{
    struct svg_panel panels[COMPARE_MAX] = {{NULL}};
    for (int i = 0; i < count; i++)
        panels[i] = (struct svg_panel){list[i].plans, list[i].timeline};
    svg_draw(svg, panels, count, rates);
}

enum status explain_compare(const struct cp_case *c, const char *words,
                            const struct timeline_rates *rates, FILE *svg, struct error *error)
{
    enum status status = STATUS_OK;
    int count = 0;
    struct variant *list = calloc(COMPARE_MAX, sizeof(*list));
    if (!list)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the plans");
    while (words && !status) {
        words = word_take(words, list[count].comm);
        status = variant_make(&list[count++], c, rates, error);
    }
    if (!status && svg)
        picture_show(list, count, rates, svg);
    if (!status && count > 0 && svg != stdout)
        table_show(list, count);
    for (int i = 0; i < count; i++)
        variant_fini(&list[i]);
    free(list);
    return status;
}
