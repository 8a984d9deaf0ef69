// SPDX-License-Identifier: Apache-2.0
#include "client/submit/show/top.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/submit/show/event_line.h"
#include "common/duration.h"
#include "common/plural.h"

#define MINUTE_NS    UINT64_C(60000000000)
#define NOW_NS       UINT64_C(3000000000) // averaging time of the rate "now"
#define COLUMN_RANKS 10

// Where the columns of a case's line begin.
struct layout {
    int user, age, phase, what;
};

static const struct layout *layout_of(const struct frame *f)
{
    static const struct layout wide = {10, 24, 34, 48}, narrow = {7, 16, 25, 38};
    return f->columns < 72 ? &narrow : &wide;
}

// ---- users -------------------------------------------------------------------------------------

// "alice" for "uid=1000 pid=4242". A user unknown on this machine is shown as it is, without the
// process.
static void user_write(const struct top *t, const char *user, char text[TOP_USER_MAX])
{
    char *end;
    unsigned long uid = strncmp(user, "uid=", 4) == 0 ? strtoul(user + 4, &end, 10) : 0;
    const struct passwd *entry =
        t->local && strncmp(user, "uid=", 4) == 0 ? getpwuid((uid_t)uid) : NULL;
    size_t length = strncmp(user, "uid=", 4) == 0 ? strcspn(user, " ") : strlen(user);
    if (entry)
        snprintf(text, TOP_USER_MAX, "%s", entry->pw_name);
    else
        snprintf(text, TOP_USER_MAX, "%.*s", length < 60 ? (int)length : 60, user);
}

// NULL: there is no room for more.
static struct top_user *user_of(struct top *t, const char *user)
{
    char name[TOP_USER_MAX];
    user_write(t, user, name);
    for (int i = 0; i < t->user_count; i++)
        if (strcmp(t->users[i].name, name) == 0)
            return &t->users[i];
    if (t->user_count == TOP_USERS_MAX)
        return NULL;
    struct top_user *added = &t->users[t->user_count++];
    *added = (struct top_user){.finished = 0};
    memcpy(added->name, name, sizeof(name));
    return added;
}

static void users_count(struct top *t, const struct cpattn_daemon_status *s)
{
    const struct cpattn_open_request *r;
    for (int i = 0; i < t->user_count; i++)
        t->users[i].running = t->users[i].queued = 0;
    for (int i = 0; (r = cpattn_daemon_status_request(s, i)); i++) {
        struct top_user *user = user_of(t, r->user);
        if (user)
            *(r->running ? &user->running : &user->queued) += 1;
    }
}

// ---- events ------------------------------------------------------------------------------------

void top_event(struct top *t, const struct cpattn_event *e)
{
    if (e->kind != CPATTN_EVENT_FINISHED)
        return;
    struct top_user *user = user_of(t, e->user);
    int at = (int)(t->recent_count++ % TOP_RECENT_MAX);
    t->recent[at].time_ns = e->time_ns;
    t->recent[at].total_ns = e->total_ns;
    t->recent[at].paint = event_paint(e);
    snprintf(t->recent[at].outcome, sizeof(t->recent[at].outcome), "%s", event_outcome(e));
    user_write(t, e->user, t->recent[at].user);
    if (e->case_text[0])
        snprintf(t->recent[at].what, sizeof(t->recent[at].what), "%s", e->case_text);
    else
        snprintf(t->recent[at].what, sizeof(t->recent[at].what), "%s%s%d rank%s", e->implementation,
                 e->implementation[0] ? ", " : "", e->world_size, plural(e->world_size));
    if (!user)
        return;
    user->finished++;
    user->failed += e->verdict == CPATTN_VERDICT_FAIL ||
                    (e->verdict == CPATTN_VERDICT_NONE && e->code != CPATTN_CANCELLED);
}

static uint64_t done_of(const struct cpattn_daemon_status *s)
{
    return s->passed + s->failed + s->unverified + s->errors;
}

