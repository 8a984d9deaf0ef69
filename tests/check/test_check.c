// SPDX-License-Identifier: Apache-2.0
// A check gives the same figures, bit for bit, and the same diagnosis as the ranks of a daemon.
#include "tests/support/runner.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "client/cpattn.h"
#include "judge/cpu/statistics.h"
#include "judge/cpu/verify.h"
#include "judge/dtype.h"
#include "judge/evidence.h"
#include "plan/bias.h"
#include "tests/support/figures.h"
#include "tests/support/generate.h"
#include "tests/support/part.h"

#define WORLD_MAX 4

// ---- one rank -----------------------------------------------------------------------------------

struct desk {
    struct scene *scene;
    int rank;
    struct cpattn_check *check;
    struct cpattn_array arrays[CPATTN_TENSORS];
    struct cpattn_check_verdict *verdict;
    struct rank_report report; // of the daemon's verification
    struct span *spans[2];
    int span_count[2];
    struct arena arena;
    struct progress progress;
    const struct message *messages; // while ranks swap
    int message_count;
};

struct scene {
    struct cp_case c;
    bool diagnosed;
    struct desk desks[WORLD_MAX];
    pthread_barrier_t barrier;
};

static size_t element_bytes(const struct cp_case *c, enum cpattn_tensor t)
{
    return tensor_dtype(c, t) == DTYPE_FP32 ? 4 : 2;
}

// As a rank has it in memory (plan/plan.h).
static struct cpattn_array array_of(const struct desk *d, enum cpattn_tensor t)
{
    struct cpattn_shape s = cpattn_check_shape(d->check, t);
    struct cpattn_array a = {.row_stride = (int64_t)s.heads * s.dim, .head_stride = s.dim};
    if (t == CPATTN_TENSOR_LSE || t == CPATTN_TENSOR_DBIAS) {
        a.row_stride = s.dim;
        a.head_stride = s.rows * s.dim;
    }
    a.data = calloc((size_t)(s.rows * s.heads * s.dim) + 1, element_bytes(&d->scene->c, t));
    return a;
}

// Errors of some units of an honest kernel in all elements, and sometimes a greater one.
static void array_dent(struct desk *d, enum cpattn_tensor t, uint64_t *state)
{
    struct cpattn_shape s = cpattn_check_shape(d->check, t);
    int64_t count = s.rows * s.heads * s.dim;
    enum case_dtype dtype = tensor_dtype(&d->scene->c, t);
    float step = dtype == DTYPE_BF16 ? 0x1p-9F : dtype == DTYPE_FP16 ? 0x1p-12F : 0x1p-23F;
    bool greater = generate_below(state, 4) == 0;
    float factor = greater ? 1 + 0.1F * (float)generate_below(state, 3) : 1;
    for (int64_t i = 0; i < count; i++) {
        float x, noise = (float)generate_below(state, 2001) / 1000 - 1;
        dtype_read(dtype, d->arrays[t].data, i, 1, &x);
        x *= factor * (1 + step * noise);
        if (greater && generate_below(state, 997) == 0)
            x = generate_below(state, 50) == 0 ? NAN : x + 1;
        dtype_write(dtype, &x, 1,
                    (char *)d->arrays[t].data + i * (int64_t)element_bytes(&d->scene->c, t));
    }
}

static void results_make(struct desk *d, uint64_t *state)
{
    struct cpattn_error error;
    struct error ignored;
    for (int t = CPATTN_TENSOR_OUT; t < CPATTN_TENSORS; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        if (tensor_is_input(tensor) || tensor_check(&d->scene->c, tensor, &ignored) != STATUS_OK)
            continue;
        d->arrays[t] = array_of(d, tensor);
        ck_assert_msg(cpattn_check_expected(d->check, tensor, &d->arrays[t], &error) == CPATTN_OK,
                      "%s", error.text);
        array_dent(d, tensor, state);
    }
}

// ---- the daemon's verification ------------------------------------------------------------------

// The k-th message of `from` to `to`.
static const struct message *message_of(const struct desk *from, int to, int k)
{
    for (int i = 0; i < from->message_count; i++)
        if (from->messages[i].peer == to && k-- == 0)
            return &from->messages[i];
    ck_abort_msg("no such message");
}

