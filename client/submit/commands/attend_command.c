// SPDX-License-Identifier: Apache-2.0
// cpattn-submit attend: attention on the tensors of a file. cpattn-submit dump: all tensors of a
// case to a file.
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/dump.h"
#include "client/submit/commands/files.h"
#include "client/submit/commands/options.h"
#include "client/submit/outcome/text.h"
#include "client/submit/show/verdict.h"
#include "client/submit/tensors/compare.h"
#include "client/submit/write/json.h"
#include "common/plural.h"
#include "plan/members.h"

struct attend_options {
    struct options_case about;
    const char *in, *out, *compare, *picture;
    bool verbose;
};

enum { KEY_IN = 1, KEY_OUT, KEY_COMPARE, KEY_PICTURE };

static const struct argp_option attend_table[] = {
    {.doc = "Files:", .group = 90},
    {"in", KEY_IN, "FILE", 0,
     "read q, k, v from this safetensors file; do for gradients, "
     "bias, sink",
     90},
    {"out", KEY_OUT, "FILE", 0, "write the results to this safetensors file", 90},
    {"compare", KEY_COMPARE, "FILE", 0,
     "compare the results with those in this safetensors file: out, lse, dq, dk, dv", 90},
    {.doc = "How to run and show it:", .group = 100},
    {"verbose", 'v', NULL, 0, "show the figures of every chunk, the times of every rank", 100},
    {.name = NULL}};

