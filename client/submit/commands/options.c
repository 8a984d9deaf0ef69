// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/matrix/fields.h"
#include "common/duration.h"
#include "common/help_parse.h"
#include "common/option_names.h"
#include "plan/members.h"

#define KEY_FIRST 1000 // beyond every letter

// ---- the fields -------------------------------------------------------------------------------

static const char *value_word(const struct case_field *field)
{
    switch (field->kind) {
    case FIELD_INT:
    case FIELD_UINT:
        return "N";
    case FIELD_REAL:
        return "X";
    case FIELD_BOOL:
        return "BOOL";
    case FIELD_TEXT:
        return "TEXT";
    case FIELD_LIST:
        return "N,...";
    case FIELD_CHOICE:
        break;
    }
    return "WORD";
}

// The range or the choices of a field, after its help.
static void add_accepted(const struct case_field *field, char help[OPTIONS_HELP_MAX])
{
    size_t used = strlen(help);
    char accepted[CASE_ACCEPTED_MAX];
    case_accepted(field, accepted, sizeof(accepted));
    if (field->kind == FIELD_INT || field->kind == FIELD_LIST)
        snprintf(help + used, OPTIONS_HELP_MAX - used, "; %s", accepted);
    if (field->kind == FIELD_CHOICE)
        snprintf(help + used, OPTIONS_HELP_MAX - used, ": %s", accepted);
}

// The default: `said`, or else `value`.
static void add_default(const struct case_field *field, const char *value, const char *said,
                        char help[OPTIONS_HELP_MAX])
{
    size_t used = strlen(help);
    if (said)
        snprintf(help + used, OPTIONS_HELP_MAX - used, " [%s]", said);
    else if (field == case_field_find("kv_heads"))
        snprintf(help + used, OPTIONS_HELP_MAX - used, " [as many as heads]");
    else if (value[0])
        snprintf(help + used, OPTIONS_HELP_MAX - used, " [%s]", value);
}

// Adds an option named after a field, with hyphens for underscores, and the field's own name as a
// hidden alias. argp sorts options within a group; a group for each field keeps their order.
// Returns the position after them.
static struct argp_option *add_option(struct options_fields *fields, struct argp_option *option,
                                      int index, const char *name, const char *word)
{
    char *hyphened = fields->names[index];
    snprintf(hyphened, sizeof(fields->names[index]), "%s", name);
    for (char *c = hyphened; *c; c++)
        *c = *c == '_' ? '-' : *c;
    *option++ = (struct argp_option){.name = hyphened,
                                     .key = KEY_FIRST + index,
                                     .arg = word,
                                     .doc = fields->help[index],
                                     .group = index + 1};
    if (strcmp(hyphened, name) != 0)
        *option++ = (struct argp_option){.name = name,
                                         .key = KEY_FIRST + index,
                                         .flags = OPTION_ALIAS | OPTION_HIDDEN,
                                         .group = index + 1};
    return option;
}

static enum status field_set(struct options_fields *fields, const char *name, const char *value,
                             struct error *error)
{
    if (fields->c)
        return case_set(fields->c, name, value, error);
    return members_set(fields->spec->bytes, members_find(fields->spec->kind->fields, name), value,
                       error);
}

static error_t parse_field(int key, char *value, struct argp_state *state)
{
    struct options_fields *fields = state->input;
    struct error error;
    int index = key - KEY_FIRST;
    if (index < 0 || index >= OPTIONS_FIELDS_MAX || !fields->names[index][0])
        return ARGP_ERR_UNKNOWN;
    bool sweeps = fields->sweeps && sweep_is_meant(&fields->sweep, fields->names[index], value);
    enum status status = sweeps ? sweep_add(&fields->sweep, fields->names[index], value, &error)
                                : field_set(fields, fields->names[index], value, &error);
    fields->given |= UINT64_C(1) << index;
    if (status == STATUS_OK)
        return 0;
    command_complain("%s", error.text);
    return EINVAL;
}

bool options_given(const struct options_fields *fields, const char *name)
{
    for (int i = 0; i < OPTIONS_FIELDS_MAX; i++)
        if (strcmp(fields->names[i], name) == 0)
            return fields->given >> i & 1;
    return false;
}

// Takes the option of a field out of the help.
static void hide(struct options_fields *fields, int index)
{
    for (struct argp_option *option = fields->options; option->name; option++)
        if (option->key == KEY_FIRST + index)
            option->flags |= OPTION_HIDDEN;
}