void top_rate(struct top *t, const struct cpattn_daemon_status *s, uint64_t now_ns)
{
    int at = (int)(t->rate_count++ % TOP_RATES_MAX);
    t->rates[at].at_ns = now_ns;
    t->rates[at].done = done_of(s);
}

// Cases per second, averaged over about this time; -1: unknown.
static double rate_over(const struct top *t, uint64_t time_ns)
{
    uint64_t kept = t->rate_count < TOP_RATES_MAX ? t->rate_count : TOP_RATES_MAX;
    if (kept < 2)
        return -1;
    int last = (int)((t->rate_count - 1) % TOP_RATES_MAX), first = last;
    for (uint64_t back = 1; back < kept; back++) {
        first = (int)((t->rate_count - 1 - back) % TOP_RATES_MAX);
        if (t->rates[last].at_ns - t->rates[first].at_ns >= time_ns)
            break;
    }
    double seconds = (double)(t->rates[last].at_ns - t->rates[first].at_ns) / 1e9;
    if (seconds <= 0 || t->rates[last].done < t->rates[first].done)
        return -1; // the daemon was started again
    return (double)(t->rates[last].done - t->rates[first].done) / seconds;
}

// ---- the header --------------------------------------------------------------------------------

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void times_draw(const struct top *t, struct frame *f)
{
    uint64_t times[TOP_RECENT_MAX];
    char median[DURATION_TEXT_MAX], tenth[DURATION_TEXT_MAX];
    size_t count =
        t->recent_count < TOP_RECENT_MAX ? (size_t)t->recent_count : (size_t)TOP_RECENT_MAX;
    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++)
        times[i] = t->recent[i].total_ns;
    qsort(times, count, sizeof(times[0]), compare_times);
    frame_put(f, PAINT_PLAIN, "; last %zu: median %s, p90 %s", count,
              duration_format(times[count / 2], median, sizeof(median)),
              duration_format(times[count * 9 / 10], tenth, sizeof(tenth)));
}

static void rates_draw(const struct top *t, const struct cpattn_daemon_status *s, struct frame *f)
{
    double now = rate_over(t, NOW_NS), minute = rate_over(t, MINUTE_NS);
    frame_row(f);
    frame_put(f, PAINT_DIM, "rate   ");
    if (now >= 0)
        frame_put(f, PAINT_PLAIN, "%.3g/s now, %.3g/s over a minute, ", now, minute);
    frame_put(f, PAINT_PLAIN, "%.3g/s since the start",
              s->uptime_ns ? (double)done_of(s) / ((double)s->uptime_ns / 1e9) : 0.);
    times_draw(t, f);
}

static void hosts_draw(const struct cpattn_daemon_status *s, struct frame *f)
{
    int lost = 0;
    frame_row(f);
    frame_put(f, PAINT_DIM, "hosts  ");
    for (int i = 0; i < s->host_count; i++)
        lost += strcmp(cpattn_daemon_status_host(s, i)->state, "lost") == 0;
    frame_put(f, PAINT_PLAIN, "%d there", s->host_count - lost);
    for (int i = 0, told = 0; i < s->host_count; i++) {
        const struct cpattn_host *host = cpattn_daemon_status_host(s, i);
        if (strcmp(host->state, "lost") == 0)
            frame_put(f, PAINT_BAD, "%s%s", told++ ? ", " : "; lost: ", host->name);
    }
}

