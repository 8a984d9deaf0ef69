// SPDX-License-Identifier: Apache-2.0
// The sensitivity of a verdict: for each dtype, kind of inputs and tensor, the smallest error that
// is refused in a result that is otherwise exact except for rounding. For comparison, the same with
// fixed limits per dtype; those for elements of bf16 and fp16 are TransformerEngine's tolerances.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"
#include "tests/judge/power.h"

static struct power power;
static float *got;     // one tensor
static float *results; // all tensors
static bool *left_out;

static void *room_of(size_t count, size_t size)
{
    void *data = calloc(count, size);
    if (!data)
        exit(1);
    return data;
}

// ---- both rules ---------------------------------------------------------------------------------

typedef bool judge(int tensor, const float *x);

static bool refused(int tensor, const float *x)
{
    return power_judge(&power, tensor, x).broken != 0;
}

static double rms_of(const double *x, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++)
        squares += x[i] * x[i];
    return sqrt(squares / count);
}

// The fixed limits: of an element, of the RMS error, and of the RMS error of a row.
static bool refused_by_constants(int tensor, const float *x)
{
    static const double limits[][3] = {[DTYPE_BF16] = {2.5e-2, 2e-2, 5e-2},
                                       [DTYPE_FP16] = {5e-3, 3e-3, 8e-3},
                                       [DTYPE_FP32] = {5e-5, 5e-5, 2e-4}};
    const double *limit = limits[power.c.dtype], *all = power.tensors[tensor].reference;
    double chunk = rms_of(all, POWER_COUNT), squares = 0;
    for (int row = 0; row < POWER_ROWS; row++) {
        const double *reference = all + (ptrdiff_t)row * POWER_DIM;
        double size = rms_of(reference, POWER_DIM), row_squares = 0;
        for (int i = 0; i < POWER_DIM; i++) {
            double value = x[row * POWER_DIM + i], error = fabs(value - reference[i]);
            if (error > limit[0] * fmax(1, size) + limit[0] * fabs(value))
                return true;
            row_squares += error * error;
        }
        if (sqrt(row_squares / POWER_DIM) > limit[2] * 1.5 * fmax(size, chunk / 4))
            return true;
        squares += row_squares;
    }
    return sqrt(squares / POWER_COUNT) > limit[1] * chunk;
}

// ---- errors of numbers --------------------------------------------------------------------------

enum kind { SCALE, NOISE, ROW, ELEMENT, KINDS };

// Fills `got` with the rounded reference plus an error. `size` is relative to the tensor's RMS; for
// SCALE it is the relative error of every element.
static void make(int tensor, enum kind kind, double size)
{
    const double *reference = power.tensors[tensor].reference;
    double rms = rms_of(reference, POWER_COUNT);
    int row = POWER_ROWS / 2 + 3;
    for (int i = 0; i < POWER_COUNT; i++) {
        double noise = (i * 2654435761U >> 16 & 1 ? 1 : -1) * size * rms, x = reference[i];
        if (kind == SCALE)
            x *= 1 + size;
        else if (kind == NOISE || (kind == ROW && i / POWER_DIM == row) ||
                 (kind == ELEMENT && i == row * POWER_DIM + 5))
            x += noise;
        got[i] = (float)x;
    }
    dtype_round(power.c.dtype, got, POWER_COUNT);
}

// Finds the smallest refused size of an error, to 3 %, by bisection.
static double smallest(int tensor, enum kind kind, judge *j)
{
    double low = 1e-8, high = 10;
    while (high / low > 1.03) {
        double middle = sqrt(low * high);
        make(tensor, kind, middle);
        *(j(tensor, got) ? &high : &low) = middle;
    }
    return high;
}

static void numbers_measure(const char *name)
{
    for (int k = 0; k < POWER_TENSORS; k++) {
        printf("| %s | %s |", name, report_tensor_name(power.tensors[k].name));
        for (int kind = 0; kind < KINDS; kind++)
            printf(" %.2g / %.2g |", smallest(k, (enum kind)kind, refused),
                   smallest(k, (enum kind)kind, refused_by_constants));
        printf("\n");
        fflush(stdout);
    }
}

// ---- keys and pairs that are left out -----------------------------------------------------------

// Chooses `count` random pairs (query, key) to leave out, the same in every run.
static void choose_pairs(int count)
{
    uint64_t state = 1;
    memset(left_out, 0, POWER_PAIRS * sizeof(*left_out));
    while (count > 0) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bool *pair = &left_out[(state >> 33) % POWER_PAIRS];
        count -= !*pair;
        *pair = true;
    }
}

// Leaves out the last key. Prints whether the verdict refuses this, and the RMS error relative to
// its limit.
static void key_measure(const char *name)
{
    for (int i = 0; i < POWER_PAIRS; i++)
        left_out[i] = i % POWER_LENGTH == POWER_LENGTH - 1;
    if (!power_leave_out(&power, left_out, results))
        exit(1);
    printf("| %s |", name);
    for (int k = 0; k < POWER_TENSORS; k++) {
        struct figures f = power_judge(&power, k, results + (ptrdiff_t)k * POWER_COUNT);
        printf(" %s, %.3g |", f.broken ? "refused" : "passes", f.rmse_rel / f.rmse_limit);
    }
}

// Prints the smallest refused number of left-out pairs, among a thousandth of all pairs, half of
// that, and so on.
static void pairs_measure(void)
{
    int least[2][POWER_TENSORS] = {{0}};
    for (int count = POWER_PAIRS / 1000; count > 0; count /= 2) {
        choose_pairs(count);
        if (!power_leave_out(&power, left_out, results))
            exit(1);
        for (int k = 0; k < POWER_TENSORS; k++) {
            const float *x = results + (ptrdiff_t)k * POWER_COUNT;
            least[0][k] = refused(k, x) ? count : least[0][k];
            least[1][k] = refused_by_constants(k, x) ? count : least[1][k];
        }
    }
    for (int k = 0; k < POWER_TENSORS; k++) {
        printf(" %d / ", least[0][k]);
        printf(least[1][k] ? "%d |" : "none |", least[1][k]);
    }
    printf("\n");
    fflush(stdout);
}

static void each_case(void (*measure)(const char *name))
{
    static const char *const dtypes[] = {[DTYPE_BF16] = "bf16", [DTYPE_FP16] = "fp16", "fp32"};
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_FP32; dtype++)
        for (int inputs = INPUTS_SHARP; inputs <= INPUTS_TE; inputs++) {
            char name[64];
            if (!power_init(&power, (enum case_dtype)dtype, (enum case_inputs)inputs))
                exit(1);
            snprintf(name, sizeof(name), "%s, %s", dtypes[dtype],
                     inputs == INPUTS_TE ? "te" : "sharp");
            measure(name);
            power_fini(&power);
        }
}

static void left_out_measure(const char *name)
{
    key_measure(name);
    pairs_measure();
}

int main(void)
{
    got = room_of(POWER_COUNT, sizeof(float));
    results = room_of((size_t)POWER_TENSORS * POWER_COUNT, sizeof(float));
    left_out = room_of(POWER_PAIRS, sizeof(*left_out));
    printf("| case | tensor | scale | RMS | row | element |\n|---|---|---|---|---|---|\n");
    each_case(numbers_measure);
    printf("\n| case | a key: out | dq | dk | dv | pairs: out | dq | dk | dv |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    each_case(left_out_measure);
    return 0;
}
