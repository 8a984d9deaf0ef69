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

// Skips numbers that follow one another, such as "0 to 15, 32 to 47 and 64".
static const char *numbers_skip(const char *text)
{
    static const char *const joints[] = {" to ", " and ", ", "};
    for (;;) {
        const char *end = number_skip(text), *next = end;
        for (size_t i = 0; i < sizeof(joints) / sizeof(*joints); i++)
            if (strncmp(end, joints[i], strlen(joints[i])) == 0)
                next = end + strlen(joints[i]);
        if (next == end || !isdigit((unsigned char)*next))
            return end;
        text = next;
    }
}

// True for " (rank 2, ring step 1)" and " (chunk 5, rank 2)".
static bool names_a_place(const char *text)
{
    return strncmp(text, " (rank ", 7) == 0 || strncmp(text, " (chunk ", 8) == 0;
}

// Skips the heads, sequences or rows that a sentence begins with, such as "in head 3: " and "in 1
// of 8 examined rows (position 7): ".
static const char *groups_skip(const char *text)
{
    static const char *const groups[] = {"in head", "in key head", "in sequence"};
    bool names = strncmp(text, "in ", 3) == 0 && isdigit((unsigned char)text[3]);
    for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
        names = names || strncmp(text, groups[i], strlen(groups[i])) == 0;
    const char *end = names ? strstr(text, ": ") : NULL;
    return end ? end + 2 : text;
}

// Copies a diagnosis without doubt, places and numbers.
static void essence_copy(const char *text, char *essence, size_t size)
{
    static const char doubt[] = "perhaps ";
    size_t length = 0;
    text = groups_skip(text);
    if (strncmp(text, doubt, strlen(doubt)) == 0)
        text += strlen(doubt);
    while (*text && length + 1 < size) {
        const char *end = names_a_place(text) ? strchr(text, ')') : NULL;
        if (end) {
            text = end + 1;
        } else if (isdigit((unsigned char)*text)) {
            text = numbers_skip(text);
            essence[length++] = '#';
        } else {
            essence[length++] = *text++;
        }
    }
    essence[length] = '\0';
}

// True if the mistake of the given fail, where it has a diagnosis, is also that of the other one.
static bool have_one_mistake(const struct outcome *given, const struct outcome *outcome)
{
    char a[OUTCOME_SENTENCE_MAX], b[OUTCOME_SENTENCE_MAX];
    if (!given->diagnosis || !outcome->diagnosis)
        return !given->diagnosis;
    essence_copy(given->diagnosis, a, sizeof(a));
    essence_copy(outcome->diagnosis, b, sizeof(b));
    return strcmp(a, b) == 0;
}

// Every mistake of a guest's function has the status UNKNOWN; the sentence tells the mistakes
// apart.
static bool fails_alike(const struct outcome *given, const struct outcome *outcome)
{
    if (outcome->kind != given->kind || outcome->kind == OUTCOME_FAIL)
        return outcome->kind == given->kind && have_one_mistake(given, outcome);
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
