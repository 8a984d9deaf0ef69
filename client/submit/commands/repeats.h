// SPDX-License-Identifier: Apache-2.0
// What --repeat prints after the last run.
#ifndef CPATTN_CLIENT_SUBMIT_COMMANDS_REPEATS_H
#define CPATTN_CLIENT_SUBMIT_COMMANDS_REPEATS_H

#include <stdint.h>

// Prints the times of `count` runs of `asked`, and sorts them. `digest`: that of all runs; NULL:
// the runs were not compared.
void repeats_print(uint64_t *run_ns, int count, int asked, const uint64_t *digest);

#endif
