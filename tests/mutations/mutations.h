// SPDX-License-Identifier: Apache-2.0
// Deliberate errors, to prove that verdicts and the plan checker notice them. Most are functions
// that change a plan of plan_create(); no installed code contains them. Errors of arithmetic and of
// verification are compiled in (common/mutation.h).
//
// In a program that links with $(mutated_libs) and $(mutated_ldflags), plan_create() returns plans
// with the error of mutation_set().
#ifndef CPATTN_TESTS_MUTATIONS_H
#define CPATTN_TESTS_MUTATIONS_H

#ifndef CPATTN_MUTATIONS
#define CPATTN_MUTATIONS
#endif
#include "common/mutation.h"
#include "tests/mutations/changes.h"

// What detects the mutation. BY_VERDICT: the verdict. BY_CHECKER: the plan checker, before a run.
// BY_ORDERS, for waits: the checker, and the verdict in some explored orders. BY_DIGESTS: the
// digests of two runs. BY_COUNT: the rank, which counts the judged elements.
enum noticed { BY_VERDICT, BY_CHECKER, BY_ORDERS, BY_DIGESTS, BY_COUNT };

struct mutation {
    const char *name, *sentence;
    enum compiled_mutation compiled; // or MUTATION_NONE
    change_fn *change;               // or NULL
    enum noticed noticed;
};

// All mutations.
extern const struct mutation mutations[];
extern const int mutations_count;

// Ends the program if the name is unknown.
const struct mutation *mutation_find(const char *name);

// Sets the mutation of this process and of its later children. NULL: none.
void mutation_set(const struct mutation *mutation);
const struct mutation *mutation_current(void);
const char *mutation_name(const struct mutation *mutation); // "NONE" of NULL

// Changes a plan and derives its waits again (not with BY_ORDERS). False if the plan of this rank
// does not change, or the mutation is compiled in.
bool mutation_apply(const struct mutation *mutation, struct plan **plan);

// Number of plans that the mutation changed since mutation_set().
int mutation_plans_changed(void);

// The rank and the operation that WAIT_LEFT_OUT changes.
struct mutation_place {
    int rank, op;
};
extern struct mutation_place mutation_place;

#endif
