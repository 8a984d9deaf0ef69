// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/trace_file.h"

#include <errno.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/show/svg.h"
#include "client/submit/write/plain_file.h"
#include "client/submit/write/trace.h"

static int write_file(const char *path, struct plan *const *plans, const struct timeline *timeline,
                      const struct cpattn_result *result)
{
    struct whole_file file;
    struct trace trace;
    if (!whole_file_open(&file, path))
        return command_unwritable(path);
    trace_begin(&trace, file.out);
    trace_predicted(&trace, plans, timeline);
    if (result)
        trace_measured(&trace, result, plans, timeline);
    return whole_file_commit(&file, trace_end(&trace)) ? COMMAND_PASS : command_unwritten(path);
}

void trace_file_ask(struct cp_case *c)
{
    c->operation_times = !c->implementation[0] && !c->graph;
}

// The plans of all ranks with their timeline.
struct prediction {
    int world_size;
    struct plan *plans[WORLD_SIZE_MAX];
    struct timeline *timeline;
};

static void prediction_fini(struct prediction *p)
{
    timeline_destroy(p->timeline);
    for (int r = 0; r < p->world_size; r++)
        plan_destroy(p->plans[r]);
}

// Writes the trace, unless `status` says that making the plans has failed; complains then. Frees
// the prediction. Returns the exit status.
static int prediction_write(struct prediction *p, const char *path, enum status status,
                            const struct timeline_rates *rates, const struct cpattn_result *result,
                            struct error *error)
{
    if (!status)
        status = timeline_create(p->plans, p->world_size, rates, &p->timeline, error);
    int exit_status = command_exit(status);
    if (status)
        command_complain("%s", error->text);
    else
        exit_status = write_file(path, p->plans, p->timeline, result);
    prediction_fini(p);
    return exit_status;
}

int trace_file_write(const char *path, const struct cp_case *c, const struct timeline_rates *rates,
                     const struct cpattn_result *result)
{
    struct prediction p = {.world_size = c->world_size};
    struct error error;
    enum status status = STATUS_OK;
    for (int r = 0; r < c->world_size && !status; r++)
        status = plan_create(c, r, &p.plans[r], &error);
    return prediction_write(&p, path, status, rates, result, &error);
}

// ---- jobs of other kinds ----

static enum status job_plans(const struct job_spec *spec, struct prediction *p, struct error *error)
{
    enum status status = STATUS_OK;
    *p = (struct prediction){.world_size = job_spec_needs(spec).world_size};
    for (int r = 0; r < p->world_size && !status; r++)
        status = spec->kind->plan(spec->bytes, r, &p->plans[r], error);
    return status;
}

int trace_file_write_job(const char *path, const struct job_spec *spec,
                         const struct cpattn_result *result)
{
    struct prediction p;
    struct timeline_rates rates;
    struct error error;
    timeline_rates_init(&rates);
    enum status status = job_plans(spec, &p, &error);
    return prediction_write(&p, path, status, &rates, result, &error);
}

static enum status draw(const char *path, const struct prediction *p,
                        const struct timeline_rates *rates, struct error *error)
{
    bool shown = strcmp(path, "-") == 0;
    FILE *svg = shown ? stdout : fopen(path, "we");
    if (!svg)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s cannot be written: %s", path,
                         strerror(errno));
    svg_draw(svg, &(struct svg_panel){p->plans, p->timeline}, 1, rates);
    bool torn = ferror(svg);
    torn = (!shown && fclose(svg) != 0) || torn;
    return torn ? error_set(error, STATUS_DATA_LOSS, "%s could not be written: %s", path,
                            strerror(errno))
                : STATUS_OK;
}

int picture_file_write_job(const char *path, const struct job_spec *spec)
{
    struct prediction p;
    struct timeline_rates rates;
    struct error error;
    timeline_rates_init(&rates);
    enum status status = job_plans(spec, &p, &error);
    const struct plan *first = p.plans[0];
    if (!status && first && first->collective.world_size > 0 &&
        first->collective.algorithm == ALGORITHM_NCCL)
        status = error_set(&error, STATUS_INVALID_ARGUMENT,
                           "algorithm is nccl, a call of NCCL's own: there is no plan to draw; "
                           "accepted with --svg is any other");
    if (!status)
        status = plan_check(p.plans, p.world_size, &error);
    if (!status)
        status = timeline_create(p.plans, p.world_size, &rates, &p.timeline, &error);
    if (!status)
        status = draw(path, &p, &rates, &error);
    if (status)
        command_complain("%s", error.text);
    prediction_fini(&p);
    return status == STATUS_INVALID_ARGUMENT ? COMMAND_USAGE : command_exit(status);
}
