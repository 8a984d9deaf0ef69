// SPDX-License-Identifier: Apache-2.0
// Sees to it that a client of TLS 1.2 sends one certificate at most. The library would try each of
// a chain as the signer of the others, with keys of the client's own making, which can take it
// seconds; with one certificate only keys that are trusted count. Pure; sees the client's bytes
// before the library does.
#ifndef CPATTN_DAEMON_NET_CHAIN_SCREEN_H
#define CPATTN_DAEMON_NET_CHAIN_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where in the client's bytes it is; zeros at the beginning.
struct chain_screen {
    uint8_t record_type;
    uint32_t record_left, record_at; // of the body; bytes of the header that were seen
    uint8_t message_type;
    uint32_t message_at, message_bytes;
    uint32_t list_bytes, first_bytes; // of the certificates, and of the first of them
    bool over;                        // what follows is enciphered
};

// False: a list of more than one certificate has begun. Whatever else is wrong is for the library.
bool chain_screen_pass(struct chain_screen *screen, const uint8_t *data, size_t size);

#endif
