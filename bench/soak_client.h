// SPDX-License-Identifier: Apache-2.0
// The clients of the soak: what they ask, how they misbehave, what they hold against the answers.
#ifndef CPATTN_BENCH_SOAK_CLIENT_H
#define CPATTN_BENCH_SOAK_CLIENT_H

#include <stdint.h>

void clients_begin(void);
// Takes what has come and tells what did not; gives back how many requests are open.
int clients_serve(int64_t now_us);
// Waits for something to come, or for so long.
void clients_wait(int timeout_ms);
// What each of them feels like doing in a turn.
void clients_act(void);
void clients_close(void);

// One of them goes, with half a request on the line or not; another comes.
void client_die(void);
// Ten times what the queue holds. Whoever is through with the last flood takes part.
void clients_flood(void);
// A connection that breaks the rules, or one without the token.
void client_hostile(void);

#endif
