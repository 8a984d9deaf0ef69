// SPDX-License-Identifier: Apache-2.0
// Hypotheses about heads: results of other heads, inputs of other heads, heads in another order.
#include <math.h>
#include <stdio.h>

#include "judge/diagnosis/trial.h"
#include "plan/bias.h"

// ---- neighbouring heads -------------------------------------------------------------------------

// Changes the heads of a panel; false if this changes nothing.
typedef bool choose_heads(const struct cp_case *c, int with, struct panel_setup *setup);

static bool read_neighbour(const struct cp_case *c, int with, struct panel_setup *setup)
{
    setup->key_head = (setup->key_head + with + c->kv_heads) % c->kv_heads;
    return c->kv_heads > 1;
}

static bool read_modulo(const struct cp_case *c, int with, struct panel_setup *setup)
{
    int before = setup->key_head;
    (void)with;
    setup->key_head = setup->head % c->kv_heads;
    return setup->key_head != before;
}

static bool ask_for_other(const struct cp_case *c, int with, struct panel_setup *setup)
{
    setup->query_head = (setup->query_head + with) % c->heads;
    return with % c->heads != 0;
}

static bool deliver_other(const struct cp_case *c, int with, struct panel_setup *setup)
{
    setup->query_head = (setup->query_head + with) % c->heads;
    setup->key_head = setup->query_head / (c->heads / c->kv_heads);
    return with % c->heads != 0;
}

static bool evaluate_heads(struct trial *t, choose_heads *choose, int with)
{
    bool other = false;
    for (int i = 0; i < t->panel_count; i++) {
        if (trial_over(t))
            return false;
        struct panel_setup setup = t->panels[i].setup;
        other = choose(t->c, with, &setup) || other;
        bool whole = setup.key_head == setup.query_head / (t->c->heads / t->c->kv_heads);
        if (!trial_evaluate_other(t, i, &setup, t->in->tensor != TENSOR_DQ || whole, t->tried))
            return false;
    }
    return other;
}

// Offers the hypothesis twice: with the LSE of that head, then with the right LSE.
static void offer_other_head(struct trial *t, int with)
{
    for (int i = 0; i < 2; i++) {
        trial_offer(t, DIAGNOSIS_HEADS, t->tried, "%s of head h is that of head (h + %d) %% %d",
                    report_tensor_name(t->in->tensor), with, t->c->heads);
        trial_keep_lse(t);
    }
}

static void try_query_heads(struct trial *t)
{
    const struct cp_case *c = t->c;
    int members = team_size(c), step = members > 1 ? c->heads / members : 1;
    for (int with = -1; with < 2; with += 2)
        if (evaluate_heads(t, read_neighbour, with))
            trial_offer(t, DIAGNOSIS_HEADS, t->tried, "query heads read the key head %s their own",
                        with < 0 ? "before" : "after");
    if (evaluate_heads(t, read_modulo, 0))
        trial_offer(t, DIAGNOSIS_HEADS, t->tried,
                    "query head h reads key head h %% %d instead of h / %d", c->kv_heads,
                    c->heads / c->kv_heads);
    for (int i = 0; i < 4; i++) {
        int with = i == 0 ? 1 : i == 1 ? c->heads - 1 : i == 2 ? step : c->heads - step;
        if (with <= 0 || (i > 1 && step == 1))
            continue;
        if (evaluate_heads(t, ask_for_other, with))
            trial_offer(t, DIAGNOSIS_HEADS, t->tried,
                        "query head h has the queries of head (h + %d) %% %d", with, c->heads);
        if (evaluate_heads(t, deliver_other, with))
            offer_other_head(t, with);
    }
}

static void try_key_heads(struct trial *t)
{
    const struct cp_case *c = t->c;
    bool known = true;
    if (c->kv_heads == 1)
        return;
    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < t->panel_count && known; i++) {
            struct panel_setup setup = t->panels[i].setup;
            setup.modulo = way == 2;
            if (way < 2)
                setup.head = (setup.head + (way ? 1 : c->kv_heads - 1)) % c->kv_heads;
            known = !trial_over(t) && trial_evaluate_other(t, i, &setup, true, t->tried);
        }
        if (!known || (way == 2 && c->kv_heads == c->heads))
            return;
        if (way < 2)
            trial_offer(t, DIAGNOSIS_HEADS, t->tried, "%s of a key head is that of the head %s it",
                        report_tensor_name(t->in->tensor), way ? "after" : "before");
        else
            trial_offer(t, DIAGNOSIS_HEADS, t->tried,
                        "%s of key head g sums up the query heads h with h %% %d = g",
                        report_tensor_name(t->in->tensor), c->kv_heads);
    }
}

