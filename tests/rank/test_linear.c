// SPDX-License-Identifier: Apache-2.0
// Linear layers in one process. Every plan is proven free of races and deadlocks, executed for all
// ranks, and judged. Deliberate errors are noticed and diagnosed.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/linear.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "plan/plan.h"
#include "rank/operations.h"
#include "tests/rank/plans_execute.h"

#define BUFFERS_MAX 32

struct scene {
    struct linear l;
    struct plan *plans[WORLD_SIZE_MAX];
    void *buffers[WORLD_SIZE_MAX][BUFFERS_MAX];
    const void *tensors[WORLD_SIZE_MAX][LINEAR_TENSORS];
    int twice;     // the part of this rank counts twice in a sum; -1: none
    double factor; // of each sum
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
        // Of the exact size, so that a sanitizer detects accesses beyond it.
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
    s->twice = -1;
    s->factor = 1;
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

// ---- execution ----

// True if an operation makes the rank's part of a sum.
static bool makes_part(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_PRODUCT &&
           strcmp(plan->buffers[op->operand[PRODUCT_C].buffer].name, "partial") == 0;
}

static void scale(const struct scene *s, int rank, struct region r, double factor)
{
    int64_t count = r.bytes / (s->l.dtype == DTYPE_FP32 ? 4 : 2);
    void *data = region_memory(s->buffers[rank], &r);
    for (int64_t i = 0; i < count; i++)
        dtype_store(s->l.dtype, data, i, (float)factor * dtype_load(s->l.dtype, data, i));
}

static void compute(void *scene, int rank, const struct op *op)
{
    const struct scene *s = scene;
    const struct plan *plan = s->plans[rank];
    const struct operations operations = {
        .plan = plan, .buffers = s->buffers[rank], .ops = &backend_cpu};
    ck_assert_msg(operations_run(&operations, op, &error) == STATUS_OK, "%s", error.text);
    if (op->kind == OP_SUM_PARTS)
        scale(s, rank, op->operand[SUM_DESTINATION], s->factor);
    if (rank == s->twice && makes_part(plan, op))
        scale(s, rank, op->operand[PRODUCT_C], 2);
}

static void execute(struct scene *s)
{
    void *const *buffers[WORLD_SIZE_MAX];
    for (int rank = 0; rank < s->l.world_size; rank++)
        buffers[rank] = s->buffers[rank];
    plans_execute(s->plans, buffers, s->l.world_size, compute, s);
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
    struct linear unjudged = *l;
    int64_t allowed;
    unjudged.verify = false;
    ck_assert_msg(plan_check(s->plans, l->world_size, &error) == STATUS_OK, "%s: %s", text_of(l),
                  error.text);
    ck_assert_int_eq(job_kind_linear.memory(&unjudged, &allowed, &error), STATUS_OK);
    for (int rank = 0; rank < l->world_size; rank++) {
        int64_t bytes = 0;
        for (int i = 0; i < s->plans[rank]->buffer_count; i++)
            bytes += s->plans[rank]->buffers[i].bytes;
        ck_assert_msg(bytes + 4096 <= allowed, "%s takes %lld bytes of %lld", text_of(l),
                      (long long)bytes, (long long)allowed);
    }
    execute(s);
    for (int rank = 0; rank < l->world_size; rank++) {
        rank_is_right(s, rank, figures);
        assert_judged(s, rank, figures);
    }
    ck_assert_msg(same_everywhere(s), "%s: results differ between ranks", text_of(l));
    scene_destroy(s);
}

// ---- right results ----

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

// Half of the sizes are 1 and primes, which most world sizes do not divide.
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

static int cases = 1000;

START_TEST(random_jobs_are_right)
{
    random_state = 77;
    for (int i = 0; i < cases; i++) {
        struct linear l = random_linear();
        assert_right(&l);
    }
}
END_TEST

// ---- deliberate errors --------------------------

enum wrong {
    WRONG_BIAS_OF_ALL,
    WRONG_BIAS_LOST,
    WRONG_FIRST_BIAS_LOST,
    WRONG_RANK_MISSING,
    WRONG_RANK_TWICE,
    WRONG_FACTOR,
    WRONG_ONLY_OWN_PART,
    WRONG_SHARDS_SWAPPED,
    WRONG_SHARD_OF_ANOTHER,
    WRONG_TOKENS_SWAPPED,
    WRONG_TOKENS_MISSING,
    WRONG_BIAS_OF_OWN_TOKENS,
    WRONG_NO_ACTIVATION,
    WRONG_NO_SLOPE,
    WRONG_OTHER_GELU,
    WRONG_GATES_SWAPPED,
    WRONGS
};

// Checks rank 1 of 4.
static const struct {
    enum linear_layer layer;
    enum activation activation;
    bool sequence_parallel;
    const char *text;
} table[WRONGS] = {
    [WRONG_BIAS_OF_ALL] = {LINEAR_ROW, 1, false, "y has the bias 4 times: every rank adds it"},
    [WRONG_BIAS_LOST] = {LINEAR_MLP, 1, true, "y lacks the bias"},
    [WRONG_FIRST_BIAS_LOST] = {LINEAR_MLP, 1, false,
                               "computed without the bias of the first layer"},
    [WRONG_RANK_MISSING] = {LINEAR_MLP, 2, true, "y lacks the part of rank 2 in the sum"},
    [WRONG_RANK_TWICE] = {LINEAR_COLUMN, 1, false, "dx counts the part of rank 2 twice in the sum"},
    [WRONG_FACTOR] = {LINEAR_ROW, 1, true, "y is 4 times what it should be: the number of ranks"},
    [WRONG_ONLY_OWN_PART] = {LINEAR_COLUMN, 1, true,
                             "dx is the part of rank 1 alone, without the sum"},
    [WRONG_SHARDS_SWAPPED] = {LINEAR_MLP, 1, false, "weights of ranks 0 and 2 exchanged"},
    [WRONG_SHARD_OF_ANOTHER] = {LINEAR_COLUMN, 1, false, "y is that of the features of rank 3"},
    [WRONG_TOKENS_SWAPPED] = {LINEAR_COLUMN, 1, true,
                              "tokens in the wrong order: those of ranks 2 and 3 of x"},
    [WRONG_TOKENS_MISSING] = {LINEAR_MLP, 1, false, "dw1 lacks the tokens of rank 3"},
    [WRONG_BIAS_OF_OWN_TOKENS] = {LINEAR_ROW, 1, true,
                                  "db is computed from the tokens of rank 0 only"},
    [WRONG_NO_ACTIVATION] = {LINEAR_MLP, 1, true, "y is computed without the activation"},
    [WRONG_NO_SLOPE] = {LINEAR_MLP, 2, false, "dx is computed without the slope of the activation"},
    [WRONG_OTHER_GELU] = {LINEAR_MLP, 1, false,
                          "y is computed with the GELU of tanh instead of erf"},
    [WRONG_GATES_SWAPPED] = {LINEAR_MLP, 3, true,
                             "y is computed with the two halves of SwiGLU exchanged"},
};

static void op_spoil(const struct scene *s, struct plan *plan, struct op *op, enum wrong wrong)
{
    struct region *r = op->operand;
    struct product *p = &op->product;
    int64_t bytes = s->l.dtype == DTYPE_FP32 ? 4 : 2;
    switch (wrong) {
    case WRONG_BIAS_OF_ALL:
        for (int i = 0; i < plan->buffer_count && makes_part(plan, op); i++)
            if ((int)plan->buffers[i].role == BUFFER_LINEAR + LINEAR_B2)
                r[PRODUCT_BIAS] = (struct region){.buffer = i, .bytes = p->n * bytes};
        if (op->kind == OP_SUM_PARTS)
            r[SUM_BIAS].bytes = 0;
        break;
    case WRONG_BIAS_LOST:
        if (op->kind == OP_SUM_PARTS)
            r[SUM_BIAS].bytes = 0;
        break;
    case WRONG_FIRST_BIAS_LOST:
        if (op->kind == OP_PRODUCT)
            r[PRODUCT_BIAS].bytes = 0;
        break;
    case WRONG_RANK_MISSING:
        if (plan->rank == 2 && makes_part(plan, op))
            p->k = r[PRODUCT_A].bytes = r[PRODUCT_B].bytes = 0;
        break;
    case WRONG_ONLY_OWN_PART:
        if (op->kind == OP_SUM_PARTS) {
            r[SUM_PARTS] = r[SUM_OWN];
            p->k = 1;
        }
        break;
    case WRONG_TOKENS_MISSING: // those of the last rank
        if (op->kind == OP_PRODUCT && p->form == PRODUCT_TN)
            p->k -= linear_share(s->l.tokens, 3, 4).count;
        break;
    case WRONG_BIAS_OF_OWN_TOKENS: // of rank 0
        if (op->kind == OP_COLUMN_SUM)
            p->m = linear_share(s->l.tokens, 0, 4).count;
        break;
    case WRONG_NO_ACTIVATION:
        if (op->kind == OP_ACTIVATE)
            p->activation = ACTIVATION_NONE;
        break;
    case WRONG_NO_SLOPE:
        if (op->kind == OP_ACTIVATE_BACKWARD)
            p->activation = ACTIVATION_NONE;
        break;
    case WRONG_OTHER_GELU:
        if (op->kind == OP_ACTIVATE || op->kind == OP_ACTIVATE_BACKWARD)
            p->activation = ACTIVATION_GELU_TANH;
        break;
    default:
        break;
    }
}

static void swap_bytes(const void *a, const void *b, int64_t bytes)
{
    char *x = (char *)(uintptr_t)a, *y = (char *)(uintptr_t)b, kept;
    for (int64_t i = 0; i < bytes; i++) {
        kept = x[i];
        x[i] = y[i];
        y[i] = kept;
    }
}

// Rank 1 exchanges the data of ranks 2 and 3.
static void tokens_swap(struct plan *plan)
{
    for (int i = 0; i < plan->op_count; i++) {
        const struct op *op = &plan->ops[i];
        struct transfer *of[4] = {NULL};
        for (int k = 0; k < op->transfer_count; k++) {
            struct transfer *t = &plan->transfers[op->transfer_first + k];
            of[t->peer] = t;
        }
        if (op->kind != OP_EXCHANGE || op->phase != PHASE_FORWARD || !of[2] || !of[3])
            continue;
        struct region kept = of[2]->receive;
        of[2]->receive = of[3]->receive;
        of[3]->receive = kept;
    }
}

static void scene_spoil(struct scene *s, enum wrong wrong)
{
    for (int rank = 0; rank < s->l.world_size; rank++) {
        const void *const *t = s->tensors[rank];
        for (int i = 0; i < s->plans[rank]->op_count; i++)
            op_spoil(s, s->plans[rank], &s->plans[rank]->ops[i], wrong);
        int64_t w1 = linear_bytes(&s->l, rank, LINEAR_W1),
                b1 = linear_bytes(&s->l, rank, LINEAR_B1);
        if (wrong != WRONG_GATES_SWAPPED)
            continue;
        swap_bytes(t[LINEAR_W1], (const char *)t[LINEAR_W1] + w1 / 2, w1 / 2);
        swap_bytes(t[LINEAR_B1], (const char *)t[LINEAR_B1] + b1 / 2, b1 / 2);
    }
    if (wrong == WRONG_SHARDS_SWAPPED)
        swap_bytes(s->tensors[0][LINEAR_W2], s->tensors[2][LINEAR_W2],
                   linear_bytes(&s->l, 0, LINEAR_W2));
    if (wrong == WRONG_SHARD_OF_ANOTHER) {
        linear_fill(&s->l, 3, LINEAR_W1, (void *)(uintptr_t)s->tensors[1][LINEAR_W1]);
        linear_fill(&s->l, 3, LINEAR_B1, (void *)(uintptr_t)s->tensors[1][LINEAR_B1]);
    }
    if (wrong == WRONG_TOKENS_SWAPPED)
        tokens_swap(s->plans[1]);
    if (wrong == WRONG_RANK_TWICE)
        s->twice = 2;
    if (wrong == WRONG_FACTOR)
        s->factor = 4;
}

START_TEST(wrong_results_are_diagnosed)
{
    enum wrong wrong = (enum wrong)_i;
    struct linear l = usual();
    l.world_size = 4;
    l.layer = table[wrong].layer;
    l.activation = table[wrong].activation;
    l.sequence_parallel = table[wrong].sequence_parallel;
    l.tokens = 64;
    l.out_features = 48;
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_FP32; dtype++) {
        struct figures figures[LINEAR_TENSORS];
        char text[DIAGNOSIS_TEXT_MAX];
        double explained;
        enum linear_tensor tensor;
        l.dtype = (enum case_dtype)dtype;
        if (wrong == WRONG_OTHER_GELU && dtype != DTYPE_FP32) // to differ from rounding
            l.tokens = l.out_features = l.hidden = dtype == DTYPE_BF16 ? 400 : 128;
        struct scene *s = scene_create(&l);
        scene_spoil(s, wrong);
        execute(s);
        ck_assert_msg(!rank_is_right(s, 1, figures), "error %d of %s", (int)wrong, text_of(&l));
        ck_assert_int_eq(
            linear_diagnose(&l, 1, s->tensors[1], figures, text, &explained, &tensor, &error),
            STATUS_OK);
        ck_assert_msg(strstr(text, table[wrong].text), "error %d of %s is called '%s'", (int)wrong,
                      text_of(&l), text);
        ck_assert(text[0] == '\0' || explained > 0.8);
        scene_destroy(s);
    }
}
END_TEST

