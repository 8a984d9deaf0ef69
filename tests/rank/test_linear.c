// SPDX-License-Identifier: Apache-2.0
// Linear layers in one process: every plan is proven free of races and deadlocks, executed for all
// ranks, and judged; what is done wrong on purpose is noticed and named.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/linear.h"
#include "kernels/backend.h"
#include "plan/plan.h"
#include "rank/operations.h"

#define BUFFERS_MAX 32

struct scene {
    struct linear l;
    struct plan *plans[WORLD_SIZE_MAX];
    void *buffers[WORLD_SIZE_MAX][BUFFERS_MAX];
    const void *tensors[WORLD_SIZE_MAX][LINEAR_TENSORS];
};

static struct error error;

static struct linear usual(void)
{
    struct linear l;
    memset(&l, 0, sizeof(l));
    job_kind_linear.init(&l);
    l.tokens = 24;
    l.in_features = 20;
    l.hidden = 40;
    l.out_features = 12;
    return l;
}

static const char *text_of(const struct linear *l)
{
    static char text[400];
    struct job_spec spec = {.kind = &job_kind_linear};
    memcpy(spec.bytes, l, sizeof(*l));
    job_spec_describe(&spec, text, sizeof(text));
    return text;
}

// ---- memory ----

static void memory_take(struct scene *s, int rank)
{
    const struct plan *plan = s->plans[rank];
    ck_assert_int_le(plan->buffer_count, BUFFERS_MAX);
    for (int i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &plan->buffers[i];
        // Of its size, so that a sanitizer sees what goes beyond.
        s->buffers[rank][i] = malloc((size_t)buffer->bytes);
        memset(s->buffers[rank][i], 0xff, (size_t)buffer->bytes);
        if (buffer->role == BUFFER_SCRATCH)
            continue;
        enum linear_tensor tensor = (enum linear_tensor)(buffer->role - BUFFER_LINEAR);
        s->tensors[rank][tensor] = s->buffers[rank][i];
        if (tensor < LINEAR_Y)
            linear_fill(&s->l, rank, tensor, s->buffers[rank][i]);
    }
}

static struct scene *scene_create(const struct linear *l)
{
    struct scene *s = calloc(1, sizeof(*s));
    s->l = *l;
    for (int rank = 0; rank < l->world_size; rank++) {
        ck_assert_int_eq(linear_plan(l, rank, &s->plans[rank], &error), STATUS_OK);
        memory_take(s, rank);
    }
    return s;
}

static void scene_destroy(struct scene *s)
{
    for (int rank = 0; rank < s->l.world_size; rank++) {
        for (int i = 0; i < BUFFERS_MAX; i++)
            free(s->buffers[rank][i]);
        plan_destroy(s->plans[rank]);
    }
    free(s);
}

// ---- execution: all ranks up to their next exchange, then that one ----

static void compute(struct scene *s, int rank, int *at)
{
    const struct plan *plan = s->plans[rank];
    const struct operations operations = {
        .plan = plan, .buffers = s->buffers[rank], .ops = &backend_cpu};
    for (; *at < plan->op_count && plan->ops[*at].kind != OP_EXCHANGE; ++*at)
        ck_assert_msg(operations_run(&operations, &plan->ops[*at], &error) == STATUS_OK, "%s",
                      error.text);
}

// The k-th region of an exchange that goes to (comes from) a peer and is not empty; NULL: none.
static const struct region *region_find(const struct plan *plan, const struct op *op, int peer,
                                        bool send, int k)
{
    for (int i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        const struct region *r = send ? &t->send : &t->receive;
        if (t->peer == peer && r->bytes > 0 && k-- == 0)
            return r;
    }
    return NULL;
}

static void exchange(struct scene *s, const int *at)
{
    int size = s->l.world_size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int k = 0;; k++) {
                const struct op *out = &s->plans[from]->ops[at[from]],
                                *in = &s->plans[to]->ops[at[to]];
                const struct region *send = region_find(s->plans[from], out, to, true, k);
                const struct region *receive = region_find(s->plans[to], in, from, false, k);
                if (!send || !receive)
                    break;
                memcpy((char *)s->buffers[to][receive->buffer] + receive->offset,
                       (char *)s->buffers[from][send->buffer] + send->offset,
                       (size_t)(send->bytes < receive->bytes ? send->bytes : receive->bytes));
            }
}

static void execute(struct scene *s)
{
    int at[WORLD_SIZE_MAX] = {0};
    for (bool more = true; more;) {
        for (int rank = 0; rank < s->l.world_size; rank++)
            compute(s, rank, &at[rank]);
        more = at[0] < s->plans[0]->op_count;
        if (more)
            exchange(s, at);
        for (int rank = 0; rank < s->l.world_size; rank++)
            at[rank]++;
    }
}

// ---- the verdict ----

static bool same_everywhere(const struct scene *s)
{
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++)
        for (int rank = 1; rank < s->l.world_size; rank++)
            if (linear_is_replicated(&s->l, (enum linear_tensor)t) && s->tensors[rank][t] &&
                memcmp(s->tensors[rank][t], s->tensors[0][t],
                       (size_t)linear_bytes(&s->l, rank, (enum linear_tensor)t)) != 0)
                return false;
    return true;
}

