// SPDX-License-Identifier: Apache-2.0
// Errors of visibility. Each changes rectangles of a span of queries and a span of keys.
#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

static int64_t keys_of(const struct rectangle *r)
{
    return case_length(r->c, SIDE_KV, r->keys.sequence);
}

static bool ends_the_keys(const struct rectangle *r)
{
    return r->keys.position + r->keys.len == keys_of(r);
}

// ---- the mask ----

static bool wider_right(struct rectangle *r)
{
    r->band.right += case_is_causal(r->c);
    return case_is_causal(r->c);
}

bool mask_off_by_one(struct plan *plan)
{
    return edit_rectangles(plan, wider_right);
}

static bool narrower_left(struct rectangle *r)
{
    bool bounded = r->band.left < SLICE_UNBOUNDED;
    r->band.left -= bounded;
    return bounded;
}

bool window_off_by_one(struct plan *plan)
{
    return edit_rectangles(plan, narrower_left);
}

static bool wider_left_when_packed(struct rectangle *r)
{
    bool wider = r->c->format == FORMAT_THD && r->q.sequence > 0;
    r->band.left += wider;
    return wider;
}

bool window_packed(struct plan *plan)
{
    return edit_rectangles(plan, wider_left_when_packed);
}

static bool wider_right_in_last_chunk(struct rectangle *r)
{
    r->band.right += r->q.chunk == 1;
    return r->q.chunk == 1;
}

bool diagonal_of_last_chunk(struct plan *plan)
{
    return edit_rectangles(plan, wider_right_in_last_chunk);
}

static bool without_shift(struct rectangle *r)
{
    bool shifted = r->band.shift != 0;
    r->band.shift = 0;
    return shifted;
}

bool bottom_right_top_left(struct plan *plan)
{
    return edit_rectangles(plan, without_shift);
}

// ---- the bias ----

static bool column_of_row(struct rectangle *r)
{
    int64_t column = r->keys.row % r->c->seqlen_kv;
    bool other = r->c->bias != BIAS_NONE && column != r->bias_column;
    r->bias_column = column;
    return other;
}

bool bias_local_column(struct plan *plan)
{
    return edit_rectangles(plan, column_of_row);
}

static bool column_before(struct rectangle *r)
{
    bool shifted = r->c->bias != BIAS_NONE && r->remote && r->bias_column > 0;
    r->bias_column -= shifted;
    return shifted;
}

bool bias_column_shifted(struct plan *plan)
{
    return edit_rectangles(plan, column_before);
}

// ---- which keys ----

static bool from_the_other_end(struct rectangle *r)
{
    int64_t position = keys_of(r) - r->keys.position - r->keys.len;
    if (!r->remote || position == r->keys.position)
        return false;
    r->keys.position = r->bias_column = position;
    return true;
}

bool swap_chunks(struct plan *plan)
{
    return edit_rectangles(plan, from_the_other_end);
}

static bool one_row_early(struct rectangle *r)
{
    bool early = r->c->format == FORMAT_THD && r->keys.sequence == 1 && r->keys.row > 0;
    r->keys.row -= early;
    return early;
}

bool sequence_boundary(struct plan *plan)
{
    return edit_rectangles(plan, one_row_early);
}

static bool without_the_rest(struct rectangle *r)
{
    bool rest = keys_of(r) % (2 * r->c->world_size) > 0;
    if (!rest || !ends_the_keys(r) || r->keys.len < 2)
        return false;
    r->keys.len--;
    return true;
}

bool chunk_rounded_down(struct plan *plan)
{
    return edit_rectangles(plan, without_the_rest);
}

static bool with_padding(struct rectangle *r)
{
    bool padded = keys_of(r) < case_occupied(r->c, SIDE_KV, r->keys.sequence);
    bool sees = padded && ends_the_keys(r);
    r->keys.len += sees;
    return sees;
}

bool padding_key_seen(struct plan *plan)
{
    return edit_rectangles(plan, with_padding);
}

// ---- lost windows ----

static bool without_window(struct rectangle *r)
{
    bool bounded = r->band.left < SLICE_UNBOUNDED;
    r->band.left = SLICE_UNBOUNDED;
    return bounded;
}

bool window_ignored(struct plan *plan)
{
    return edit_rectangles(plan, without_window);
}

static bool without_window_when_remote(struct rectangle *r)
{
    return r->remote && without_window(r);
}

bool window_ignored_remote(struct plan *plan)
{
    return edit_rectangles(plan, without_window_when_remote);
}

static bool without_window_backward(struct rectangle *r)
{
    return r->backward && without_window(r);
}

bool window_forward_only(struct plan *plan)
{
    return edit_rectangles(plan, without_window_backward);
}

// ---- which queries ----

// The begin of another rank's chunk minus the begin of the rank's own chunk.
static int64_t distance_to(const struct rectangle *r, int other)
{
    int64_t occupied = case_occupied(r->c, SIDE_Q, r->q.sequence), own_begin, other_begin, end;
    int chunks = r->c->world_size * shard_chunks_per_rank(r->c);
    shard_chunk(occupied, chunks, shard_chunk_of(r->c, r->rank, r->q.chunk), &own_begin, &end);
    shard_chunk(occupied, chunks, shard_chunk_of(r->c, other, r->q.chunk), &other_begin, &end);
    return other_begin - own_begin;
}

static bool as_the_next_rank(struct rectangle *r)
{
    if (team_size(r->c) > 1 || r->c->world_size == 1)
        return false;
    int64_t distance = distance_to(r, (r->rank + 1) % r->c->world_size);
    r->q.position += distance;
    return distance != 0;
}

bool ranks_swapped(struct plan *plan)
{
    return edit_rectangles(plan, as_the_next_rank);
}

static bool counted_on(struct rectangle *r)
{
    if (r->c->format != FORMAT_THD || r->q.sequence != 1)
        return false;
    int64_t before = case_length(r->c, SIDE_Q, 0);
    r->q.position += before;
    return before > 0;
}

bool packed_positions(struct plan *plan)
{
    return edit_rectangles(plan, counted_on);
}

static bool without_the_second_chunk(struct rectangle *r)
{
    bool lost = r->remote && r->q.chunk == 1;
    r->q.len = lost ? 0 : r->q.len;
    return lost;
}

bool query_chunk_lost(struct plan *plan)
{
    return edit_rectangles(plan, without_the_second_chunk);
}

// ---- keys that are lost ----

#define TAIL 16

static bool without_a_ragged_tail(struct rectangle *r)
{
    int64_t tail = keys_of(r) % TAIL;
    if (!ends_the_keys(r) || tail == 0)
        return false;
    r->keys.len -= tail < r->keys.len ? tail : r->keys.len;
    return true;
}

bool tail_keys_dropped(struct plan *plan)
{
    return edit_rectangles(plan, without_a_ragged_tail);
}

static bool without_the_last_of_the_first(struct rectangle *r)
{
    bool lost = r->keys.position == 0 && r->keys.len > 1;
    r->keys.len -= lost;
    return lost;
}

bool key_dropped(struct plan *plan)
{
    return edit_rectangles(plan, without_the_last_of_the_first);
}

// ---- the bias of queries ----

static bool row_before(struct rectangle *r)
{
    bool shifted = r->c->bias != BIAS_NONE && r->remote && r->q.bias_row > 0;
    r->q.bias_row -= shifted;
    return shifted;
}

bool bias_row_shifted(struct plan *plan)
{
    return edit_rectangles(plan, row_before);
}