static const struct argp_option dump_table[] = {
    {.doc = "Files:", .group = 90},
    {"out", KEY_OUT, "FILE", 0, "write inputs, results and expected results to this file", 90},
    {"picture", KEY_PICTURE, "FILE", 0, "draw the errors by chunk and head, as SVG", 90},
    {.doc = "How to run and show it:", .group = 100},
    {"verbose", 'v', NULL, 0, "show the figures of every chunk, the times of every rank", 100},
    {.name = NULL}};

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    struct attend_options *o = state->input;
    switch (key) {
    case KEY_IN:
        o->in = value;
        return 0;
    case KEY_OUT:
        o->out = value;
        return 0;
    case KEY_COMPARE:
        o->compare = value;
        return 0;
    case KEY_PICTURE:
        o->picture = value;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char attend_help[] =
    "Runs attention on the tensors of a file, on the ranks of a daemon on this machine. "
    "Sizes and dtype follow from the tensors; the other fields are options. Results are "
    "compared with the reference only with --verify."
    "\vTensors are dense and whole: q, k, v, do as [batch, seqlen, heads, head_dim] "
    "(--format bshd), lse as [batch, heads, seqlen].\n"
    "\n"
    "Examples:\n"
    "  cpattn-submit attend --in qkv.safetensors --out o.safetensors\n"
    "  cpattn-submit attend --in qkv.safetensors --world-size 4 --verify\n"
    "  cpattn-submit attend --in qkv.safetensors --compare mine.safetensors\n"
    "\n"
    "Exit status: as for cpattn-submit case; also 1 if --compare finds a difference that two "
    "right results cannot have.";

static const char dump_help[] = "Runs one case and writes all its tensors: the inputs, the "
                                "results of the ranks, and the results of the reference "
                                "(expected.out)."
                                "\vExamples:\n"
                                "  cpattn-submit dump --out case.safetensors --seqlen 256\n"
                                "  cpattn-submit dump --out case.safetensors --picture "
                                "errors.svg\n"
                                "\n"
                                "Exit status: as for cpattn-submit case.";

static const struct argp attend_argp = {
    .options = attend_table, .parser = parse_option, .doc = attend_help};
static const struct argp dump_argp = {
    .options = dump_table, .parser = parse_option, .doc = dump_help};

// Sizes follow from the tensors; nothing is drawn.
static const struct options_usual attend_usual[] = {{"dtype", "that of the file"},
                                                    {"batch", "that of the file"},
                                                    {"heads", "that of the file"},
                                                    {"kv_heads", "that of the file"},
                                                    {"head_dim_qk", "that of the file"},
                                                    {"head_dim_v", "that of the file"},
                                                    {"seqlen_q", "that of the file"},
                                                    {"seqlen_kv", "that of the file"},
                                                    {"training", "true if the file has do"},
                                                    {"verify", "off; without a value: auto"},
                                                    {"inputs", NULL},
                                                    {"seed", "1234; here of the sample that is "
                                                             "compared"},
                                                    {.field = NULL}};

static int complain(const struct error *error)
{
    command_complain("%s", error->text);
    return command_exit(error->status);
}

// The same for a file that was read: it is not valid, unless memory ran out.
static int complain_of_file(const struct error *error)
{
    int exit_status = complain(error);
    return error->status == STATUS_RESOURCE_EXHAUSTED ? exit_status : COMMAND_USAGE;
}

// ---- output files -------------------------------------------------------------------------------

static int outputs_check(const struct attend_options *o)
{
    const struct files_entry files[] = {{"--out", o->out, true},
                                        {"--picture", o->picture, true},
                                        {"--in", o->in, false},
                                        {"--compare", o->compare, false},
                                        {.option = NULL}};
    int exit_status = files_check(files);
    if (!exit_status)
        exit_status = command_output_check(o->out);
    return exit_status ? exit_status : command_output_check(o->picture);
}

// ---- one run ----------------------------------------------------------------------------------

static int json_show(const struct cp_case *c, const struct outcome *outcome,
                     const struct cpattn_result *result)
{
    int written = command_json_exit(json_answer(stdout, NULL, c, outcome, result));
    return command_graver(command_outcome_exit(outcome), written);
}

#define ATTEND_COMMAND_MAX (CASE_COMMAND_MAX + 4 * PATH_MAX)

// The command line that runs attention on the same file again.
static const char *attend_command(const char *in, const struct cp_case *c,
                                  char text[ATTEND_COMMAND_MAX])
{
    char of_case[CASE_COMMAND_MAX];
    case_command(c, of_case, sizeof(of_case));
    text[0] = '\0';
    text_append(text, ATTEND_COMMAND_MAX, "cpattn-submit attend --in ");
    text_append_word(text, ATTEND_COMMAND_MAX, in);
    if (c->verify == VERIFY_AUTO)
        text_append(text, ATTEND_COMMAND_MAX, " --verify");
    text_append(text, ATTEND_COMMAND_MAX, "%s", of_case + strlen("cpattn-submit case"));
    return text;
}

// Runs the case and shows its answer. Returns the exit status. *result is NULL or a result that the
// caller owns.
static int run(const struct attend_options *o, const struct cp_case *c, const struct tensors *t,
               struct cpattn_client *client, struct cpattn_result **result)
{
    struct cpattn_error error = {.text = ""};
    struct outcome outcome;
    char again[ATTEND_COMMAND_MAX];
    enum cpattn_status status = dump_run(client, c, t, o->about.asking.timeout_ns, result, &error);
    enum status memory = outcome_init(&outcome, status, *result, error.text);
    int exit_status = command_outcome_exit(&outcome);
    outcome.timeout_ns = o->about.asking.timeout_ns;
    outcome.command = o->in ? attend_command(o->in, c, again) : NULL;
    if (memory)
        command_complain("not enough memory for the answer");
    else if (o->about.asking.json)
        exit_status = json_show(c, &outcome, *result);
    else
        verdict_print(stdout, c, &outcome, *result, o->verbose);
    outcome_fini(&outcome);
    return memory ? command_exit(memory) : exit_status;
}

// ---- attend -----------------------------------------------------------------------------------

static int compare(const struct attend_options *o, const struct cp_case *c, const struct tensors *t,
                   const struct cpattn_result *result)
{
    struct safetensors file;
    struct error error;
    bool agree = true;
    FILE *out = o->about.asking.json ? stderr : stdout;
    enum status status = safetensors_open(o->compare, &file, &error);
    if (status == STATUS_OK) {
        status = compare_file(&file, c, t, result, out, &agree, &error);
        safetensors_fini(&file);
        if (status != STATUS_OK)
            error_prefix(&error, "%s", o->compare);
    }
    if (status != STATUS_OK)
        return complain(&error);
    return agree ? COMMAND_PASS : COMMAND_FAIL;
}

// Names the inputs that cannot give a pass. Padding may be NaN, so only tensors without it count.
static void inputs_complain(const char *in, const struct cp_case *c, const struct tensors *t)
{
    if (!case_is_even(c, SIDE_Q) || !case_is_even(c, SIDE_KV))
        return;
    for (int i = 0; i < WHOLE_INPUTS; i++) {
        enum whole_tensor tensor = (enum whole_tensor)i;
        int64_t bad = t->at.given[i] ? tensors_nonfinite(c, tensor, t->at.given[i]) : 0;
        if (bad)
            command_complain("%s: %" PRId64 " element%s of %s %s NaN or infinite, so the results "
                             "cannot pass",
                             in, bad, plural(bad), whole_name(tensor), bad == 1 ? "is" : "are");
    }
}

static int attend_run(const struct attend_options *o, const struct cp_case *c,
                      const struct tensors *t)
{
    struct cpattn_result *result = NULL;
    struct error error;
    int exit_status = COMMAND_PASS;
    command_catch_interrupts();
    struct cpattn_client *client = options_connect(&o->about.asking, &exit_status);
    if (!client)
        return exit_status;
    exit_status = run(o, c, t, client, &result);
    if (exit_status == COMMAND_FAIL)
        inputs_complain(o->in, c, t);
    bool done = result && result->verdict != CPATTN_VERDICT_NONE;
    if (done && o->out && tensors_save(o->out, c, t, &error) != STATUS_OK)
        exit_status = command_graver(exit_status, complain(&error));
    if (done && o->compare)
        exit_status = command_graver(exit_status, compare(o, c, t, result));
    cpattn_result_destroy(result);
    cpattn_client_destroy(client);
    return exit_status;
}

// Complains about an option for a field that follows from the file with another value.
static int fields_check(const struct attend_options *o, const struct cp_case *asked)
{
    static const struct {
        const char *option, *field, *pair;
    } fields[] = {{"dtype", "dtype", ""},
                  {"batch", "batch", ""},
                  {"heads", "heads", ""},
                  {"kv-heads", "kv_heads", ""},
                  {"head-dim-qk", "head_dim_qk", "head-dim"},
                  {"head-dim-v", "head_dim_v", "head-dim"},
                  {"seqlen-q", "seqlen_q", "seqlen"},
                  {"seqlen-kv", "seqlen_kv", "seqlen"},
                  {"training", "training", ""}};
    char theirs[CASE_VALUE_MAX], ours[CASE_VALUE_MAX];
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct case_field *field = members_find(case_fields(), fields[i].field);
        const struct options_fields *given = &o->about.fields;
        if (!options_given(given, fields[i].option) && !options_given(given, fields[i].pair))
            continue;
        case_get(&o->about.c, field, theirs, sizeof(theirs));
        case_get(asked, field, ours, sizeof(ours));
        if (strcmp(theirs, ours) == 0)
            continue;
        command_complain("%s is %s; accepted is %s, which follows from the tensors of %s",
                         fields[i].field, ours, theirs, o->in);
        return COMMAND_USAGE;
    }
    return COMMAND_PASS;
}