static const struct options_usual *usual_find(const struct options_usual *list, const char *name)
{
    for (; list && list->field; list++)
        if (strcmp(list->field, name) == 0)
            return list;
    return NULL;
}

// Writes one option for each field; `usual` has the defaults, except those of `other`. Returns the
// position after the last.
static struct argp_option *add_fields(struct options_fields *fields, const struct case_field *table,
                                      const void *usual, const struct options_usual *other,
                                      int *index)
{
    struct argp_option *option = fields->options;
    for (const struct case_field *field = table; field->name; field++) {
        const struct options_usual *said = usual_find(other, field->name);
        char *help = fields->help[*index], value[CASE_VALUE_MAX];
        snprintf(help, OPTIONS_HELP_MAX, "%s", field->help);
        add_accepted(field, help);
        members_get(usual, field, value, sizeof(value));
        add_default(field, value, said ? said->text : NULL, help);
        option = add_option(fields, option, (*index)++, field->name, value_word(field));
        if (said && !said->text)
            hide(fields, *index - 1);
    }
    return option;
}

void options_spec_init(struct options_fields *fields, struct job_spec *spec)
{
    int index = 0;
    memset(fields, 0, sizeof(*fields));
    fields->spec = spec;
    fields->sweep.kind = spec->kind;
    job_spec_init(spec, spec->kind);
    add_fields(fields, spec->kind->fields, spec->bytes, NULL, &index);
    fields->argp = (struct argp){.options = fields->options, .parser = parse_field};
}

void options_fields_init(struct options_fields *fields, struct cp_case *c,
                         const struct options_usual *other)
{
    struct cp_case usual;
    int index = 0;
    memset(fields, 0, sizeof(*fields));
    fields->c = c;
    fields->sweep.kind = &job_kind_attention;
    case_init(&usual);
    struct argp_option *option = add_fields(fields, case_fields(), &usual, other, &index);
    for (const struct case_pair *pair = case_pairs(); pair->name; pair++) {
        snprintf(fields->help[index], OPTIONS_HELP_MAX, "%s", pair->help);
        option = add_option(fields, option, index++, pair->name, "N");
    }
    fields->argp = (struct argp){.options = fields->options, .parser = parse_field};
}

// ---- the command line --------------------------------------------------------------------------

int options_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    const struct option_names names = {argp, argv[0], case_names_offer};
    struct error error;
    if (option_names_check(&names, argc, argv, &error) != STATUS_OK) {
        command_complain("%s", error.text);
        return COMMAND_USAGE;
    }
    argp_err_exit_status = COMMAND_USAGE;
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    int lost = command_exit(STATUS_DATA_LOSS);
    error_t failed = help_parse("cpattn-submit", lost, argp, argc, argv, input);
    return failed ? COMMAND_USAGE : COMMAND_PASS;
}

struct cpattn_client *options_query(const struct argp *argp, int argc, char **argv, void *input,
                                    const char *const *socket, int *exit_status)
{
    static const struct command_requests no_cases;
    *exit_status = options_parse(argp, argc, argv, input);
    if (!*exit_status)
        *exit_status = command_access_check(socket, 1);
    return *exit_status ? NULL : command_connect(*socket, &no_cases, exit_status);
}

// ---- a command about one case -----------------------------------------------------------------

// Long enough for a temporary failure; a lasting one should be reported soon.
#define PATIENCE_DEFAULT (UINT64_C(10) * 1000000000)

enum { KEY_TIMEOUT = 1, KEY_PATIENCE, KEY_JSON, KEY_SOCKET };

static const struct argp_option asking_table[] = {
    {"timeout", KEY_TIMEOUT, "TIME", 0,
     "give up a run after this time, including the wait for a turn: 90, 90s, 5m; up to 24h "
     "[90s]",
     100},
    {"patience", KEY_PATIENCE, "TIME", 0,
     "give up if the daemon cannot start the ranks within this time [10s]", 100},
    {"json", KEY_JSON, NULL, 0, "print JSON instead of tables", 100},
    {"socket", KEY_SOCKET, "PATH", 0, COMMAND_SOCKET_HELP, 100},
    {.name = NULL}};

