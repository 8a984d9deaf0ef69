// SPDX-License-Identifier: Apache-2.0
// The clients of the soak: their requests, their misbehaviour, and the checks of the answers.
#ifndef CPATTN_BENCH_SOAK_CLIENT_H
#define CPATTN_BENCH_SOAK_CLIENT_H

#include <stdint.h>

void clients_begin(void);
// Reads the answers that arrived and reports missing ones; returns the number of open requests.
int clients_serve(int64_t now_us);
// Waits for input, up to a time.
void clients_wait(int timeout_ms);
// Random actions of each client.
void clients_act(void);
void clients_close(void);

// A client ends, perhaps in the middle of a request; another one starts.
void client_die(void);
// Ten times the requests that the queue holds, from all clients whose last flood is answered.
void clients_flood(void);
// A connection that breaks the protocol, or has no token.
void client_hostile(void);

#endif
