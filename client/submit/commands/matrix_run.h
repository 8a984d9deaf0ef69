// SPDX-License-Identifier: Apache-2.0
// Runs the cases of a list: submits, retries, records and prints each answer.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_RUN_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_MATRIX_RUN_H

#include "client/submit/commands/matrix_options.h"
#include "client/submit/show/progress.h"

struct matrix_run {
    const struct matrix_options *options;
    const struct matrix_list *list;
    const struct record *resumed; // cases with a verdict there are not run; NULL: none
    int recorded;                 // number of these cases
    FILE *save;                   // gets each answer, too; NULL: none
    uint64_t timeout_ns;          // of each case; 0: none given
    struct outcome *outcomes;     // [list->count]
    struct progress progress;
    bool failed_io; // memory ran out, or an output other than `save` failed
    int save_exit;  // the exit status, after a complaint, if writing to `save` has failed

    // Private.
    struct matrix_flight *flights; // [list->count]
    int *order;                    // [list->count]: the order of submission
    int *again;                    // [list->count]: a ring of cases to submit again
    int again_first, again_count;
    int next; // index in `order` of the next case to submit
    struct job_spec submitted;
    bool stopped; // nothing more is submitted
    bool lost;    // one of the daemons accepts no cases now
};

// Prepares a run; borrows `options` and `list`. RESOURCE_EXHAUSTED: out of memory. Call
// matrix_run_fini() in any case.
enum status matrix_run_init(struct matrix_run *run, const struct matrix_options *options,
                            const struct matrix_list *list) MUST_CHECK;
void matrix_run_fini(struct matrix_run *run);

// FAILED_PRECONDITION if the record to resume has an id of the list with another case.
enum status matrix_run_check_record(const struct matrix_run *run, struct error *error) MUST_CHECK;

// Runs all cases on one or several daemons (flight.h). Returns the exit status.
int matrix_run_all(struct matrix_run *run, struct cpattn_client *const *clients, int client_count);

// Sets the outcome of a case that was not submitted: excluded or refused, with the reason, else not
// run. RESOURCE_EXHAUSTED: out of memory.
enum status matrix_run_fate(const struct matrix_case *made, struct outcome *outcome) MUST_CHECK;

#endif
