// SPDX-License-Identifier: Apache-2.0
// The changes of plans that tests/mutations/table.c lists with a sentence for each. All return
// whether the rank's plan is another one now.
#ifndef CPATTN_TESTS_MUTATIONS_CHANGES_H
#define CPATTN_TESTS_MUTATIONS_CHANGES_H

#include "plan/plan.h"

typedef bool change_fn(struct plan *plan);

// rectangles.c: who sees whom
change_fn mask_off_by_one, window_off_by_one, window_packed, diagonal_of_last_chunk,
    bottom_right_top_left, bias_local_column, bias_column_shifted, swap_chunks, sequence_boundary,
    chunk_rounded_down, padding_key_seen;

// steps.c: what is computed step by step
change_fn drop_step, stale_slot, drop_dq_step, drop_dkv_add, hop_drops_chunk, lse_partial,
    stale_sum, gather_drop_part, adds_change_places, a2a_drop_member, replicated_kv_lost;

// messages.c: what travels where
change_fn dk_wrong_owner, gather_wrong_owner, a2a_wrong_heads;

// extras.c: what rows begin with, sinks, bias and the largest logit
change_fn sink_dropped, empty_row_finite, padding_not_zero, sum_drops_rank, max_own_shard,
    sink_grad_one_rank, dbias_drops_rank, dbias_step_lost;

// waits.c: these change waits and nothing else
change_fn missing_wait, wait_left_out;

#endif
