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
// Each client except flooders sends a random request, or nothing.
void clients_act(void);
void clients_close(void);

// Closes the connection of a random client, perhaps in the middle of a frame, and opens a new one.
void client_die(void);
// Each flooder fills its free places for requests in flight: in all up to twelve times the requests
// that the queue holds.
void clients_flood(void);
// Opens a connection that breaks the protocol or lacks the right token.
void client_hostile(void);

#endif
