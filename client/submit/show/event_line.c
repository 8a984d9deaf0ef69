// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/event_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/duration.h"
#include "common/plural.h"

const char *event_time(const struct cpattn_event *event, char text[EVENT_TIME_MAX])
{
    time_t seconds = (time_t)(event->time_ns / 1000000000);
    struct tm local;
    if (!localtime_r(&seconds, &local) || strftime(text, EVENT_TIME_MAX, "%H:%M:%S", &local) == 0)
        strcpy(text, "--:--:--");
    snprintf(text + 8, EVENT_TIME_MAX - 8, ".%03d", (int)(event->time_ns / 1000000 % 1000));
    return text;
}

const char *devices_text(uint64_t devices, char text[DEVICES_TEXT_MAX])
{
    size_t used = 0;
    strcpy(text, "-");
    for (int first = 0; first < 64; first++) {
        int last = first;
        if (!(devices >> first & 1))
            continue;
        while (last < 63 && devices >> (last + 1) & 1)
            last++;
        used += (size_t)snprintf(text + used, DEVICES_TEXT_MAX - used,
                                 last > first ? "%s%d-%d" : "%s%d", used ? "," : "", first, last);
        first = last;
    }
    return text;
}

const char *hosts_text(const struct cpattn_daemon_status *status, uint64_t hosts,
                       char text[HOSTS_TEXT_MAX])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < status->host_count && used < HOSTS_TEXT_MAX; i++)
        if (hosts >> i & 1)
            used +=
                (size_t)snprintf(text + used, HOSTS_TEXT_MAX - used, "%s%s", used > 0 ? "," : "",
                                 cpattn_daemon_status_host(status, i)->name);
    return text;
}

const char *event_outcome(const struct cpattn_event *event)
{
    return event->verdict == CPATTN_VERDICT_NONE ? cpattn_status_name(event->code)
                                                 : cpattn_verdict_name(event->verdict);
}

enum terminal_paint event_paint(const struct cpattn_event *event)
{
    if (event->kind == CPATTN_EVENT_FINISHED && event->verdict != CPATTN_VERDICT_NONE)
        return event->verdict == CPATTN_VERDICT_PASS   ? PAINT_GOOD
               : event->verdict == CPATTN_VERDICT_FAIL ? PAINT_BAD
                                                       : PAINT_PLAIN;
    if (event->kind == CPATTN_EVENT_FINISHED)
        return event->code == CPATTN_CANCELLED ? PAINT_WARN : PAINT_BAD;
    if (strcmp(event->state, "down") == 0 || strcmp(event->state, "stuck") == 0)
        return PAINT_BAD;
    if (strcmp(event->state, "backoff") == 0 || strcmp(event->state, "drained") == 0 ||
        event->kind == CPATTN_EVENT_DAEMON || (event->kind == CPATTN_EVENT_POOL && event->text[0]))
        return PAINT_WARN;
    return PAINT_PLAIN;
}

struct line {
    char *text;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line->text + line->used, EVENT_LINE_MAX - line->used, format, arguments);
    va_end(arguments);
    line->used += (size_t)length;
    if (line->used >= EVENT_LINE_MAX)
        line->used = EVENT_LINE_MAX - 1;
}

static void ranks_add(struct line *line, const struct cpattn_event *e)
{
    add(line, "%s%s%d rank%s", e->implementation, e->implementation[0] ? ", " : "", e->world_size,
        plural(e->world_size));
}

static void case_add(struct line *line, const struct cpattn_event *e)
{
    char text[DURATION_TEXT_MAX];
    uint64_t wait_ns = e->queue_ns + e->start_ns;
    if (e->kind == CPATTN_EVENT_FINISHED)
        add(line, "%s in %s%s", event_outcome(e), duration_format(e->total_ns, text, sizeof(text)),
            wait_ns > 0 ? "" : "; ");
    if (e->kind == CPATTN_EVENT_FINISHED && wait_ns > 0)
        add(line, " with a wait of %s; ", duration_format(wait_ns, text, sizeof(text)));
    if (e->case_text[0])
        add(line, "%s", e->case_text);
    else
        ranks_add(line, e);
    add(line, "; %s%s%s", e->user, e->id[0] ? " id=" : "", e->id);
    if (e->text[0])
        add(line, ": %s", e->text);
}

const char *event_line(const struct cpattn_event *e, char text[EVENT_LINE_MAX])
{
    struct line line = {text, 0};
    char devices[DEVICES_TEXT_MAX];
    add(&line, "%-9s ", cpattn_event_kind_name(e->kind));
    switch (e->kind) {
    case CPATTN_EVENT_ADMITTED:
    case CPATTN_EVENT_STARTED:
    case CPATTN_EVENT_FINISHED:
        case_add(&line, e);
        break;
    case CPATTN_EVENT_POOL:
        ranks_add(&line, e);
        add(&line, ", instance %d on %s%s: %s%s%s", e->instance, devices_text(e->devices, devices),
            e->spare ? ", spare" : "", e->state, e->text[0] ? "; " : "", e->text);
        break;
    case CPATTN_EVENT_DEVICE:
        add(&line, "%s: %s", devices_text(e->devices, devices), e->state);
        break;
    case CPATTN_EVENT_DAEMON:
        add(&line, "%s", e->text);
        break;
    }
    return text;
}