static void head_draw(const struct top *t, const struct cpattn_daemon_status *s, struct frame *f)
{
    char text[DURATION_TEXT_MAX], clock[16];
    time_t now = time(NULL);
    struct tm local;
    if (!localtime_r(&now, &local) || strftime(clock, sizeof(clock), "%H:%M:%S", &local) == 0)
        clock[0] = '\0';
    frame_row(f);
    frame_put(f, PAINT_BOLD, "cpattnd");
    frame_put(f, PAINT_PLAIN, " up %s", duration_format(s->uptime_ns, text, sizeof(text)));
    frame_put(f, PAINT_WARN, "%s%s", s->draining ? "  draining" : "", t->paused ? "  paused" : "");
    frame_put(f, PAINT_DIM, "  %s  %s", clock, t->address);
    frame_row(f);
    frame_put(f, PAINT_DIM, "cases  ");
    frame_put(f, PAINT_PLAIN, "%d running, %d queued; ", s->running, s->queued);
    frame_put(f, s->passed ? PAINT_GOOD : PAINT_PLAIN, "%" PRIu64 " passed", s->passed);
    frame_put(f, PAINT_PLAIN, ", ");
    frame_put(f, s->failed ? PAINT_BAD : PAINT_PLAIN, "%" PRIu64 " failed", s->failed);
    frame_put(f, PAINT_PLAIN, ", ");
    frame_put(f, s->errors ? PAINT_WARN : PAINT_PLAIN, "%" PRIu64 " error%s", s->errors,
              plural((long long)s->errors));
    if (s->unverified)
        frame_put(f, PAINT_PLAIN, ", %" PRIu64 " unverified", s->unverified);
    if (s->refused)
        frame_put(f, PAINT_PLAIN, ", %" PRIu64 " refused", s->refused);
    rates_draw(t, s, f);
    if (s->host_count > 0)
        hosts_draw(s, f);
    if (s->devices_out) {
        char devices[DEVICES_TEXT_MAX];
        frame_row(f);
        frame_put(f, PAINT_WARN, "drained: %s", devices_text(s->devices_out, devices));
    }
}

// ---- sections ----------------------------------------------------------------------------------

static void heading(struct frame *f, const char *title)
{
    frame_row(f);
    frame_row(f);
    frame_put(f, PAINT_BOLD, "%s", title);
}

// The heading of cases.
static void cases_heading(struct frame *f, const char *first, const char *time, const char *third)
{
    const struct layout *at = layout_of(f);
    heading(f, first);
    frame_tab(f, at->user);
    frame_put(f, PAINT_BOLD, "USER");
    frame_tab(f, at->age);
    frame_put(f, PAINT_BOLD, "%s", time);
    frame_tab(f, at->phase);
    frame_put(f, PAINT_BOLD, "%s", third);
    if (third[0])
        frame_tab(f, at->what);
    frame_put(f, PAINT_BOLD, "CASE");
}

static void user_draw(const char *user, struct frame *f)
{
    const struct layout *at = layout_of(f);
    frame_tab(f, at->user);
    frame_put(f, PAINT_PLAIN, "%.*s", at->age - at->user - 1, user);
    frame_tab(f, at->age);
}

static void rest_draw(struct frame *f, int left)
{
    if (left <= 0)
        return;
    frame_row(f);
    frame_put(f, PAINT_DIM, "  and %d more", left);
}

static enum terminal_paint state_paint(const char *state)
{
    if (strcmp(state, "down") == 0 || strcmp(state, "stuck") == 0)
        return PAINT_BAD;
    if (strcmp(state, "backoff") == 0 || strcmp(state, "stopping") == 0)
        return PAINT_WARN;
    if (strcmp(state, "cold") == 0)
        return PAINT_DIM;
    return strcmp(state, "running") == 0 ? PAINT_GOOD : PAINT_PLAIN;
}

static void pool_draw(const struct cpattn_daemon_status *s, const struct cpattn_pool *pool,
                      struct frame *f)
{
    char devices[DEVICES_TEXT_MAX], hosts[HOSTS_TEXT_MAX];
    frame_row(f);
    frame_put(f, PAINT_PLAIN, "%5d.%-3d", pool->world_size, pool->instance);
    frame_put(f, state_paint(pool->state), "%s%s", pool->state, pool->spare ? "*" : "");
    frame_tab(f, 20);
    frame_put(f, PAINT_PLAIN, "%s", devices_text(pool->devices, devices));
    frame_tab(f, 30);
    frame_put(f, PAINT_PLAIN, "%7" PRIu64 " %6" PRIu64 "  ", pool->jobs, pool->deaths);
    if (s->host_count > 0)
        frame_put(f, PAINT_PLAIN, "on %s  ", hosts_text(s, pool->hosts, hosts));
    frame_put(f, PAINT_PLAIN, "%s%s", pool->implementation,
              pool->implementation[0] && pool->last_failure[0] ? ": " : "");
    frame_put(f, PAINT_DIM, "%s", pool->last_failure);
}

