// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/smaller.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/show/progress.h"
#include "plan/minimize.h"

struct trial {
    struct smaller *search;
    const struct outcome *given;
    struct progress progress;
};

static const char *number_skip(const char *text)
{
    while (isdigit((unsigned char)*text) || *text == '.')
        text++;
    return text;
}

// True if two sentences differ at most in their numbers, such as ranks and shapes.
static bool say_the_same(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a = number_skip(a);
            b = number_skip(b);
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

// Every mistake of a guest's function has the status UNKNOWN; the sentence tells the mistakes
// apart.
static bool fails_alike(const struct outcome *given, const struct outcome *outcome)
{
    if (outcome->kind != given->kind || outcome->kind == OUTCOME_FAIL)
        return outcome->kind == given->kind;
    return outcome->status == given->status &&
           (outcome->status != STATUS_UNKNOWN || say_the_same(given->sentence, outcome->sentence));
}

// Checks after UNAVAILABLE whether the daemon still answers. Without a daemon every case would fail
// alike.
static bool daemon_is_lost(struct smaller *search, enum status status)
{
    struct cpattn_description *description;
    struct cpattn_error error;
    if (status != STATUS_UNAVAILABLE)
        return false;
    search->lost = cpattn_describe(search->client, 0, &description, &error) != CPATTN_OK;
    if (!search->lost)
        cpattn_description_destroy(description);
    return search->lost;
}

static void keep(struct smaller *search, const struct cp_case *c, const struct outcome *outcome,
                 struct cpattn_result *result)
{
    smaller_fini(search);
    search->c = *c;
    search->outcome = *outcome;
    search->result = result;
    search->found = true;
}

static bool fails(const struct cp_case *c, void *context)
{
    struct trial *trial = context;
    struct smaller *search = trial->search;
    struct cpattn_result *result = NULL;
    struct cpattn_error error = {.text = ""};
    struct outcome outcome;
    struct cpattn_case *library_case =
        command_interrupted() || search->lost ? NULL : command_library_case(c);
    if (!library_case)
        return false;
    search->tried++;
    trial->progress.done++;
    progress_draw(&trial->progress, command_now_ns(), "");
    enum cpattn_status status =
        command_run(search->client, library_case, search->timeout_ns, &result, &error);
    progress_clear(&trial->progress);
    cpattn_case_destroy(library_case);
    enum status memory = outcome_init(&outcome, status, result, error.text);
    outcome.timeout_ns = search->timeout_ns;
    if (!memory && !daemon_is_lost(search, outcome.status) && fails_alike(trial->given, &outcome)) {
        keep(search, c, &outcome, result);
        return true;
    }
    outcome_fini(&outcome);
    cpattn_result_destroy(result);
    return false;
}

void smaller_find(struct smaller *search, struct cpattn_client *client, const struct cp_case *c,
                  const struct outcome *given, uint64_t timeout_ns)
{
    *search = (struct smaller){.client = client, .timeout_ns = timeout_ns, .c = *c};
    struct trial trial = {search, given, {0}};
    struct cp_case smallest = *c;
    if (daemon_is_lost(search, given->status))
        return;
    progress_init(&trial.progress, stderr, SMALLER_TRIES, command_now_ns());
    trial.progress.runs = true;
    (void)minimize_case(&smallest, fails, &trial, SMALLER_TRIES);
}

void smaller_fini(struct smaller *search)
{
    if (search->found)
        outcome_fini(&search->outcome);
    cpattn_result_destroy(search->result);
    search->result = NULL;
    search->found = false;
}