static enum status desk_swap(void *context, const struct message *messages, int count,
                             struct error *error)
{
    struct desk *d = context;
    int seen[WORLD_MAX] = {0};
    (void)error;
    d->messages = messages;
    d->message_count = count;
    pthread_barrier_wait(&d->scene->barrier);
    for (int i = 0; i < count; i++) {
        int peer = messages[i].peer;
        const struct message *m = message_of(&d->scene->desks[peer], d->rank, seen[peer]++);
        ck_assert_uint_eq(m->send_bytes, messages[i].receive_bytes);
        memcpy(messages[i].receive, m->send, m->send_bytes);
    }
    pthread_barrier_wait(&d->scene->barrier);
    return STATUS_OK;
}

static bool desk_statistics(void *context, int32_t sequence, int32_t head, double *lse,
                            double *delta)
{
    struct statistics *s = context;
    int group = s->c->heads / s->c->kv_heads;
    int64_t length = case_length(s->c, SIDE_Q, sequence);
    if (!s->c->training)
        return false;
    struct expected_statistics all = statistics_of(s, sequence, head / group);
    memcpy(lse, all.lse + head % group * length, (size_t)length * sizeof(double));
    memcpy(delta, all.delta + head % group * length, (size_t)length * sizeof(double));
    return true;
}

static struct rank_results desk_results(const struct desk *d)
{
    const struct cp_case *c = &d->scene->c;
    const struct cpattn_array *a = d->arrays;
    int64_t first = c->bias != BIAS_NONE ? bias_share(c, d->rank).first : 0;
    const char *dbias = a[CPATTN_TENSOR_DBIAS].data;
    return (struct rank_results){
        .out = a[CPATTN_TENSOR_OUT].data,
        .lse = a[CPATTN_TENSOR_LSE].data,
        .dq = a[CPATTN_TENSOR_DQ].data,
        .dk = a[CPATTN_TENSOR_DK].data,
        .dv = a[CPATTN_TENSOR_DV].data,
        .dbias = dbias ? dbias + first * case_element_bytes(c) : NULL,
        .dsink = a[CPATTN_TENSOR_DSINK].data,
        .max_logit = a[CPATTN_TENSOR_MAX_LOGIT].data,
    };
}

static void *desk_verify(void *context)
{
    struct desk *d = context;
    const struct cp_case *c = &d->scene->c;
    struct error error;
    struct statistics statistics = {.c = c};
    size_t total = 0;
    ck_assert_int_eq(verify_reserve(c, d->rank, &total, &error), STATUS_OK);
    arena_init(&d->arena);
    ck_assert_int_eq(arena_reserve(&d->arena, total, &error), STATUS_OK);
    const struct verification v = {.c = c,
                                   .rank = d->rank,
                                   .spans = {d->spans[0], d->spans[1]},
                                   .span_count = {d->span_count[0], d->span_count[1]},
                                   .results = desk_results(d),
                                   .arena = &d->arena,
                                   .swap = {desk_swap, d},
                                   .progress = &d->progress,
                                   .statistics = &statistics};
    ck_assert_int_eq(verify_run(&v, &d->report, &error), STATUS_OK);
    if (!d->report.pass && d->scene->diagnosed) {
        struct evidence_host host = {c, &v.results};
        const struct evidence e = {.c = c,
                                   .rank = d->rank,
                                   .spans = {d->spans[0], d->spans[1]},
                                   .span_count = {d->span_count[0], d->span_count[1]},
                                   .unfilled = true,
                                   .read = evidence_host_read,
                                   .read_context = &host,
                                   .statistics = desk_statistics,
                                   .statistics_context = &statistics};
        struct finding finding;
        evidence_diagnose(&e, &d->report, &finding);
        d->report.diagnosis = finding.diagnosis;
    }
    arena_fini(&d->arena);
    return NULL;
}

static void daemon_verify(struct scene *s)
{
    pthread_t threads[WORLD_MAX];
    pthread_barrier_init(&s->barrier, NULL, (unsigned)s->c.world_size);
    for (int r = 0; r < s->c.world_size; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, desk_verify, &s->desks[r]), 0);
    for (int r = 0; r < s->c.world_size; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&s->barrier);
}

// ---- comparison ---------------------------------------------------------------------------------

// True for a gradient of a bias that all ranks add up: each of the daemon's ranks judges a share, a
// check judges all of it.
static bool is_share(const struct cp_case *c, const struct figures *f)
{
    return f->tensor == TENSOR_DBIAS && bias_is_whole(c) && c->world_size > 1;
}

static struct cpattn_case *case_public(const struct cp_case *c)
{
    struct cpattn_case *made = cpattn_case_create();
    struct cpattn_error error;
    char text[CASE_VALUE_MAX];
    for (const struct case_field *field = case_fields(); field->name; field++) {
        case_get(c, field, text, sizeof(text));
        ck_assert_int_eq(cpattn_case_set(made, field->name, text, &error), CPATTN_OK);
    }
    return made;
}

