// SPDX-License-Identifier: Apache-2.0
// The correct diagnoses of deliberate errors.
#ifndef CPATTN_TESTS_MUTATIONS_DIAGNOSES_H
#define CPATTN_TESTS_MUTATIONS_DIAGNOSES_H

#include <stdbool.h>

#include "judge/diagnosis.h"

// True if the kind of diagnosis is correct for the mutation. Fails the test if the mutation is
// unknown.
bool diagnosis_expected(const char *mutation, enum diagnosis_kind kind);

#endif
