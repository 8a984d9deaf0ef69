// SPDX-License-Identifier: Apache-2.0
// Changes of plans; tests/mutations/table.c describes each with a sentence. They return true if
// they have changed the rank's plan.
#ifndef CPATTN_TESTS_MUTATIONS_CHANGES_H
#define CPATTN_TESTS_MUTATIONS_CHANGES_H

#include "plan/plan.h"

typedef bool change_fn(struct plan *plan);

// rectangles.c: masks
change_fn mask_off_by_one, window_off_by_one, window_packed, diagonal_of_last_chunk,
    bottom_right_top_left, bias_local_column, bias_column_shifted, swap_chunks, sequence_boundary,
    chunk_rounded_down, padding_key_seen, window_ignored, window_ignored_remote,
    window_forward_only, ranks_swapped, packed_positions, query_chunk_lost, tail_keys_dropped,
    key_dropped, bias_row_shifted;

// steps.c: computation of the steps
change_fn drop_step, stale_slot, drop_dq_step, drop_dkv_add, hop_drops_chunk, lse_partial,
    stale_sum, gather_drop_part, adds_change_places, a2a_drop_member, replicated_kv_lost,
    stale_ring_kv, kv_transposed, v_is_k, own_attended_twice, backward_step_twice, world_factor,
    d_too_early, out_too_early, dkv_too_early, rowdot_zero, convert_truncates;

// messages.c: messages
change_fn dk_wrong_owner, gather_wrong_owner, a2a_wrong_heads, out_home_turned, lse_home_turned,
    dq_home_turned, dk_one_hop_short, sent_chunks_swapped, ring_reversed, slots_shared,
    message_short, exchange_missing, exchange_extra;

// extras.c: initial values, sinks, bias and the largest logit
change_fn sink_dropped, empty_row_finite, padding_not_zero, sum_drops_rank, max_own_shard,
    sink_grad_one_rank, dbias_drops_rank, dbias_step_lost, masked_rank_nan, masked_rank_unwritten,
    lse_unstarted, empty_row_dq, unseen_key_dk, off_by_one_dropped, lse_too_large, sink_twice,
    sink_grad_twice, dbias_twice, dbias_two_zeroed, max_step_lost;

// waits.c: only waits
change_fn missing_wait, wait_left_out;

#endif