static void pools_draw(const struct cpattn_daemon_status *s, int rows, struct frame *f)
{
    const struct cpattn_pool *pool;
    heading(f, "POOL      STATE     DEVICES      CASES DEATHS  LAST FAILURE");
    if (s->pool_count == 0) {
        frame_row(f);
        frame_put(f, PAINT_DIM, "  none yet: the first case of a world size starts one");
    }
    int shown = s->pool_count > rows ? rows - 1 : s->pool_count;
    for (int i = 0; i < shown && (pool = cpattn_daemon_status_pool(s, i)); i++)
        pool_draw(s, pool, f);
    rest_draw(f, s->pool_count - shown);
}

static int compare_requests(const struct top *t, const struct cpattn_open_request *a,
                            const struct cpattn_open_request *b)
{
    int order = t->sort == TOP_BY_USER    ? strcmp(a->user, b->user)
                : t->sort == TOP_BY_RANKS ? b->world_size - a->world_size
                                          : 0;
    return order ? order : (a->age_ns < b->age_ns) - (a->age_ns > b->age_ns);
}

// Lists the running or waiting cases in the chosen order. Returns their number.
static int requests_sort(const struct top *t, const struct cpattn_daemon_status *s, bool running,
                         const struct cpattn_open_request *list[64])
{
    const struct cpattn_open_request *r;
    int count = 0;
    for (int i = 0; count < 64 && (r = cpattn_daemon_status_request(s, i)); i++) {
        if (r->running != running)
            continue;
        int place = count++;
        for (; place > 0 && compare_requests(t, r, list[place - 1]) < 0; place--)
            list[place] = list[place - 1];
        list[place] = r;
    }
    return count;
}

static void request_draw(const struct top *t, const struct cpattn_open_request *r, struct frame *f)
{
    char age[DURATION_TEXT_MAX], user[TOP_USER_MAX];
    user_write(t, r->user, user);
    frame_row(f);
    frame_put(f, PAINT_PLAIN, "%5d", r->world_size);
    user_draw(user, f);
    frame_put(f, PAINT_PLAIN, "%s",
              duration_format(r->running ? r->run_ns : r->age_ns, age, sizeof(age)));
    frame_tab(f, layout_of(f)->phase);
    if (r->running && r->phase[0])
        frame_put(f, PAINT_PLAIN, "%s %d", r->phase, r->step);
    if (r->running)
        frame_tab(f, layout_of(f)->what);
    frame_put(f, PAINT_PLAIN, "%s", r->case_text[0] ? r->case_text : r->implementation);
}

// ---- ranks -------------------------------------------------------------------------------------

static const char legend[] = "p plan, i inputs, f forward, b backward, r reference, c compare";

// 'f' for "forward"; '.' for an idle rank.
static char phase_letter(const char *phase)
{
    return (char)(strcmp(phase, "idle") != 0 && strstr(legend, phase) ? phase[0] : '.');
}

// True if the rank is at the same operation as the rank that holds up the others.
static bool is_slowest(const struct cpattn_open_request *r, int rank)
{
    return r->phase[0] && strcmp(r->ranks[rank].phase, r->phase) == 0 &&
           r->ranks[rank].step == r->step;
}

// Width of a rank that is written in words.
#define RANK_COLUMNS 16

static int words_in_row(const struct frame *f)
{
    int count = (f->columns - COLUMN_RANKS) / RANK_COLUMNS;
    return count > 0 ? count : 1;
}

