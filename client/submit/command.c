// SPDX-License-Identifier: Apache-2.0
#include "client/submit/command.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int command_exit(enum status status)
{
    return status == STATUS_OK ? COMMAND_PASS : COMMAND_USAGE + (int)status;
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

struct cpattn_client *command_connect(const char *socket, int requests_max, int *exit_status)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_client *client = NULL;
    struct cpattn_error error;
    options.socket = socket;
    options.requests_max = requests_max;
    if (cpattn_client_create(&options, &client, &error) == CPATTN_OK)
        return client;
    command_complain("%s", error.text);
    *exit_status = command_exit((enum status)error.status);
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

bool command_output_complete(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    command_complain("the output could not be written: %s", strerror(errno));
    return false;
}
