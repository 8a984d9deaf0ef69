// SPDX-License-Identifier: Apache-2.0
// The fields of a case and the refused cases, for people.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_SUPPORT_H
#define CPATTN_CLIENT_SUBMIT_SHOW_SUPPORT_H

#include <stdio.h>

// Prints a table of the fields with the accepted values, then the list of refused cases with
// reasons.
void support_print(FILE *out);

#endif
