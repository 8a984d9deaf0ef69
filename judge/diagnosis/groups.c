// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/groups.h"

#include <stdio.h>

#include "plan/bias.h"

static bool same_group(const struct groups *x, int a, int b)
{
    const struct diagnosis_row *p = &x->in->rows[a], *q = &x->in->rows[b];
    return p->sequence == q->sequence && p->head == q->head &&
           (!x->single || p->position == q->position);
}

void groups_init(struct groups *x, const struct trial *t, bool single)
{
    *x = (struct groups){.in = t->in, .single = single};
    for (int row = 0; row < t->rows; row++)
        x->examined[t->row_of[row]] = true;
    for (int row = 0; row < t->rows; row++)
        for (int i = 0; i < t->in->count && trial_row_is_wrong(t, row); i++)
            if (x->examined[i] && same_group(x, i, t->row_of[row]))
                x->wrong[i] = true;
}

int groups_wrong_rows(const struct groups *x, struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX])
{
    int wrong = 0, right = 0;
    for (int i = 0; i < x->in->count; i++) {
        if (x->wrong[i])
            rows[wrong++] = x->in->rows[i];
        else
            right += x->examined[i];
    }
    return right > 0 ? wrong : 0;
}

// ---- names --------------------------------------------------------------------------------------

typedef int32_t number(const struct diagnosis_row *row);

static int32_t head_of(const struct diagnosis_row *row)
{
    return row->head;
}

static int32_t sequence_of(const struct diagnosis_row *row)
{
    return row->sequence;
}

// The least number of wrong or right groups that is at least `least`; -1: none.
static int32_t next_number(const struct groups *x, number *of, bool wrong, int32_t least)
{
    int32_t next = -1;
    for (int i = 0; i < x->in->count; i++) {
        int32_t n = of(&x->in->rows[i]);
        if (x->examined[i] && x->wrong[i] == wrong && n >= least && (next < 0 || n < next))
            next = n;
    }
    return next;
}

// True if no wrong group has the number of a right one.
static bool divides(const struct groups *x, number *of)
{
    bool divided = true;
    for (int32_t n = next_number(x, of, true, 0); n >= 0; n = next_number(x, of, true, n + 1))
        divided = divided && next_number(x, of, false, n) != n;
    return divided;
}

// Writes "what 3", or "whats 1, 3 and 4".
static void numbers_name(const struct groups *x, number *of, bool wrong, const char *what,
                         char *text, size_t size)
{
    int32_t n = next_number(x, of, wrong, 0), next = next_number(x, of, wrong, n + 1);
    size_t at = (size_t)snprintf(text, size, "%s%s %d", what, next < 0 ? "" : "s", n);
    for (n = next; n >= 0 && at < size; n = next) {
        next = next_number(x, of, wrong, n + 1);
        at += (size_t)snprintf(text + at, size - at, "%s%d", next < 0 ? " and " : ", ", n);
    }
}

// True if row `i` is the first one of its group.
static bool is_first(const struct groups *x, int i)
{
    for (int k = 0; k < i; k++)
        if (x->examined[k] && same_group(x, k, i))
            return false;
    return x->examined[i];
}

// Writes the place of a row, such as "head 2, position 7", without broadcast dimensions of dbias.
static void row_name(const struct groups *x, const struct diagnosis_row *row, char *text,
                     size_t size)
{
    const struct cp_case *c = x->in->c;
    bool bias = x->in->tensor == TENSOR_DBIAS;
    const struct {
        bool has;
        const char *what;
        int64_t number;
    } places[] = {{!bias || bias_has_batch(c), "sequence", row->sequence},
                  {!bias || bias_has_heads(c), "head", row->head},
                  {!bias || bias_has_queries(c), "position", row->position}};
    size_t at = 0;
    *text = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(*places) && at < size; i++)
        if (places[i].has)
            at += (size_t)snprintf(text + at, size - at, "%s%s %lld", at > 0 ? ", " : "",
                                   places[i].what, (long long)places[i].number);
}

static void some_name(const struct groups *x, const char *head, char *text, size_t size)
{
    int wrong = 0, all = 0, first = -1;
    char place[80], what[48] = "row";
    for (int i = 0; i < x->in->count; i++) {
        all += is_first(x, i);
        wrong += is_first(x, i) && x->wrong[i];
        first = first < 0 && x->wrong[i] ? i : first;
    }
    const struct diagnosis_row *row = &x->in->rows[first];
    if (x->single) {
        row_name(x, row, place, sizeof(place));
    } else {
        snprintf(what, sizeof(what), "%ss and sequence", head);
        snprintf(place, sizeof(place), "%s %d of sequence %d", head, row->head, row->sequence);
    }
    snprintf(text, size, "in %d of %d examined %ss (%s%s)", wrong, all, what,
             wrong > 1 ? "such as " : "", place);
}

void groups_name(const struct groups *x, char *text, size_t size)
{
    enum report_tensor tensor = x->in->tensor;
    const char *head = tensor == TENSOR_DK || tensor == TENSOR_DV ? "key head" : "head";
    bool heads = divides(x, head_of), sequences = divides(x, sequence_of);
    char wrong[64], right[64];
    if (heads == sequences || (x->single && x->in->tensor != TENSOR_DBIAS)) {
        some_name(x, head, text, size);
        return;
    }
    number *of = heads ? head_of : sequence_of;
    numbers_name(x, of, true, heads ? head : "sequence", wrong, sizeof(wrong));
    numbers_name(x, of, false, heads ? head : "sequence", right, sizeof(right));
    snprintf(text, size, "in %s, not in %s", wrong, right);
}
