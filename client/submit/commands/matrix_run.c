// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/matrix_run.h"

#include <stdlib.h>
#include <string.h>

#include "client/submit/commands/command.h"
#include "client/submit/commands/flight.h"
#include "client/submit/show/terminal.h"
#include "client/submit/show/verdict.h"
#include "client/submit/write/json.h"
#include "common/duration.h"
#include "plan/weight.h"

#define NAMES_SHOWN_MAX 3

// The state of one case.
struct matrix_flight {
    bool flying; // in flight
    int tries;   // how often it was submitted
    struct outcome_digest digest;
    struct outcome held; // a try that did not pass, while the case is tried again; else not run
};

// ---- submitted cases --------------------------------------------------------------------------

static bool take_again(struct matrix_run *run, int *number)
{
    if (run->again_count == 0)
        return false;
    *number = run->again[run->again_first];
    run->again_first = (run->again_first + 1) % run->list->count;
    run->again_count--;
    return true;
}

static void put_again(struct matrix_run *run, int number)
{
    run->again[(run->again_first + run->again_count++) % run->list->count] = number;
}

// Cases whose outcome needs no daemon are finished already.
static bool is_to_run(const struct matrix_run *run, int number)
{
    return run->list->cases[number].fate == MATRIX_RUNS &&
           run->outcomes[number].kind == OUTCOME_NOT_RUN;
}

static bool next_case(void *context, int *number)
{
    struct matrix_run *run = context;
    if (run->stopped)
        return false;
    if (!take_again(run, number)) {
        while (run->next < run->list->count && !is_to_run(run, run->order[run->next]))
            run->next++;
        if (run->next == run->list->count)
            return false;
        *number = run->order[run->next++];
    }
    run->flights[*number].flying = true;
    run->flights[*number].tries++;
    return true;
}

static const struct job_spec *load_case(void *context, int number)
{
    struct matrix_run *run = context;
    matrix_case_load(&run->list->cases[number], &run->submitted);
    return &run->submitted;
}

// ---- answered cases ---------------------------------------------------------------------------

// Stores the text that the report shows for a case that did not pass.
static void keep_detail(struct outcome *outcome, const struct job_spec *spec,
                        const struct cpattn_result *result)
{
    size_t size;
    FILE *memory = open_memstream(&outcome->detail, &size);
    if (!memory)
        return;
    verdict_print_cause_job(memory, "      ", spec, outcome, result);
    if (fclose(memory) == 0)
        return;
    free(outcome->detail);
    outcome->detail = NULL;
}

static void count(struct progress *p, const struct outcome *outcome)
{
    p->done++;
    p->passed += outcome->kind == OUTCOME_PASS;
    p->failed += outcome->kind == OUTCOME_FAIL;
    p->errors += outcome->kind == OUTCOME_ERROR;
}

static FILE *lines_out(const struct matrix_run *run)
{
    return terminal_is(stdout) || !run->progress.live ? stdout : stderr;
}

// Prints a line when a case is answered: for every case if there is no live line, else for failures
// only, above that line.
static void print_answered(const struct matrix_run *run, int number)
{
    const struct outcome *o = &run->outcomes[number];
    const struct progress *p = &run->progress;
    char ran[DURATION_TEXT_MAX];
    FILE *out = lines_out(run);
    if (run->options->json || (p->live && o->kind == OUTCOME_PASS && !o->first))
        return;
    if (!p->live)
        fprintf(out, "%*d/%d ", p->total >= 1000 ? 5 : p->total >= 100 ? 3 : 2, p->done, p->total);
    fprintf(out, "%-5s %s", o->first ? "flaky" : outcome_name(o->kind),
            run->list->cases[number].id);
    if (o->sentence || o->first)
        fprintf(out, ": %s\n", o->first ? o->first : o->sentence);
    else
        fprintf(out, "  %s\n", duration_format(o->run_ns, ran, sizeof(ran)));
    fflush(out);
}

// Prints a line for a case that is tried once more.
static void print_retried(const struct matrix_run *run, int number)
{
    const struct outcome *o = &run->outcomes[number];
    if (run->options->json)
        return;
    fprintf(lines_out(run), "again %s: %s\n", run->list->cases[number].id,
            o->sentence ? o->sentence : outcome_name(o->kind));
    fflush(lines_out(run));
}

