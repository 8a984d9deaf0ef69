// SPDX-License-Identifier: Apache-2.0
// cpattn-submit top: the daemon's work, updated on the whole screen, or printed once.
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cpattn_watch.h"
#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
#include "client/submit/show/screen.h"
#include "client/submit/show/top.h"
#include "common/net_url.h"

#define RECENT       1024
#define INTERVAL_NS  UINT64_C(1000000000)
#define COLUMNS_MIN  40
// Longest wait for a key. Interrupts are noticed, and the picture is updated, between two waits.
#define KEY_WAIT_MS  100
// Maximum number of rows that --once prints.
#define ROWS_OF_ONCE 200
// How long the daemon may take to answer.
#define ANSWER_NS    UINT64_C(2000000000)

struct top_options {
    const char *socket;
    bool once;
    uint64_t interval_ns; // 0: not given
    int columns;          // 0: those of the terminal
    enum top_sort sort;
};

enum { KEY_SOCKET = 0x100, KEY_ONCE, KEY_INTERVAL, KEY_COLUMNS, KEY_SORT };

static const struct argp_option table[] = {
    {"once", KEY_ONCE, NULL, 0, "print one picture and exit; for scripts", 1},
    {"interval", KEY_INTERVAL, "TIME", 0, "time between two updates [1s]", 1},
    {"sort", KEY_SORT, "WORD", 0, "order of cases: age, user or ranks [age]", 1},
    {"columns", KEY_COLUMNS, "N", 0, "with --once: width of the picture, 40 to 512", 1},
    {"socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 2},
    {.name = NULL}};

static const char *const sorts[] = {"age", "user", "ranks"};

static error_t sort_take(struct top_options *o, const char *word)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(word, sorts[i]) == 0) {
            o->sort = (enum top_sort)i;
            return 0;
        }
    command_complain("--sort is '%.40s'; accepted is age, user or ranks", word);
    return EINVAL;
}

// Complains about options that have no effect.
static error_t vain_check(const struct top_options *o)
{
    const struct options_vain list[] = {
        {o->columns && !o->once, "columns", "requires --once: the screen has its own width"},
        {o->interval_ns && o->once, "interval",
         "does not go with --once, which prints one picture"},
        {.option = NULL}};
    return options_vain_check(list) ? EINVAL : 0;
}