static bool rank_is_right(const struct scene *s, int rank, struct figures figures[LINEAR_TENSORS])
{
    bool right = true;
    memset(figures, 0, LINEAR_TENSORS * sizeof(*figures));
    ck_assert_msg(linear_judge(&s->l, rank, s->tensors[rank], figures, &error) == STATUS_OK, "%s",
                  error.text);
    for (int t = 0; t < LINEAR_TENSORS; t++)
        right = right && figures[t].broken == 0;
    return right;
}

static void assert_judged(const struct scene *s, int rank,
                          const struct figures figures[LINEAR_TENSORS])
{
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++) {
        const struct figures *f = &figures[t];
        const char *name = linear_tensor_name(&s->l, (enum linear_tensor)t);
        ck_assert_msg(f->broken == 0,
                      "%s: %s of rank %d breaks 0x%x: worst element %.3g, rmse %.3g of %.3g, "
                      "element %lld,%d is %.9g for %.9g",
                      text_of(&s->l), name, rank, (unsigned)f->broken, f->worst_element,
                      f->rmse_rel, f->rmse_limit, (long long)f->first_bad.position,
                      f->first_bad.dim, f->first_bad_got, f->first_bad_expected);
        ck_assert_msg(f->judged > 0 || !s->tensors[rank][t], "%s: %s of rank %d is not judged",
                      text_of(&s->l), name, rank);
    }
}

static void assert_right(const struct linear *l)
{
    struct scene *s = scene_create(l);
    struct figures figures[LINEAR_TENSORS];
    int64_t allowed;
    ck_assert_msg(plan_check(s->plans, l->world_size, &error) == STATUS_OK, "%s: %s", text_of(l),
                  error.text);
    ck_assert_int_eq(job_kind_linear.memory(l, &allowed, &error), STATUS_OK);
    for (int rank = 0; rank < l->world_size; rank++) {
        int64_t bytes = 0;
        for (int i = 0; i < s->plans[rank]->buffer_count; i++)
            bytes += s->plans[rank]->buffers[i].bytes;
        ck_assert_msg(bytes + 4096 <= allowed - (l->verify ? INT64_C(1) << 28 : 0),
                      "%s takes %lld bytes of %lld", text_of(l), (long long)bytes,
                      (long long)allowed);
    }
    execute(s);
    for (int rank = 0; rank < l->world_size; rank++) {
        rank_is_right(s, rank, figures);
        assert_judged(s, rank, figures);
    }
    ck_assert_msg(same_everywhere(s), "%s: results differ between ranks", text_of(l));
    scene_destroy(s);
}

// ---- all are right ----

START_TEST(every_layer_is_right)
{
    static const int worlds[] = {1, 2, 3, 4, 8};
    struct linear l = usual();
    l.layer = (enum linear_layer)_i;
    for (int w = 0; w < 5; w++)
        for (int i = 0; i < 3 * 3 * 2 * 2 * 2 * 2; i++) {
            l.world_size = worlds[w];
            l.activation = (enum activation)(ACTIVATION_GELU + i % 3);
            l.dtype = (enum case_dtype)(DTYPE_BF16 + i / 3 % 3);
            l.bias = i / 9 % 2;
            l.sequence_parallel = i / 18 % 2;
            l.training = i / 36 % 2;
            l.chunks = 1 + i / 72 % 2 * 2;
            assert_right(&l);
        }
}
END_TEST

static uint64_t random_state;

static int random_below(int bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)bound);
}

// 1, primes, and whatever else no number of ranks divides.
static int64_t random_size(void)
{
    static const int ugly[] = {1, 1, 2, 3, 5, 7, 13, 31, 61, 127};
    return random_below(2) ? ugly[random_below(10)] : 1 + random_below(100);
}

static struct linear random_linear(void)
{
    struct linear l = usual();
    l.layer = (enum linear_layer)(1 + random_below(LINEAR_LAYERS - 1));
    l.world_size = 1 + random_below(8);
    l.tokens = random_size();
    l.in_features = random_size();
    l.hidden = random_size();
    l.out_features = random_size();
    l.activation = (enum activation)(ACTIVATION_GELU + random_below(3));
    l.dtype = (enum case_dtype)(DTYPE_BF16 + random_below(3));
    l.bias = random_below(2);
    l.sequence_parallel = random_below(2);
    l.training = random_below(3) > 0;
    l.chunks = 1 + random_below(random_below(3) ? 4 : 9);
    l.seed = (uint64_t)random_below(1 << 30);
    return l;
}

static int cases = 300;

START_TEST(random_ones_are_right)
{
    random_state = 77;
    for (int i = 0; i < cases; i++) {
        struct linear l = random_linear();
        assert_right(&l);
    }
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--cases") == 0)
        cases = atoi(argv[2]);
    Suite *suite = suite_create("linear");
    TCase *tcase = tcase_create("linear");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_layer_is_right, LINEAR_COLUMN, LINEAR_LAYERS);
    tcase_add_test(tcase, random_ones_are_right);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
