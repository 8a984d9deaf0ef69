// SPDX-License-Identifier: Apache-2.0
#include "bench/soak_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench/soak_state.h"

// Resident memory varies by up to this without a leak.
#define GROWTH_KIB 1024
// The daemon's store of answers grows up to this time, by design. Growth of memory is judged
// only if the middle third begins later.
#define WARM_S     90
#define ROWS       24

static const char *const time_names[SOAK_TIMES] = {
    [TIME_VERDICT] = "request to verdict",
    [TIME_FAULT] = "request to ABORTED or INTERNAL",
    [TIME_BUSY] = "request to RESOURCE_EXHAUSTED",
    [TIME_STATUS] = "status call to its answer",
    [TIME_DEADLINE] = "deadline to DEADLINE_EXCEEDED",
};

// ---- memory and descriptors --------------------------------------------------------------------

static int compare(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

// Median of resident memory over the part [from, to) of the samples, 0..1.
static long median_kib(double from, double to)
{
    static long values[SOAK_SAMPLES_MAX];
    int first = (int)(from * soak.sample_count), last = (int)(to * soak.sample_count);
    int count = 0;
    for (int i = first; i < last; i++)
        values[count++] = soak.samples[i].resident_kib;
    qsort(values, (size_t)count, sizeof(values[0]), compare);
    return count > 0 ? values[count / 2] : 0;
}

void report_judge(void)
{
    const struct soak_sample *base = &soak.base, *rest = &soak.rest;
    long middle = median_kib(1.0 / 3, 2.0 / 3), last = median_kib(2.0 / 3, 1);
    bool warm = soak.sample_count > 0 && soak.samples[soak.sample_count / 3].second >= WARM_S;
    if (warm && last - middle > GROWTH_KIB)
        problem("resident memory grows: %ld KiB in the middle third, %ld in the last", middle,
                last);
    if (rest->descriptors != base->descriptors)
        problem("%d descriptors with nothing to do before, %d after", base->descriptors,
                rest->descriptors);
    if (rest->threads != base->threads)
        problem("%d threads with nothing to do before, %d after", base->threads, rest->threads);
    if (rest->children != 0)
        problem("%d ranks are left when every pool has been idle for long", rest->children);
    // Signals in short succession may be merged into one.
    if (soak.counts.reloaded > soak.counts.reloads ||
        soak.counts.reloaded + 2 < soak.counts.reloads)
        problem("told to read its settings %llu times, read them %llu times",
                (unsigned long long)soak.counts.reloads, (unsigned long long)soak.counts.reloaded);
}

// ---- the report --------------------------------------------------------------------------------

static void row(const char *text, uint64_t value)
{
    printf("| %s | %llu |\n", text, (unsigned long long)value);
}

static void faults_print(void)
{
    uint64_t faults = 0;
    for (int i = 0; i < SOAK_FAULTS; i++)
        faults += soak.counts.faults[i];
    printf("\n## Done to it\n\n| what | times |\n|---|---|\n");
    row("faults of ranks", faults);
    for (int i = 0; i < SOAK_FAULTS; i++)
        row(soak_fault_name(i), soak.counts.faults[i]);
    row("clients that died", soak.counts.deaths);
    row("of these with half a request on the line", soak.counts.halves);
    row("requests that they had under way", soak.counts.abandoned);
    row("connections that broke the rules", soak.counts.hostile);
    row("clients over TCP without the token", soak.counts.strangers);
    row("floods of twelve times the queue", soak.counts.floods);
    row("changes of settings (SIGHUP)", soak.counts.reloads);
    row("times that the soak itself stood still for 2 s or more", soak.counts.stalls);
    row("longest round of the soak, ms", (uint64_t)soak.stall_longest_us / 1000);
    row("clients dropped after such a time, which had not read", soak.counts.dropped_late);
}

// Counts events in the daemon's log.
static void log_print(void)
{
    static const struct {
        const char *text, *what;
    } lines[] = {{" pool_start ", "pools started"},
                 {" spare=1", "of these to stand by"},
                 {" pool_kill ", "pools ended"},
                 {" rank_exited ", "ranks that ended by themselves or by a fault"},
                 {" loop_lag ", "times that its loop came late"},
                 {" log_dropped ", "times that lines of the log were dropped"}};
    printf("\n## Its log\n\n| what | times |\n|---|---|\n");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        row(lines[i].what, (uint64_t)soak_process_logged(&soak.process, lines[i].text));
}

static void answers_print(void)
{
    const struct soak_counts *c = &soak.counts;
    printf("\n## Asked and answered\n\n| what | count |\n|---|---|\n");
    row("cases sent", c->sent[KIND_RUN]);
    row("of these asked again under the same id", c->again);
    row("answers to these that were the same as before", c->again_same);
    row("cancels and status calls sent", c->sent[KIND_CANCEL] + c->sent[KIND_STATUS]);
    row("of all requests, over TCP with the token", c->over_network);
    row("answers", c->answered[KIND_RUN] + c->answered[KIND_CANCEL] + c->answered[KIND_STATUS]);
    for (int status = 0; status < STATUS_COUNT; status++)
        if (c->by_status[status])
            row(status_name((enum status)status), c->by_status[status]);
    row("verdicts pass", c->passed);
    printf("\n| what must be 0 | count |\n|---|---|\n");
    row("verdicts fail", c->failed);
    row("answers lost", c->lost);
    row("answers twice", c->twice);
    row("another answer to the same id", c->differing);
    row("answers of a kind that cannot be", c->wrong);
    row("lawful clients dropped", c->dropped);
    row("problems in all", (uint64_t)soak.problems);
}

static void times_print(void)
{
    printf("\n## Times\n\nAs a client on the same processors sees them, that also makes all the "
           "others.\n\n| from, to | count | p50 ms | p90 ms | p99 ms | p99.9 ms | most ms |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SOAK_TIMES; i++) {
        const struct spread *s = &soak.times[i];
        printf("| %s | %llu | %.2f | %.2f | %.2f | %.2f | %.2f |\n", time_names[i],
               (unsigned long long)s->count, spread_quantile_ms(s, 0.5), spread_quantile_ms(s, 0.9),
               spread_quantile_ms(s, 0.99), spread_quantile_ms(s, 0.999), (double)s->max_us * 1e-3);
    }
}

static void sample_print(const char *when, const struct soak_sample *s)
{
    printf("| %s | %ld | %d | %d | %d |\n", when, s->resident_kib, s->descriptors, s->threads,
           s->children);
}

static void curves_print(void)
{
    char when[32];
    int step = soak.sample_count > ROWS ? (soak.sample_count + ROWS - 1) / ROWS : 1;
    printf("\n## The daemon over time\n\n| second | resident KiB | descriptors | threads | ranks "
           "|\n|---|---|---|---|---|\n");
    sample_print("before the first client", &soak.base);
    for (int i = 0; i < soak.sample_count; i++) {
        if (i % step != 0 && i != soak.sample_count - 1)
            continue;
        snprintf(when, sizeof(when), "%d", soak.samples[i].second);
        sample_print(when, &soak.samples[i]);
    }
    sample_print("after the last, when all pools have gone", &soak.rest);
    printf("\nResident memory, median of each third: %ld, %ld, %ld KiB.\n", median_kib(0, 1.0 / 3),
           median_kib(1.0 / 3, 2.0 / 3), median_kib(2.0 / 3, 1));
}

void report_print(int argc, char **argv, const char *end)
{
    struct utsname machine;
    printf("# Soak\n\n```\n");
    for (int i = 0; i < argc; i++)
        printf("%s%s", argv[i], i + 1 < argc ? " " : "\n");
    printf("```\n\nSeed %llu, %lld seconds", (unsigned long long)soak.seed,
           (long long)(soak.end_us - soak.began_us) / 1000000);
    if (uname(&machine) == 0)
        printf(", %s %s %s", machine.sysname, machine.release, machine.machine);
    printf(".\nResult: **%s**. The daemon ended %s.\n", soak.problems == 0 ? "sound" : "NOT SOUND",
           end);
    faults_print();
    answers_print();
    times_print();
    curves_print();
    log_print();
}
