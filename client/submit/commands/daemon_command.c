// SPDX-License-Identifier: Apache-2.0
// cpattn-submit describe, status, cancel and version: requests about the daemon itself.
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
#include "client/submit/show/event_line.h"
#include "client/submit/show/support.h"
#include "client/submit/show/table.h"
#include "client/submit/write/json.h"
#include "common/duration.h"
#include "common/plural.h"
#include "common/size.h"

struct daemon_options {
    const char *socket, *id;
    bool json, check;
};

enum { KEY_SOCKET = 1, KEY_JSON, KEY_CHECK };

#define OPTION_SOCKET                                                                              \
    {                                                                                              \
        "socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 1                                    \
    }
#define OPTION_JSON                                                                                \
    {                                                                                              \
        "json", KEY_JSON, NULL, 0, "print a JSON object", 2                                        \
    }

static const struct argp_option query_table[] = {OPTION_SOCKET, OPTION_JSON, {.name = NULL}};
static const struct argp_option status_table[] = {
    OPTION_SOCKET,
    OPTION_JSON,
    {"check", KEY_CHECK, NULL, 0,
     "exit with 1 if the daemon drains, a host is lost, a pool is DOWN or STUCK, or no device is "
     "in use",
     3},
    {.name = NULL}};
static const struct argp_option socket_table[] = {OPTION_SOCKET, {.name = NULL}};

static const struct argp_child access_child[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct daemon_options *o = state->input;
    switch (key) {
    case KEY_CHECK:
        o->check = true;
        return 0;
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(state, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// ---- describe ---------------------------------------------------------------------------------

// "1, 2, 4-8", or "any number of" if all sizes are supported.
static void sizes_print(uint64_t sizes)
{
    bool more = false;
    for (int first = 1; first <= 64 && sizes != UINT64_MAX; first++) {
        int last = first;
        if (!(sizes >> (first - 1) & 1))
            continue;
        while (last < 64 && sizes >> last & 1)
            last++;
        printf(last > first ? "%s%d-%d" : "%s%d", more ? ", " : "", first, last);
        more = true;
        first = last;
    }
    printf("%s", sizes == UINT64_MAX ? "any number of" : "");
}

static void guests_print(const struct cpattn_description *d)
{
    const struct cpattn_implementation *guest;
    for (int i = 0; (guest = cpattn_description_guest(d, i)); i++) {
        printf("guest          %s: ", guest->name);
        sizes_print(guest->world_sizes);
        printf(" rank%s%s%s\n", guest->world_sizes == 1 ? "" : "s", guest->supports[0] ? "; " : "",
               guest->supports);
    }
}

static void print_provider(const struct cpattn_provider_entry *p)
{
    bool troubled = p->trouble[0];
    printf("provider       %s: %s%s%s\n", p->name, p->file,
           troubled      ? " could not be opened: "
           : p->about[0] ? ", "
                         : "",
           troubled ? p->trouble : p->about);
}

static void print_description(const struct cpattn_client *client,
                              const struct cpattn_description *d)
{
    char usual[DURATION_TEXT_MAX], most[DURATION_TEXT_MAX], memory[SIZE_TEXT_MAX];
    const struct cpattn_gpu *gpu;
    const struct cpattn_provider_entry *provider;
    printf("cpattnd %s at %s\n", d->version, cpattn_client_socket((struct cpattn_client *)client));
    printf("backend        %s, %d %s%s\n", d->backend, d->devices,
           d->gpu_count > 0 ? "GPU" : "device", plural(d->devices));
    for (int i = 0; (gpu = cpattn_description_gpu(d, i)); i++)
        printf("GPU %-10d %s, %s, %.1f GiB\n", gpu->index, gpu->name, gpu->arch,
               (double)gpu->memory_bytes / (1 << 30));
    printf("world sizes    1 to %d\n", d->world_size_max);
    guests_print(d);
    printf("memory         up to %s for all running cases together\n",
           size_format(d->memory_bytes_max, memory));
    printf("time limit     %s by default, %s at most\n",
           duration_format(d->timeout_default_ns, usual, sizeof(usual)),
           duration_format(d->timeout_max_ns, most, sizeof(most)));
    printf("queue          %d case%s\n", d->queue_max, plural(d->queue_max));
    for (int i = 0; (provider = cpattn_description_provider(d, i)); i++)
        print_provider(provider);
    putchar('\n');
    support_print(stdout);
}

int command_describe(int argc, char **argv)
{
    static const struct argp argp = {
        .options = query_table,
        .parser = parse_option,
        .children = access_child,
        .doc = "Shows the daemon's version, devices and limits, and the cases that it "
               "accepts."
               "\vExample:\n"
               "  cpattn-submit describe"};
    struct daemon_options o = {.socket = NULL};
    struct cpattn_description *description = NULL;
    struct cpattn_error error;
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    if (cpattn_describe(client, 0, &description, &error) != CPATTN_OK)
        exit_status = command_failed(&error);
    else if (o.json)
        exit_status = command_json_exit(json_description(stdout, description));
    else
        print_description(client, description);
    cpattn_description_destroy(description);
    cpattn_client_destroy(client);
    return exit_status;
}

// ---- status -----------------------------------------------------------------------------------

static enum terminal_paint state_paint(const char *state)
{
    if (strcmp(state, "down") == 0 || strcmp(state, "stuck") == 0)
        return PAINT_BAD;
    if (strcmp(state, "backoff") == 0)
        return PAINT_WARN;
    return strcmp(state, "running") == 0 ? PAINT_GOOD : PAINT_PLAIN;
}

static void print_pools(const struct cpattn_daemon_status *s)
{
    char hosts[HOSTS_TEXT_MAX];
    const struct cpattn_pool *pool;
    char devices[DEVICES_TEXT_MAX];
    putchar('\n');
    struct table *table = table_create(stdout, "IMPLEMENTATION >WORLD_SIZE >INSTANCE DEVICES STATE "
                                               "SPARE >STARTED >JOBS >DEATHS EXCHANGE "
                                               "LAST_FAILURE");
    for (int i = 0; (pool = cpattn_daemon_status_pool(s, i)); i++) {
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s",
                   pool->implementation[0] ? pool->implementation : "cpattn");
        table_cell(table, PAINT_PLAIN, "%d", pool->world_size);
        table_cell(table, PAINT_PLAIN, "%d", pool->instance);
        table_cell(table, PAINT_PLAIN, "%s%s%s", devices_text(pool->devices, devices),
                   s->host_count > 0 ? " of " : "", hosts_text(s, pool->hosts, hosts));
        table_cell(table, state_paint(pool->state), "%s", pool->state);
        table_cell(table, PAINT_PLAIN, "%s", pool->spare ? "yes" : "-");
        table_cell(table, PAINT_PLAIN, "%u", pool->generation);
        table_cell(table, PAINT_PLAIN, "%" PRIu64, pool->jobs);
        table_cell(table, PAINT_PLAIN, "%" PRIu64, pool->deaths);
        table_cell(table, PAINT_PLAIN, "%s", pool->exchange[0] ? pool->exchange : "-");
        table_cell(table, PAINT_PLAIN, "%s", pool->last_failure[0] ? pool->last_failure : "-");
    }
    table_print(table, "");
    table_destroy(table);
}

static void age_cell(struct table *table, uint64_t ns)
{
    char text[DURATION_TEXT_MAX];
    table_cell(table, PAINT_PLAIN, "%s", duration_format(ns, text, sizeof(text)));
}

static void print_requests(const struct cpattn_daemon_status *s)
{
    const struct cpattn_open_request *r;
    putchar('\n');
    struct table *table = table_create(stdout, "REQUEST STATE >AGE >RUNS PHASE USER CASE");
    for (int i = 0; (r = cpattn_daemon_status_request(s, i)); i++) {
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", r->id[0] ? r->id : "-");
        table_cell(table, PAINT_PLAIN, "%s", r->running ? "running" : "waiting");
        age_cell(table, r->age_ns);
        if (r->running)
            age_cell(table, r->run_ns);
        else
            table_cell(table, PAINT_PLAIN, "-");
        if (r->phase[0])
            table_cell(table, PAINT_PLAIN, "%s %d", r->phase, r->step);
        else
            table_cell(table, PAINT_PLAIN, "-");
        table_cell(table, PAINT_PLAIN, "%s", r->user);
        table_cell(table, PAINT_PLAIN, "%s%s%s", r->implementation, r->implementation[0] ? " " : "",
                   r->case_text[0] ? r->case_text : "-");
    }
    table_print(table, "");
    table_destroy(table);
    if (s->request_count < s->running + s->queued)
        printf("and %d more\n", s->running + s->queued - s->request_count);
}

static void print_devices_out(uint64_t devices)
{
    printf("out of use by order:");
    for (int device = 0; device < 64; device++)
        if (devices >> device & 1)
            printf(" %d", device);
    printf("; cpattn-submit enable uses them again\n");
}

static void print_lag(const struct cpattn_daemon_status *s)
{
    char longest[DURATION_TEXT_MAX], p99[DURATION_TEXT_MAX];
    printf("the loop was busy for %s at most, 99 %% of its rounds for %s or less\n",
           duration_format(s->loop_lag_max_ns, longest, sizeof(longest)),
           duration_format(s->loop_lag_p99_ns, p99, sizeof(p99)));
}

static void print_hosts(const struct cpattn_daemon_status *s)
{
    struct table *table = table_create(stdout, "HOST STATE >DEVICES DRAINED STUCK");
    char drained[DEVICES_TEXT_MAX], stuck[DEVICES_TEXT_MAX];
    for (int i = 0; i < s->host_count; i++) {
        const struct cpattn_host *host = cpattn_daemon_status_host(s, i);
        bool lost = strcmp(host->state, "lost") == 0;
        table_row(table);
        table_cell(table, PAINT_PLAIN, "%s", host->name);
        table_cell(table, lost ? PAINT_BAD : PAINT_PLAIN, "%s", host->state);
        table_cell(table, PAINT_PLAIN, "%d", host->devices);
        table_cell(table, host->devices_out ? PAINT_WARN : PAINT_PLAIN, "%s",
                   devices_text(host->devices_out, drained));
        table_cell(table, host->devices_stuck ? PAINT_BAD : PAINT_PLAIN, "%s",
                   devices_text(host->devices_stuck, stuck));
    }
    table_print(table, "");
    table_destroy(table);
}

// True if an administrator has taken every device out of use. The status has the number of devices
// of each of several hosts; that of a single host is in the description.
static bool devices_are_out(struct cpattn_client *client, const struct cpattn_daemon_status *s)
{
    struct cpattn_description *description;
    for (int i = 0; i < s->host_count; i++) {
        const struct cpattn_host *host = cpattn_daemon_status_host(s, i);
        if (__builtin_popcountll(host->devices_out) < host->devices)
            return false;
    }
    if (s->host_count > 0 || s->devices_out == 0 ||
        cpattn_describe(client, 0, &description, NULL) != CPATTN_OK)
        return s->host_count > 0;
    bool out = __builtin_popcountll(s->devices_out) >= description->devices;
    cpattn_description_destroy(description);
    return out;
}

// True if monitors should report the daemon: it accepts no new cases, or cannot run some.
static bool status_is_bad(struct cpattn_client *client, const struct cpattn_daemon_status *s)
{
    bool bad = s->draining || devices_are_out(client, s);
    for (int i = 0; i < s->host_count; i++)
        bad = bad || strcmp(cpattn_daemon_status_host(s, i)->state, "lost") == 0;
    for (int i = 0; i < s->pool_count; i++) {
        const char *state = cpattn_daemon_status_pool(s, i)->state;
        bad = bad || strcmp(state, "down") == 0 || strcmp(state, "stuck") == 0;
    }
    return bad;
}

static void print_status(const struct cpattn_daemon_status *s)
{
    char uptime[DURATION_TEXT_MAX];
    printf("up %s%s; %d running, %d queued\n",
           duration_format(s->uptime_ns, uptime, sizeof(uptime)),
           s->draining ? ", draining: no new cases" : "", s->running, s->queued);
    printf("%" PRIu64 " case%s admitted: %" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64
           " unverified, %" PRIu64 " did not come to %s end; %" PRIu64 " refused\n",
           s->admitted, plural(s->admitted), s->passed, s->failed, s->unverified, s->errors,
           s->errors == 1 ? "its" : "their", s->refused);
    if (s->loop_lag_max_ns)
        print_lag(s);
    if (s->devices_out)
        print_devices_out(s->devices_out);
    if (s->host_count > 0)
        print_hosts(s);
    if (s->pool_count == 0)
        printf("no pool yet: the first case of a world size starts one\n");
    else
        print_pools(s);
    if (s->request_count > 0)
        print_requests(s);
}

int command_status(int argc, char **argv)
{
    static const struct argp argp = {
        .options = status_table,
        .parser = parse_option,
        .children = access_child,
        .doc = "Shows the state of the daemon: cases, pools of rank processes, counters "
               "since its start."
               "\vExample:\n"
               "  cpattn-submit status"};
    struct daemon_options o = {.socket = NULL};
    struct cpattn_daemon_status *status = NULL;
    struct cpattn_error error;
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    if (cpattn_query_status(client, 0, &status, &error) != CPATTN_OK)
        exit_status = command_failed(&error);
    else if (o.json)
        exit_status = command_json_exit(json_status(stdout, status));
    else
        print_status(status);
    if (exit_status == 0 && o.check && status_is_bad(client, status))
        exit_status = 1;
    cpattn_daemon_status_destroy(status);
    cpattn_client_destroy(client);
    return exit_status;
}

// ---- cancel -----------------------------------------------------------------------------------

static error_t parse_cancel(int key, char *value, struct argp_state *state)
{
    struct daemon_options *o = state->input;
    if (key == ARGP_KEY_ARG && !o->id) {
        o->id = value;
        return 0;
    }
    if (key != ARGP_KEY_END || o->id)
        return parse_option(key, value, state);
    command_complain("the id of a request is missing; see %s --help", state->name);
    return EINVAL;
}

int command_cancel(int argc, char **argv)
{
    static const struct argp argp = {
        .options = socket_table,
        .parser = parse_cancel,
        .children = access_child,
        .args_doc = "ID",
        .doc = "Cancels a request by its id, 32 hexadecimal digits. The daemon logs the id, and "
               "`case` shows it while it waits. Users cancel their own requests; the daemon's "
               "user and root cancel those of any user."
               "\vExample:\n"
               "  cpattn-submit cancel 0123456789abcdef0123456789abcdef"};
    struct daemon_options o = {.socket = NULL};
    struct cpattn_error error;
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    if (cpattn_cancel_id(client, o.id, 0, &error) != CPATTN_OK)
        exit_status = command_failed(&error);
    cpattn_client_destroy(client);
    return exit_status;
}

// ---- version ----------------------------------------------------------------------------------

int command_version(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse_option,
                                     .doc = "Prints the version of the command and its library."};
    struct daemon_options o = {.socket = NULL};
    int exit_status = options_parse(&argp, argc, argv, &o);
    if (!exit_status)
        printf("cpattn-submit %s\n", cpattn_version());
    return exit_status;
}