// Complains early about a file of --compare that cannot be read.
static int compare_check(const char *path)
{
    struct safetensors file;
    struct error error;
    if (!path)
        return COMMAND_PASS;
    if (safetensors_open(path, &file, &error) != STATUS_OK)
        return complain_of_file(&error);
    safetensors_fini(&file);
    return COMMAND_PASS;
}

static int attend(struct attend_options *o)
{
    const struct cp_case asked = o->about.c;
    struct cp_case *c = &o->about.c;
    struct safetensors file;
    struct tensors t;
    struct error error;
    enum status status = safetensors_open(o->in, &file, &error);
    if (status != STATUS_OK)
        return complain_of_file(&error);
    status = tensors_describe(&file, c, &error);
    if (status == STATUS_OK)
        status = tensors_make(&t, c, TENSORS_RESULTS, &error);
    if (status == STATUS_OK) {
        status = tensors_load(&file, c, &t, &error);
        if (status != STATUS_OK)
            tensors_fini(&t);
    }
    safetensors_fini(&file);
    if (status != STATUS_OK) {
        error_prefix(&error, "%s", o->in);
        return complain_of_file(&error);
    }
    int exit_status = fields_check(o, &asked);
    if (!exit_status)
        exit_status = compare_check(o->compare);
    if (!exit_status)
        exit_status = attend_run(o, c, &t);
    tensors_fini(&t);
    return exit_status;
}

