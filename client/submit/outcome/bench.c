// SPDX-License-Identifier: Apache-2.0
#include "client/submit/outcome/bench.h"

#include <stdlib.h>
#include <string.h>

#include "client/submit/outcome/measure.h"

enum status bench_init(struct bench *bench, int runs_max, struct error *error)
{
    *bench = (struct bench){.runs_max = runs_max};
    for (int i = 0; i < BENCH_SERIES; i++) {
        bench->values[i] = calloc((size_t)runs_max, sizeof(*bench->values[i]));
        if (!bench->values[i])
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for %d runs",
                             runs_max);
    }
    return STATUS_OK;
}

void bench_fini(struct bench *bench)
{
    for (int i = 0; i < BENCH_SERIES; i++)
        free(bench->values[i]);
    *bench = (struct bench){.runs = 0};
}

static void take_longest(double *longest, uint64_t ns)
{
    if ((double)ns > *longest)
        *longest = (double)ns;
}

void bench_add(struct bench *bench, const struct job_spec *spec, const struct cpattn_result *result)
{
    const struct cpattn_rank *rank;
    bool attends = spec->kind == &job_kind_attention;
    double values[BENCH_SERIES] = {[BENCH_WALL] = (double)result->total_ns};
    for (int r = 0; (rank = cpattn_result_rank(result, r)); r++) {
        struct measure_rates rates = {0, 0, 0};
        if (attends)
            rates = measure_rates(&spec->attention, rank);
        take_longest(&values[BENCH_FORWARD], rank->forward_ns);
        take_longest(&values[BENCH_BACKWARD], rank->backward_ns);
        take_longest(&values[BENCH_RUN], rank->forward_ns + rank->backward_ns);
        take_longest(&values[BENCH_EXCHANGE], rank->exchange_ns);
        take_longest(&values[BENCH_EXPOSED], rank->exposed_ns);
        take_longest(&values[BENCH_LAUNCH], rank->launch_ns);
        if (rank->operations > bench->operations)
            bench->operations = rank->operations;
        values[BENCH_FORWARD_RATE] += rates.forward / result->world_size;
        values[BENCH_BACKWARD_RATE] += rates.backward / result->world_size;
        values[BENCH_RATE] += rates.both / result->world_size;
    }
    for (int i = 0; i < BENCH_SERIES && bench->runs < bench->runs_max; i++)
        bench->values[i][bench->runs] = values[i];
    bench->runs += bench->runs < bench->runs_max;
}

const char *bench_series_name(enum bench_series series)
{
    static const char *const names[BENCH_SERIES] = {
        "forward",        "backward",        "run",   "exchange", "exposed", "launch", "wall",
        "forward_tflops", "backward_tflops", "tflops"};
    return names[series];
}

bool bench_is_rate(enum bench_series series)
{
    return series >= BENCH_FORWARD_RATE;
}

static int compare_values(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The quantile `part`, from 0 (smallest) to 1 (largest).
static double quantile(const double *sorted, int count, double part)
{
    double at = part * (count - 1);
    int below = (int)at;
    int above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

enum status bench_sum(const struct bench *bench, enum bench_series series,
                      struct bench_summary *summary, struct error *error)
{
    size_t bytes = (size_t)bench->runs * sizeof(double);
    double *sorted = malloc(bytes);
    if (!sorted)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for %d runs",
                         bench->runs);
    memcpy(sorted, bench->values[series], bytes);
    qsort(sorted, (size_t)bench->runs, sizeof(*sorted), compare_values);
    double median = quantile(sorted, bench->runs, 0.5);
    double between = quantile(sorted, bench->runs, 0.75) - quantile(sorted, bench->runs, 0.25);
    *summary = (struct bench_summary){.median = median,
                                      .least = sorted[0],
                                      .most = sorted[bench->runs - 1],
                                      .spread = median > 0 ? between / median : 0};
    free(sorted);
    return STATUS_OK;
}

int bench_rates(const struct bench *bench, const struct job_spec *spec,
                struct job_rate rates[JOB_RATES_MAX], double values[JOB_RATES_MAX])
{
    struct bench_summary run;
    struct error error;
    if (!spec->kind->rates || bench_sum(bench, BENCH_RUN, &run, &error) != STATUS_OK)
        return 0;
    double seconds = run.median * 1e-9;
    int count = spec->kind->rates(spec->bytes, rates);
    for (int i = 0; i < count; i++)
        values[i] = seconds > 0 ? rates[i].work / rates[i].unit / seconds : 0;
    return count;
}
