// SPDX-License-Identifier: Apache-2.0
// cpattn-submit drain, enable, unpoison and reload: orders of an administrator.
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cpattn_watch.h"
#include "client/submit/commands/command.h"
#include "client/submit/commands/options.h"
#include "common/plural.h"

#define KEY_SOCKET 0x100
// The daemon may look up users in a slow directory.
#define RELOAD_NS  (UINT64_C(30) * 1000000000)

struct order_options {
    const char *socket;
    bool wants_device, has_device;
    int device;
    const char *host; // [host_bytes], of the device
    int host_bytes;   // 0: the daemon's own host
};

// Reads a device: "3", or "node2:3" for a device of another host.
static error_t device_take(struct order_options *o, const char *text)
{
    char *end;
    const char *colon = strrchr(text, ':'), *number = colon ? colon + 1 : text;
    errno = 0;
    long device = strtol(number, &end, 10);
    if (colon == text || end == number || *end || errno != 0 || device < 0 || device > 63) {
        command_complain("device is '%s'; expected the number of a GPU or core, 0 to 63, or "
                         "HOST:NUMBER for another host",
                         text);
        return EINVAL;
    }
    o->device = (int)device;
    o->has_device = true;
    o->host_bytes = colon ? (int)(colon - text) : 0;
    o->host = text;
    return 0;
}

// Finds the index of the named host. NOT_FOUND: the daemon has no such host.
static enum cpattn_status host_find(struct cpattn_client *client, const struct order_options *o,
                                    int *host, struct cpattn_error *error)
{
    struct cpattn_daemon_status *status;
    enum cpattn_status result = cpattn_query_status(client, 0, &status, error);
    if (result != CPATTN_OK)
        return result;
    *host = -1;
    for (int i = 0; i < status->host_count; i++) {
        const char *name = cpattn_daemon_status_host(status, i)->name;
        if (strlen(name) == (size_t)o->host_bytes && strncmp(name, o->host, strlen(name)) == 0)
            *host = i;
    }
    cpattn_daemon_status_destroy(status);
    if (*host >= 0)
        return CPATTN_OK;
    error->status = CPATTN_NOT_FOUND;
    snprintf(error->text, sizeof(error->text),
             "'%.*s' is not among the hosts of this daemon; cpattn-submit status lists them",
             o->host_bytes, o->host);
    return CPATTN_NOT_FOUND;
}

static error_t parse_order(int key, char *value, struct argp_state *state)
{
    struct order_options *o = state->input;
    switch (key) {
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    case ARGP_KEY_ARG:
        if (o->wants_device && !o->has_device)
            return device_take(o, value);
        return options_no_argument(state, value);
    case ARGP_KEY_END:
        if (!o->wants_device || o->has_device)
            return 0;
        command_complain("the number of a device is missing; see %s --help", state->name);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Reports what the daemon did.
static void print_done(enum cpattn_order order, uint64_t count)
{
    if (order == CPATTN_ORDER_UNPOISON)
        printf("%" PRIu64 " case%s may run again\n", count, plural(count));
    else if (order == CPATTN_ORDER_RELOAD)
        printf("%s\n", count == 0 ? "the daemon reads its settings again; its log has the result"
                       : count == 1
                           ? "the daemon has read its settings again; they apply now"
                           : "the daemon has read its settings again; some need a restart: "
                             "its log names them");
    else
        printf("%" PRIu64 " device%s out of use\n", count, plural(count));
}

static int order_give(int argc, char **argv, enum cpattn_order order, const char *about)
{
    static const struct argp_option options[] = {
        {"socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 1}, {.name = NULL}};
    static const struct argp_child access[] = {COMMAND_ACCESS_CHILD, {.argp = NULL}};
    bool of_device = order == CPATTN_ORDER_DRAIN || order == CPATTN_ORDER_ENABLE;
    const struct argp argp = {.options = options,
                              .parser = parse_order,
                              .children = access,
                              .args_doc = of_device ? "[HOST:]DEVICE" : NULL,
                              .doc = about};
    struct order_options o = {.wants_device = of_device};
    struct cpattn_error error;
    uint64_t count = 0;
    int exit_status;
    struct cpattn_client *client = options_query(&argp, argc, argv, &o, &o.socket, &exit_status);
    if (!client)
        return exit_status;
    int host = 0;
    enum cpattn_status status = o.host_bytes > 0 ? host_find(client, &o, &host, &error) : CPATTN_OK;
    if (status == CPATTN_OK)
        status = cpattn_order_on(client, order, host, o.device,
                                 order == CPATTN_ORDER_RELOAD ? RELOAD_NS : 0, &count, &error);
    if (status == CPATTN_OK)
        print_done(order, count);
    else
        exit_status = command_failed(&error);
    cpattn_client_destroy(client);
    return exit_status;
}

int command_drain(int argc, char **argv)
{
    return order_give(argc, argv, CPATTN_ORDER_DRAIN,
                      "Takes a device out of use: nothing more is started or run on it, and "
                      "running cases finish. For administrators."
                      "\vExample:\n"
                      "  cpattn-submit drain 3\n"
                      "  cpattn-submit drain node2:3");
}

int command_enable(int argc, char **argv)
{
    return order_give(argc, argv, CPATTN_ORDER_ENABLE,
                      "Uses a drained device again. For administrators."
                      "\vExample:\n"
                      "  cpattn-submit enable 3");
}

int command_unpoison(int argc, char **argv)
{
    return order_give(argc, argv, CPATTN_ORDER_UNPOISON,
                      "Runs cases again that are refused as POISON because they killed their "
                      "pools. For administrators.");
}

int command_reload(int argc, char **argv)
{
    return order_give(argc, argv, CPATTN_ORDER_RELOAD,
                      "Makes the daemon read its settings again, as SIGHUP does, and waits for the "
                      "outcome. If the settings have an error, nothing changes. For "
                      "administrators.");
}
