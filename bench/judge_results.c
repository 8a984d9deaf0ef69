// SPDX-License-Identifier: Apache-2.0
// Judges results of another program. Each line of standard input is a command for a case of one
// rank, with `FIELD=VALUE` words as in cpattn-submit.
//     inputs FILE FIELD=VALUE ...    writes q, k, v and dO to the file, in this order
//     judge FILE FIELD=VALUE ...     reads out, lse, dq, dk and dv from the file, judges them
// Tensors are [batch][seqlen][heads][head_dim] in the case's dtype, LSE is [heads][batch * seqlen]
// in fp32. The answer is one line: "ok BYTES" for `inputs`. For `judge` it is the verdict, then for
// each tensor its name, the bits of the broken rules, the RMS error relative to the twin's, the
// slope, and the worst row and element relative to their limits. bench/cuda/judge_torch.py uses
// this program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/verify.h"
#include "plan/shard.h"
#include "rank/inputs.h"

#define WORDS_MAX 64

enum { Q, K, V, D_OUT, INPUTS };
enum { OUT, LSE, DQ, DK, DV, RESULTS };

struct task {
    struct cp_case c;
    struct span *spans[2];
    int span_count[2];
};

static void fail(const char *text)
{
    fprintf(stderr, "judge_results: %s\n", text);
    exit(1);
}

static void check(enum status status, const struct error *error)
{
    if (status != STATUS_OK)
        fail(error->text);
}

static void *memory(int64_t bytes)
{
    void *data = malloc((size_t)bytes + 1);
    if (!data)
        fail("no memory");
    return data;
}

static void task_init(struct task *t, char *words)
{
    struct error error;
    char *rest = NULL;
    case_init(&t->c);
    check(case_set(&t->c, "world_size", "1", &error), &error);
    for (char *word = strtok_r(words, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        char *value = strchr(word, '=');
        if (!value)
            fail("a word is not FIELD=VALUE");
        *value++ = 0;
        check(case_set(&t->c, word, value, &error), &error);
    }
    check(case_check(&t->c, &error), &error);
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        t->spans[side] = memory(shard_spans_max(&t->c) * (int64_t)sizeof(struct span));
        t->span_count[side] = shard_spans(&t->c, (enum shard_side)side, 0, t->spans[side]);
    }
}

static void task_fini(struct task *t)
{
    free(t->spans[SIDE_Q]);
    free(t->spans[SIDE_KV]);
}

static int64_t tensor_bytes(const struct cp_case *c, enum shard_side side, int dim)
{
    int heads = side == SIDE_Q ? c->heads : c->kv_heads;
    return shard_rows(c, side, 0) * heads * dim * case_element_bytes(c);
}

// ---- inputs -------------------------------------------------------------------------------------

static void inputs_write(struct task *t, const char *path)
{
    static const struct {
        enum input_tensor tensor;
        enum shard_side side;
    } inputs[INPUTS] = {[Q] = {INPUT_Q, SIDE_Q},
                        [K] = {INPUT_K, SIDE_KV},
                        [V] = {INPUT_V, SIDE_KV},
                        [D_OUT] = {INPUT_DO, SIDE_Q}};
    FILE *file = fopen(path, "wb");
    long long written = 0;
    if (!file)
        fail("the file of the inputs cannot be written");
    for (int i = 0; i < INPUTS; i++) {
        enum shard_side side = inputs[i].side;
        int dim = i == Q || i == K ? t->c.head_dim_qk : t->c.head_dim_v;
        int64_t bytes = tensor_bytes(&t->c, side, dim);
        void *data = memory(bytes);
        inputs_fill(&t->c, inputs[i].tensor, 0, t->spans[side], t->span_count[side], data);
        if (fwrite(data, 1, (size_t)bytes, file) != (size_t)bytes)
            fail("the file of the inputs cannot be written");
        written += bytes;
        free(data);
    }
    fclose(file);
    printf("ok %lld\n", written);
}

// ---- results ------------------------------------------------------------------------------------

static void results_read(const struct task *t, const char *path, void *data[RESULTS])
{
    const struct cp_case *c = &t->c;
    const int64_t bytes[RESULTS] = {[OUT] = tensor_bytes(c, SIDE_Q, c->head_dim_v),
                                    [LSE] = shard_rows(c, SIDE_Q, 0) * c->heads *
                                            (int64_t)sizeof(float),
                                    [DQ] = tensor_bytes(c, SIDE_Q, c->head_dim_qk),
                                    [DK] = tensor_bytes(c, SIDE_KV, c->head_dim_qk),
                                    [DV] = tensor_bytes(c, SIDE_KV, c->head_dim_v)};
    FILE *file = fopen(path, "rb");
    for (int i = 0; i < RESULTS; i++) {
        data[i] = memory(bytes[i]);
        if (!file || fread(data[i], 1, (size_t)bytes[i], file) != (size_t)bytes[i])
            fail("the file of the results is short");
    }
    fclose(file);
}

static void report_print(const struct rank_report *report)
{
    printf("%s", report->pass ? "pass" : "fail");
    for (int i = 0; i < report->figures_count; i++) {
        const struct figures *f = &report->figures[i];
        printf(" %s %d %.4g %.3g %.3g %.3g", report_tensor_name(f->tensor), (int)f->broken,
               f->twin_rel > 0 ? f->rmse_rel / f->twin_rel : 0, f->slope,
               f->worst_row_rel / f->worst_row_limit, f->worst_element);
    }
    printf("\n");
}

static void results_judge(struct task *t, const char *path)
{
    struct error error;
    struct arena arena;
    struct progress progress = {0};
    struct rank_report report = {0};
    void *data[RESULTS];
    size_t total = 0;
    results_read(t, path, data);
    arena_init(&arena);
    check(verify_reserve(&t->c, 0, &total, &error), &error);
    check(arena_reserve(&arena, total, &error), &error);
    struct verification v = {
        .c = &t->c,
        .spans = {t->spans[SIDE_Q], t->spans[SIDE_KV]},
        .span_count = {t->span_count[SIDE_Q], t->span_count[SIDE_KV]},
        .results =
            {.out = data[OUT], .dq = data[DQ], .dk = data[DK], .dv = data[DV], .lse = data[LSE]},
        .arena = &arena,
        .progress = &progress,
    };
    check(verify_run(&v, &report, &error), &error);
    report_print(&report);
    arena_fini(&arena);
    for (int i = 0; i < RESULTS; i++)
        free(data[i]);
}

int main(void)
{
    char line[4096], verb[16], path[1024];
    int used;
    while (fgets(line, sizeof(line), stdin)) {
        struct task t;
        if (sscanf(line, "%15s %1023s%n", verb, path, &used) != 2)
            fail("an order is VERB FILE FIELD=VALUE ...");
        task_init(&t, line + used);
        if (strcmp(verb, "inputs") == 0)
            inputs_write(&t, path);
        else if (strcmp(verb, "judge") == 0)
            results_judge(&t, path);
        else
            fail("an order is `inputs` or `judge`");
        task_fini(&t);
        fflush(stdout);
    }
    return 0;
}
