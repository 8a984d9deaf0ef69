// SPDX-License-Identifier: Apache-2.0
// What a verdict notices: for each dtype, inputs and tensor the smallest error that is refused, of
// a result that is otherwise as exact as the twin; and what fixed limits per dtype would refuse,
// with TransformerEngine's tolerances for elements.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/expected.h"
#include "judge/dtype.h"
#include "judge/tally.h"

#define LENGTH 512
#define HEADS  4
#define DIM    64
#define ROWS   (LENGTH * HEADS)
#define COUNT  (ROWS * DIM)

// One tensor of all heads, [head][token][dim].
struct tensor {
    enum report_tensor name;
    double *reference;
    float *twin;
};

static struct tensor tensors[] = {
    {.name = TENSOR_OUT}, {.name = TENSOR_DQ}, {.name = TENSOR_DK}, {.name = TENSOR_DV}};
static float *got, *errors, twins[ROWS];

static void *room_of(size_t count, size_t size)
{
    void *data = calloc(count, size);
    if (!data)
        exit(1);
    return data;
}

static void expect(const struct cp_case *c)
{
    static double lse[LENGTH], delta[LENGTH], delta_twin[LENGTH], terms[LENGTH];
    enum precision precision = expected_precision(c);
    struct room room = {0};
    struct error error;
    for (int head = 0; head < HEADS; head++) {
        int at = head * LENGTH * DIM;
        const struct expected_queries q = {.out = tensors[0].reference + at,
                                           .out_twin = tensors[0].twin + at,
                                           .dq = tensors[1].reference + at,
                                           .dq_twin = tensors[1].twin + at,
                                           .lse = lse,
                                           .delta = delta,
                                           .delta_twin = delta_twin,
                                           .terms = terms};
        const struct expected_statistics s = {lse, delta, delta_twin};
        const struct expected_keys k = {.dk = tensors[2].reference + at,
                                        .dk_twin = tensors[2].twin + at,
                                        .dv = tensors[3].reference + at,
                                        .dv_twin = tensors[3].twin + at,
                                        .terms = terms};
        enum status status = expected_queries(c, precision, 0, head, (struct range){0, c->seqlen_q},
                                              &room, &q, &error);
        if (status == STATUS_OK)
            status = expected_keys(c, precision, 0, head, (struct range){0, c->seqlen_kv}, &s,
                                   &room, &k, &error);
        if (status != STATUS_OK)
            exit(1);
    }
    room_fini(&room);
}

// ---- both rules ---------------------------------------------------------------------------------

static bool refused(const struct cp_case *c, const struct tensor *t)
{
    struct tally tally;
    tally_init(&tally, rules_of(c, t->name), t->name, 0, DIM, errors, twins);
    for (int row = 0; row < ROWS; row++) {
        const struct tally_expected e = {.reference = t->reference + row * DIM,
                                         .twin = t->twin + row * DIM};
        tally_row(&tally, got + row * DIM, &e, DIM);
    }
    tally_turn(&tally);
    for (int row = 0; row < ROWS; row++)
        tally_row_again(&tally, got + row * DIM, (struct element){.position = row}, DIM);
    tally_finish(&tally);
    return tally.figures.broken != 0;
}

static double rms_of(const double *x, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++)
        squares += x[i] * x[i];
    return sqrt(squares / count);
}

// Limits that are constants of the dtype: of elements, of the RMS error, of a row's.
static bool refused_by_constants(const struct cp_case *c, const struct tensor *t)
{
    static const double limits[][3] = {[DTYPE_BF16] = {2.5e-2, 2e-2, 5e-2},
                                       [DTYPE_FP16] = {5e-3, 3e-3, 8e-3},
                                       [DTYPE_FP32] = {5e-5, 5e-5, 2e-4}};
    const double *limit = limits[c->dtype];
    double chunk = rms_of(t->reference, COUNT), squares = 0;
    for (int row = 0; row < ROWS; row++) {
        const double *reference = t->reference + row * DIM;
        double size = rms_of(reference, DIM), row_squares = 0;
        for (int i = 0; i < DIM; i++) {
            double value = got[row * DIM + i], error = fabs(value - reference[i]);
            if (error > limit[0] * fmax(1, size) + limit[0] * fabs(value))
                return true;
            row_squares += error * error;
        }
        if (sqrt(row_squares / DIM) > limit[2] * 1.5 * fmax(size, chunk / 4))
            return true;
        squares += row_squares;
    }
    return sqrt(squares / COUNT) > limit[1] * chunk;
}

