// SPDX-License-Identifier: Apache-2.0
// Checks of collectives and linear layers that the caller computes: right results pass, mistakes
// are diagnosed, wrong buffers are refused.
#include "tests/support/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/cpattn_check.h"

#define RANKS 3

struct rank {
    struct cpattn_check_job *job;
    struct cpattn_check_tensor tensors[16];
    void *data[16];
    int count;
};

static struct rank ranks[RANKS];
static struct cpattn_error error;

// ---- all ranks of a job -------------------------------------------------------------------------

static struct cpattn_case *case_of(const char *kind, const char *const *fields)
{
    struct cpattn_case *c = cpattn_case_create_kind(kind);
    for (; fields[0]; fields += 2)
        ck_assert_msg(cpattn_case_set(c, fields[0], fields[1], &error) == CPATTN_OK, "%s",
                      error.text);
    ck_assert_int_eq(cpattn_case_set(c, "world_size", "3", &error), CPATTN_OK);
    return c;
}

// Creates the checks of all ranks and fills all tensors: inputs are drawn, results look like memory
// that was never written.
static void begin(const char *kind, const char *const *fields)
{
    struct cpattn_case *c = case_of(kind, fields);
    for (int r = 0; r < RANKS; r++) {
        struct rank *rank = &ranks[r];
        ck_assert_msg(cpattn_check_job_create(c, r, &rank->job, &error) == CPATTN_OK, "%s",
                      error.text);
        rank->count = 0;
        for (int i = 0; cpattn_check_job_tensor(rank->job, i, &rank->tensors[i]); i++) {
            const struct cpattn_check_tensor *t = &rank->tensors[i];
            rank->data[i] = malloc(t->bytes + 1);
            ck_assert_int_eq(
                cpattn_check_job_fill(rank->job, t->name, rank->data[i], t->bytes, &error),
                CPATTN_OK);
            rank->count++;
        }
    }
    cpattn_case_destroy(c);
}

static void end(void)
{
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < ranks[r].count; i++)
            free(ranks[r].data[i]);
        cpattn_check_job_destroy(ranks[r].job);
    }
}

static int find(int r, const char *name)
{
    for (int i = 0; i < ranks[r].count; i++)
        if (strcmp(ranks[r].tensors[i].name, name) == 0)
            return i;
    ck_abort_msg("no tensor %s", name);
}

static float *floats(int r, const char *name)
{
    return ranks[r].data[find(r, name)];
}

static const int64_t *shape(int r, const char *name)
{
    return ranks[r].tensors[find(r, name)].shape;
}

// The verdict on all tensors of a rank.
static struct cpattn_check_verdict *verify(int r)
{
    struct cpattn_check_buffer buffers[16];
    struct cpattn_check_verdict *verdict;
    for (int i = 0; i < ranks[r].count; i++)
        buffers[i] = (struct cpattn_check_buffer){ranks[r].tensors[i].name, ranks[r].data[i],
                                                  ranks[r].tensors[i].bytes};
    ck_assert_msg(cpattn_check_job_verify(ranks[r].job, buffers, ranks[r].count, &verdict,
                                          &error) == CPATTN_OK,
                  "%s", error.text);
    return verdict;
}

static void expect_right(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct cpattn_check_verdict *verdict = verify(r);
        ck_assert_msg(cpattn_check_verdict_pass(verdict), "%s", cpattn_check_verdict_text(verdict));
        for (int i = 0; i < ranks[r].count; i++)
            ck_assert_str_eq(cpattn_check_verdict_figures(verdict, i)->tensor,
                             ranks[r].tensors[i].name);
        ck_assert_ptr_null(cpattn_check_verdict_figures(verdict, ranks[r].count));
        cpattn_check_verdict_destroy(verdict);
    }
}

// Rank 0 fails, and the text of its verdict names the tensor. With words: the diagnosis contains
// them, is of this tensor and explains more than half of the error. With NULL: no diagnosis.
static void expect_wrong(const char *tensor, const char *words)
{
    const char *of;
    double explained;
    char line[64];
    struct cpattn_check_verdict *verdict = verify(0);
    const char *text = cpattn_check_verdict_text(verdict);
    ck_assert(!cpattn_check_verdict_pass(verdict));
    snprintf(line, sizeof(line), "FAIL %s: ", tensor);
    ck_assert_msg(strstr(text, line), "%s", text);
    const char *sentence = cpattn_check_verdict_diagnosis(verdict, &of, &explained);
    if (words) {
        ck_assert_msg(strstr(sentence, words), "'%s' instead of '%s'", sentence, words);
        ck_assert_str_eq(of, tensor);
        ck_assert_double_gt(explained, 0.5);
        ck_assert(strstr(text, "diagnosis: "));
    } else {
        ck_assert_str_eq(sentence, "");
    }
    cpattn_check_verdict_destroy(verdict);
}