static void words_draw(const struct cpattn_open_request *r, struct frame *f)
{
    for (int rank = 0; rank < r->rank_count; rank++) {
        int place = rank % words_in_row(f);
        if (place == 0)
            frame_row(f);
        frame_tab(f, COLUMN_RANKS + RANK_COLUMNS * place);
        frame_put(f, PAINT_DIM, "%d ", rank);
        frame_put(f, is_slowest(r, rank) ? PAINT_WARN : PAINT_PLAIN, "%s %d", r->ranks[rank].phase,
                  r->ranks[rank].step);
    }
}

static void letters_draw(const struct cpattn_open_request *r, struct frame *f)
{
    int line = f->columns - COLUMN_RANKS >= 64 ? 64 : 32;
    for (int rank = 0; rank < r->rank_count; rank++) {
        if (rank % line == 0) {
            frame_row(f);
            frame_put(f, PAINT_DIM, "%8d", rank);
            frame_tab(f, COLUMN_RANKS);
        }
        char letter = phase_letter(r->ranks[rank].phase);
        frame_put(f,
                  is_slowest(r, rank) ? PAINT_WARN
                  : letter == '.'     ? PAINT_DIM
                                      : PAINT_PLAIN,
                  "%c", letter);
    }
    if (f->columns >= 150)
        frame_put(f, PAINT_DIM, "  %s", legend);
}

static int rank_rows(const struct cpattn_open_request *r, const struct frame *f)
{
    if (r->rank_count > 8)
        return f->columns - COLUMN_RANKS >= 64 ? 1 : (r->rank_count + 31) / 32;
    return (r->rank_count + words_in_row(f) - 1) / words_in_row(f);
}

static void running_draw(const struct top *t, const struct cpattn_daemon_status *s, int rows,
                         struct frame *f)
{
    const struct cpattn_open_request *list[64];
    int count = requests_sort(t, s, true, list), shown = 0;
    cases_heading(f, "RANKS", "RUNS", "SLOWEST RANK");
    if (count == 0) {
        frame_row(f);
        frame_put(f, PAINT_DIM, "  nothing runs");
    }
    for (; shown < count && rows > 1; shown++) {
        const struct cpattn_open_request *r = list[shown];
        request_draw(t, r, f);
        rows -= 1 + rank_rows(r, f);
        if (r->rank_count > 0 && rows >= 0)
            (r->rank_count > 8 ? letters_draw : words_draw)(r, f);
    }
    rest_draw(f, s->running - shown);
}

static void queue_draw(const struct top *t, const struct cpattn_daemon_status *s, int rows,
                       struct frame *f)
{
    const struct cpattn_open_request *list[64];
    int count = requests_sort(t, s, false, list);
    int shown = count > rows ? rows - 1 : count;
    if (count == 0)
        return;
    cases_heading(f, "RANKS", "WAITS", "");
    for (int i = 0; i < shown; i++)
        request_draw(t, list[i], f);
    rest_draw(f, s->queued - shown);
}

static int compare_users(const void *a, const void *b)
{
    const struct top_user *x = a, *y = b;
    int now = (y->running + y->queued) - (x->running + x->queued);
    if (now)
        return now;
    return x->finished == y->finished ? strcmp(x->name, y->name)
                                      : (x->finished < y->finished) - (x->finished > y->finished);
}

static void users_draw(struct top *t, int rows, struct frame *f)
{
    if (t->user_count == 0)
        return;
    qsort(t->users, (size_t)t->user_count, sizeof(t->users[0]), compare_users);
    heading(f, "USER                 RUNNING  QUEUED  FINISHED  FAILED");
    int shown = t->user_count > rows ? rows - 1 : t->user_count;
    for (int i = 0; i < shown; i++) {
        const struct top_user *user = &t->users[i];
        frame_row(f);
        frame_put(f, PAINT_PLAIN, "%-20.20s %7d %7d %9" PRIu64, user->name, user->running,
                  user->queued, user->finished);
        frame_put(f, user->failed ? PAINT_BAD : PAINT_PLAIN, " %7" PRIu64, user->failed);
    }
    rest_draw(f, t->user_count - shown);
}

