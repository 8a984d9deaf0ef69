// SPDX-License-Identifier: Apache-2.0
// Prints the events and actions of a history.
#include "tests/core/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const news_names[NEWS_KINDS] = {
    [NEWS_READY] = "ready",
    [NEWS_REPORT] = "report",
    [NEWS_FAILED] = "failed",
    [NEWS_PEER_LOST] = "peer lost",
    [NEWS_ENDING] = "ending",
    [NEWS_EXIT] = "exit",
    [NEWS_START_FAILED] = "start failed",
    [NEWS_SUBMIT] = "submit",
    [NEWS_CANCEL] = "cancel",
    [NEWS_CLIENT_GONE] = "client gone",
    [NEWS_DRAIN] = "drain",
    [NEWS_LIMIT] = "limit",
    [NEWS_DEVICE] = "device",
    [NEWS_UNPOISON] = "unpoison",
    [NEWS_TIME] = "time",
};

static const char *const action_names[] = {"START", "RUN", "ANSWER", "KILL", "STUCK", "EXIT"};

static void trace_time(const struct sim *s)
{
    printf("%14.6f ms  ", (double)s->now_ns / 1e6);
}

void trace_news(const struct sim *s, const struct news *n)
{
    if (!s->trace)
        return;
    trace_time(s);
    printf("%s", news_names[n->kind]);
    if (n->kind <= NEWS_START_FAILED)
        printf(" pool %d generation %u rank %d peer %d job %llu%s", n->slot, n->generation, n->rank,
               n->peer, (unsigned long long)n->job, n->stale ? " (stale)" : "");
    else if (n->kind == NEWS_CANCEL || n->kind == NEWS_CLIENT_GONE)
        printf(" %d", n->subject);
    printf("\n");
}

void trace_submission(const struct sim *s, const struct core_request *request, enum status status,
                      const struct admission *admission, const struct error *error)
{
    if (!s->trace)
        return;
    trace_time(s);
    printf("  world size %d timeout %.3f ms hash %d: %s %d place %d %s\n", request->world_size,
           (double)request->timeout_ns / 1e6, (int)request->case_hash, status_name(status),
           (int)admission->kind, admission->index, error->text);
}

void trace_action(const struct sim *s, const struct action *a)
{
    if (!s->trace)
        return;
    trace_time(s);
    printf(
        "    %-6s pool %d generation %u world size %d instance %d devices %#llx slot %d job %llu",
        action_names[a->kind], a->pool, a->generation, a->world_size, a->instance,
        (unsigned long long)a->devices, a->slot, (unsigned long long)a->job);
    if (a->kind == ACTION_ANSWER)
        printf(" %s cause %d rank %d", status_name(a->status), a->cause, a->rank);
    if (a->spare)
        printf(" to stand by");
    printf("\n");
}

void sim_fail(const struct sim *s, const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "# at %.6f ms, event \"%s\" of pool %d rank %d: ", (double)s->now_ns / 1e6,
            news_names[s->current.kind], s->current.slot, s->current.rank);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    abort();
}

void trace_life(const struct sim *s)
{
    if (s->trace)
        printf("seed %llu: %d devices%s, queue %d, ranks %d, start timeout %.0f ms, grace %.0f ms, "
               "idle timeout %.0f ms%s%s%s\n",
               (unsigned long long)s->seed, s->config.hosts[0].device_count,
               s->config.ranks_per_device > 1 ? " shared" : "", s->config.queue_max,
               s->config.ranks_max, (double)s->config.start_timeout_ns / 1e6,
               (double)s->config.peer_grace_ns / 1e6, (double)s->config.idle_timeout_ns / 1e6,
               s->config.spares ? ", spares" : "", s->habits.stuck ? ", ranks get stuck" : "",
               s->habits.calm ? ", calm" : "");
}
