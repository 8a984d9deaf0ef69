// SPDX-License-Identifier: Apache-2.0
// A timeline: predicts when each operation of all ranks runs, from the plans of a case and given
// rates. For comparing plans; it is not a measurement. Pure.
#ifndef CPATTN_PLAN_TIMELINE_H
#define CPATTN_PLAN_TIMELINE_H

#include "plan/plan.h"

// Rates of the machine per second, > 0; the overhead is >= 0.
struct timeline_rates {
    double flops;        // of attention and products
    double memory_bytes; // read and written, of everything else and of local copies
    double link_bytes;   // sent by a rank, while it receives as many
    double node_bytes;   // the same, to and from ranks of other hosts (case_node())
    double overhead_s;   // seconds before each operation's work
};

// Default rates: a GPU of the year 2024 with NVLink, and a port of 400 Gbit/s to other hosts.
void timeline_rates_init(struct timeline_rates *rates);

// Times of an operation in seconds from the start of all ranks. A compute operation works from
// `start` to `end`. An exchange is posted at `start`, and moves bytes from `moves`, when all its
// peers have posted theirs, to `end`.
struct timeline_span {
    double start, moves, end;
    int32_t after; // the operation of this rank that it waited for last; -1: none
    int32_t last;  // the last rank that posted; this rank if it waits for no peer
};

struct timeline_rank {
    struct timeline_span *spans; // [op_count of its plan]
    double end;                  // of its last operation
    double forward_end;          // of its last operation of the forward phase
    double busy[PLAN_STREAMS];   // time in which the stream works
    double flops;
    int64_t sent; // bytes to other ranks
};

struct timeline {
    int world_size;
    double end; // of the last rank
    struct timeline_rank ranks[];
};

// Computes the timeline of the plans of all ranks, which plan_check() admits. INTERNAL: operations
// wait for each other in a cycle. RESOURCE_EXHAUSTED: out of memory. Free with timeline_destroy().
enum status timeline_create(struct plan *const *plans, int world_size,
                            const struct timeline_rates *rates, struct timeline **timeline,
                            struct error *error) MUST_CHECK;
void timeline_destroy(struct timeline *timeline);

// Bytes of an operation's memory traffic; operands that are read and written count twice.
int64_t timeline_bytes(const struct op *op);

// The number-th exchange of a plan, from 0; -1: there are fewer. Exchanges with the same number
// match.
int32_t timeline_exchange(const struct plan *plan, int32_t number);

// Bytes that an exchange sends to other ranks, and receives from them.
void timeline_traffic(const struct plan *plan, const struct op *op, int64_t *sent,
                      int64_t *received);
// The part of these bytes that goes to ranks of other hosts, or comes from them.
void timeline_traffic_far(const struct plan *plan, const struct op *op, int64_t *sent,
                          int64_t *received);

#endif
