// SPDX-License-Identifier: Apache-2.0
// The lists of a case, and the lengths of its sequences.
#include "plan/lengths.h"

#include <string.h>

static size_t list_offset(const struct cp_case *c, enum case_list list)
{
    size_t offset = 0;
    for (int i = 0; i < (int)list; i++)
        offset += (size_t)c->list_count[i];
    return offset;
}

const int32_t *case_list(const struct cp_case *c, enum case_list list, int32_t *count)
{
    *count = c->list_count[list];
    return c->list_values + list_offset(c, list);
}

void case_list_set(struct cp_case *c, enum case_list list, const int32_t *values, int32_t count)
{
    const size_t size = sizeof c->list_values[0];
    size_t first = list_offset(c, list), all = list_offset(c, CASE_LISTS);
    size_t behind = first + (size_t)c->list_count[list], moved = first + (size_t)count;
    memmove(c->list_values + moved, c->list_values + behind, (all - behind) * size);
    if (count > 0)
        memcpy(c->list_values + first, values, (size_t)count * size);
    if (moved < behind)
        memset(c->list_values + all - (behind - moved), 0, (behind - moved) * size);
    c->list_count[list] = count;
}

// ---- copies ----

size_t case_bytes(const struct cp_case *c)
{
    return offsetof(struct cp_case, list_values) +
           list_offset(c, CASE_LISTS) * sizeof c->list_values[0];
}

bool case_lists_fit(const struct cp_case *c)
{
    for (int i = 0; i < CASE_LISTS; i++)
        if (c->list_count[i] < 0 || c->list_count[i] > SEQUENCES_MAX)
            return false;
    return true;
}

enum status case_load(struct cp_case *c, const void *bytes, size_t size, struct error *error)
{
    if (size >= offsetof(struct cp_case, list_values) && size <= sizeof *c) {
        memcpy(c, bytes, size);
        memset((char *)c + size, 0, sizeof *c - size);
        if (case_lists_fit(c) && case_bytes(c) == size)
            return STATUS_OK;
    }
    return error_set(error, STATUS_DATA_LOSS, "%zu bytes are no case", size);
}

// ---- lengths ----

static enum case_list lengths_list(enum shard_side side)
{
    return side == SIDE_Q ? LIST_LENGTHS_Q : LIST_LENGTHS_KV;
}

static enum case_list padded_list(enum shard_side side)
{
    return side == SIDE_Q ? LIST_PADDED_Q : LIST_PADDED_KV;
}

static int64_t seqlen(const struct cp_case *c, enum shard_side side)
{
    return side == SIDE_Q ? c->seqlen_q : c->seqlen_kv;
}

// The side whose list of lengths is used.
static enum shard_side lengths_side(const struct cp_case *c, enum shard_side side)
{
    bool alike = c->list_count[LIST_LENGTHS_KV] == 0 && c->seqlen_kv == c->seqlen_q;
    return alike ? SIDE_Q : side;
}

// The side whose list of padded lengths is used. A side with its own lengths has its own padding.
static enum shard_side padded_side(const struct cp_case *c, enum shard_side side)
{
    return c->list_count[LIST_PADDED_KV] == 0 ? lengths_side(c, side) : side;
}

int64_t case_length(const struct cp_case *c, enum shard_side side, int32_t sequence)
{
    int32_t count;
    const int32_t *lengths = case_list(c, lengths_list(lengths_side(c, side)), &count);
    return count > 0 ? lengths[sequence] : seqlen(c, side);
}

int64_t case_occupied(const struct cp_case *c, enum shard_side side, int32_t sequence)
{
    if (c->format != FORMAT_THD)
        return seqlen(c, side);
    int32_t count;
    const int32_t *padded = case_list(c, padded_list(padded_side(c, side)), &count);
    if (count > 0)
        return padded[sequence];
    int64_t length = case_length(c, side, sequence), multiple = c->pad_multiple;
    return (length + multiple - 1) / multiple * multiple;
}