static void write_answer(struct matrix_run *run, int number, const struct job_spec *spec,
                         const struct cpattn_result *result)
{
    const struct outcome *o = &run->outcomes[number];
    const char *id = run->list->cases[number].id;
    bool written = !run->options->json || json_job(stdout, id, spec, o, result);
    if (!written)
        run->failed_io = run->stopped = true;
    if (run->save && !run->save_exit && o->kind != OUTCOME_NOT_RUN &&
        !json_job(run->save, id, spec, o, result)) {
        const struct matrix_options *options = run->options;
        run->save_exit = command_file_failed(
            run->save, options->save ? options->save : options->resume, "the record");
        run->stopped = true;
    }
}

// Writes the final outcome of a case to all outputs.
static void publish(struct matrix_run *run, int number, const struct cpattn_result *result)
{
    struct job_spec spec;
    matrix_case_load(&run->list->cases[number], &spec);
    if (!outcome_is_good(&run->outcomes[number]) && run->options->fail_fast)
        run->stopped = true;
    count(&run->progress, &run->outcomes[number]);
    progress_clear(&run->progress);
    print_answered(run, number);
    write_answer(run, number, &spec, result);
}

// Completes an outcome with the facts that follow from the case and the run.
static void finish(const struct matrix_run *run, int number, const struct cpattn_result *result)
{
    struct outcome *outcome = &run->outcomes[number];
    struct job_spec spec;
    matrix_case_load(&run->list->cases[number], &spec);
    outcome->blind = outcome->kind == OUTCOME_PASS && spec.kind == &job_kind_attention &&
                     case_blind(&spec.attention, NULL, 0) > 0;
    outcome->timeout_ns = run->timeout_ns;
    if (outcome->kind == OUTCOME_FAIL || outcome->kind == OUTCOME_ERROR)
        keep_detail(outcome, &spec, result);
}

// True if a try that did not pass tells more than an earlier one: a wrong result tells more than a
// run without a result.
static bool tells_more(const struct outcome *outcome, const struct outcome *held)
{
    return held->kind == OUTCOME_NOT_RUN ||
           (held->kind == OUTCOME_ERROR && outcome->kind == OUTCOME_FAIL);
}

// Puts back a case that runs once more: the next repeat after a pass, or the next try after a
// failure.
static bool run_again(struct matrix_run *run, int number)
{
    struct matrix_flight *flight = &run->flights[number];
    struct outcome *outcome = &run->outcomes[number];
    const struct matrix_options *o = run->options;
    bool repeats = o->repeat > 1;
    if (run->stopped || flight->tries >= (repeats ? o->repeat : 1 + o->retry) ||
        outcome_is_good(outcome) != repeats)
        return false;
    if (!repeats) {
        progress_clear(&run->progress);
        print_retried(run, number);
    }
    if (repeats || !tells_more(outcome, &flight->held)) {
        outcome_fini(outcome);
    } else {
        outcome_fini(&flight->held);
        flight->held = *outcome;
    }
    *outcome = (struct outcome){.kind = OUTCOME_NOT_RUN};
    put_again(run, number);
    return true;
}

// Returns the sentence and the diagnosis of the held try; the caller frees the text. NULL: out of
// memory.
static char *message_of(const struct outcome *held)
{
    char text[2 * OUTCOME_SENTENCE_MAX + 32];
    snprintf(text, sizeof(text), "%s%s%s",
             held->sentence ? held->sentence : outcome_name(held->kind),
             held->diagnosis ? "; diagnosis: " : "", held->diagnosis ? held->diagnosis : "");
    return strdup(text);
}

// Merges the held try into the final outcome. `held` is the first wrong result, or without one the
// first error. If the last try passed, the message of `held` is kept beside the pass. If the last
// try did not run, or ended without a result after a wrong one, `held` replaces it; returns true
// then.
static bool settle_held(struct outcome *outcome, struct outcome *held)
{
    bool alone = tells_more(held, outcome);
    if (held->kind == OUTCOME_NOT_RUN)
        return false;
    if (alone) {
        outcome_fini(outcome);
        *outcome = *held;
    } else {
        if (outcome_is_good(outcome)) {
            outcome->first = message_of(held);
            outcome->was_wrong = held->kind == OUTCOME_FAIL;
        }
        outcome_fini(held);
    }
    *held = (struct outcome){.kind = OUTCOME_NOT_RUN};
    return alone;
}

// True if two runs must give the same bits.
static bool repeats_bits(const struct job_spec *spec)
{
    return spec->kind != &job_kind_attention || spec->attention.deterministic;
}

