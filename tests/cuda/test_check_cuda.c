// SPDX-License-Identifier: Apache-2.0
// Checks of results in device memory, with any strides: the figures equal those of a daemon's ranks
// on the device, bit for bit except for dbias. Also tests drawn inputs and checks of placed tokens.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "client/cpattn.h"
#include "kernels/dtype.h"
#include "plan/bias.h"
#include "tests/cuda/harness.h"
#include "tests/cuda/verify_workers.h"
#include "tests/support/figures.h"
#include "tests/support/generate.h"

check_cuda_table cpattn_check_cuda_table;

static const enum cpattn_tensor tensor_of[TENSORS] = {
    [OUT] = CPATTN_TENSOR_OUT,     [LSE] = CPATTN_TENSOR_LSE,
    [DQ] = CPATTN_TENSOR_DQ,       [DK] = CPATTN_TENSOR_DK,
    [DV] = CPATTN_TENSOR_DV,       [DBIAS] = CPATTN_TENSOR_DBIAS,
    [DSINK] = CPATTN_TENSOR_DSINK, [MAX_LOGIT] = CPATTN_TENSOR_MAX_LOGIT};

// ---- the check ----------------------------------------------------------------------------------

static void public_check(enum cpattn_status status, const struct cpattn_error *error)
{
    if (status == CPATTN_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    abort();
}

static struct cpattn_check *check_open(const struct cp_case *c, int rank)
{
    struct cpattn_case *public = cpattn_case_create();
    struct cpattn_check *check;
    struct cpattn_error error;
    struct error reason;
    char text[CASE_VALUE_MAX];
    for (const struct case_field *field = case_fields(); field->name; field++) {
        case_get(c, field, text, sizeof(text));
        public_check(cpattn_case_set(public, field->name, text, &error), &error);
    }
    public_check(cpattn_check_create(public, rank, &check, &error), &error);
    cpattn_case_destroy(public);
    sample_check(device_use(check, cpattn_check_cuda_table(), 0, NULL, &reason), &reason);
    return check;
}

// Copies a tensor of a rank to new device memory, with gaps of `gap` elements after rows and heads.
// `rows`: the rank's rows to copy, in the order of the array; NULL: all.
static struct cpattn_array array_push(const struct cpattn_check *check, const struct rank *rank,
                                      int tensor, int gap, const int64_t *rows)
{
    enum cpattn_tensor t = tensor_of[tensor];
    struct cpattn_shape s = cpattn_check_shape(check, t);
    bool outside = tensor == LSE || tensor == DBIAS;
    size_t size = tensor_element_bytes(&check->c, t);
    int64_t width = s.dim + gap, all = (int64_t)(rank->bytes[tensor] / size) / s.heads / s.dim;
    struct cpattn_array a = {.row_stride = outside ? width : s.heads * width + gap,
                             .head_stride = outside ? s.rows * width + gap : width};
    size_t bytes = (size_t)((s.rows + 1) * (s.heads + 1) * (width + gap)) * size;
    char *host = malloc(bytes);
    memset(host, 0xff, bytes);
    for (int64_t row = 0; row < s.rows; row++)
        for (int head = 0; head < s.heads; head++) {
            int64_t from = rows ? rows[row] : row;
            int64_t at = outside ? (head * all + from) * s.dim : (from * s.heads + head) * s.dim;
            memcpy(host + (size_t)array_offset(&a, row, head) * size,
                   (const char *)rank->host[tensor] + (size_t)at * size, (size_t)s.dim * size);
        }
    CUDA(cudaMalloc(&a.data, bytes));
    CUDA(cudaMemcpy(a.data, host, bytes, cudaMemcpyHostToDevice));
    free(host);
    return a;
}

static void arrays_free(struct cpattn_array arrays[CPATTN_TENSORS])
{
    for (int t = 0; t < CPATTN_TENSORS; t++)
        CUDA(cudaFree(arrays[t].data));
}

static struct cpattn_check_verdict *judge(struct cpattn_check *check,
                                          struct cpattn_array arrays[CPATTN_TENSORS])
{
    struct cpattn_check_verdict *verdict;
    struct cpattn_error error;
    public_check(cpattn_check_verify(check, arrays, CPATTN_TENSORS, &verdict, &error), &error);
    return verdict;
}

// ---- comparison ---------------------------------------------------------------------------------

// Compares figures of dbias, whose reference is summed by atomics: its bits vary between runs.
static bool is_close(const struct figures *a, const struct figures *b)
{
    return a->tensor == TENSOR_DBIAS && a->broken == b->broken && a->elements == b->elements &&
           fabs(a->rmse_rel - b->rmse_rel) <= 1e-3 * b->rmse_rel;
}

static int reports_compare(const struct rank *rank, const struct rank_report *check)
{
    const struct cp_case *c = &rank->sample->c;
    bool shares = bias_is_whole(c) && c->world_size > 1 && c->bias != BIAS_NONE;
    int different = 0;
    for (int i = 0; i < rank->report.figures_count; i++) {
        const struct figures *f = &rank->report.figures[i], *own = figures_find(check, f);
        if (shares && f->tensor == TENSOR_DBIAS)
            continue;
        if (own && (figures_same(own, f) || is_close(own, f)))
            continue;
        if (!own && f->elements == 0) // a rank without rows delivers nothing
            continue;
        different++;
        harness_note("%s, chunk %d of rank %d, seed %llu: broken %d and %d, rms %.17g and %.17g",
                     report_tensor_name(f->tensor), f->chunk, rank->number,
                     (unsigned long long)c->seed, own ? own->broken : -1, f->broken,
                     own ? own->rmse_rel : 0, f->rmse_rel);
    }
    return different;
}

// ---- tests --------------------------------------------------------------------------------------

static void element_spoil(struct rank *rank, int tensor)
{
    enum case_dtype dtype = tensor_dtype(&rank->sample->c, tensor_of[tensor]);
    int64_t count = (int64_t)rank->bytes[tensor] / dtype_bytes(dtype);
    int64_t at = harness_below(count);
    dtype_store(dtype, rank->host[tensor], at,
                harness_below(8) == 0 ? NAN : 1.5F * dtype_load(dtype, rank->host[tensor], at) + 1);
}

static void sample_spoil(struct sample *s)
{
    for (int r = 0; r < s->c.world_size; r++)
        for (int t = 0; t < TENSORS; t++)
            if (s->ranks[r].bytes[t] > 0 && harness_below(3) == 0)
                element_spoil(&s->ranks[r], t);
}

static int rank_check(struct rank *rank)
{
    const struct cp_case *c = &rank->sample->c;
    struct cpattn_array arrays[CPATTN_TENSORS] = {0};
    struct cpattn_check *check = check_open(c, rank->number);
    bool shares = bias_is_whole(c) && c->world_size > 1;
    for (int t = 0; t < TENSORS; t++)
        if (rank->host[t] && rank->bytes[t] > 0 && !(t == DBIAS && shares))
            arrays[tensor_of[t]] =
                array_push(check, rank, t, harness_below(2) ? 0 : (int)harness_below(7), NULL);
    int different = 0, there = 0;
    for (int t = 0; t < CPATTN_TENSORS; t++)
        there += arrays[t].data != NULL;
    if (there > 0) {
        struct cpattn_check_verdict *verdict = judge(check, arrays);
        different = reports_compare(rank, &verdict->report);
        cpattn_check_verdict_destroy(verdict);
    }
    arrays_free(arrays);
    cpattn_check_destroy(check);
    return different;
}

static void figures_are_those_of_ranks(void)
{
    static struct sample s;
    int different = 0, failed = 0, count = harness_small() ? 5 : 500;
    workers_open();
    for (int i = 0; i < count; i++) {
        struct cp_case c;
        generate_case(harness_random(), SAMPLE_WORLD_MAX, harness_small() ? 20 : 90, &c);
        sample_init(&s, &c);
        if (i % 2)
            sample_spoil(&s);
        sample_judge(&s);
        for (int r = 0; r < c.world_size; r++) {
            different += rank_check(&s.ranks[r]);
            failed += !s.ranks[r].report.pass;
        }
        sample_fini(&s);
    }
    workers_close();
    EXPECT(different == 0, "%d figures differ", different);
    harness_note("%d cases, half of them spoilt: %d ranks fail", count, failed);
}

// Judges four fifths of a rank's tokens, placed in reverse order. `spoilt`: one element of O is
// wrong, if there is an O. Returns 1 if the verdict is not the expected one.
static int named_check(struct rank *rank, bool spoilt)
{
    const struct cp_case *c = &rank->sample->c;
    struct cpattn_array arrays[CPATTN_TENSORS] = {0};
    struct cpattn_check *check = check_open(c, rank->number);
    struct cpattn_error error;
    int64_t *taken[2] = {NULL, NULL}, counts[2];
    for (int side = 0; side < 2; side++) {
        const struct rows *rows = &check->rows[side];
        size_t room = (size_t)rows->count + 1;
        int32_t *sequences = calloc(room, sizeof(*sequences));
        int64_t *positions = calloc(room, sizeof(*positions)), n = 0;
        taken[side] = calloc(room, sizeof(**taken));
        for (int64_t i = rows->token_count; i-- > 0;) {
            int64_t row = rows->order[i];
            if (i % 5 == 3)
                continue;
            sequences[n] = rows->sequence[row];
            positions[n] = rows->position[row];
            taken[side][n++] = row;
        }
        counts[side] = n;
        public_check(
            cpattn_check_place(check, (enum cpattn_side)side, sequences, positions, n, &error),
            &error);
        free(sequences);
        free(positions);
    }
    int there = 0, missed = 0;
    for (int t = 0; t < DBIAS; t++) {
        int side = t == DK || t == DV;
        if (!rank->host[t] || rank->bytes[t] == 0 || counts[side] == 0)
            continue;
        arrays[tensor_of[t]] = array_push(check, rank, t, (int)harness_below(3), taken[side]);
        there++;
    }
    if (there > 0) {
        float wrong = 100;
        uint16_t narrow = 0x7800; // 2^113 in bf16, 32768 in fp16
        void *from = c->dtype == DTYPE_FP32 ? (void *)&wrong : &narrow;
        if (spoilt && arrays[CPATTN_TENSOR_OUT].data)
            CUDA(cudaMemcpy(arrays[CPATTN_TENSOR_OUT].data, from, c->dtype == DTYPE_FP32 ? 4 : 2,
                            cudaMemcpyHostToDevice));
        struct cpattn_check_verdict *verdict = judge(check, arrays);
        bool expected = !(spoilt && arrays[CPATTN_TENSOR_OUT].data);
        missed = verdict->report.pass != expected;
        if (missed)
            harness_note("named tokens of rank %d, seed %llu:\n%s", rank->number,
                         (unsigned long long)c->seed, verdict->text);
        cpattn_check_verdict_destroy(verdict);
    }
    arrays_free(arrays);
    free(taken[0]);
    free(taken[1]);
    cpattn_check_destroy(check);
    return missed;
}

static void named_tokens_are_judged(void)
{
    static struct sample s;
    int missed = 0, count = harness_small() ? 3 : 60;
    for (int i = 0; i < count; i++) {
        struct cp_case c;
        generate_case(harness_random(), SAMPLE_WORLD_MAX, harness_small() ? 20 : 90, &c);
        sample_init(&s, &c);
        for (int r = 0; r < c.world_size; r++)
            missed += named_check(&s.ranks[r], false) + named_check(&s.ranks[r], true);
        sample_fini(&s);
    }
    EXPECT(missed == 0, "%d verdicts on named tokens are wrong", missed);
}

// True if cpattn_check_fill() draws the same bits into device memory as into host memory.
static bool inputs_are_same(const struct cp_case *c, enum cpattn_tensor t, int gap)
{
    struct cpattn_check *check = check_open(c, 0);
    struct cpattn_shape s = cpattn_check_shape(check, t);
    size_t bytes = (size_t)((s.rows + 1) * (s.heads + 1) * (s.dim + 2 * gap)) * 4;
    struct cpattn_array a = {.row_stride = s.heads * (s.dim + gap) + gap,
                             .head_stride = s.dim + gap};
    struct cpattn_error error;
    char *host = malloc(bytes), *device = malloc(bytes);
    memset(host, 0x11, bytes);
    CUDA(cudaMalloc(&a.data, bytes));
    CUDA(cudaMemset(a.data, 0x11, bytes));
    public_check(cpattn_check_fill(check, t, &a, &error), &error);
    CUDA(cudaMemcpy(device, a.data, bytes, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(a.data));
    public_check(cpattn_check_device(check, -1, NULL, &error), &error);
    a.data = host;
    public_check(cpattn_check_fill(check, t, &a, &error), &error);
    // Padding is NaN on both sides, possibly with different bits.
    bool same = true;
    size_t size = tensor_element_bytes(&check->c, t);
    for (int64_t row = 0; row < s.rows; row++)
        for (int head = 0; head < s.heads; head++) {
            bool padding = tensor_has_tokens(t) && row_is_padding(check, tensor_side(t), row);
            size_t at = (size_t)array_offset(&a, row, head) * size;
            same = same && (padding || t == CPATTN_TENSOR_BIAS ||
                            memcmp(host + at, device + at, (size_t)s.dim * size) == 0);
        }
    free(host);
    free(device);
    cpattn_check_destroy(check);
    return same;
}

static void inputs_are_those_of_the_host(void)
{
    int different = 0, count = harness_small() ? 5 : 60;
    for (int i = 0; i < count; i++) {
        struct cp_case c;
        generate_case(harness_random(), SAMPLE_WORLD_MAX, harness_small() ? 20 : 90, &c);
        for (int t = CPATTN_TENSOR_Q; t <= CPATTN_TENSOR_DO; t++)
            different += !inputs_are_same(&c, (enum cpattn_tensor)t, (int)harness_below(3));
        if (c.softmax == SOFTMAX_LEARNABLE)
            different += !inputs_are_same(&c, CPATTN_TENSOR_SINK, 0);
    }
    EXPECT(different == 0, "%d inputs differ", different);
}

static const struct harness_test tests[] = {
    {"inputs_are_those_of_the_host", inputs_are_those_of_the_host},
    {"figures_are_those_of_ranks", figures_are_those_of_ranks},
    {"named_tokens_are_judged", named_tokens_are_judged},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
