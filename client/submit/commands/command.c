// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/command.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/submit/show/terminal.h"
#include "client/submit/write/plain_file.h"
#include "common/net_url.h"

#define WAIT_NS     (UINT64_C(100) * 1000000)
// After this time a message says what the command waits for.
#define PATIENCE_NS (UINT64_C(1) * 1000000000)

int command_exit(enum status status)
{
    return status == STATUS_OK ? COMMAND_PASS : COMMAND_USAGE + (int)status;
}

int command_graver(int first, int second)
{
    if (first == COMMAND_FAIL || second == COMMAND_FAIL)
        return COMMAND_FAIL;
    return first ? first : second;
}

int command_outcome_exit(const struct outcome *outcome)
{
    if (outcome_is_good(outcome))
        return COMMAND_PASS;
    return outcome->kind == OUTCOME_FAIL ? COMMAND_FAIL : command_exit(outcome->status);
}

void command_complain(const char *format, ...)
{
    va_list arguments;
    fputs("cpattn-submit: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int command_failed(const struct cpattn_error *error)
{
    command_complain("%s", error->text);
    return command_exit((enum status)error->status);
}

// ---- the connection ---------------------------------------------------------------------------

enum { KEY_TOKEN_FILE = 2000, KEY_TLS_CA, KEY_TLS_CERTIFICATE, KEY_TLS_KEY };

static const struct argp_option access_table[] = {
    {"token-file", KEY_TOKEN_FILE, "PATH", 0, "file with the token [$CPATTN_TOKEN_FILE]", 1},
    {"tls-ca", KEY_TLS_CA, "PATH", 0,
     "signer of the daemon's certificate, PEM "
     "[$CPATTN_TLS_CA]",
     1},
    {"tls-certificate", KEY_TLS_CERTIFICATE, "PATH", 0,
     "certificate of the client, if the daemon asks for one, PEM [$CPATTN_TLS_CERTIFICATE]", 1},
    {"tls-key", KEY_TLS_KEY, "PATH", 0,
     "key of the client's certificate, PEM "
     "[$CPATTN_TLS_KEY]",
     1},
    {.name = NULL}};

static struct cpattn_options access_options = CPATTN_OPTIONS_INIT;

static error_t parse_access(int key, char *value, struct argp_state *state)
{
    (void)state;
    switch (key) {
    case KEY_TOKEN_FILE:
        access_options.token_file = value;
        return 0;
    case KEY_TLS_CA:
        access_options.tls_ca = value;
        return 0;
    case KEY_TLS_CERTIFICATE:
        access_options.tls_certificate = value;
        return 0;
    case KEY_TLS_KEY:
        access_options.tls_key = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp command_access = {.options = access_table, .parser = parse_access};

const struct cpattn_options *command_access_options(void)
{
    return &access_options;
}

const char *command_access_given(void)
{
    const struct cpattn_options *o = &access_options;
    return o->token_file        ? "token-file"
           : o->tls_ca          ? "tls-ca"
           : o->tls_certificate ? "tls-certificate"
           : o->tls_key         ? "tls-key"
                                : NULL;
}

int command_access_check(const char *const *sockets, int count)
{
    const struct cpattn_options *o = &access_options;
    const char *of_tls = o->tls_ca            ? "tls-ca"
                         : o->tls_certificate ? "tls-certificate"
                         : o->tls_key         ? "tls-key"
                                              : NULL;
    bool network = false, tls = false;
    for (int i = 0; i < count; i++) {
        const char *address = sockets[i] ? sockets[i] : secure_getenv("CPATTN_SOCKET");
        network = network || (address && net_url_is_meant(address));
        tls = tls || (address && strncmp(address, "tls+", strlen("tls+")) == 0);
    }
    if (o->token_file && !network)
        command_complain("--token-file is for a daemon at tcp://HOST:PORT or tls+tcp://HOST:PORT");
    else if (of_tls && !tls)
        command_complain("--%s is for a daemon at tls+tcp://HOST:PORT", of_tls);
    else
        return COMMAND_PASS;
    return COMMAND_USAGE;
}

struct cpattn_client *command_connect(const char *socket, const struct command_requests *requests,
                                      int *exit_status)
{
    struct cpattn_options options = access_options;
    options.patience_ns = requests->patience_ns ? requests->patience_ns : 1;
    options.cancel_on_disconnect = requests->cancel_on_disconnect;
    struct cpattn_client *client = NULL;
    struct cpattn_error error;
    options.socket = socket;
    options.requests_max = requests->max;
    if (cpattn_client_create(&options, &client, &error) == CPATTN_OK)
        return client;
    *exit_status = command_failed(&error);
    return NULL;
}

struct cpattn_case *command_library_case(const struct cp_case *c)
{
    struct cpattn_case *made = cpattn_case_create();
    struct cpattn_error error = {.text = "not enough memory for the case"};
    bool fine = made != NULL;
    for (const struct case_field *field = case_fields(); field->name && fine; field++) {
        char value[CASE_VALUE_MAX];
        case_get(c, field, value, sizeof(value));
        fine = cpattn_case_set(made, field->name, value, &error) == CPATTN_OK;
    }
    if (fine)
        return made;
    command_complain("%s", error.text);
    cpattn_case_destroy(made);
    return NULL;
}

struct cpattn_case *command_library_job(const struct job_spec *spec)
{
    const struct job_kind *kind = spec->kind;
    if (kind == &job_kind_attention)
        return command_library_case(&spec->attention);
    struct cpattn_case *made = cpattn_case_create_kind(kind->name);
    bool fine = made != NULL;
    for (const struct case_field *field = kind->fields; field->name && fine; field++) {
        char value[JOB_FIELD_VALUE_MAX];
        job_spec_get(spec, field, value, sizeof(value));
        fine = cpattn_case_set(made, field->name, value, NULL) == CPATTN_OK;
    }
    if (fine)
        return made;
    cpattn_case_destroy(made);
    command_complain("not enough memory for a job");
    return NULL;
}

// ---- one run ----------------------------------------------------------------------------------

// Waits for the answer. False: it was cancelled, and the daemon does not answer.
static bool await_answer(struct cpattn_request *request)
{
    uint64_t start_ns = command_now_ns(), interrupted_ns = 0;
    bool live = terminal_redraws(stderr), cancelled = false, answered;
    while (!(answered = cpattn_wait(request, WAIT_NS))) {
        struct cpattn_error ignored;
        uint64_t waited_ns = command_now_ns() - start_ns;
        if (live && waited_ns > PATIENCE_NS)
            fprintf(stderr, "\rwaiting for %" PRIu64 " s; Ctrl-C cancels request %s\033[K",
                    waited_ns / 1000000000, cpattn_request_id(request));
        if (command_interrupted() && interrupted_ns == 0)
            interrupted_ns = command_now_ns();
        if (command_interrupted() && !cancelled)
            cancelled = cpattn_cancel(request, &ignored) == CPATTN_OK;
        if (interrupted_ns > 0 && command_now_ns() - interrupted_ns > COMMAND_CANCEL_NS)
            break;
    }
    if (live && command_now_ns() - start_ns > PATIENCE_NS)
        fputs("\r\033[K", stderr);
    return answered;
}

enum cpattn_status command_run(struct cpattn_client *client, const struct cpattn_case *c,
                               uint64_t timeout_ns, struct cpattn_result **result,
                               struct cpattn_error *error)
{
    struct cpattn_request *request;
    enum cpattn_status status = cpattn_submit(client, c, timeout_ns, &request, error);
    return status == CPATTN_OK ? command_collect(request, result, error) : status;
}

enum cpattn_status command_collect(struct cpattn_request *request, struct cpattn_result **result,
                                   struct cpattn_error *error)
{
    enum cpattn_status status = CPATTN_CANCELLED;
    if (await_answer(request)) {
        status = cpattn_collect(request, result, error);
    } else {
        *result = NULL;
        *error = (struct cpattn_error){status, COMMAND_CANCEL_TEXT};
    }
    cpattn_request_destroy(request);
    return status;
}

// ---- interruption -----------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    interrupted = number;
}

void command_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool command_interrupted(void)
{
    return interrupted != 0;
}

uint64_t command_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int command_show_failed(const char *what)
{
    if (ferror(stdout))
        return command_exit(STATUS_DATA_LOSS);
    command_complain("not enough memory for %s", what);
    return command_exit(STATUS_RESOURCE_EXHAUSTED);
}

int command_file_failed(FILE *file, const char *path, const char *what)
{
    return ferror(file) ? command_unwritten(path) : command_show_failed(what);
}

int command_json_exit(bool written)
{
    return written ? COMMAND_PASS : command_show_failed("the JSON");
}

int command_unwritable(const char *path)
{
    command_complain("%s cannot be written: %s", path[0] ? path : "a file without a name",
                     strerror(errno));
    return COMMAND_USAGE;
}

int command_unwritten(const char *path)
{
    command_complain("%s could not be written: %s", path, strerror(errno));
    return command_exit(STATUS_DATA_LOSS);
}

int command_output_check(const char *path)
{
    return !path || whole_file_possible(path) ? COMMAND_PASS : command_unwritable(path);
}

int command_record_load(const char *path, struct record **record)
{
    struct error error;
    if (!path)
        return COMMAND_PASS;
    if (record_load(path, record, &error)) {
        command_complain("%s", error.text);
        return COMMAND_USAGE;
    }
    if ((*record)->cut)
        command_complain("%s: the last line is incomplete and does not count; matrix --resume ends "
                         "this run",
                         path);
    return COMMAND_PASS;
}

bool command_output_complete(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    command_complain("the output could not be written: %s", strerror(errno));
    return false;
}
