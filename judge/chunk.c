// SPDX-License-Identifier: Apache-2.0
#include "judge/chunk.h"

int64_t chunk_tokens(const struct span *spans, int count, int chunk)
{
    int64_t tokens = 0;
    for (int i = 0; i < count; i++)
        tokens += spans[i].chunk == chunk ? spans[i].len : 0;
    return tokens;
}

struct element chunk_element(const struct span *spans, int count, int chunk, int heads,
                             int64_t index)
{
    int64_t token = index / heads;
    struct element where = {.head = (int32_t)(index % heads)};
    for (int i = 0; i < count; i++) {
        if (spans[i].chunk != chunk)
            continue;
        if (token < spans[i].len) {
            where.sequence = spans[i].sequence;
            where.position = spans[i].position + token;
            break;
        }
        token -= spans[i].len;
    }
    return where;
}