static void desk_compare(const struct desk *d)
{
    const struct cp_case *c = &d->scene->c;
    const struct rank_report *check = &d->verdict->report;
    bool shares = false;
    for (int i = 0; i < d->report.figures_count; i++) {
        const struct figures *f = &d->report.figures[i], *own = figures_find(check, f);
        shares = shares || is_share(c, f);
        if (is_share(c, f))
            continue;
        ck_assert_msg(own && figures_same(own, f), "%s, chunk %d of rank %d of seed %llu",
                      report_tensor_name(f->tensor), f->chunk, d->rank,
                      (unsigned long long)c->seed);
    }
    if (shares)
        return;
    ck_assert_int_eq(check->figures_count, d->report.figures_count);
    ck_assert_int_eq(check->pass, d->report.pass);
    if (d->scene->diagnosed) {
        ck_assert_str_eq(check->diagnosis.text, d->report.diagnosis.text);
        ck_assert(doubles_same(check->diagnosis.explained, d->report.diagnosis.explained));
    }
}

// ---- scenes -------------------------------------------------------------------------------------

static void desk_init(struct scene *s, int rank, const struct cpattn_case *c)
{
    struct desk *d = &s->desks[rank];
    struct cpattn_error error;
    *d = (struct desk){.scene = s, .rank = rank};
    ck_assert_int_eq(cpattn_check_create(c, rank, &d->check, &error), CPATTN_OK);
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        d->spans[side] = calloc((size_t)shard_spans_max(&s->c) + 1, sizeof(**d->spans));
        d->span_count[side] = shard_spans(&s->c, (enum shard_side)side, rank, d->spans[side]);
    }
}

static void desk_fini(struct desk *d)
{
    for (int t = 0; t < CPATTN_TENSORS; t++)
        free(d->arrays[t].data);
    free(d->spans[SIDE_Q]);
    free(d->spans[SIDE_KV]);
    cpattn_check_verdict_destroy(d->verdict);
    cpattn_check_destroy(d->check);
}

// Returns whether all ranks pass.
static bool scene_run(const struct cp_case *c, bool diagnosed, uint64_t *state)
{
    struct scene s = {.c = *c, .diagnosed = diagnosed};
    struct cpattn_case *public = case_public(c);
    struct cpattn_error error;
    bool pass = true;
    for (int r = 0; r < c->world_size; r++) {
        desk_init(&s, r, public);
        results_make(&s.desks[r], state);
    }
    daemon_verify(&s);
    for (int r = 0; r < c->world_size; r++) {
        struct desk *d = &s.desks[r];
        ck_assert_int_eq(
            cpattn_check_verify(d->check, d->arrays, CPATTN_TENSORS, &d->verdict, &error),
            CPATTN_OK);
        desk_compare(d);
        pass = pass && d->report.pass;
        desk_fini(d);
    }
    cpattn_case_destroy(public);
    return pass;
}

// Returns how many pass.
static int scenes_run(uint64_t first, int count, int64_t seqlen_max, bool diagnosed)
{
    uint64_t state = first;
    int passed = 0;
    for (int i = 0; i < count; i++) {
        struct cp_case c;
        generate_case(first + (uint64_t)i, WORLD_MAX, seqlen_max, &c);
        c.verify = VERIFY_FULL;
        passed += scene_run(&c, diagnosed, &state);
    }
    return passed;
}

START_TEST(figures_of_drawn_cases_are_those_of_ranks)
{
    int count = 500 / test_part();
    int passed = scenes_run(1, count, 70, false);
    ck_assert_int_gt(passed, count / 10);
    ck_assert_int_lt(passed, count - count / 10);
}
END_TEST

START_TEST(figures_of_long_cases_are_those_of_ranks)
{
    (void)scenes_run(5000, 1 + 7 / test_part(), 600, false);
}
END_TEST

START_TEST(diagnoses_are_those_of_ranks)
{
    (void)scenes_run(9000, 40 / test_part(), 50, true);
}
END_TEST

static Suite *check_suite(void)
{
    Suite *suite = suite_create("check");
    TCase *tcase = tcase_create("check");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, figures_of_drawn_cases_are_those_of_ranks);
    tcase_add_test(tcase, figures_of_long_cases_are_those_of_ranks);
    tcase_add_test(tcase, diagnoses_are_those_of_ranks);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(check_suite());
}