// ---- errors -------------------------------------------------------------------------------------

enum kind { SCALE, NOISE, ROW, ELEMENT, KINDS };

// The reference with an error of that size, relative to the tensor's RMS, rounded.
static void make(const struct cp_case *c, const struct tensor *t, enum kind kind, double size)
{
    double rms = rms_of(t->reference, COUNT);
    int row = ROWS / 2 + 3;
    for (int i = 0; i < COUNT; i++) {
        double noise = (i * 2654435761u >> 16 & 1 ? 1 : -1) * size * rms, x = t->reference[i];
        if (kind == SCALE)
            x *= 1 + size;
        else if (kind == NOISE || (kind == ROW && i / DIM == row) ||
                 (kind == ELEMENT && i == row * DIM + 5))
            x += noise;
        got[i] = (float)x;
    }
    dtype_round(c->dtype, got, COUNT);
}

typedef bool judge(const struct cp_case *c, const struct tensor *t);

// The smallest error that is refused, to 3 %.
static double smallest(const struct cp_case *c, const struct tensor *t, enum kind kind, judge *j)
{
    double low = 1e-8, high = 10;
    while (high / low > 1.03) {
        double middle = sqrt(low * high);
        make(c, t, kind, middle);
        *(j(c, t) ? &high : &low) = middle;
    }
    return high;
}

static void case_measure(struct cp_case *c, const char *name)
{
    expect(c);
    for (int k = 0; k < 4; k++) {
        printf("| %s | %s |", name, report_tensor_name(tensors[k].name));
        for (int kind = 0; kind < KINDS; kind++)
            printf(" %.2g / %.2g |", smallest(c, &tensors[k], (enum kind)kind, refused),
                   smallest(c, &tensors[k], (enum kind)kind, refused_by_constants));
        printf("\n");
        fflush(stdout);
    }
}

// The fewest keys at the end of all that have to be missing in out.
static int keys_missed(struct cp_case *c, judge *j)
{
    int count;
    expect(c);
    double *reference = room_of(COUNT, sizeof(double));
    float *twin = room_of(COUNT, sizeof(float));
    memcpy(reference, tensors[0].reference, COUNT * sizeof(double));
    memcpy(twin, tensors[0].twin, COUNT * sizeof(float));
    for (count = 1; count < LENGTH; count++) {
        c->seqlen_kv = LENGTH - count;
        expect(c);
        memcpy(got, tensors[0].twin, COUNT * sizeof(float));
        struct tensor whole = {TENSOR_OUT, reference, twin};
        if (j(c, &whole))
            break;
    }
    c->seqlen_kv = LENGTH;
    free(reference);
    free(twin);
    return count;
}

int main(void)
{
    static const char *const dtypes[] = {[DTYPE_BF16] = "bf16", [DTYPE_FP16] = "fp16", "fp32"};
    got = room_of(COUNT, sizeof(float));
    errors = room_of(COUNT, sizeof(float));
    for (int k = 0; k < 4; k++) {
        tensors[k].reference = room_of(COUNT, sizeof(double));
        tensors[k].twin = room_of(COUNT, sizeof(float));
    }
    printf("| case | tensor | scale | RMS | row | element |\n|---|---|---|---|---|---|\n");
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_FP32; dtype++)
        for (int inputs = INPUTS_SHARP; inputs <= INPUTS_TE; inputs++) {
            struct cp_case c;
            char name[64];
            case_init(&c);
            c.dtype = (enum case_dtype)dtype;
            c.inputs = (enum case_inputs)inputs;
            c.world_size = c.batch = 1;
            c.heads = c.kv_heads = HEADS;
            c.head_dim_qk = c.head_dim_v = DIM;
            c.seqlen_q = c.seqlen_kv = LENGTH;
            c.mask = MASK_NONE;
            snprintf(name, sizeof(name), "%s, %s", dtypes[dtype],
                     inputs == INPUTS_TE ? "te" : "sharp");
            case_measure(&c, name);
            printf("| %s | out | keys missing: %d / %d | | | |\n", name, keys_missed(&c, refused),
                   keys_missed(&c, refused_by_constants));
        }
    return 0;
}
