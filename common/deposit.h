// SPDX-License-Identifier: Apache-2.0
// How a client hands descriptors of shared memory to the daemon, before the request that uses them:
// over a SOCK_SEQPACKET unix socket beside the daemon's own, one datagram with one or two
// descriptors (SCM_RIGHTS) and one datagram back. The daemon keeps the descriptors until the
// request comes or the connection ends.
//
// The memory is a memfd. The memory of inputs is sealed against shrinking, growing and writing and
// has no holes; the memory for results is sealed against shrinking and growing and is writable.
#ifndef CPATTN_COMMON_DEPOSIT_H
#define CPATTN_COMMON_DEPOSIT_H

#include <stdint.h>

#include "common/status.h"

// Appended to the path of the daemon's socket.
#define DEPOSIT_SUFFIX ".fd"

#define DEPOSIT_MAGIC   UINT32_C(0x43504446) // "CPDF"
#define DEPOSIT_VERSION 1

// The descriptors of a datagram, in this order: memory of inputs, memory for results.
enum { DEPOSIT_GIVEN = 1, DEPOSIT_WANTED = 2 };
#define DEPOSIT_FDS_MAX 2

struct deposit_request {
    uint32_t magic, version;
    uint8_t id[16]; // of the request that will follow
    uint32_t kinds; // DEPOSIT_* bits
};

struct deposit_reply {
    uint32_t status;           // enum status
    char text[ERROR_TEXT_MAX]; // "" when OK; NUL-terminated
};

#endif
