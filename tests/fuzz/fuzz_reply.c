// SPDX-License-Identifier: Apache-2.0
// Any bytes as a daemon's answer. They give a reply that encoding and decoding do not change, or
// are refused with a reason.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

// Encodes, decodes and encodes again. Both encodings must be the same. The received bytes may
// differ, because there are several ways to write a message.
static void require_survives(const struct wire_reply *reply)
{
    struct wire_reply again;
    struct error error;
    void *first, *second;
    size_t first_size, second_size;
    enum status status = wire_encode_reply(reply, &first, &first_size, &error);
    require(status == STATUS_OK);
    require(wire_decode_reply(first, first_size, &again, &error) == STATUS_OK);
    require(wire_encode_reply(&again, &second, &second_size, &error) == STATUS_OK);
    require(first_size == second_size && memcmp(first, second, first_size) == 0);
    wire_reply_fini(&again);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_reply reply;
    struct error error = {.status = STATUS_OK};
    enum status status = wire_decode_reply(data, size, &reply, &error);
    fuzz_accepted = status == STATUS_OK;
    switch (status) {
    case STATUS_OK:
        require(reply.result.world_size <= WORLD_SIZE_MAX && reply.pools.pool_count <= POOLS_MAX);
        require_survives(&reply);
        wire_reply_fini(&reply);
        return 0;
    case STATUS_DATA_LOSS:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_RESOURCE_EXHAUSTED:
        require(error.status == status && error.text[0] != '\0');
        require(!reply.result.ranks && !reply.failure.ranks && !reply.pools.pools);
        return 0;
    default:
        abort();
    }
}