static const char *asking_name(int key)
{
    for (const struct argp_option *option = asking_table; option->name; option++)
        if (option->key == key)
            return option->name;
    return NULL;
}

static error_t parse_asking(int key, char *value, struct argp_state *state)
{
    struct options_asking *o = state->input;
    if (!o->given)
        o->given = asking_name(key);
    switch (key) {
    case KEY_TIMEOUT:
        return options_duration("timeout", value, &o->timeout_ns);
    case KEY_PATIENCE:
        return options_duration("patience", value, &o->patience_ns);
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_SOCKET:
        o->socket = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp asking_argp = {.options = asking_table, .parser = parse_asking};

struct cpattn_client *options_connect(const struct options_asking *asking, int *exit_status)
{
    const struct command_requests requests = {.patience_ns = asking->patience_ns,
                                              .cancel_on_disconnect = true};
    *exit_status = command_access_check(&asking->socket, 1);
    return *exit_status ? NULL : command_connect(asking->socket, &requests, exit_status);
}

// Indices of the parser's children and of their inputs.
enum { CHILD_FIELDS, CHILD_OWN, CHILD_ASKING, CHILD_ACCESS, CHILDREN };

static error_t parse_case(int key, char *value, struct argp_state *state)
{
    struct options_case *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[CHILD_FIELDS] = &o->fields;
        state->child_inputs[CHILD_OWN] = o->own;
        if (o->asks)
            state->child_inputs[CHILD_ASKING] = &o->asking;
        return 0;
    case ARGP_KEY_ARG:
        return options_no_argument(state, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int options_parse_case(struct options_case *o, const struct argp *own, void *input, bool asks,
                       int argc, char **argv)
{
    struct argp commands = {.options = own->options, .parser = own->parser};
    const struct argp_child children[CHILDREN + 1] = {
        [CHILD_FIELDS] = {.argp = &o->fields.argp},
        [CHILD_OWN] = {.argp = &commands},
        [CHILD_ASKING] = {.argp = asks ? &asking_argp : NULL},
        [CHILD_ACCESS] = COMMAND_ACCESS_CHILD};
    const struct argp argp = {.parser = parse_case, .doc = own->doc, .children = children};
    struct error error;
    o->own = input;
    o->asks = asks;
    o->asking = (struct options_asking){.patience_ns = PATIENCE_DEFAULT};
    fields_case_init(&o->c);
    options_fields_init(&o->fields, &o->c, o->usual);
    o->fields.sweeps = o->sweeps;
    int exit_status = options_parse(&argp, argc, argv, o);
    if (exit_status != COMMAND_PASS)
        return exit_status;
    enum status status = STATUS_OK;
    for (int i = 0; i < sweep_points(&o->fields.sweep) && !status; i++) {
        struct job_spec spec;
        options_point(o, i, &spec);
        status = case_check(&spec.attention, &error);
    }
    if (o->fields.sweep.count == 0)
        fields_case_finish(&o->c);
    if (status != STATUS_OK)
        command_complain("%s", error.text);
    return command_exit(status);
}

// ---- a command about one job of another kind --------------------------------------------------

static error_t take_argument(struct options_job *o, const struct argp_state *state,
                             const char *value)
{
    const struct job_kind *kind = o->spec.kind;
    struct error error;
    if (!kind->argument || state->arg_num > 0)
        return options_no_argument(state, value);
    bool several = o->sweeps && sweep_is_meant(&o->fields.sweep, kind->argument, value);
    enum status status = several ? sweep_add(&o->fields.sweep, kind->argument, value, &error)
                                 : job_spec_set(&o->spec, kind->argument, value, &error);
    if (status == STATUS_OK)
        return 0;
    command_complain("%s", error.text);
    return EINVAL;
}

static error_t parse_job(int key, char *value, struct argp_state *state)
{
    struct options_job *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[CHILD_FIELDS] = &o->fields;
        state->child_inputs[CHILD_OWN] = o->own;
        state->child_inputs[CHILD_ASKING] = &o->asking;
        return 0;
    case ARGP_KEY_ARG:
        return take_argument(o, state, value);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Complains about a field on the command line that has no effect on any job of the sweep.
static int vain_check(const struct options_job *o)
{
    const struct case_field *fields = o->spec.kind->fields;
    int points = sweep_points(&o->fields.sweep);
    for (const struct case_field *field = fields; field->name; field++) {
        bool given = o->fields.given >> (field - fields) & 1;
        const char *why = NULL;
        int vain = 0;
        for (int i = 0; i < points && given; i++) {
            struct job_spec spec = o->spec;
            sweep_apply(&o->fields.sweep, i, &spec);
            const char *found = job_spec_vain(&spec, field->name);
            why = found ? found : why;
            vain += found != NULL;
        }
        if (vain < points)
            continue;
        command_complain("--%s has no effect: %s", field->name, why);
        return COMMAND_USAGE;
    }
    return COMMAND_PASS;
}

int options_parse_job(struct options_job *o, const struct job_kind *kind, const struct argp *own,
                      void *input, int argc, char **argv)
{
    struct argp commands = {.options = own->options, .parser = own->parser};
    const struct argp_child children[CHILDREN + 1] = {[CHILD_FIELDS] = {.argp = &o->fields.argp},
                                                      [CHILD_OWN] = {.argp = &commands},
                                                      [CHILD_ASKING] = {.argp = &asking_argp},
                                                      [CHILD_ACCESS] = COMMAND_ACCESS_CHILD};
    const struct argp argp = {
        .parser = parse_job, .doc = own->doc, .args_doc = own->args_doc, .children = children};
    struct error error;
    o->own = input;
    o->asking = (struct options_asking){.patience_ns = PATIENCE_DEFAULT};
    o->spec.kind = kind;
    options_spec_init(&o->fields, &o->spec);
    o->fields.sweeps = o->sweeps;
    int exit_status = options_parse(&argp, argc, argv, o);
    if (!exit_status)
        exit_status = vain_check(o);
    if (exit_status != COMMAND_PASS)
        return exit_status;
    enum status status = STATUS_OK;
    for (int i = 0; i < sweep_points(&o->fields.sweep) && !status; i++) {
        struct job_spec spec;
        options_job_point(o, i, &spec);
        status = job_spec_finish(&spec, &error);
    }
    if (o->fields.sweep.count == 0)
        fields_finish(&o->spec);
    if (status != STATUS_OK)
        command_complain("%s", error.text);
    return command_exit(status);
}

void options_point(const struct options_case *o, int point, struct job_spec *spec)
{
    job_spec_of_case(spec, &o->c);
    sweep_apply(&o->fields.sweep, point, spec);
    fields_finish(spec);
}

void options_job_point(const struct options_job *o, int point, struct job_spec *spec)
{
    *spec = o->spec;
    sweep_apply(&o->fields.sweep, point, spec);
    fields_finish(spec);
}

// ---- options without effect -------------------------------------------------------------------

int options_vain_check(const struct options_vain *list)
{
    for (; list->option; list++) {
        if (!list->given)
            continue;
        command_complain("--%s %s", list->option, list->why);
        return COMMAND_USAGE;
    }
    return COMMAND_PASS;
}

// ---- values -----------------------------------------------------------------------------------

error_t options_duration(const char *name, const char *value, uint64_t *ns)
{
    uint64_t parsed;
    if (!duration_parse(value, &parsed) || parsed == 0 || parsed > TIMEOUT_MAX_NS) {
        command_complain("--%s is '%.40s'; accepted is %s, more than 0 and up to 24h", name, value,
                         DURATION_SYNTAX);
        return EINVAL;
    }
    *ns = parsed;
    return 0;
}

error_t options_count(const char *name, const char *value, int min, int max, int *count)
{
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (!value[0] || strspn(value, "0123456789") != strlen(value) || errno || parsed < min ||
        parsed > max) {
        command_complain("--%s is '%.40s'; accepted is %d to %d", name, value, min, max);
        return EINVAL;
    }
    *count = (int)parsed;
    return 0;
}

error_t options_no_argument(const struct argp_state *state, const char *argument)
{
    const struct job_kind *kind = job_kind_find(argument);
    bool benches = strstr(state->name, " bench");
    if (kind && kind->fields && benches)
        command_complain("unexpected argument '%s': the kind of job comes first, as in "
                         "cpattn-submit bench %s",
                         argument, argument);
    else if (kind && kind->fields)
        command_complain("unexpected argument '%s': this kind of job has a command of its own; see "
                         "cpattn-submit %s --help",
                         argument, argument);
    else
        command_complain("unexpected argument '%.80s'; see %s --help", argument, state->name);
    return EINVAL;
}
