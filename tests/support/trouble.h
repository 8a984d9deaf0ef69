// SPDX-License-Identifier: Apache-2.0
// The first error of a cell of a fault matrix, or of a round of another long test.
#ifndef CPATTN_TESTS_SUPPORT_TROUBLE_H
#define CPATTN_TESTS_SUPPORT_TROUBLE_H

extern char trouble_text[1024]; // "": nothing

// Records an error; keeps the first text since trouble_forget().
__attribute__((format(printf, 1, 2))) void trouble(const char *format, ...);
void trouble_forget(void);

#endif
