// SPDX-License-Identifier: Apache-2.0
// cpattn-submit watch: prints the daemon's events, one line each.
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cpattn_watch.h"
#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
#include "client/submit/show/event_line.h"
#include "client/submit/write/json.h"
#include "common/nearest.h"
#include "common/plural.h"

#define LAST_DEFAULT 20
#define LAST_MAX     1024
// The longest wait before the command looks for an interrupt, and the pause between two attempts to
// reach a daemon that went away.
#define WAIT_NS      UINT64_C(250000000)

struct watch_options {
    const char *socket;
    bool json, follow;
    int last; // -1: not given
    uint64_t kinds;
    const char *user; // as given; NULL: events of all users
    char uid[32];     // "uid=1000", or ""
};

enum { KEY_SOCKET = 0x100, KEY_JSON, KEY_KIND, KEY_LAST, KEY_USER };

static const struct argp_option table[] = {
    {"follow", 'f', NULL, 0, "continue with new events until Ctrl-C", 1},
    {"last", KEY_LAST, "N", 0, "begin with the last N events, 0 to 1024 [20]", 1},
    {"kind", KEY_KIND, "WORD", 0,
     "only events of this kind, several with commas: admitted, started, finished, pool, device or "
     "daemon",
     2},
    {"user", KEY_USER, "USER", 0,
     "only cases of this user: a name, a number, or a part of the user in `status`", 2},
    {"json", KEY_JSON, NULL, 0, "print a JSON object for each event", 3},
    {"socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 3},
    {.name = NULL}};

static error_t kind_take(struct watch_options *o, const char *word, size_t length)
{
    char hint[NEAREST_WORD_MAX + 32], given[64];
    struct nearest nearest;
    snprintf(given, sizeof(given), "%.*s", length < 40 ? (int)length : 40, word);
    nearest_init(&nearest, given);
    for (int kind = CPATTN_EVENT_ADMITTED; kind <= CPATTN_EVENT_DAEMON; kind++) {
        const char *name = cpattn_event_kind_name((enum cpattn_event_kind)kind);
        nearest_offer(&nearest, name);
        if (strcmp(name, given) == 0) {
            o->kinds |= UINT64_C(1) << kind;
            return 0;
        }
    }
    command_complain("--kind is '%s'; accepted is admitted, started, finished, pool, device or "
                     "daemon%s",
                     given, nearest_hint(&nearest, hint, sizeof(hint)));
    return EINVAL;
}

static error_t kinds_take(struct watch_options *o, const char *words)
{
    for (;; words++) {
        size_t length = strcspn(words, ",");
        error_t error = kind_take(o, words, length);
        if (error || !words[length])
            return error;
        words += length;
    }
}

// Stores the user to show. A number, or the name of a user of this machine, selects the events of
// that uid; another text selects events whose user contains it.
static void user_take(struct watch_options *o, const char *user)
{
    char *end;
    unsigned long uid = strtoul(user, &end, 10);
    const struct passwd *entry = getpwnam(user);
    o->user = user;
    if (*user && !*end)
        snprintf(o->uid, sizeof(o->uid), "uid=%lu", uid);
    else if (entry)
        snprintf(o->uid, sizeof(o->uid), "uid=%lu", (unsigned long)entry->pw_uid);
}

static error_t parse_watch(int key, char *value, struct argp_state *state)
{
    struct watch_options *o = state->input;
    switch (key) {
    case 'f':
        o->follow = true;
        return 0;
    case KEY_LAST:
        return options_count("last", value, 0, LAST_MAX, &o->last);
    case KEY_KIND:
        return kinds_take(o, value);
    case KEY_USER:
        user_take(o, value);
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(state, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bool is_of_user(const struct watch_options *o, const struct cpattn_event *event)
{
    if (!o->user)
        return true;
    if (!o->uid[0])
        return strstr(event->user, o->user) != NULL;
    size_t length = strlen(o->uid);
    return strncmp(event->user, o->uid, length) == 0 &&
           (event->user[length] == ' ' || event->user[length] == '\0');
}

static void print_event(const struct cpattn_event *event)
{
    char line[EVENT_LINE_MAX], time[EVENT_TIME_MAX];
    bool colours = terminal_colours(stdout);
    if (event->restarted)
        puts("the daemon was started again");
    if (event->lost > 0)
        printf("%" PRIu64 " event%s lost\n", event->lost, plural(event->lost));
    printf("%s %s%s%s\n", event_time(event, time), terminal_paint(colours, event_paint(event)),
           event_line(event, line), terminal_unpaint(colours));
}

// What the next shown event has to tell of the events before it.
struct notices {
    uint64_t lost;
    bool restarted;
};

// Prints an event, unless it is of another user; its notices are then kept for the next one. False
// after an error of stdout, which ends the command.
static bool show(const struct watch_options *o, const struct cpattn_event *event,
                 struct notices *notices)
{
    struct cpattn_event shown = *event;
    shown.lost += notices->lost;
    shown.restarted |= notices->restarted;
    *notices = (struct notices){shown.lost, shown.restarted};
    if (!is_of_user(o, event))
        return true;
    *notices = (struct notices){0, false};
    if (o->json)
        return json_event(stdout, &shown);
    print_event(&shown);
    return fflush(stdout) == 0;
}

// Waits a moment for a daemon that went away; says so the first time.
static void await_daemon(const struct cpattn_error *error, bool *lost)
{
    static const struct timespec pause = {.tv_nsec = (long)WAIT_NS};
    if (!*lost)
        command_complain("%s; waiting for a daemon", error->text);
    *lost = true;
    nanosleep(&pause, NULL);
}

static int watch_run(const struct watch_options *o, struct cpattn_watch *watch)
{
    const struct cpattn_event *event;
    struct cpattn_error error;
    struct notices notices = {0, false};
    bool lost = false;
    while (!command_interrupted()) {
        enum cpattn_status status =
            cpattn_watch_next(watch, o->follow ? WAIT_NS : 0, &event, &error);
        if (status == CPATTN_UNAVAILABLE && o->follow) {
            await_daemon(&error, &lost);
            continue;
        }
        if (status != CPATTN_OK)
            return command_failed(&error);
        lost = false;
        if (event && !show(o, event, &notices))
            return command_show_failed("the events");
        if (!event && !o->follow)
            break;
    }
    return COMMAND_PASS;
}

int command_watch(int argc, char **argv)
{
    static const struct argp_child access[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};
    static const struct argp argp = {
        .options = table,
        .parser = parse_watch,
        .children = access,
        .doc = "Shows events of cases, pools and devices at the daemon, one line each."
               "\vExamples:\n"
               "  cpattn-submit watch --follow\n"
               "  cpattn-submit watch --kind finished,pool --user alice --json"};
    struct watch_options o = {.last = LAST_DEFAULT};
    struct cpattn_watch *watch = NULL;
    struct cpattn_error error;
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    command_catch_interrupts();
    if (cpattn_watch_create(client, o.kinds, o.last, &watch, &error) == CPATTN_OK)
        exit_status = watch_run(&o, watch);
    else
        exit_status = command_failed(&error);
    cpattn_watch_destroy(watch);
    cpattn_client_destroy(client);
    return exit_status;
}
