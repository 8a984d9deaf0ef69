// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/statistics.h"

#include <string.h>

#include "judge/diagnosis/variant.h"

// ---- a sweep over all queries -------------------------------------------------------------------

static bool sweep_panel(struct sweep *s)
{
    const struct panel_setup *setup = &s->panel.setup;
    int64_t queries = case_length(setup->c, SIDE_Q, setup->sequence);
    int64_t keys = case_length(setup->c, SIDE_KV, setup->sequence) + WORLD_SIZE_MAX;
    int64_t rows = DIAGNOSIS_PAIRS_MAX / keys;
    struct panel_setup next = *setup;
    rows = rows < 512 ? rows : 512;
    next.count = (int)(queries - s->first < rows ? queries - s->first : rows);
    next.positions = s->positions;
    for (int i = 0; i < next.count; i++)
        s->positions[i] = s->first + i;
    return next.count > 0 && panel_init(&s->panel, &next);
}

bool sweep_begin(struct sweep *s, const struct cp_case *c, int32_t sequence, int head)
{
    int reading = head / (c->heads / c->kv_heads);
    *s = (struct sweep){.first = 0};
    s->panel.setup = (struct panel_setup){.c = c,
                                          .side = SIDE_Q,
                                          .sequence = sequence,
                                          .head = head,
                                          .query_head = head,
                                          .key_head = reading};
    return sweep_panel(s) && variant_statistics(&s->panel);
}

bool sweep_next(struct sweep *s)
{
    s->first += s->panel.rows;
    panel_fini(&s->panel);
    return sweep_panel(s) && variant_statistics(&s->panel);
}

void sweep_end(struct sweep *s)
{
    panel_fini(&s->panel);
}

// ---- statistics ---------------------------------------------------------------------------------

static bool compute(const struct cp_case *c, int32_t sequence, int head, double *lse, double *delta)
{
    struct sweep s;
    int64_t queries = case_length(c, SIDE_Q, sequence), done = 0;
    for (bool more = sweep_begin(&s, c, sequence, head); more; more = sweep_next(&s)) {
        memcpy(lse + s.first, s.panel.lse, (size_t)s.panel.rows * sizeof(double));
        memcpy(delta + s.first, s.panel.delta, (size_t)s.panel.rows * sizeof(double));
        done = s.first + s.panel.rows;
    }
    sweep_end(&s);
    return done == queries;
}

bool statistics_of_head(const struct diagnosis_input *in, int32_t sequence, int head, double *lse,
                        double *delta)
{
    const struct cp_case *c = in->c;
    int64_t pairs = case_length(c, SIDE_Q, sequence) * case_length(c, SIDE_KV, sequence);
    if (in->statistics)
        return in->statistics(in->statistics_context, sequence, head, lse, delta);
    return pairs <= STATISTICS_PAIRS_MAX && compute(c, sequence, head, lse, delta);
}

bool statistics_of_keys(const struct diagnosis_input *in, struct panel *p)
{
    for (int64_t first = 0; first < p->columns; first += p->queries)
        if (!statistics_of_head(in, p->setup.sequence, panel_column_head(p, first), p->lse + first,
                                p->delta + first))
            return false;
    return true;
}