// ---- collectives --------------------------------------------------------------------------------

static const char *const reduce_fields[] = {"operation", "all_reduce", "count", "500", NULL};
static const char *const gather_fields[] = {"operation", "all_gather", "count", "100", NULL};

// Each rank receives the sum of all ranks' elements; those of rank r are multiplied by times[r].
static void reduce(const double times[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 500; i++) {
            float sum = 0;
            for (int from = 0; from < RANKS; from++)
                sum += (float)times[from] * floats(from, "send")[i];
            floats(r, "receive")[i] = sum;
        }
}

START_TEST(sums_of_ranks)
{
    begin("collective", reduce_fields);
    expect_wrong("receive", "the memory was never written");
    reduce((double[]){1, 1, 1});
    expect_right();
    reduce((double[]){1, 0, 1});
    expect_wrong("receive", "rank 1 is missing");
    reduce((double[]){1, 1, 2});
    expect_wrong("receive", "rank 2");
    reduce((double[]){3, 3, 3});
    expect_wrong("receive", "3 times");
    reduce((double[]){1, 1, 1});
    floats(0, "send")[7] += 1;
    expect_wrong("send", NULL);
    end();
}
END_TEST

static void blocks(int first, int second)
{
    const int from[RANKS] = {first, second, 2};
    for (int r = 0; r < RANKS; r++)
        for (int n = 0; n < RANKS; n++)
            memcpy(floats(r, "receive") + (ptrdiff_t)100 * n, floats(from[n], "send"), 400);
}

START_TEST(blocks_of_ranks)
{
    begin("collective", gather_fields);
    blocks(0, 1);
    expect_right();
    blocks(1, 0);
    expect_wrong("receive", "blocks of ranks 0 and 1 are swapped");
    end();
}
END_TEST

START_TEST(every_element_type)
{
    static const char *const dtypes[] = {"fp32", "fp16", "bf16", "int32", "int64", "uint8"};
    for (int i = 0; i < 6; i++) {
        const char *const fields[] = {"operation", "broadcast", "root",    "1", "count",
                                      "77",        "dtype",     dtypes[i], NULL};
        begin("collective", fields);
        ck_assert_str_eq(ranks[1].tensors[find(1, "send")].dtype, dtypes[i]);
        ck_assert_int_eq(shape(0, "send")[0], 0);
        for (int r = 0; r < RANKS; r++)
            memcpy(floats(r, "receive"), floats(1, "send"), ranks[1].tensors[0].bytes);
        expect_right();
        ((unsigned char *)floats(0, "receive"))[0] ^= 0x80;
        expect_wrong("receive", NULL);
        end();
    }
}
END_TEST

// ---- linear layers ------------------------------------------------------------------------------

static const char *const row_fields[] = {
    "layer", "row",          "dtype", "fp32",     "tokens", "20", "in_features",
    "40",    "out_features", "16",    "training", "false",  NULL};

enum row_mistake { ROW_RIGHT, ROW_BIAS_OF_ALL, ROW_NO_BIAS, ROW_MISSING };

static void row_layer(enum row_mistake mistake)
{
    for (int64_t i = 0; i < 20; i++)
        for (int64_t k = 0; k < 16; k++) {
            double sum = 0;
            for (int r = 0; r < RANKS; r++) {
                int64_t held = shape(r, "x")[1];
                for (int64_t n = 0; n < held && (mistake != ROW_MISSING || r != 1); n++)
                    sum +=
                        (double)floats(r, "x")[i * held + n] * (double)floats(r, "w")[k * held + n];
            }
            double bias = mistake == ROW_NO_BIAS ? 0 : mistake == ROW_BIAS_OF_ALL ? RANKS : 1;
            for (int r = 0; r < RANKS; r++)
                floats(r, "y")[i * 16 + k] = (float)(sum + bias * (double)floats(r, "b")[k]);
        }
}

