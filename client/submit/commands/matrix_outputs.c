// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/matrix_outputs.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/dump.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/matrix_report.h"
#include "client/submit/write/junit.h"
#include "client/submit/write/markdown.h"

#define DESCRIBE_NS (UINT64_C(5) * 1000000000)

// Removes the incomplete last line that a killed run may have left; new lines follow the complete
// ones.
static FILE *open_to_resume(const char *path, const struct record *record)
{
    return truncate(path, record->bytes) == 0 ? fopen(path, "ae") : NULL;
}

int matrix_outputs_open(struct matrix_outputs *outputs, const struct matrix_options *o,
                        const struct record *resumed)
{
    const char *failed = NULL;
    if (dump_check(o->dump_fails))
        return COMMAND_USAGE;
    if (o->resume && !(outputs->save = open_to_resume(o->resume, resumed)))
        failed = o->resume;
    else if (o->save && !(outputs->save = fopen(o->save, "we")))
        failed = o->save;
    else if (o->markdown && !(outputs->markdown = fopen(o->markdown, "ae")))
        failed = o->markdown;
    else if (o->junit && !whole_file_open(&outputs->junit, o->junit))
        failed = o->junit;
    if (!failed)
        return COMMAND_PASS;
    command_complain("%s cannot be written: %s", failed, strerror(errno));
    return COMMAND_USAGE;
}

void matrix_outputs_describe(struct matrix_outputs *outputs, struct cpattn_client *client)
{
    struct cpattn_error ignored;
    if (outputs->junit.out &&
        cpattn_describe(client, DESCRIBE_NS, &outputs->daemon, &ignored) != CPATTN_OK)
        outputs->daemon = NULL;
}

static bool write_junit(struct matrix_outputs *outputs, const struct junit_suite *cases)
{
    struct junit_suite suite = *cases;
    char host[HOST_NAME_MAX + 1] = "";
    struct junit_property properties[3];
    if (gethostname(host, sizeof(host) - 1) == 0)
        suite.host = host;
    if (outputs->daemon) {
        const struct cpattn_gpu *gpu = cpattn_description_gpu(outputs->daemon, 0);
        properties[0] = (struct junit_property){"daemon", outputs->daemon->version};
        properties[1] = (struct junit_property){"backend", outputs->daemon->backend};
        properties[2] = (struct junit_property){"gpu", gpu ? gpu->name : ""};
        suite.properties = properties;
        suite.property_count = gpu ? 3 : 2;
    }
    return whole_file_commit(&outputs->junit, junit_write(outputs->junit.out, &suite));
}

static struct matrix_report report_of(const struct matrix_run *run)
{
    return (struct matrix_report){.list = run->list,
                                  .outcomes = run->outcomes,
                                  .elapsed_ns = command_now_ns() - run->progress.start_ns,
                                  .recorded = run->recorded,
                                  .durations = run->options->durations,
                                  .verbose = run->options->verbose};
}

void matrix_outputs_print(const struct matrix_run *run)
{
    struct matrix_report report = report_of(run);
    if (run->options->json)
        return;
    putchar('\n');
    matrix_report_print(stdout, &report);
}

int matrix_outputs_write(struct matrix_outputs *outputs, const struct matrix_run *run,
                         const struct matrix *matrix)
{
    const struct matrix_options *o = run->options;
    char name[128], sum[MATRIX_REPORT_SUM_MAX];
    text_base_name(o->file, name, sizeof(name));
    const char *title = matrix->title ? matrix->title : name;
    struct matrix_report report = report_of(run);
    struct junit_suite suite = {.name = title,
                                .file = name,
                                .list = run->list,
                                .outcomes = run->outcomes,
                                .elapsed_ns = report.elapsed_ns};
    matrix_report_sum(&report, sum);
    struct markdown_summary summary = {title, sum, run->list, run->outcomes};
    int exit_status = COMMAND_PASS;
    if (outputs->junit.out && !write_junit(outputs, &suite))
        exit_status = command_unwritten(o->junit);
    if (outputs->markdown && !markdown_write(outputs->markdown, &summary))
        exit_status = command_unwritten(o->markdown);
    return exit_status;
}

int matrix_outputs_close(struct matrix_outputs *outputs, const struct matrix_options *o)
{
    int exit_status = COMMAND_PASS;
    bool told = outputs->save && ferror(outputs->save); // when the write of an answer failed
    if (outputs->save && fclose(outputs->save) != 0 && !told)
        exit_status = command_unwritten(o->save ? o->save : o->resume);
    told = outputs->markdown && ferror(outputs->markdown);
    if (outputs->markdown && fclose(outputs->markdown) != 0 && !told)
        exit_status = command_unwritten(o->markdown);
    whole_file_abandon(&outputs->junit);
    cpattn_description_destroy(outputs->daemon);
    return exit_status;
}
