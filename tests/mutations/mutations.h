// SPDX-License-Identifier: Apache-2.0
// Deliberate errors, to prove that verdicts and the plan checker notice them. Most are changes of
// plans: a plan is data, so an error is a function over what plan_create() has built, and nothing
// that is installed knows of it. Those of arithmetic and of verification are compiled in
// (common/mutation.h).
//
// A program that links with $(mutated_libs) and $(mutated_ldflags) gets from plan_create() the plan
// with the error that is set.
#ifndef CPATTN_TESTS_MUTATIONS_H
#define CPATTN_TESTS_MUTATIONS_H

#ifndef CPATTN_MUTATIONS
#define CPATTN_MUTATIONS
#endif
#include "common/mutation.h"
#include "tests/mutations/changes.h"

// What detects the mutation: the verdict; the plan checker, before any run; for changed waits the
// checker, and the verdict in some explored order; the digests of two runs; or a rank that counts
// compared elements.
enum noticed { BY_VERDICT, BY_CHECKER, BY_ORDERS, BY_DIGESTS, BY_COUNT };

struct mutation {
    const char *name, *sentence;
    enum compiled_mutation compiled; // or MUTATION_NONE
    change_fn *change;               // or NULL
    enum noticed noticed;
};

// All of them, `mutations_count`.
extern const struct mutation mutations[];
extern const int mutations_count;

// Ends the program if the name is unknown.
const struct mutation *mutation_find(const char *name);

// Sets the mutation, NULL: none. Forked processes keep theirs.
void mutation_set(const struct mutation *mutation);
const struct mutation *mutation_current(void);
const char *mutation_name(const struct mutation *mutation); // "NONE" of NULL

// Changes a plan and completes its waits; false if the plan of the rank does not change, or the
// mutation is compiled in.
bool mutation_apply(const struct mutation *mutation, struct plan **plan);

// Number of plans that the mutation changed since mutation_set().
int mutation_plans_changed(void);

// The operation and rank of WAIT_LEFT_OUT.
struct mutation_place {
    int rank, op;
};
extern struct mutation_place mutation_place;

#endif
