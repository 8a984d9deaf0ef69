// SPDX-License-Identifier: Apache-2.0
// The switch of the deliberate errors, for programs that are built with them.
#ifndef CPATTN_TESTS_MUTATIONS_H
#define CPATTN_TESTS_MUTATIONS_H

#ifndef CPATTN_MUTATIONS
#define CPATTN_MUTATIONS
#endif
#include "common/mutation.h"

// "DROP_STEP"; "NONE" for none.
const char *mutation_name(enum mutation mutation);

#endif
