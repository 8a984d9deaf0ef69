// SPDX-License-Identifier: Apache-2.0
// What a diagnosis says.
#ifndef CPATTN_TESTS_JUDGE_SAYS_H
#define CPATTN_TESTS_JUDGE_SAYS_H

#include "judge/diagnosis.h"

// Fails the test unless the sentence contains `part`; NULL: unless there is no sentence.
void assert_says(const struct finding *found, const char *part);

#endif