// Replaces --verify without a value by --verify=auto.
static void verify_complete(int argc, char **argv)
{
    static char automatic[] = "--verify=auto";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--verify") == 0 && (i + 1 == argc || argv[i + 1][0] == '-'))
            argv[i] = automatic;
}

int command_attend(int argc, char **argv)
{
    struct attend_options options = {.about.usual = attend_usual};
    verify_complete(argc, argv);
    int exit_status = options_parse_case(&options.about, &attend_argp, &options, true, argc, argv);
    if (exit_status)
        return exit_status;
    if (!options_given(&options.about.fields, "verify"))
        options.about.c.verify = VERIFY_OFF;
    const struct options_vain vain[] = {{options_given(&options.about.fields, "inputs"), "inputs",
                                         "does not go with attend, whose inputs are in a file"},
                                        {.option = NULL}};
    if (options_vain_check(vain))
        return COMMAND_USAGE;
    if (!options.in) {
        command_complain("--in is missing: the file with q, k and v");
        return COMMAND_USAGE;
    }
    exit_status = outputs_check(&options);
    return exit_status ? exit_status : attend(&options);
}

// ---- dump -------------------------------------------------------------------------------------

static int dump_show(const struct attend_options *o, const struct tensors *t)
{
    const struct cp_case *c = &o->about.c;
    FILE *map = o->about.asking.json ? NULL : stdout;
    struct error error;
    enum status status = tensors_save(o->out, c, t, &error);
    if (map)
        fputc('\n', map);
    if (status == STATUS_OK)
        status = dump_picture(c, t, o->picture, map, &error);
    return status == STATUS_OK ? COMMAND_PASS : complain(&error);
}

static int dump(const struct attend_options *o)
{
    const struct cp_case *c = &o->about.c;
    struct cpattn_result *result = NULL;
    struct tensors t;
    struct error error;
    int exit_status = COMMAND_PASS;
    if (tensors_make(&t, c, TENSORS_INPUTS | TENSORS_RESULTS | TENSORS_EXPECTED, &error) !=
        STATUS_OK)
        return complain(&error);
    command_catch_interrupts();
    struct cpattn_client *client = options_connect(&o->about.asking, &exit_status);
    if (client) {
        exit_status = run(o, c, &t, client, &result);
        if (result && result->verdict != CPATTN_VERDICT_NONE)
            exit_status = command_graver(exit_status, dump_show(o, &t));
    }
    cpattn_result_destroy(result);
    cpattn_client_destroy(client);
    tensors_fini(&t);
    return exit_status;
}

int command_dump(int argc, char **argv)
{
    struct attend_options options = {.in = NULL};
    int exit_status = options_parse_case(&options.about, &dump_argp, &options, true, argc, argv);
    if (exit_status)
        return exit_status;
    if (!options.out) {
        command_complain("--out is missing: the file to write");
        return COMMAND_USAGE;
    }
    exit_status = outputs_check(&options);
    return exit_status ? exit_status : dump(&options);
}
