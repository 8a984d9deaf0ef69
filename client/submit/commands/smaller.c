// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/smaller.h"

#include <stdio.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/show/progress.h"
#include "plan/minimize.h"

struct trial {
    struct smaller *search;
    enum outcome_kind kind;
    enum status status;
    struct progress progress;
};

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
    struct cpattn_case *library_case = command_interrupted() ? NULL : command_library_case(c);
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
    bool same = !memory && outcome.kind == trial->kind &&
                (outcome.kind == OUTCOME_FAIL || outcome.status == trial->status);
    if (same) {
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
    struct trial trial = {search, given->kind, given->status, {0}};
    struct cp_case smallest = *c;
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
