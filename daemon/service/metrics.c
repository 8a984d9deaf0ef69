// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/metrics.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NS 1e9

// Writes the head of a metric family; its samples follow.
static void family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP cpattnd_%s %s\n# TYPE cpattnd_%s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, double value)
{
    family(out, name, type, help);
    fprintf(out, "cpattnd_%s %.17g\n", name, value);
}

// Writes NAME="VALUE" with backslashes and quotes of the value escaped.
static void label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        fputc(*value, out);
    }
    fputc('"', out);
}

static void histogram(FILE *out, const char *name, const char *help,
                      const struct tally_times *times)
{
    uint64_t count = 0;
    family(out, name, "histogram", help);
    for (int i = 0; i < TALLY_BOUNDS; i++) {
        count += times->counts[i];
        fprintf(out, "cpattnd_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                (double)tally_bounds_ns[i] / NS, count);
    }
    count += times->counts[TALLY_BOUNDS];
    fprintf(out, "cpattnd_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    fprintf(out, "cpattnd_%s_sum %.17g\ncpattnd_%s_count %" PRIu64 "\n", name, times->sum_s, name,
            count);
}

// ---- jobs --------------------------------------------------------------------------------------

static void jobs_write(FILE *out, const struct wire_status *s, const struct tally *t)
{
    family(out, "jobs", "gauge", "Cases that wait or run now.");
    fprintf(out, "cpattnd_jobs{state=\"queued\"} %d\ncpattnd_jobs{state=\"running\"} %d\n",
            s->queued, s->running);
    single(out, "jobs_admitted_total", "counter", "Cases that were taken in.", (double)s->admitted);
    single(out, "jobs_refused_total", "counter", "Cases that were not taken in.",
           (double)s->refused);
    family(out, "jobs_total", "counter",
           "Cases that were answered, by verdict, or by the code of those without.");
    fprintf(out,
            "cpattnd_jobs_total{outcome=\"pass\"} %" PRIu64
            "\ncpattnd_jobs_total{outcome=\"fail\"} %" PRIu64
            "\ncpattnd_jobs_total{outcome=\"unverified\"} %" PRIu64 "\n",
            t->verdicts[VERDICT_PASS], t->verdicts[VERDICT_FAIL], t->verdicts[VERDICT_UNVERIFIED]);
    for (int code = 1; code < STATUS_COUNT; code++) {
        fputs("cpattnd_jobs_total{outcome=\"", out);
        for (const char *c = status_name((enum status)code); *c; c++)
            fputc(tolower((unsigned char)*c), out);
        fprintf(out, "\"} %" PRIu64 "\n", t->codes[code]);
    }
    histogram(out, "job_duration_seconds", "From the admission of a case to its answer.",
              &t->total);
    histogram(out, "job_wait_seconds", "From the admission of a case until its ranks have it.",
              &t->wait);
    histogram(out, "job_run_seconds", "How long the ranks of a case were at work.", &t->run);
}

// ---- pools and devices -------------------------------------------------------------------------

static void pool_labels(FILE *out, const char *name, const struct wire_pool *pool)
{
    fprintf(out, "cpattnd_%s{", name);
    label(out, "implementation", pool->implementation[0] ? pool->implementation : "cpattn");
    fprintf(out, ",world_size=\"%d\",nodes=\"%d\",instance=\"%d\"", pool->world_size, pool->nodes,
            pool->instance);
}

static void states_write(FILE *out, const struct wire_status *s)
{
    family(out, "pool_state", "gauge", "1 for the state that a pool is in, 0 for all others.");
    for (int i = 0; i < s->pool_count; i++)
        for (int state = POOL_STARTING; state <= POOL_STUCK; state++) {
            pool_labels(out, "pool_state", &s->pools[i]);
            fprintf(out, ",spare=\"%s\",state=\"%s\"} %d\n", s->pools[i].spare ? "true" : "false",
                    pool_state_name((enum pool_state)state),
                    s->pools[i].state == (enum pool_state)state);
        }
}

// True for a pool and its spare, which take each other's place and share their counters.
static bool counted_together(const struct wire_pool *a, const struct wire_pool *b)
{
    return a->guest == b->guest && a->world_size == b->world_size && a->nodes == b->nodes &&
           a->instance == b->instance;
}

static uint64_t jobs_of(const struct wire_pool *pool)
{
    return pool->jobs;
}

static uint64_t deaths_of(const struct wire_pool *pool)
{
    return pool->deaths;
}

static void counter_write(FILE *out, const char *name, const char *help,
                          const struct wire_status *s, uint64_t (*of)(const struct wire_pool *))
{
    family(out, name, "counter", help);
    for (int i = 0; i < s->pool_count; i++) {
        const struct wire_pool *pool = &s->pools[i];
        uint64_t sum = 0;
        bool first = true;
        for (int j = 0; j < s->pool_count; j++)
            if (counted_together(pool, &s->pools[j])) {
                sum += of(&s->pools[j]);
                first = first && j >= i;
            }
        if (!first)
            continue;
        pool_labels(out, name, pool);
        fprintf(out, "} %" PRIu64 "\n", sum);
    }
}

static void pools_write(FILE *out, const struct wire_status *s)
{
    states_write(out, s);
    counter_write(out, "pool_jobs_total", "Cases that a pool and its spare have answered.", s,
                  jobs_of);
    counter_write(out, "pool_deaths_total", "How often a pool or its spare has lost its ranks.", s,
                  deaths_of);
}

struct device_counts {
    int enabled, drained, stuck, lost;
};

static void devices_count(struct device_counts *counts, const struct wire_host *host)
{
    int stuck = __builtin_popcountll(host->devices_stuck);
    int drained = __builtin_popcountll(host->devices_out & ~host->devices_stuck);
    if (host->lost) {
        counts->lost += host->devices;
        return;
    }
    counts->stuck += stuck;
    counts->drained += drained;
    counts->enabled += host->devices - drained - stuck;
}

static void devices_write(FILE *out, const struct wire_description *d, const struct wire_status *s)
{
    const struct wire_host alone = {
        .devices = d->devices, .devices_out = s->devices_out, .devices_stuck = s->devices_stuck};
    const struct wire_host *hosts = s->host_count > 0 ? s->hosts : &alone;
    struct device_counts counts = {0};
    for (int host = 0; host < (s->host_count > 0 ? s->host_count : 1); host++)
        devices_count(&counts, &hosts[host]);
    family(out, "devices", "gauge",
           "Devices that pools share, of all hosts, by whether they may be used.");
    fprintf(out,
            "cpattnd_devices{state=\"enabled\"} %d\ncpattnd_devices{state=\"drained\"} %d\n"
            "cpattnd_devices{state=\"stuck\"} %d\ncpattnd_devices{state=\"lost\"} %d\n",
            counts.enabled, counts.drained, counts.stuck, counts.lost);
}

// ---- the text ----------------------------------------------------------------------------------

char *metrics_text(const struct wire_description *d, const struct wire_status *s,
                   const struct tally *t)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    family(out, "build_info", "gauge", "1, with the version and the backend of the daemon.");
    fputs("cpattnd_build_info{", out);
    label(out, "version", d->version);
    fputc(',', out);
    label(out, "backend", d->backend);
    fputs("} 1\n", out);
    single(out, "uptime_seconds", "gauge", "Time since the start.", (double)s->uptime_ns / NS);
    single(out, "draining", "gauge", "1 when no more cases are taken in.", s->draining);
    single(out, "queue_max", "gauge", "Cases that may wait or run at a time.", d->queue_max);
    jobs_write(out, s, t);
    pools_write(out, s);
    devices_write(out, d, s);
    single(out, "loop_lag_max_seconds", "gauge",
           "The longest that the loop was busy at a time, of late.",
           (double)s->loop_lag_max_ns / NS);
    single(out, "loop_lag_p99_seconds", "gauge", "The same of 99 rounds of the loop in a hundred.",
           (double)s->loop_lag_p99_ns / NS);
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}