// A row layer, and an mlp, of some 57 million weights.
START_TEST(a_mistake_in_a_large_layer_is_named)
{
    struct linear l = usual();
    bool mlp = _i;
    struct figures figures[LINEAR_TENSORS];
    char text[DIAGNOSIS_TEXT_MAX];
    double explained;
    enum linear_tensor tensor;
    l.world_size = 2;
    l.layer = mlp ? LINEAR_MLP : LINEAR_ROW;
    l.dtype = DTYPE_BF16;
    l.activation = mlp ? ACTIVATION_GELU : ACTIVATION_NONE;
    l.hidden = mlp ? 3800 : 0;
    l.bias = true;
    l.training = false;
    l.tokens = 8;
    l.in_features = l.out_features = 7500;
    struct scene *s = scene_create(&l);
    scene_spoil(s, WRONG_BIAS_OF_ALL);
    execute(s);
    ck_assert(!rank_is_right(s, 1, figures));
    ck_assert_int_eq(
        linear_diagnose(&l, 1, s->tensors[1], figures, text, &explained, &tensor, &error),
        STATUS_OK);
    ck_assert_msg(strstr(text, "y has the bias 2 times"), "it is called '%s'", text);
    scene_destroy(s);
}
END_TEST

// The diagnosis names any rank, here rank 18 of 20.
START_TEST(any_rank_is_named)
{
    struct linear l = usual();
    struct figures figures[LINEAR_TENSORS];
    char text[DIAGNOSIS_TEXT_MAX];
    double explained;
    enum linear_tensor tensor;
    l.world_size = 20;
    l.layer = LINEAR_ROW;
    l.activation = ACTIVATION_NONE;
    l.hidden = 0;
    struct scene *s = scene_create(&l);
    s->twice = 18;
    execute(s);
    ck_assert(!rank_is_right(s, 1, figures));
    ck_assert_int_eq(
        linear_diagnose(&l, 1, s->tensors[1], figures, text, &explained, &tensor, &error),
        STATUS_OK);
    ck_assert_str_eq(text, "y counts the part of rank 18 twice in the sum");
    scene_destroy(s);
}
END_TEST

