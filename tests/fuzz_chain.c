// SPDX-License-Identifier: Apache-2.0
// Any bytes that a client of TLS may send, the first of which cuts the rest into pieces: what is
// said of its certificates does not depend on how they come, and who was refused stays so.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/chain_screen.h"

#define INPUT_MAX 16384

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t number(const uint8_t *bytes, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

// What handshake records hold, one after the other, up to the end of the first that changes the
// cipher.
static size_t handshake_collect(const uint8_t *data, size_t size, uint8_t *bytes)
{
    size_t at = 0, count = 0;
    while (size - at >= 5) {
        size_t length = number(data + at + 3, 2), left = size - at - 5;
        size_t here = length < left ? length : left;
        if (data[at] == 22)
            memcpy(bytes + count, data + at + 5, here);
        count += data[at] == 22 ? here : 0;
        if (data[at] == 20 && here == length)
            break;
        at += 5 + here;
    }
    return count;
}

// Whether a message with certificates says that its first is not its last.
static bool has_two(const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; count - at >= 4;) {
        size_t length = number(bytes + at + 1, 3);
        if (bytes[at] == 11 && length >= 6 && count - at >= 10 &&
            number(bytes + at + 7, 3) + 3 < number(bytes + at + 4, 3))
            return true;
        if (count - at - 4 < length)
            return false;
        at += 4 + length;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t handshake[INPUT_MAX];
    if (size < 2 || size > INPUT_MAX)
        return 0;
    size_t piece = (size_t)data[0] + 1;
    struct chain_screen whole = {0}, pieces = {0};
    data++;
    size--;
    bool passes = chain_screen_pass(&whole, data, size), passed = true;
    size_t at = 0;
    for (; passed && at < size; at += piece)
        passed = chain_screen_pass(&pieces, data + at, size - at < piece ? size - at : piece);
    require(passes == passed);
    require(passes == !has_two(handshake, handshake_collect(data, size, handshake)));
    return 0;
}