// Why cases that are under way are cancelled.
static const char *stop_reason(const struct matrix_run *run)
{
    return run->save_exit          ? "the record cannot be written"
           : run->failed_io        ? "an output cannot be written"
           : command_interrupted() ? "interrupted"
                                   : "another case did not pass, and --fail-fast ends the run";
}

static void answered(void *context, int number, enum cpattn_status status,
                     struct cpattn_result *result, const char *text)
{
    struct matrix_run *run = context;
    struct outcome *outcome = &run->outcomes[number];
    run->flights[number].flying = false;
    enum status memory = outcome_init(outcome, status, result, text);
    if (!memory && result && run->options->repeat > 1 && repeats_bits(load_case(run, number)))
        memory = outcome_compare(outcome, result, &run->flights[number].digest);
    if (memory)
        run->failed_io = run->stopped = true;
    if (outcome->kind == OUTCOME_ERROR && outcome->status == STATUS_CANCELLED && run->stopped)
        memory = outcome_not_run(outcome, stop_reason(run));
    run->failed_io = run->failed_io || memory;
    finish(run, number, result);
    if (!run_again(run, number)) {
        bool of_held = settle_held(outcome, &run->flights[number].held);
        publish(run, number, of_held ? NULL : result);
    }
    cpattn_result_destroy(result);
}

// ---- the status line --------------------------------------------------------------------------

// The cases in flight, as "cp_1_0/bf16/w2, cp_1_0/bf16/w4 and 2 more".
static void flying_text(const struct matrix_run *run, char *text, size_t size)
{
    int shown = 0, more = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < run->next; i++) {
        int number = run->order[i];
        if (!run->flights[number].flying)
            continue;
        if (shown == NAMES_SHOWN_MAX || used >= size) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", shown++ ? ", " : "",
                                 run->list->cases[number].id);
    }
    if (more && used < size)
        snprintf(text + used, size - used, " and %d more", more);
}

static bool tick(void *context, const char *lost, bool others)
{
    struct matrix_run *run = context;
    char text[256] = "waiting for a daemon";
    if (command_interrupted())
        run->stopped = true;
    if (lost && !run->lost) {
        progress_clear(&run->progress);
        command_complain("%s; %s", lost,
                         others ? "its cases go to another daemon" : "waiting for a daemon");
    }
    run->lost = lost != NULL;
    if (!lost || others)
        flying_text(run, text, sizeof(text));
    progress_draw(&run->progress, command_now_ns(), run->stopped ? "stopping" : text);
    return run->stopped;
}

static void note(void *context, const char *text)
{
    struct matrix_run *run = context;
    progress_clear(&run->progress);
    command_complain("%s", text);
}

// ---- recorded verdicts ------------------------------------------------------------------------

enum status matrix_run_fate(const struct matrix_case *made, struct outcome *outcome)
{
    *outcome = (struct outcome){.kind = OUTCOME_NOT_RUN};
    if (made->fate == MATRIX_EXCLUDED)
        outcome->kind = OUTCOME_EXCLUDED;
    if (made->fate == MATRIX_REFUSED) {
        outcome->kind = OUTCOME_ERROR;
        outcome->status = made->status;
    }
    if (!made->reason)
        return STATUS_OK;
    outcome->sentence = strdup(made->reason);
    return outcome->sentence ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

// Returns the record of a case if it has a verdict, which is final; else NULL, and the case is run.
static const struct record_entry *verdict_of(const struct matrix_run *run, int number)
{
    const struct matrix_case *made = &run->list->cases[number];
    const struct record_entry *entry =
        run->resumed && made->fate == MATRIX_RUNS ? record_find(run->resumed, made->id) : NULL;
    return entry && (outcome_is_good(&entry->outcome) || entry->outcome.kind == OUTCOME_FAIL)
               ? entry
               : NULL;
}

enum status matrix_run_check_record(const struct matrix_run *run, struct error *error)
{
    char command[CASE_COMMAND_MAX];
    for (int i = 0; i < run->list->count; i++) {
        const struct record_entry *entry = verdict_of(run, i);
        struct job_spec spec;
        if (!entry)
            continue;
        matrix_case_load(&run->list->cases[i], &spec);
        job_spec_command(&spec, command, sizeof(command));
        if (!entry->command || strcmp(entry->command, command) != 0)
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "%s: %s was another case in that run; --resume takes the matrix and "
                             "the options of the run that it goes on with",
                             run->options->resume, entry->id);
    }
    return STATUS_OK;
}

