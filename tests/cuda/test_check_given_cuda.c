// SPDX-License-Identifier: Apache-2.0
// A check with given inputs gives the same verdict, inputs and expected values on the device as on
// the host.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "client/cpattn.h"
#include "judge/dtype.h"
#include "tests/cuda/harness.h"
#include "tests/support/generate.h"

#define GIVEN 4 // q, k, v and dO

check_cuda_table cpattn_check_cuda_table;

static void public_check(enum cpattn_status status, const struct cpattn_error *error)
{
    if (status == CPATTN_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    abort();
}

static struct cpattn_check *check_open(const struct cp_case *c, int rank, bool on_device)
{
    struct cpattn_case *public = cpattn_case_create();
    struct cpattn_check *check;
    struct cpattn_error error;
    struct error reason = {0};
    char text[CASE_VALUE_MAX];
    for (const struct case_field *field = case_fields(); field->name; field++) {
        case_get(c, field, text, sizeof(text));
        public_check(cpattn_case_set(public, field->name, text, &error), &error);
    }
    public_check(cpattn_check_create(public, rank, &check, &error), &error);
    cpattn_case_destroy(public);
    if (on_device && device_use(check, cpattn_check_cuda_table(), 0, NULL, &reason) != STATUS_OK) {
        fprintf(stderr, "%s\n", reason.text);
        abort();
    }
    return check;
}

static void store(const struct cpattn_check *check, enum cpattn_tensor tensor, void *data,
                  int64_t at, float x)
{
    dtype_write(tensor_dtype(&check->c, tensor), &x, 1,
                (char *)data + at * (int64_t)tensor_element_bytes(&check->c, tensor));
}

// ---- arrays -------------------------------------------------------------------------------------

// An array in host memory with gaps after heads and rows. push() copies it to the device.
struct filled_array {
    struct cpattn_array array;
    size_t bytes;
};

static struct filled_array filled_make(const struct cpattn_check *check, enum cpattn_tensor tensor,
                                       struct cpattn_shape s, int gap)
{
    int64_t width = s.dim + gap;
    struct filled_array filled = {{.row_stride = s.heads * width + gap, .head_stride = width}, 0};
    filled.bytes = (size_t)((s.rows + 1) * filled.array.row_stride + width) *
                   tensor_element_bytes(&check->c, tensor);
    filled.array.data = malloc(filled.bytes);
    memset(filled.array.data, 0x11, filled.bytes);
    return filled;
}

static struct cpattn_array push(const struct filled_array *filled)
{
    struct cpattn_array array = filled->array;
    CUDA(cudaMalloc(&array.data, filled->bytes));
    CUDA(cudaMemcpy(array.data, filled->array.data, filled->bytes, cudaMemcpyHostToDevice));
    return array;
}

// True if the check has rows of the tensor.
static bool has(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    struct error reason;
    return tensor_check(&check->c, tensor, &reason) == STATUS_OK &&
           cpattn_check_shape(check, tensor).rows > 0;
}

// True if all elements of an array on the device equal those on the host; NaN equals NaN. Gaps are
// not compared.
static bool is_same(const struct cpattn_check *check, enum cpattn_tensor tensor,
                    const struct filled_array *host, const struct cpattn_array *device)
{
    struct cpattn_shape s = cpattn_check_shape(check, tensor);
    enum case_dtype dtype = tensor_dtype(&check->c, tensor);
    char *back = malloc(host->bytes);
    bool same = true;
    CUDA(cudaMemcpy(back, device->data, host->bytes, cudaMemcpyDeviceToHost));
    for (int64_t row = 0; row < s.rows; row++)
        for (int head = 0; head < s.heads; head++)
            for (int k = 0; k < s.dim; k++) {
                float a, b;
                int64_t at = array_offset(&host->array, row, head) + k;
                dtype_read(dtype, host->array.data, at, 1, &a);
                dtype_read(dtype, back, at, 1, &b);
                same = same && (a == b || (isnan(a) && isnan(b)));
            }
    free(back);
    return same;
}

// ---- tests --------------------------------------------------------------------------------------

struct pair {
    struct cpattn_check *host, *device;
};

static struct pair pair_open(const struct cp_case *c)
{
    int rank = (int)harness_below(c->world_size);
    return (struct pair){check_open(c, rank, false), check_open(c, rank, true)};
}

static void pair_close(struct pair *p)
{
    cpattn_check_destroy(p->host);
    cpattn_check_destroy(p->device);
}

// Gives both checks the same random inputs, each in a separate allocation.
static void pair_give(const struct pair *p)
{
    struct cpattn_array host[CPATTN_TENSORS] = {0}, device[CPATTN_TENSORS] = {0};
    struct cpattn_error error;
    for (int t = 0; t < (p->host->c.training ? GIVEN : GIVEN - 1); t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        struct cpattn_shape s = cpattn_check_whole(p->host, tensor);
        struct filled_array filled = filled_make(p->host, tensor, s, (int)harness_below(3));
        for (int64_t row = 0; row < s.rows; row++)
            for (int head = 0; head < s.heads; head++)
                for (int k = 0; k < s.dim; k++)
                    store(p->host, tensor, filled.array.data,
                          array_offset(&filled.array, row, head) + k, harness_uniform() * 2);
        host[t] = filled.array;
        device[t] = push(&filled);
    }
    public_check(cpattn_check_give(p->host, host, CPATTN_TENSORS, &error), &error);
    public_check(cpattn_check_give(p->device, device, CPATTN_TENSORS, &error), &error);
    for (int t = 0; t < GIVEN; t++) {
        free(host[t].data);
        CUDA(cudaFree(device[t].data));
    }
}

// Places four fifths of the rank's rows on both checks, in reverse order.
static void pair_place(const struct pair *p)
{
    for (int side = 0; side < 2; side++) {
        const struct rows *rows = &p->host->rows[side];
        int32_t *sequences = calloc((size_t)rows->count + 1, sizeof(*sequences));
        int64_t *positions = calloc((size_t)rows->count + 1, sizeof(*positions)), n = 0;
        struct cpattn_error error;
        for (int64_t row = rows->count; row-- > 0;) {
            sequences[n] = rows->sequence[row];
            positions[n] = rows->position[row];
            n += row % 5 != 3;
        }
        public_check(
            cpattn_check_place(p->host, (enum cpattn_side)side, sequences, positions, n, &error),
            &error);
        public_check(
            cpattn_check_place(p->device, (enum cpattn_side)side, sequences, positions, n, &error),
            &error);
        free(sequences);
        free(positions);
    }
}

typedef enum cpattn_status fill_function(struct cpattn_check *check, enum cpattn_tensor tensor,
                                         const struct cpattn_array *array,
                                         struct cpattn_error *error);

static enum cpattn_status inputs_fill(struct cpattn_check *check, enum cpattn_tensor tensor,
                                      const struct cpattn_array *array, struct cpattn_error *error)
{
    return cpattn_check_fill(check, tensor, array, error);
}

// True if both checks fill a tensor with the same values.
static bool pair_agrees(const struct pair *p, enum cpattn_tensor tensor, fill_function *fill)
{
    struct cpattn_shape s = cpattn_check_shape(p->host, tensor);
    struct cpattn_error error;
    if (!has(p->host, tensor))
        return true;
    struct filled_array filled = filled_make(p->host, tensor, s, (int)harness_below(3));
    struct cpattn_array device = push(&filled);
    public_check(fill(p->host, tensor, &filled.array, &error), &error);
    public_check(fill(p->device, tensor, &device, &error), &error);
    bool same = is_same(p->host, tensor, &filled, &device);
    free(filled.array.data);
    CUDA(cudaFree(device.data));
    return same;
}

static struct cp_case small_case(void)
{
    struct cp_case c;
    generate_case(harness_random(), 4, harness_small() ? 20 : 70, &c);
    return c;
}

static void what_is_handed_out_is_the_hosts(void)
{
    int different = 0;
    for (int i = 0; i < (harness_small() ? 4 : 60); i++) {
        struct cp_case c = small_case();
        struct pair p = pair_open(&c);
        if (i % 2)
            pair_give(&p);
        if (i % 4 >= 2)
            pair_place(&p);
        for (int t = 0; t < GIVEN; t++)
            different += !pair_agrees(&p, (enum cpattn_tensor)t, inputs_fill);
        if (i % 4 >= 2)
            different += !pair_agrees(&p, CPATTN_TENSOR_BIAS, inputs_fill);
        for (int t = CPATTN_TENSOR_OUT; t <= CPATTN_TENSOR_DV; t++)
            different += !pair_agrees(&p, (enum cpattn_tensor)t, cpattn_check_expected);
        pair_close(&p);
    }
    EXPECT(different == 0, "%d tensors differ", different);
}

// Judges the host's expected values on the device: they must pass. With `spoilt` the first element
// of O is wrong, unless it is padding, and must fail. Returns 1 if the verdict is wrong.
static int given_check(const struct pair *p, bool spoilt)
{
    struct cpattn_array arrays[CPATTN_TENSORS] = {0};
    struct cpattn_error error;
    struct cpattn_check_verdict *verdict;
    int there = 0, wrong = 0;
    for (int t = CPATTN_TENSOR_OUT; t <= CPATTN_TENSOR_DV; t++) {
        enum cpattn_tensor tensor = (enum cpattn_tensor)t;
        struct cpattn_shape s = cpattn_check_shape(p->host, tensor);
        if (!has(p->host, tensor))
            continue;
        struct filled_array filled = filled_make(p->host, tensor, s, 1);
        public_check(cpattn_check_expected(p->host, tensor, &filled.array, &error), &error);
        enum case_dtype dtype = tensor_dtype(&p->host->c, tensor);
        float x;
        dtype_read(dtype, filled.array.data, 0, 1, &x);
        if (spoilt && t == CPATTN_TENSOR_OUT && !row_is_padding(p->host, SIDE_Q, 0)) {
            store(p->host, tensor, filled.array.data, 0, x + 9);
            wrong = 1;
        }
        arrays[t] = push(&filled);
        free(filled.array.data);
        there++;
    }
    if (there == 0)
        return 0;
    public_check(cpattn_check_verify(p->device, arrays, CPATTN_TENSORS, &verdict, &error), &error);
    bool missed = cpattn_check_verdict_pass(verdict) == (wrong != 0);
    if (missed)
        harness_note("seed %llu, %s: %s", (unsigned long long)p->host->c.seed,
                     wrong ? "spoilt" : "right", cpattn_check_verdict_text(verdict));
    cpattn_check_verdict_destroy(verdict);
    for (int t = 0; t < CPATTN_TENSORS; t++)
        CUDA(cudaFree(arrays[t].data));
    return missed;
}

static void given_inputs_are_judged(void)
{
    int missed = 0;
    for (int i = 0; i < (harness_small() ? 4 : 100); i++) {
        struct cp_case c = small_case();
        struct pair p = pair_open(&c);
        pair_give(&p);
        if (i % 3 == 2)
            pair_place(&p);
        missed += given_check(&p, false) + given_check(&p, true);
        pair_give(&p); // replaces the inputs given before
        missed += given_check(&p, false);
        pair_close(&p);
    }
    EXPECT(missed == 0, "%d verdicts on given inputs are wrong", missed);
}

static const struct harness_test tests[] = {
    {"what_is_handed_out_is_the_hosts", what_is_handed_out_is_the_hosts},
    {"given_inputs_are_judged", given_inputs_are_judged},
};

int main(int argc, char **argv)
{
    return harness_run(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc, argv);
}