// ---- heads in another order ---------------------------------------------------------------------

#define HEADS_MOST    256
// Maximum number of elements of K, V, Q and dO that a search reads.
#define ELEMENTS_MOST (INT64_C(1) << 25)

// What has heads in another order.
enum moved { MOVED_RESULT, MOVED_QUERIES, MOVED_KEYS, MOVES };

// Orders of heads in groups of `size`.
enum order { ORDER_AFTER, ORDER_BEFORE, ORDER_EXCHANGED, ORDER_REVERSED, ORDERS };

struct search {
    enum moved moved;
    int heads;                                        // number of heads of what is moved
    int64_t elements;                                 // that may still be read
    int from[TRIAL_PANELS_MAX], to[TRIAL_PANELS_MAX]; // of each panel: its head, the head found
};

static int ordered(enum order order, int heads, int size, int head)
{
    switch (order) {
    case ORDER_AFTER:
        return (head + size) % heads;
    case ORDER_BEFORE:
        return (head + heads - size) % heads;
    case ORDER_EXCHANGED:
        return head % size * (heads / size) + head / size;
    default:
        return (heads / size - 1 - head / size) * size + head % size;
    }
}

static bool is_keys(const struct trial *t)
{
    return t->in->tensor == TENSOR_DK || t->in->tensor == TENSOR_DV;
}

static struct panel_setup setup_of(const struct trial *t, const struct search *x, int i, int head)
{
    struct panel_setup setup = t->panels[i].setup;
    if (is_keys(t))
        setup.head = head;
    if (x->moved != MOVED_KEYS)
        setup.query_head = head;
    if (x->moved == MOVED_KEYS)
        setup.key_head = head;
    if (x->moved == MOVED_RESULT)
        setup.key_head = head / (t->c->heads / t->c->kv_heads);
    return setup;
}

// Energy of the error of the rows of a panel.
static double panel_energy(const struct trial *t, int i, const double *values)
{
    double sum = 0;
    for (int at = t->panel_first[i] * t->dim; at < t->panel_first[i + 1] * t->dim; at++)
        sum += t->got[at] == values[at] ? 0 : pow(t->got[at] - values[at], 2);
    return isfinite(sum) ? sum : INFINITY;
}

#define FOUND 0.02 // share of the error that the right head may leave, besides rounding

// Computes the rows of a panel with one head. True if this explains them.
static bool is_head(struct trial *t, struct search *x, int i, int head)
{
    const struct panel *p = &t->panels[i];
    struct panel_setup setup = setup_of(t, x, i, head);
    bool whole = x->moved == MOVED_RESULT || t->in->tensor != TENSOR_DQ;
    double noise = 0;
    x->elements -= p->columns * (t->c->head_dim_qk + t->c->head_dim_v);
    if (is_keys(t) && !t->in->statistics) // LSE and delta are computed
        x->elements -= p->columns * p->keys;
    if (x->elements < 0 || trial_over(t) || !trial_evaluate_other(t, i, &setup, whole, t->tried))
        return false;
    for (int row = t->panel_first[i]; row < t->panel_first[i + 1]; row++)
        noise += 2 * t->row_noise[row];
    return panel_energy(t, i, t->tried) < FOUND * panel_energy(t, i, t->right) + noise;
}

// Finds the head of a panel's rows: the own one, one of a common order, or any other.
static bool head_find(struct trial *t, struct search *x, int i)
{
    bool done[HEADS_MOST] = {false};
    int own = x->from[i], world = t->c->world_size;
    x->to[i] = own;
    if (is_head(t, x, i, own))
        return true;
    done[own] = true;
    for (int n = 0; n < 2 * ORDERS && world > 1 && x->heads % world == 0; n++) {
        int size = n < ORDERS ? x->heads / world : world;
        x->to[i] = ordered((enum order)(n % ORDERS), x->heads, size, own);
        if (!done[x->to[i]] && is_head(t, x, i, x->to[i]))
            return true;
        done[x->to[i]] = true;
    }
    for (x->to[i] = 0; x->to[i] < x->heads && x->elements >= 0; x->to[i]++)
        if (!done[x->to[i]] && is_head(t, x, i, x->to[i]))
            return true;
    return false;
}

