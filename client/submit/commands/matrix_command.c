// SPDX-License-Identifier: Apache-2.0
// cpattn-submit matrix: lists or runs the cases of a file.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/installed.h"
#include "client/submit/commands/matrix_dump.h"
#include "client/submit/commands/matrix_outputs.h"
#include "client/submit/commands/matrix_run.h"
#include "client/submit/commands/options.h"
#include "client/submit/show/terminal.h"
#include "client/submit/write/json.h"
#include "common/plural.h"

// ---- listing ----------------------------------------------------------------------------------

static bool list_json(const struct matrix_case *made)
{
    struct outcome outcome;
    struct job_spec spec;
    matrix_case_load(made, &spec);
    bool fine =
        !matrix_run_fate(made, &outcome) && json_job(stdout, made->id, &spec, &outcome, NULL);
    outcome_fini(&outcome);
    return fine;
}

static bool is_listed(const struct matrix_options *o, const struct matrix_case *made)
{
    return (made->fate == MATRIX_EXCLUDED) == o->excluded;
}

static int list_width(const struct matrix_options *o, const struct matrix_list *list)
{
    int width = 0;
    for (int i = 0; i < list->count; i++)
        if (is_listed(o, &list->cases[i]) && (int)strlen(list->cases[i].id) > width)
            width = (int)strlen(list->cases[i].id);
    return width;
}

static const char *kind_text(enum matrix_kind kind)
{
    static const char *const texts[] = {[KIND_UNSAID] = "",
                                        [KIND_BACKEND] = " (backend)",
                                        [KIND_DUPLICATE] = " (duplicate)",
                                        [KIND_MEANINGLESS] = " (meaningless)"};
    return texts[kind];
}

static int print_list(const struct matrix_options *o, const struct matrix_list *list)
{
    int width = list_width(o, list);
    for (int i = 0; i < list->count; i++) {
        const struct matrix_case *made = &list->cases[i];
        struct job_spec spec;
        char what[256];
        if (!is_listed(o, made))
            continue;
        if (o->json) {
            if (list_json(made))
                continue;
            return command_json_exit(false);
        }
        matrix_case_load(made, &spec);
        job_spec_describe(&spec, what, sizeof(what));
        printf("%-*s  %s%s%s\n", width, made->id, made->fate == MATRIX_REFUSED ? "refused: " : "",
               made->reason ? made->reason : what, kind_text(made->kind));
    }
    if (terminal_is(stdout) && !o->json)
        printf("\n%d case%s, %d refused, %d excluded, %d left out by the command line\n",
               list->fate_count[MATRIX_RUNS], plural(list->fate_count[MATRIX_RUNS]),
               list->fate_count[MATRIX_REFUSED], list->fate_count[MATRIX_EXCLUDED], list->left_out);
    return COMMAND_PASS;
}

// ---- the command ------------------------------------------------------------------------------

static void print_head(const struct matrix_run *run, const struct matrix *matrix)
{
    const struct matrix_list *list = run->list;
    int cases = list->count - list->fate_count[MATRIX_EXCLUDED];
    if (run->options->json)
        return;
    printf("%s%s%d case%s", matrix->title ? matrix->title : "", matrix->title ? ": " : "", cases,
           plural(cases));
    if (list->fate_count[MATRIX_EXCLUDED])
        printf(", %d excluded", list->fate_count[MATRIX_EXCLUDED]);
    if (list->left_out)
        printf(", %d left out", list->left_out);
    putchar('\n');
    fflush(stdout);
}

static int run_connected(struct matrix_run *run, struct cpattn_client *const *clients,
                         const struct matrix *matrix, struct matrix_outputs *outputs)
{
    const struct matrix_options *o = run->options;
    run->timeout_ns = o->timeout_ns ? o->timeout_ns : matrix->timeout_ns;
    print_head(run, matrix);
    matrix_outputs_describe(outputs, clients[0]);
    int exit_status = matrix_run_all(run, clients, o->socket_count);
    matrix_outputs_print(run);
    exit_status = command_graver(exit_status, matrix_outputs_write(outputs, run, matrix));
    if (o->dump_fails)
        matrix_dump_fails(clients[0], run->list, run->outcomes, run->timeout_ns, o->dump_fails);
    return exit_status;
}

