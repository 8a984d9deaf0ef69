// SPDX-License-Identifier: Apache-2.0
#include "tests/mutations/mutations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mutations/edit.h"

int mutation_rounds;
enum compiled_mutation mutation_active;

static const struct mutation *current;
static int plans_changed;

const struct mutation *mutation_find(const char *name)
{
    for (int i = 0; i < mutations_count; i++)
        if (strcmp(mutations[i].name, name) == 0)
            return &mutations[i];
    fprintf(stderr, "there is no mutation %s\n", name);
    abort();
}

void mutation_set(const struct mutation *mutation)
{
    current = mutation;
    plans_changed = 0;
    mutation_active = mutation ? mutation->compiled : MUTATION_NONE;
}

const struct mutation *mutation_current(void)
{
    return current;
}

const char *mutation_name(const struct mutation *mutation)
{
    return mutation ? mutation->name : "NONE";
}

bool mutation_apply(const struct mutation *mutation, struct plan **plan)
{
    if (!mutation->change || !mutation->change(*plan))
        return false;
    if (mutation->noticed != BY_ORDERS) // edit_finish() would derive the waits again
        edit_finish(plan);
    return true;
}

int mutation_plans_changed(void)
{
    return plans_changed;
}

// ---- the linker calls this in place of plan_create() ----

enum status __real_plan_create(const struct cp_case *c, int rank, struct plan **plan,
                               struct error *error);
enum status __wrap_plan_create(const struct cp_case *c, int rank, struct plan **plan,
                               struct error *error);

enum status __wrap_plan_create(const struct cp_case *c, int rank, struct plan **plan,
                               struct error *error)
{
    enum status status = __real_plan_create(c, rank, plan, error);
    if (status == STATUS_OK && current)
        plans_changed += mutation_apply(current, plan);
    return status;
}