static enum status outcome_copy(struct outcome *outcome, const struct outcome *from)
{
    *outcome = *from;
    outcome->detail = NULL;
    outcome->sentence = from->sentence ? strdup(from->sentence) : NULL;
    outcome->diagnosis = from->diagnosis ? strdup(from->diagnosis) : NULL;
    outcome->first = from->first ? strdup(from->first) : NULL;
    bool copied = !from->sentence == !outcome->sentence &&
                  !from->diagnosis == !outcome->diagnosis && !from->first == !outcome->first;
    return copied ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED;
}

// Finishes the cases that need no daemon: excluded, refused and recorded ones.
static void take_known(struct matrix_run *run)
{
    for (int i = 0; i < run->list->count; i++) {
        const struct record_entry *entry = verdict_of(run, i);
        enum status status = entry ? outcome_copy(&run->outcomes[i], &entry->outcome)
                                   : matrix_run_fate(&run->list->cases[i], &run->outcomes[i]);
        if (status)
            run->failed_io = run->stopped = true;
        if (entry) {
            count(&run->progress, &run->outcomes[i]);
            run->recorded++;
        } else if (run->list->cases[i].fate == MATRIX_REFUSED) {
            finish(run, i, NULL);
            publish(run, i, NULL);
        }
    }
}

// Publishes the held tries of cases that waited for another try when the run was stopped.
static void settle_all(struct matrix_run *run)
{
    for (int number; take_again(run, &number);) {
        if (settle_held(&run->outcomes[number], &run->flights[number].held))
            publish(run, number, NULL);
    }
}

// ---- the run ----------------------------------------------------------------------------------

// SplitMix64, http://xoshiro.di.unimi.it/splitmix64.c.
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Fisher and Yates.
static void shuffle(int *order, int total, uint64_t seed)
{
    for (int i = total - 1; i > 0; i--) {
        int other = (int)(draw(&seed) % (uint64_t)(i + 1));
        int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

enum status matrix_run_init(struct matrix_run *run, const struct matrix_options *options,
                            const struct matrix_list *list)
{
    size_t room = (size_t)list->count;
    *run = (struct matrix_run){.options = options, .list = list};
    run->outcomes = calloc(room, sizeof(*run->outcomes));
    run->flights = calloc(room, sizeof(*run->flights));
    run->order = calloc(room, sizeof(*run->order));
    run->again = calloc(room, sizeof(*run->again));
    if (!run->outcomes || !run->flights || !run->order || !run->again)
        return STATUS_RESOURCE_EXHAUSTED;
    for (int i = 0; i < list->count; i++)
        run->order[i] = i;
    if (options->shuffle)
        shuffle(run->order, list->count, options->shuffle_seed);
    return STATUS_OK;
}

void matrix_run_fini(struct matrix_run *run)
{
    for (int i = 0; run->outcomes && i < run->list->count; i++)
        outcome_fini(&run->outcomes[i]);
    for (int i = 0; run->flights && i < run->list->count; i++)
        outcome_fini(&run->flights[i].held);
    free(run->outcomes);
    free(run->flights);
    free(run->order);
    free(run->again);
}

static int exit_of(const struct matrix_run *run)
{
    int exit_status = COMMAND_PASS;
    int lost = run->failed_io ? command_show_failed("the answers") : run->save_exit;
    for (int i = run->list->count - 1; i >= 0; i--)
        if (run->outcomes[i].kind == OUTCOME_ERROR)
            exit_status = command_exit(run->outcomes[i].status);
    for (int i = 0; i < run->list->count; i++)
        if (run->outcomes[i].kind == OUTCOME_FAIL || run->outcomes[i].was_wrong)
            return COMMAND_FAIL;
    if (lost)
        return lost;
    if (exit_status == COMMAND_PASS && command_interrupted())
        return command_exit(STATUS_CANCELLED);
    return exit_status;
}

int matrix_run_all(struct matrix_run *run, struct cpattn_client *const *clients, int client_count)
{
    const struct matrix_list *list = run->list;
    struct flight flight = {.clients = clients,
                            .client_count = client_count,
                            .jobs = run->options->jobs,
                            .timeout_ns = run->timeout_ns,
                            .patience_ns = run->options->patience_ns,
                            .context = run,
                            .next = next_case,
                            .load = load_case,
                            .answered = answered,
                            .tick = tick,
                            .note = note};
    progress_init(&run->progress, stderr, list->count - list->fate_count[MATRIX_EXCLUDED],
                  command_now_ns());
    take_known(run);
    if (flight_run(&flight))
        run->failed_io = true;
    settle_all(run);
    progress_clear(&run->progress);
    return exit_of(run);
}