bool case_is_even(const struct cp_case *c, enum shard_side side)
{
    int32_t sequences = c->list_count[lengths_list(lengths_side(c, side))] > 0 ||
                                c->list_count[padded_list(padded_side(c, side))] > 0
                            ? c->batch
                            : 1; // without lists all sequences are equal
    for (int32_t i = 0; i < sequences; i++)
        if (case_length(c, side, i) != seqlen(c, side) ||
            case_occupied(c, side, i) != seqlen(c, side))
            return false;
    return true;
}

// ---- contradictions ------

static const char *list_name(enum case_list list)
{
    static const char *const names[] = {[LIST_LENGTHS_Q] = "lengths_q",
                                        [LIST_LENGTHS_KV] = "lengths_kv",
                                        [LIST_PADDED_Q] = "padded_q",
                                        [LIST_PADDED_KV] = "padded_kv"};
    return names[list];
}

enum status lengths_check_counts(const struct cp_case *c, struct error *error)
{
    for (int list = 0; list < CASE_LISTS; list++) {
        int32_t count = c->list_count[list];
        if (count != 0 && count != c->batch)
            return error_set(
                error, STATUS_INVALID_ARGUMENT,
                "%s has %d numbers and batch is %d; accepted is one for each sequence, or none",
                list_name((enum case_list)list), count, c->batch);
    }
    return STATUS_OK;
}

static enum status check_values(const struct cp_case *c, enum shard_side side, struct error *error)
{
    enum case_list list = lengths_list(side);
    int32_t count;
    const int32_t *lengths = case_list(c, list, &count);
    for (int32_t i = 0; i < count; i++)
        if (lengths[i] > seqlen(c, side))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s[%d] is %d and %s is %lld; accepted is 0 to %s", list_name(list), i,
                             lengths[i], side == SIDE_Q ? "seqlen_q" : "seqlen_kv",
                             (long long)seqlen(c, side), side == SIDE_Q ? "seqlen_q" : "seqlen_kv");
    return STATUS_OK;
}

enum status lengths_check_values(const struct cp_case *c, struct error *error)
{
    enum status status = check_values(c, SIDE_Q, error);
    return status == STATUS_OK ? check_values(c, SIDE_KV, error) : status;
}

enum status lengths_check_format(const struct cp_case *c, struct error *error)
{
    const char *format = case_choice_name(case_format_choices, c->format);
    if (c->format == FORMAT_THD)
        return STATUS_OK;
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        enum case_list list = padded_list((enum shard_side)side);
        if (c->list_count[list] > 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s is given with format %s; accepted is none there, or format thd",
                             list_name(list), format);
    }
    if (c->pad_multiple == 1)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "pad_multiple is %d with format %s; accepted is 1 there, or format thd",
                     c->pad_multiple, format);
}

static enum status check_padded(const struct cp_case *c, enum shard_side side, struct error *error)
{
    enum case_list list = padded_list(side);
    int32_t count;
    const int32_t *padded = case_list(c, list, &count);
    for (int32_t i = 0; i < count; i++) {
        int64_t length = case_length(c, side, i);
        if (padded[i] < length)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s[%d] is %d and the sequence has %lld tokens; accepted is at least "
                             "that",
                             list_name(list), i, padded[i], (long long)length);
    }
    return STATUS_OK;
}

enum status lengths_check_padded(const struct cp_case *c, struct error *error)
{
    enum status status = check_padded(c, SIDE_Q, error);
    return status == STATUS_OK ? check_padded(c, SIDE_KV, error) : status;
}

enum status lengths_check_multiple(const struct cp_case *c, struct error *error)
{
    bool listed = c->pad_multiple != 1;
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        enum shard_side from = padded_side(c, (enum shard_side)side);
        listed = listed && c->list_count[padded_list(from)] > 0;
    }
    if (!listed)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "pad_multiple is %d with padded lengths for both sides; accepted is 1 there",
                     c->pad_multiple);
}
