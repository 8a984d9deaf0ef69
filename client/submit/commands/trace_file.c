// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/trace_file.h"

#include <errno.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/write/plain_file.h"
#include "client/submit/write/trace.h"

static int write_file(const char *path, struct plan *const *plans, const struct timeline *timeline,
                      const struct cpattn_result *result)
{
    struct whole_file file;
    struct trace trace;
    if (!whole_file_open(&file, path)) {
        command_complain("%s cannot be written: %s", path, strerror(errno));
        return COMMAND_USAGE;
    }
    trace_begin(&trace, file.out);
    trace_predicted(&trace, plans, timeline);
    if (result)
        trace_measured(&trace, result, plans, timeline);
    if (whole_file_commit(&file, trace_end(&trace)))
        return COMMAND_PASS;
    command_complain("%s could not be written: %s", path, strerror(errno));
    return command_exit(STATUS_DATA_LOSS);
}

void trace_file_ask(struct cp_case *c)
{
    c->operation_times = !c->implementation[0] && !c->graph;
}

int trace_file_write(const char *path, const struct cp_case *c, const struct timeline_rates *rates,
                     const struct cpattn_result *result)
{
    struct plan *plans[WORLD_SIZE_MAX] = {NULL};
    struct timeline *timeline = NULL;
    struct error error;
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && !status; r++)
        status = plan_create(c, r, &plans[r], &error);
    if (!status)
        status = timeline_create(plans, c->world_size, rates, &timeline, &error);
    int exit_status = command_exit(status);
    if (status)
        command_complain("%s", error.text);
    else
        exit_status = write_file(path, plans, timeline, result);
    timeline_destroy(timeline);
    for (int r = 0; r < c->world_size; r++)
        plan_destroy(plans[r]);
    return exit_status;
}