// Opens the outputs when all daemons are there: without them an earlier record stays as it is.
static int run_open(struct matrix_run *run, struct cpattn_client *const *clients,
                    const struct matrix *matrix)
{
    struct matrix_outputs outputs = {.save = NULL};
    int exit_status = matrix_outputs_open(&outputs, run->options, run->resumed);
    run->save = outputs.save;
    if (!exit_status)
        exit_status = run_connected(run, clients, matrix, &outputs);
    int closed = matrix_outputs_close(&outputs, run->options);
    return exit_status ? exit_status : closed;
}

static int run_matrix(struct matrix_run *run, const struct matrix *matrix)
{
    const struct matrix_options *o = run->options;
    const struct command_requests requests = {.max = o->jobs, .patience_ns = o->patience_ns};
    struct cpattn_client *clients[FLIGHT_CLIENTS_MAX] = {NULL};
    int exit_status = command_access_check(o->sockets, o->socket_count), connected = 0;
    if (exit_status)
        return exit_status;
    command_catch_interrupts();
    while (connected < o->socket_count &&
           (clients[connected] = command_connect(o->sockets[connected], &requests, &exit_status)))
        connected++;
    if (connected == o->socket_count)
        exit_status = run_open(run, clients, matrix);
    for (int i = 0; i < connected; i++)
        cpattn_client_destroy(clients[i]);
    return exit_status;
}

static int run_prepared(struct matrix_run *run, const struct matrix *matrix)
{
    struct record *record = NULL;
    struct error error;
    const struct matrix_options *o = run->options;
    int exit_status = COMMAND_PASS;
    if (o->resume && record_load(o->resume, &record, &error))
        exit_status = COMMAND_USAGE;
    run->resumed = record;
    if (!exit_status && matrix_run_check_record(run, &error))
        exit_status = COMMAND_USAGE;
    if (exit_status)
        command_complain("%s", error.text);
    else
        exit_status = run_matrix(run, matrix);
    record_destroy(record);
    return exit_status;
}

// True if there is nothing to run or to list.
static bool is_empty(const struct matrix_options *o, const struct matrix_list *list)
{
    for (int i = 0; i < list->count; i++)
        if (o->list ? is_listed(o, &list->cases[i]) : list->cases[i].fate != MATRIX_EXCLUDED)
            return false;
    return true;
}

// Complains about cases that failed in the record of --last-failed and that the matrix does not
// have. True if there are any.
static bool complain_of_unknown(const struct matrix_options *o)
{
    const struct record *record = o->choice.last_failed;
    const char *first = NULL;
    int unknown = 0;
    for (int i = 0; i < record->count; i++) {
        if (record->entries[i].met || !record_entry_failed(&record->entries[i]))
            continue;
        first = first ? first : record->entries[i].id;
        unknown++;
    }
    if (unknown)
        command_complain("%s: %d case%s that failed there %s not in %s and cannot run again, such "
                         "as %s",
                         o->last_failed, unknown, plural(unknown), unknown == 1 ? "is" : "are",
                         o->file, first);
    return unknown > 0;
}

// --last-failed leaves nothing to run: the outputs are those of a run without a case.
static int run_nothing(struct matrix_run *run, const struct matrix *matrix)
{
    const struct matrix_options *o = run->options;
    struct matrix_outputs outputs = {.save = NULL};
    fprintf(o->json ? stderr : stdout, "no case of %s failed in %s%s\n", o->file, o->last_failed,
            o->choice.filter_count || o->choice.subset || o->choice.shards
                ? ", of those that the command line chooses"
                : "");
    if (o->list || o->resume)
        return COMMAND_PASS;
    run->progress.start_ns = command_now_ns();
    int exit_status = matrix_outputs_open(&outputs, o, NULL);
    if (!exit_status)
        exit_status = matrix_outputs_write(&outputs, run, matrix);
    int closed = matrix_outputs_close(&outputs, o);
    return exit_status ? exit_status : closed;
}

