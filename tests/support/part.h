// SPDX-License-Identifier: Apache-2.0
// The part of an exhaustive test that one run of the suite does.
#ifndef CPATTN_TESTS_SUPPORT_PART_H
#define CPATTN_TESTS_SUPPORT_PART_H

// An exhaustive test runs 1/part of its cases: CPATTN_TEST_PART, 1 to 16, default 4. Ends the
// program with a message if the variable is invalid.
int test_part(void);

#endif