START_TEST(layers)
{
    begin("linear", row_fields);
    ck_assert_int_eq(shape(0, "x")[1], 14);
    ck_assert_int_eq(shape(2, "x")[1], 13);
    row_layer(ROW_RIGHT);
    expect_right();
    row_layer(ROW_BIAS_OF_ALL);
    expect_wrong("y", "bias");
    row_layer(ROW_NO_BIAS);
    expect_wrong("y", "bias");
    row_layer(ROW_MISSING);
    expect_wrong("y", "rank 1");
    row_layer(ROW_RIGHT);
    floats(0, "w")[3] += 1;
    expect_wrong("w", NULL);
    end();
}
END_TEST

static uint64_t digest_of(int r)
{
    struct cpattn_check_verdict *verdict = verify(r);
    uint64_t digest = cpattn_check_verdict_digest(verdict);
    cpattn_check_verdict_destroy(verdict);
    return digest;
}

START_TEST(equal_results_of_ranks_have_one_digest)
{
    begin("linear", row_fields);
    row_layer(ROW_RIGHT);
    ck_assert_uint_eq(digest_of(0), digest_of(1));
    ((unsigned char *)floats(1, "y"))[0] ^= 1;
    ck_assert_uint_ne(digest_of(0), digest_of(1));
    ck_assert_uint_eq(digest_of(0), digest_of(2));
    end();
}
END_TEST

// ---- refusals -----------------------------------------------------------------------------------

static void expect_refused(enum cpattn_status status, const char *words)
{
    ck_assert_int_eq(status, CPATTN_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, words), "%s", error.text);
}

START_TEST(impossible_jobs_are_refused)
{
    struct cpattn_check_job *job;
    struct cpattn_case *c = cpattn_case_create();
    expect_refused(cpattn_check_job_create(c, 0, &job, &error),
                   "this is a job 'attention'; accepted is collective or linear");
    cpattn_case_destroy(c);
    c = case_of("collective", reduce_fields);
    expect_refused(cpattn_check_job_create(c, 3, &job, &error),
                   "rank is 3; a job with world_size 3 has ranks 0 to 2");
    ck_assert_int_eq(cpattn_case_set(c, "colour", "red", &error), CPATTN_OK);
    expect_refused(cpattn_check_job_create(c, 0, &job, &error), "'colour' is not a field");
    cpattn_case_destroy(c);
}
END_TEST

START_TEST(tensors_are_listed)
{
    struct cpattn_check_tensor t;
    begin("collective", reduce_fields);
    ck_assert(!cpattn_check_job_tensor(ranks[0].job, -1, &t));
    ck_assert(!cpattn_check_job_tensor(ranks[0].job, 2, &t));
    ck_assert(cpattn_check_job_tensor(ranks[0].job, 1, &t));
    ck_assert_str_eq(t.name, "receive");
    ck_assert_int_eq(t.dims, 1);
    ck_assert_uint_eq((size_t)(t.shape[0] * t.shape[1]) * 4, t.bytes);
    end();
}
END_TEST

START_TEST(wrong_buffers_are_refused)
{
    struct cpattn_check_verdict *verdict;
    begin("collective", reduce_fields);
    char *data = ranks[0].data[1];
    struct cpattn_check_buffer b[2] = {{"receive", data, 2000}, {"receive", data, 2000}};
    expect_refused(cpattn_check_job_verify(ranks[0].job, b, 2, &verdict, &error), "given twice");
    expect_refused(cpattn_check_job_verify(ranks[0].job, b, 0, &verdict, &error), "no tensor");
    b[0].bytes = 1999;
    expect_refused(cpattn_check_job_verify(ranks[0].job, b, 1, &verdict, &error),
                   "receive has 1999 bytes; accepted is 2000 on rank 0");
    b[0] = (struct cpattn_check_buffer){"receive", data + 1, 2000};
    expect_refused(cpattn_check_job_verify(ranks[0].job, b, 1, &verdict, &error), "not aligned");
    b[0] = (struct cpattn_check_buffer){"receive", NULL, 2000};
    expect_refused(cpattn_check_job_verify(ranks[0].job, b, 1, &verdict, &error), "is NULL");
    expect_refused(cpattn_check_job_fill(ranks[0].job, "dq", data, 2000, &error),
                   "has no tensor 'dq'");
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("check_jobs");
    TCase *tcase = tcase_create("jobs");
    tcase_add_test(tcase, sums_of_ranks);
    tcase_add_test(tcase, blocks_of_ranks);
    tcase_add_test(tcase, every_element_type);
    tcase_add_test(tcase, layers);
    tcase_add_test(tcase, equal_results_of_ranks_have_one_digest);
    tcase_add_test(tcase, tensors_are_listed);
    tcase_add_test(tcase, impossible_jobs_are_refused);
    tcase_add_test(tcase, wrong_buffers_are_refused);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