static error_t parse_top(int key, char *value, struct argp_state *state)
{
    struct top_options *o = state->input;
    switch (key) {
    case KEY_ONCE:
        o->once = true;
        return 0;
    case KEY_INTERVAL:
        return options_duration("interval", value, &o->interval_ns);
    case KEY_SORT:
        return sort_take(o, value);
    case KEY_COLUMNS:
        return options_count("columns", value, COLUMNS_MIN, FRAME_COLUMNS_MAX, &o->columns);
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(state, value);
    case ARGP_KEY_END:
        return vain_check(o);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct look {
    const struct top_options *options;
    struct cpattn_client *client;
    struct cpattn_watch *watch;
    struct cpattn_daemon_status *status; // the last, or NULL
    struct top top;
    struct frame frame;
};

// Asks the daemon for its status and its new events. An error is shown above the last picture.
static enum cpattn_status look(struct look *l)
{
    const struct cpattn_event *event = NULL;
    struct cpattn_error error;
    struct cpattn_daemon_status *status;
    enum cpattn_status outcome = cpattn_query_status(l->client, ANSWER_NS, &status, &error);
    if (outcome == CPATTN_OK) {
        cpattn_daemon_status_destroy(l->status);
        l->status = status;
        top_rate(&l->top, status, command_now_ns());
    }
    while (outcome == CPATTN_OK) {
        outcome = cpattn_watch_next(l->watch, 0, &event, &error);
        if (outcome != CPATTN_OK || !event)
            break;
        top_event(&l->top, event);
    }
    snprintf(l->top.trouble, sizeof(l->top.trouble), "%s", outcome == CPATTN_OK ? "" : error.text);
    return outcome;
}

static void scroll_take(struct look *l, int key)
{
    int page = l->frame.rows_max > 2 ? l->frame.rows_max - 2 : 1, scroll = l->top.scroll;
    switch (key) {
    case SCREEN_UP:
        scroll--;
        break;
    case SCREEN_DOWN:
        scroll++;
        break;
    case SCREEN_PAGE_UP:
        scroll -= page;
        break;
    case SCREEN_PAGE_DOWN:
        scroll += page;
        break;
    case SCREEN_HOME:
        scroll = 0;
        break;
    case SCREEN_END:
        scroll = FRAME_ROWS_MAX;
        break;
    default:
        break;
    }
    l->top.scroll = scroll > 0 ? scroll : 0;
}

static void key_take(struct look *l, int key, bool *again, bool *end)
{
    *end = key == 'q' || key == 'Q';
    *again = key != 0;
    if (key == 'a')
        l->top.sort = TOP_BY_AGE;
    if (key == 'u')
        l->top.sort = TOP_BY_USER;
    if (key == 'w')
        l->top.sort = TOP_BY_RANKS;
    if (key == 'p')
        l->top.paused = !l->top.paused;
    scroll_take(l, key);
}

static int run_screen(struct look *l)
{
    uint64_t interval_ns = l->options->interval_ns ? l->options->interval_ns : INTERVAL_NS;
    uint64_t next_ns = 0;
    bool again = true, end = false;
    const char *why = screen_open();
    if (why) {
        command_complain("%s", why);
        return command_exit(STATUS_FAILED_PRECONDITION);
    }
    while (!end && !command_interrupted()) {
        if (command_now_ns() >= next_ns && !l->top.paused) {
            look(l);
            next_ns = command_now_ns() + interval_ns;
            again = true;
        }
        if (again) {
            int columns, rows;
            screen_size(&columns, &rows);
            frame_begin(&l->frame, columns, rows);
            top_draw(&l->top, l->status, true, &l->frame);
            screen_draw(&l->frame);
        }
        key_take(l, screen_key(KEY_WAIT_MS), &again, &end);
    }
    screen_close();
    return COMMAND_PASS;
}

static int run_once(struct look *l)
{
    enum cpattn_status outcome = look(l);
    if (outcome != CPATTN_OK) {
        command_complain("%s", l->top.trouble);
        return command_exit((enum status)outcome);
    }
    frame_begin(&l->frame, l->options->columns ? l->options->columns : terminal_columns(stdout),
                ROWS_OF_ONCE);
    top_draw(&l->top, l->status, false, &l->frame);
    frame_print(&l->frame, stdout, terminal_colours(stdout));
    return COMMAND_PASS;
}

static int top_run(const struct top_options *o, struct cpattn_client *client)
{
    struct cpattn_error error;
    struct look *l = calloc(1, sizeof(*l));
    int exit_status;
    if (!l)
        return command_show_failed("the picture");
    l->options = o;
    l->client = client;
    l->top.sort = o->sort;
    l->top.local = !net_url_is_meant(cpattn_client_socket(client));
    snprintf(l->top.address, sizeof(l->top.address), "%s", cpattn_client_socket(client));
    if (cpattn_watch_create(client, 1 << CPATTN_EVENT_FINISHED, RECENT, &l->watch, &error) !=
        CPATTN_OK)
        exit_status = command_failed(&error);
    else
        exit_status = o->once ? run_once(l) : run_screen(l);
    cpattn_watch_destroy(l->watch);
    cpattn_daemon_status_destroy(l->status);
    free(l);
    return exit_status;
}

int command_top(int argc, char **argv)
{
    static const struct argp_child access[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};
    static const struct argp argp = {
        .options = table,
        .parser = parse_top,
        .children = access,
        .doc = "Shows the daemon's state on the whole screen: pools, cases with the phase and step "
               "of each rank, the queue, users, rates, recent verdicts.\vKeys: q quits; a, u and w "
               "sort cases by age, user and ranks; p pauses; the arrow keys, page up, page down, "
               "home and end scroll through all rows.\n\nExamples:\n"
               "  cpattn-submit top\n"
               "  cpattn-submit top --once --columns 120"};
    struct top_options o = {.socket = NULL};
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    command_catch_interrupts();
    exit_status = top_run(&o, client);
    cpattn_client_destroy(client);
    return exit_status;
}
