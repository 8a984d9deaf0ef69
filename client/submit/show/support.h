// SPDX-License-Identifier: Apache-2.0
// What a case can ask for and what is refused, for people.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_SUPPORT_H
#define CPATTN_CLIENT_SUBMIT_SHOW_SUPPORT_H

#include <stdio.h>

// A table of the fields with what each accepts, then the list of what is refused and why.
void support_print(FILE *out);

#endif
