// SPDX-License-Identifier: Apache-2.0
#include "tests/judge/power.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/expected.h"
#include "judge/dtype.h"
#include "judge/tally.h"
#include "tests/judge/dense.h"

static void case_of(struct cp_case *c, enum case_dtype dtype, enum case_inputs inputs)
{
    case_init(c);
    c->dtype = dtype;
    c->inputs = inputs;
    c->world_size = c->batch = 1;
    c->heads = c->kv_heads = POWER_HEADS;
    c->head_dim_qk = c->head_dim_v = POWER_DIM;
    c->seqlen_q = c->seqlen_kv = POWER_LENGTH;
    c->mask = MASK_NONE;
}

static void *carve(char **next, size_t count, size_t size)
{
    void *piece = *next;
    *next += count * size;
    return piece;
}

static bool reserve(struct power *p)
{
    static const enum report_tensor names[] = {TENSOR_OUT, TENSOR_DQ, TENSOR_DK, TENSOR_DV};
    size_t rows = POWER_ROWS, count = POWER_COUNT;
    size_t each = count * (sizeof(double) + sizeof(float)) + rows * sizeof(double);
    char *next = p->memory =
        malloc(POWER_TENSORS * each + count * sizeof(float) + rows * sizeof(float));
    if (!next)
        return false;
    for (int i = 0; i < POWER_TENSORS; i++) {
        bool cancels = names[i] == TENSOR_DQ || names[i] == TENSOR_DK;
        double *terms = carve(&next, rows, sizeof(double));
        p->tensors[i] = (struct power_tensor){.name = names[i],
                                              .reference = carve(&next, count, sizeof(double)),
                                              .terms = cancels ? terms : NULL};
    }
    for (int i = 0; i < POWER_TENSORS; i++)
        p->tensors[i].twin = carve(&next, count, sizeof(float));
    p->errors = carve(&next, count, sizeof(float));
    p->twins = carve(&next, rows, sizeof(float));
    return true;
}

static bool expect_head(struct power *p, struct room *room, int head)
{
    static double lse[POWER_LENGTH], delta[POWER_LENGTH], delta_twin[POWER_LENGTH];
    const struct power_tensor *t = p->tensors;
    int row = head * POWER_LENGTH, at = row * POWER_DIM;
    const struct expected_queries q = {.out = t[0].reference + at,
                                       .out_twin = t[0].twin + at,
                                       .dq = t[1].reference + at,
                                       .dq_twin = t[1].twin + at,
                                       .terms = t[1].terms + row,
                                       .lse = lse,
                                       .delta = delta,
                                       .delta_twin = delta_twin};
    const struct expected_statistics s = {lse, delta, delta_twin};
    const struct expected_keys k = {.dk = t[2].reference + at,
                                    .dk_twin = t[2].twin + at,
                                    .terms = t[2].terms + row,
                                    .dv = t[3].reference + at,
                                    .dv_twin = t[3].twin + at};
    enum precision precision = expected_precision(&p->c);
    struct range all = {0, POWER_LENGTH};
    struct error error;
    return expected_queries(&p->c, precision, 0, head, all, room, &q, &error) == STATUS_OK &&
           expected_keys(&p->c, precision, 0, head, all, &s, room, &k, &error) == STATUS_OK;
}

bool power_init(struct power *p, enum case_dtype dtype, enum case_inputs inputs)
{
    struct room room = {0};
    *p = (struct power){.memory = NULL};
    case_of(&p->c, dtype, inputs);
    bool ok = reserve(p);
    for (int head = 0; head < POWER_HEADS && ok; head++)
        ok = expect_head(p, &room, head);
    room_fini(&room);
    return ok;
}

void power_fini(struct power *p)
{
    free(p->memory);
}

bool power_leave_out(const struct power *p, const bool *left_out, float *results)
{
    struct dense t;
    dense_init(&t, &p->c, 0);
    if (!t.all)
        return false;
    for (int i = 0; i < POWER_PAIRS; i++)
        t.bias[i] = left_out[i] ? -INFINITY : 0;
    dense_forward(&t);
    dense_backward(&t);
    const double *const tensors[POWER_TENSORS] = {t.out, t.d_q, t.d_k, t.d_v};
    for (int tensor = 0; tensor < POWER_TENSORS; tensor++)
        for (int row = 0; row < POWER_ROWS; row++) {
            int head = row / POWER_LENGTH, token = row % POWER_LENGTH;
            const double *from = tensors[tensor] + (token * POWER_HEADS + head) * POWER_DIM;
            float *to = results + (ptrdiff_t)tensor * POWER_COUNT + (ptrdiff_t)row * POWER_DIM;
            for (int i = 0; i < POWER_DIM; i++)
                to[i] = (float)from[i];
        }
    dtype_round(p->c.dtype, results, (int64_t)POWER_TENSORS * POWER_COUNT);
    dense_fini(&t);
    return true;
}

struct figures power_judge(struct power *p, int tensor, const float *got)
{
    const struct power_tensor *t = &p->tensors[tensor];
    struct tally tally;
    tally_init(&tally, rules_of(&p->c, t->name), t->name, 0, POWER_DIM, p->errors, p->twins);
    for (int row = 0; row < POWER_ROWS; row++) {
        double terms = t->terms ? t->terms[row] : 0;
        ptrdiff_t at = (ptrdiff_t)row * POWER_DIM;
        const struct tally_expected e = {.reference = t->reference + at,
                                         .twin = t->twin + at,
                                         .terms = terms,
                                         .row_terms = terms};
        tally_row(&tally, got + at, &e, POWER_DIM);
    }
    tally_turn(&tally);
    for (int row = 0; row < POWER_ROWS; row++)
        tally_row_again(&tally, got + (ptrdiff_t)row * POWER_DIM, (struct element){.position = row},
                        POWER_DIM);
    tally_finish(&tally);
    return tally.figures;
}
