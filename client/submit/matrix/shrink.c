// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/shrink.h"

static int64_t part(int64_t length, int64_t divisor)
{
    return length > 0 ? (length + divisor - 1) / divisor : length;
}

static void shrink_lengths(const struct cp_case *whole, enum case_list list, int64_t divisor,
                           struct cp_case *c)
{
    int32_t shrunk[SEQUENCES_MAX], count;
    const int32_t *lengths = case_list(whole, list, &count);
    for (int32_t i = 0; i < count; i++)
        shrunk[i] = (int32_t)part(lengths[i], divisor);
    case_list_set(c, list, shrunk, count);
}

static void shrink_padded(const struct cp_case *whole, enum case_list list, enum shard_side side,
                          int64_t divisor, struct cp_case *c)
{
    int32_t shrunk[SEQUENCES_MAX], count;
    const int32_t *padded = case_list(whole, list, &count);
    for (int32_t i = 0; i < count; i++) {
        int64_t length = case_length(whole, side, i);
        shrunk[i] = (int32_t)(part(length, divisor) + part(padded[i] - length, divisor));
    }
    case_list_set(c, list, shrunk, count);
}

void shrink_case(struct cp_case *c, int64_t divisor)
{
    struct cp_case whole = *c;
    c->seqlen_q = part(c->seqlen_q, divisor);
    c->seqlen_kv = part(c->seqlen_kv, divisor);
    c->window_left = part(c->window_left, divisor);
    c->window_right = part(c->window_right, divisor);
    if (!case_lists_fit(c))
        return;
    shrink_lengths(&whole, LIST_LENGTHS_Q, divisor, c);
    shrink_lengths(&whole, LIST_LENGTHS_KV, divisor, c);
    shrink_padded(&whole, LIST_PADDED_Q, SIDE_Q, divisor, c);
    shrink_padded(&whole, LIST_PADDED_KV, SIDE_KV, divisor, c);
}