// A single element with a wrong exponent, at any place.
START_TEST(a_single_element_is_noticed)
{
    int changed = 0;
    random_state = 3;
    for (int i = 0; i < 60; i++) {
        struct linear l = random_linear();
        struct figures figures[LINEAR_TENSORS];
        struct scene *s = scene_create(&l);
        int rank = random_below(l.world_size), tensor = LINEAR_Y + random_below(6);
        int64_t bytes = linear_bytes(&l, rank, (enum linear_tensor)tensor);
        execute(s);
        if (bytes > 0) {
            char *data = (char *)(uintptr_t)s->tensors[rank][tensor];
            int size = l.dtype == DTYPE_FP32 ? 4 : 2;
            data[random_below((int)(bytes / size)) * size + size - 1] ^= 0x40; // of the exponent
            ck_assert_msg(!rank_is_right(s, rank, figures), "%s", text_of(&l));
            changed++;
        }
        scene_destroy(s);
    }
    ck_assert_int_gt(changed, 20);
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
    tcase_add_test(tcase, random_jobs_are_right);
    tcase_add_loop_test(tcase, wrong_results_are_diagnosed, 0, WRONGS);
    tcase_add_loop_test(tcase, a_mistake_in_a_large_layer_is_named, 0, 2);
    tcase_add_test(tcase, any_rank_is_named);
    tcase_add_test(tcase, a_single_element_is_noticed);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
