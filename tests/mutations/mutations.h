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

// Who notices: the verdict; the plan checker, so that no rank need run such a plan; the checker and
// the verdict in some explored order, as only waits are changed; the digests of two runs; or a rank
// that counts what was compared.
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

// Ends the program where there is none of that name.
const struct mutation *mutation_find(const char *name);

// Sets one, NULL: none. Processes keep what they were forked with.
void mutation_set(const struct mutation *mutation);
const struct mutation *mutation_current(void);
const char *mutation_name(const struct mutation *mutation); // "NONE" of NULL

// Makes the change of a plan, whose waits then fit it; false where it makes no difference to the
// rank. Of a mutation that is compiled in: false.
bool mutation_apply(const struct mutation *mutation, struct plan **plan);

// How many of the plans created since mutation_set() the mutation has changed.
int mutation_plans_changed(void);

// Which operation of which rank's plan WAIT_LEFT_OUT is about.
struct mutation_place {
    int rank, op;
};
extern struct mutation_place mutation_place;

#endif
