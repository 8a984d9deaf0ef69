// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/bench_table.h"

#include "client/submit/show/units.h"
#include "common/duration.h"
#include "common/plural.h"

// ---- table of one case ------------------------------------------------------------------------

static void value_cell(struct table *table, enum bench_series series, double value)
{
    char text[DURATION_TEXT_MAX];
    if (bench_is_rate(series))
        table_cell(table, PAINT_PLAIN, "%.4g TFLOP/s", value * 1e-12);
    else
        table_cell(table, PAINT_PLAIN, "%s", duration_format((uint64_t)value, text, sizeof(text)));
}

static void print_verdict(FILE *out, const struct outcome *verified)
{
    char used[OUTCOME_NUMBER_MAX];
    if (verified->kind != OUTCOME_PASS)
        fputs("not verified", out);
    else if (!verified->tensor[0])
        fputs("verified once: pass", out);
    else
        fprintf(out, "verified once%s: pass, %s of a limit at most (%s of %s)",
                verified->sampled ? " by a sample" : "", outcome_percent(verified->used, used),
                verified->rule, verified->tensor);
}

static bool attends(const struct bench_shown *shown)
{
    return shown->spec->kind == &job_kind_attention;
}

static void print_head(FILE *out, const struct bench_shown *shown)
{
    char what[256];
    int runs = shown->bench->runs;
    job_spec_describe(shown->spec, what, sizeof(what));
    fprintf(out, "%s\n", what);
    print_verdict(out, shown->verified);
    fprintf(out, "; %d timed run%s after %d for warming up", runs, plural(runs), shown->warmup);
    if (runs < shown->repeat)
        fprintf(out, ", interrupted before the other %d", shown->repeat - runs);
    fputs("\n\n", out);
}

static enum status print_series(FILE *out, const struct bench_shown *shown, struct error *error)
{
    static const char *const names[BENCH_SERIES] = {
        "forward", "backward", "run",     "exchange", "exposed exchange",
        "launch",  "wall",     "forward", "backward", "forward and backward"};
    struct table *table = table_create(out, "OF_EACH_RUN >MEDIAN >LEAST >MOST >SPREAD");
    struct bench_summary backward = {0};
    enum status status = bench_sum(shown->bench, BENCH_BACKWARD, &backward, error);
    for (int i = 0; i < BENCH_SERIES && status == STATUS_OK; i++) {
        struct bench_summary sum;
        status = bench_sum(shown->bench, (enum bench_series)i, &sum, error);
        bool again = i == (attends(shown) ? BENCH_RUN : BENCH_FORWARD) && backward.most <= 0;
        if (status != STATUS_OK || sum.most <= 0 || again)
            continue;
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s%s", names[i],
                   bench_is_rate((enum bench_series)i) ? " per device" : "");
        value_cell(table, (enum bench_series)i, sum.median);
        value_cell(table, (enum bench_series)i, sum.least);
        value_cell(table, (enum bench_series)i, sum.most);
        table_cell(table, PAINT_DIM, "%.1f%%", 100 * sum.spread);
    }
    if (status == STATUS_OK)
        table_print(table, "");
    table_destroy(table);
    return status;
}

enum status bench_device_ns(const struct bench *bench, double *ns, struct error *error)
{
    struct bench_summary run = {0};
    enum status status = bench_sum(bench, BENCH_RUN, &run, error);
    *ns = run.median;
    return status;
}

static enum status print_exchange(FILE *out, const struct bench_shown *shown, struct error *error)
{
    struct bench_summary exchange;
    if (shown->sent == 0)
        return STATUS_OK;
    enum status status = bench_sum(shown->bench, BENCH_EXCHANGE, &exchange, error);
    char sent[UNITS_TEXT_MAX];
    if (!status && exchange.median > 0)
        fprintf(out, "\na rank sends %s in a run: %.4g GB/s while it exchanges\n",
                units_bytes(shown->sent, sent), (double)shown->sent / exchange.median);
    return status;
}

static enum status print_launch(FILE *out, const struct bench_shown *shown, struct error *error)
{
    struct bench_summary launch;
    int operations = shown->bench->operations;
    enum status status = bench_sum(shown->bench, BENCH_LAUNCH, &launch, error);
    if (!status && launch.median > 0 && operations > 0)
        fprintf(out, "\na rank launches %d operations: %.3g us of the host's time each\n",
                operations, launch.median / operations * 1e-3);
    return status;
}

// Prints rates as "21.3 ALGORITHM GB/s": underscores in names become spaces.
static void print_rates(FILE *out, const struct bench_shown *shown)
{
    struct job_rate rates[JOB_RATES_MAX];
    double values[JOB_RATES_MAX];
    int count = bench_rates(shown->bench, shown->spec, rates, values);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s%.4g ", i == 0 ? "\nby the median: " : ", ", values[i]);
        for (const char *c = rates[i].name; *c; c++)
            fputc(*c == '_' ? ' ' : *c, out);
    }
    if (count > 0)
        fputc('\n', out);
}