static void recent_draw(const struct top *t, int rows, struct frame *f)
{
    uint64_t kept = t->recent_count < TOP_RECENT_MAX ? t->recent_count : TOP_RECENT_MAX;
    if (kept == 0)
        return;
    cases_heading(f, "ENDED", "TOOK", "VERDICT");
    for (uint64_t back = 1; back <= kept && rows > 0; back++, rows--) {
        int at = (int)((t->recent_count - back) % TOP_RECENT_MAX);
        const struct cpattn_event event = {.time_ns = t->recent[at].time_ns};
        char time[EVENT_TIME_MAX], took[DURATION_TEXT_MAX];
        frame_row(f);
        frame_put(f, PAINT_PLAIN, "%.*s", f->columns < 72 ? 5 : 8, event_time(&event, time));
        user_draw(t->recent[at].user, f);
        frame_put(f, PAINT_PLAIN, "%s",
                  duration_format(t->recent[at].total_ns, took, sizeof(took)));
        frame_tab(f, layout_of(f)->phase);
        frame_put(f, t->recent[at].paint, "%.12s", t->recent[at].outcome);
        frame_tab(f, layout_of(f)->what);
        frame_put(f, PAINT_PLAIN, "%s", t->recent[at].what);
    }
}

// `scroll`: which rows are shown, or which key shows all of them.
static void keys_draw(const struct top *t, const char *scroll, struct frame *f)
{
    static const char *const sorts[] = {"age", "user", "ranks"};
    while (f->rows < f->rows_max - 1)
        frame_row(f);
    f->rows = f->rows_max > 0 ? f->rows_max - 1 : 0;
    frame_row(f);
    frame_put(f, PAINT_DIM, "q quit   by: a age, u user, w ranks [%s]   p pause   %s",
              sorts[t->sort], scroll);
}

// `fills`: the last section takes all remaining rows but `below`.
static void sections_draw(struct top *t, const struct cpattn_daemon_status *s, bool fills,
                          int below, struct frame *f)
{
    int rows = f->rows_max;
    if (t->trouble[0]) {
        frame_row(f);
        frame_put(f, PAINT_BAD, "%s", t->trouble);
    }
    if (!s)
        return;
    users_count(t, s);
    head_draw(t, s, f);
    pools_draw(s, rows / 5 > 2 ? rows / 5 : 2, f);
    running_draw(t, s, rows / 3 > 3 ? rows / 3 : 3, f);
    queue_draw(t, s, rows / 6 > 2 ? rows / 6 : 2, f);
    users_draw(t, rows / 8 > 2 ? rows / 8 : 2, f);
    int left = rows - f->rows - 2 - below;
    recent_draw(t, left < 0 ? 0 : fills || left < 20 ? left : 20, f);
}

// Makes all rows, and keeps those from t->scroll on.
static void scrolled_draw(struct top *t, const struct cpattn_daemon_status *s, struct frame *f)
{
    char scroll[48];
    int screen = f->rows_max, room = screen > 1 ? screen - 1 : 1;
    f->rows_max = FRAME_ROWS_MAX;
    sections_draw(t, s, true, 0, f);
    int rows = f->rows < f->rows_max ? f->rows : f->rows_max;
    int last = rows > room ? rows - room : 0;
    t->scroll = t->scroll < last ? t->scroll : last;
    frame_cut(f, t->scroll, room);
    f->rows_max = screen;
    snprintf(scroll, sizeof(scroll), "rows %d-%d of %d", t->scroll + 1, t->scroll + f->rows, rows);
    keys_draw(t, scroll, f);
}

void top_draw(struct top *t, const struct cpattn_daemon_status *s, bool keys, struct frame *f)
{
    if (keys && t->scroll > 0) {
        scrolled_draw(t, s, f);
        return;
    }
    sections_draw(t, s, keys, keys, f);
    if (keys)
        keys_draw(t, "arrows: all rows", f);
}
