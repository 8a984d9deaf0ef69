// SPDX-License-Identifier: Apache-2.0
#include "tests/mutations.h"

bool mutation_rounds;
enum mutation mutation_active;
unsigned int mutation_turns;
struct mutation_place mutation_place;

const char *mutation_name(enum mutation mutation)
{
    static const char *const names[] = {[MUTATION_NONE] = "NONE",
#define MUTATION_NAME(name, sentence) [MUTATION_##name] = #name,
                                        MUTATION_LIST(MUTATION_NAME)
#undef MUTATION_NAME
    };
    return names[mutation];
}