// Writes the order that all panels have, such as "h is that of head (h + 2) % 8"; false: none.
static bool order_name(const struct trial *t, const struct search *x, const char *is, char *text,
                       size_t size)
{
    for (int group = 1; group < x->heads; group++)
        for (int order = 0; order < ORDERS && x->heads % group == 0; order++) {
            bool fits = true;
            int groups = x->heads / group;
            for (int i = 0; i < t->panel_count; i++)
                fits = fits && ordered((enum order)order, x->heads, group, x->from[i]) == x->to[i];
            if (!fits)
                continue;
            if (order == ORDER_EXCHANGED)
                snprintf(text, size, "h%s h %% %d * %d + h / %d, of %d heads", is, group, groups,
                         group, x->heads);
            else if (order == ORDER_REVERSED)
                snprintf(text, size, "h%s h %% %d + %d * (%d - h / %d): groups in reverse order",
                         is, group, group, groups - 1, group);
            else
                snprintf(text, size, "h%s (h + %d) %% %d", is,
                         order == ORDER_AFTER ? group : x->heads - group, x->heads);
            return true;
        }
    return false;
}

// Writes up to three heads, such as "0 is that of head 1, 5 is that of head 3".
static void heads_name(const struct trial *t, const struct search *x, const char *is, char *text,
                       size_t size)
{
    size_t length = 0;
    int named = 0;
    *text = '\0';
    for (int i = 0; i < t->panel_count && named < 3 && length < size; i++) {
        bool said = x->from[i] == x->to[i];
        for (int k = 0; k < i; k++)
            said = said || x->from[k] == x->from[i];
        if (said)
            continue;
        length += (size_t)snprintf(text + length, size - length, "%s%d%s %d", named ? ", " : "",
                                   x->from[i], is, x->to[i]);
        named++;
    }
}

static void offer_moved(struct trial *t, const struct search *x)
{
    static const char *const subjects[MOVES] = {"", "query head ", "the queries of key head "};
    static const char *const is[MOVES] = {" is that of head", " has the queries of head",
                                          " read key head"};
    char order[120];
    if (!order_name(t, x, is[x->moved], order, sizeof(order)))
        heads_name(t, x, is[x->moved], order, sizeof(order));
    for (int i = 0; i < (x->moved == MOVED_RESULT ? 2 : 1);
         i++) { // with its LSE, with the right one
        if (x->moved == MOVED_RESULT)
            trial_offer(t, DIAGNOSIS_HEADS, t->tried, "%s of head %s",
                        report_tensor_name(t->in->tensor), order);
        else
            trial_offer(t, DIAGNOSIS_HEADS, t->tried, "%s%s", subjects[x->moved], order);
        trial_keep_lse(t);
    }
}

static void try_moved(struct trial *t, struct search *x)
{
    int group = t->c->heads / t->c->kv_heads;
    bool keys = is_keys(t) || x->moved == MOVED_KEYS, moved = false;
    x->heads = keys ? t->c->kv_heads : t->c->heads;
    for (int i = 0; i < t->panel_count; i++) {
        x->from[i] =
            keys && !is_keys(t) ? t->panels[i].setup.head / group : t->panels[i].setup.head;
        if (!head_find(t, x, i))
            return;
        moved = moved || x->to[i] != x->from[i];
    }
    if (moved)
        offer_moved(t, x);
}

static void try_orders(struct trial *t)
{
    struct search x = {.elements = ELEMENTS_MOST};
    for (int moved = 0; moved < (is_keys(t) ? 1 : MOVES) && !trial_solved(t); moved++) {
        x.moved = (enum moved)moved;
        if (t->c->heads <= HEADS_MOST)
            try_moved(t, &x);
    }
}

void try_heads(struct trial *t)
{
    if (is_keys(t))
        try_key_heads(t);
    else
        try_query_heads(t);
    if (!trial_solved(t))
        try_orders(t);
}