// Complains about options that only have an effect on cases of attention.
static int kind_check(const struct matrix_options *o, const struct matrix *matrix)
{
    char why[128];
    bool other = matrix->kind != &job_kind_attention;
    const struct options_vain list[] = {{other && o->dump_fails, "dump-fails", why},
                                        {other && o->choice.seqlen_scale, "seqlen-scale", why},
                                        {.option = NULL}};
    snprintf(why, sizeof(why), "is for cases of attention, and the kind of this matrix is %s",
             matrix->kind->name);
    return options_vain_check(list);
}

static int run_or_list(const struct matrix_options *o, const struct matrix *matrix,
                       const struct matrix_list *list)
{
    struct matrix_run run;
    if (kind_check(o, matrix))
        return COMMAND_USAGE;
    bool unknown = o->last_failed && complain_of_unknown(o), empty = is_empty(o, list);
    if (empty && unknown)
        return COMMAND_USAGE;
    if (empty && !o->last_failed && !o->excluded) {
        command_complain("%s: no case is left: %d excluded, %d left out by the command line",
                         o->file, list->fate_count[MATRIX_EXCLUDED], list->left_out);
        return COMMAND_USAGE;
    }
    if (o->list && !(empty && o->last_failed))
        return print_list(o, list);
    int exit_status = command_exit(STATUS_RESOURCE_EXHAUSTED);
    if (matrix_run_init(&run, o, list))
        command_complain("not enough memory for %d cases", list->count);
    else
        exit_status = empty ? run_nothing(&run, matrix) : run_prepared(&run, matrix);
    matrix_run_fini(&run);
    return exit_status;
}

// Reads the matrix and, with --last-failed, the record that chooses from it.
static int run_file(struct matrix_options *o)
{
    struct yaml *yaml = NULL;
    struct matrix *matrix = NULL;
    struct matrix_list *list = NULL;
    struct record *failed = NULL;
    struct error error;
    int exit_status = command_record_load(o->last_failed, &failed);
    if (exit_status)
        return exit_status;
    exit_status = COMMAND_USAGE;
    o->choice.last_failed = failed;
    if (yaml_load_file(o->file, &yaml, &error) || matrix_create(yaml, &matrix, &error) ||
        matrix_list_create(matrix, &o->choice, &list, &error))
        command_complain("%s", error.text);
    else
        exit_status = run_or_list(o, matrix, list);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
    record_destroy(failed);
    return exit_status;
}

static int outputs_check(const struct matrix_options *o)
{
    const struct files_entry files[] = {
        {"--save", o->save, true},         {"--junit", o->junit, true},
        {"--markdown", o->markdown, true}, {"--dump-fails", o->dump_fails, false},
        {"--resume", o->resume, false},    {"--last-failed", o->last_failed, false},
        {"the matrix", o->file, false},    {.option = NULL}};
    return files_check(files);
}

int command_matrix(int argc, char **argv)
{
    struct matrix_options o;
    char path[PATH_MAX], where[INSTALLED_WHERE_MAX];
    int exit_status = matrix_options_parse(argc, argv, &o);
    if (exit_status)
        return exit_status;
    const char *name = o.file;
    o.file = installed_find(name, path);
    if (o.file == name && access(name, F_OK) != 0 && errno == ENOENT) {
        command_complain("there is no file %s%s", name, installed_where(name, where));
        return COMMAND_USAGE;
    }
    exit_status = outputs_check(&o);
    return exit_status ? exit_status : run_file(&o);
}