enum status bench_table_print(FILE *out, const struct bench_shown *shown, struct error *error)
{
    double ns = 0;
    print_head(out, shown);
    enum status status = print_series(out, shown, error);
    if (!status)
        print_rates(out, shown);
    if (!status)
        status = print_exchange(out, shown, error);
    if (!status)
        status = print_launch(out, shown, error);
    if (!status && shown->earlier_ns > 0)
        status = bench_device_ns(shown->bench, &ns, error);
    if (!status && shown->earlier_ns > 0)
        fprintf(out, "\n%s %.3f times what %s took in the earlier bench\n",
                attends(shown) ? "forward and backward take" : "a run takes",
                ns / shown->earlier_ns, attends(shown) ? "they" : "it");
    return status;
}

// ---- table of several cases -------------------------------------------------------------------

// " >ALGORITHM_GB/s >BUS_GB/s"
static void rate_columns(const struct job_spec *spec, char *text, size_t size)
{
    struct job_rate rates[JOB_RATES_MAX];
    int count = spec->kind->rates ? spec->kind->rates(spec->bytes, rates) : 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " >%s", rates[i].name);
}

struct table *bench_table_create(FILE *out, const char *names, const struct job_spec *spec,
                                 bool compared)
{
    char columns[512], rates[256];
    rate_columns(spec, rates, sizeof(rates));
    bool attends = spec->kind == &job_kind_attention;
    snprintf(columns, sizeof(columns), "%s %s%s >SENT >GB/s >EXPOSED%s", names,
             attends ? ">FORWARD >BACKWARD >SPREAD >FWD_TFLOP/s >BWD_TFLOP/s >BOTH"
                     : ">TIME >LEAST >SPREAD",
             rates, compared ? " >EARLIER" : "");
    return table_create(out, columns);
}

static void time_cell(struct table *table, double ns)
{
    char text[DURATION_TEXT_MAX];
    table_cell(table, PAINT_PLAIN, "%s",
               ns > 0 ? duration_format((uint64_t)ns, text, sizeof(text)) : "-");
}

static void rate_cell(struct table *table, double flops)
{
    if (flops > 0)
        table_cell(table, PAINT_PLAIN, "%.4g", flops * 1e-12);
    else
        table_cell(table, PAINT_PLAIN, "-");
}

static void exchange_cells(struct table *table, int64_t sent, double exchange_ns, double exposed_ns)
{
    char text[UNITS_TEXT_MAX];
    if (sent > 0)
        table_cell(table, PAINT_PLAIN, "%s", units_bytes(sent, text));
    else
        table_cell(table, PAINT_PLAIN, "-");
    if (sent > 0 && exchange_ns > 0)
        table_cell(table, PAINT_PLAIN, "%.4g", (double)sent / exchange_ns);
    else
        table_cell(table, PAINT_PLAIN, "-");
    time_cell(table, exposed_ns);
}

static void case_cells(struct table *table, const struct bench_summary sum[BENCH_SERIES])
{
    time_cell(table, sum[BENCH_FORWARD].median);
    time_cell(table, sum[BENCH_BACKWARD].median);
    table_cell(table, PAINT_DIM, "%.1f%%", 100 * sum[BENCH_RATE].spread);
    rate_cell(table, sum[BENCH_FORWARD_RATE].median);
    rate_cell(table, sum[BENCH_BACKWARD_RATE].median);
    rate_cell(table, sum[BENCH_RATE].median);
}

static void job_cells(struct table *table, const struct bench_shown *shown,
                      const struct bench_summary sum[BENCH_SERIES])
{
    struct job_rate rates[JOB_RATES_MAX];
    double values[JOB_RATES_MAX];
    int count = bench_rates(shown->bench, shown->spec, rates, values);
    time_cell(table, sum[BENCH_RUN].median);
    time_cell(table, sum[BENCH_RUN].least);
    table_cell(table, PAINT_DIM, "%.1f%%", 100 * sum[BENCH_RUN].spread);
    for (int i = 0; i < count; i++)
        table_cell(table, PAINT_PLAIN, "%.4g", values[i]);
}

enum status bench_table_row(struct table *table, const struct bench_shown *shown, bool compared,
                            struct error *error)
{
    struct bench_summary sum[BENCH_SERIES];
    for (int i = 0; i < BENCH_SERIES; i++) {
        enum status status = bench_sum(shown->bench, (enum bench_series)i, &sum[i], error);
        if (status)
            return status;
    }
    if (attends(shown))
        case_cells(table, sum);
    else
        job_cells(table, shown, sum);
    exchange_cells(table, shown->sent, sum[BENCH_EXCHANGE].median, sum[BENCH_EXPOSED].median);
    double ns = sum[BENCH_RUN].median;
    if (compared && shown->earlier_ns > 0)
        table_cell(table, PAINT_PLAIN, "x %.3f", ns / shown->earlier_ns);
    else if (compared)
        table_cell(table, PAINT_DIM, "-");
    return STATUS_OK;
}
