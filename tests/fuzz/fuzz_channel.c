// SPDX-License-Identifier: Apache-2.0
// Any datagram of a rank is received as a frame or refused with a reason.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/channel.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ends[2] = {-1, -1};
    static _Alignas(16) uint8_t payload[CHANNEL_PAYLOAD_MAX];
    struct channel_frame frame;
    struct error error = {0};
    fuzz_accepted = false;
    // An empty datagram reads like the end of the channel. The send buffer limits the size.
    if (size == 0 || size > 2 * CHANNEL_PAYLOAD_MAX)
        return 0;
    if (ends[0] < 0)
        require(channel_pair(ends, &error) == STATUS_OK);
    require(send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);

    enum status status = channel_recv(ends[0], &frame, payload, &error);
    fuzz_accepted = status == STATUS_OK;
    if (status == STATUS_OK) {
        require(frame.length == size - sizeof(frame));
        require(memcmp(payload, data + sizeof(frame), frame.length) == 0);
        require(strcmp(channel_type_name(frame.type), "?") != 0);
        (void)!channel_hello_check(&frame, payload, 0, &error);
    } else {
        require(status == STATUS_DATA_LOSS || status == STATUS_FAILED_PRECONDITION);
        require(error.text[0] != '\0');
    }
    return 0;
}
