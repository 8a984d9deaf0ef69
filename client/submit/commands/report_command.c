// SPDX-License-Identifier: Apache-2.0
// cpattn-submit report: a recorded run as an HTML page or as text. Needs no daemon.
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/report_text.h"
#include "client/submit/write/plain_file.h"
#include "client/submit/write/report_page.h"

struct report_options {
    const char *run, *earlier, *output, *title;
    bool text;
};

enum { KEY_COMPARE = 1, KEY_TITLE, KEY_TEXT };

static const struct argp_option option_table[] = {
    {"output", 'o', "FILE", 0, "write the page to this file [standard output]", 0},
    {"compare", KEY_COMPARE, "FILE", 0,
     "list the changes since the run that this file "
     "records",
     0},
    {"text", KEY_TEXT, NULL, 0,
     "print the totals and, with --compare, the changes as text, also beside --output; the exit "
     "status "
     "is 1 if a case that passed in the earlier run does not pass",
     0},
    {"title", KEY_TITLE, "TEXT", 0, "the heading of the page [the name of the record]", 0},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct report_options *o = state->input;
    switch (key) {
    case 'o':
        o->output = value;
        return 0;
    case KEY_COMPARE:
        o->earlier = value;
        return 0;
    case KEY_TEXT:
        o->text = true;
        return 0;
    case KEY_TITLE:
        o->title = value;
        return 0;
    case ARGP_KEY_ARG:
        if (o->run)
            return options_no_argument(state, value);
        o->run = value;
        return 0;
    case ARGP_KEY_END:
        if (o->run)
            return 0;
        command_complain("the record is missing; see %s --help", state->name);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = option_table,
    .parser = parse_option,
    .args_doc = "FILE",
    .doc = "Makes one HTML page from the run that FILE records (cpattn-submit matrix --save): "
           "verdicts, errors relative to their limits, times, and the cases that did not pass. "
           "Needs no daemon and no network."
           "\vExamples:\n"
           "  cpattn-submit matrix demonstration.yaml --save run.jsonl\n"
           "  cpattn-submit report run.jsonl -o report.html\n"
           "  cpattn-submit report run.jsonl --compare old.jsonl -o report.html\n"
           "  cpattn-submit report run.jsonl --compare old.jsonl --text"};

static int write_page(const struct report_options *o, const struct report_page *page)
{
    struct whole_file file;
    if (!o->output)
        return report_page_write(stdout, page) ? COMMAND_PASS : command_show_failed("the page");
    if (!whole_file_open(&file, o->output))
        return command_unwritable(o->output);
    return whole_file_commit(&file, report_page_write(file.out, page))
               ? COMMAND_PASS
               : command_unwritten(o->output);
}

static int print_text(const struct report_page *page)
{
    struct changes changes = {0};
    if (page->earlier && changes_init(&changes, page->run, page->earlier))
        return command_show_failed("the text");
    if (page->earlier)
        report_text_changes(stdout, page->run, page->earlier, page->earlier_name, &changes);
    report_text_totals(stdout, page->run);
    bool worse = changes.worse > 0, printed = fflush(stdout) == 0 && !ferror(stdout);
    changes_fini(&changes);
    return !printed ? command_show_failed("the text") : worse ? COMMAND_FAIL : COMMAND_PASS;
}

static int write_report(const struct report_options *o, const struct report_page *page)
{
    int exit_status = o->text && !o->output ? COMMAND_PASS : write_page(o, page);
    return o->text && exit_status == COMMAND_PASS ? print_text(page) : exit_status;
}

// Reads a record like command_record_load(), and warns if it has no case; an incomplete line has a
// warning of its own.
static int load(const char *path, struct record **record)
{
    int exit_status = command_record_load(path, record);
    if (!exit_status && path && (*record)->count == 0 && !(*record)->cut)
        command_complain("%s: the record has no case", path);
    return exit_status;
}

int command_report(int argc, char **argv)
{
    struct report_options o = {.run = NULL};
    struct record *run = NULL, *earlier = NULL;
    char name[128], earlier_name[128];
    int exit_status = options_parse(&argp, argc, argv, &o);
    if (exit_status)
        return exit_status;
    const struct options_vain vain[] = {
        {o.title && o.text && !o.output, "title",
         "is the heading of the page, which --text writes only with --output"},
        {.option = NULL}};
    const struct files_entry files[] = {{"--output", o.output, true},
                                        {"the record", o.run, false},
                                        {"--compare", o.earlier, false},
                                        {.option = NULL}};
    if (options_vain_check(vain))
        return COMMAND_USAGE;
    exit_status = files_check(files);
    if (!exit_status)
        exit_status = load(o.run, &run);
    if (!exit_status)
        exit_status = load(o.earlier, &earlier);
    if (!exit_status) {
        struct report_page page = {
            .name = o.title ? o.title : text_base_name(o.run, name, sizeof(name)),
            .run = run,
            .earlier_name =
                o.earlier ? text_base_name(o.earlier, earlier_name, sizeof(earlier_name)) : NULL,
            .earlier = earlier};
        exit_status = write_report(&o, &page);
    }
    record_destroy(run);
    record_destroy(earlier);
    return exit_status;
}
