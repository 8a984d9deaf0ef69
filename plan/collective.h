// SPDX-License-Identifier: Apache-2.0
// Collectives as a kind of job: the spec, and the origin of each element. All elements are
// counted in a rank's *send* and its *receive*, arrays of one element type.
//
// With P ranks and a count of n, rank r has
//
//   operation       send                   receive
//   all_reduce      n                      n, the reduction of all
//   all_gather      n                      P n, block s is the send of rank s
//   reduce_scatter  P n                    n, the reduction of all blocks r
//   all_to_all      P n                    P n, block s is block r of rank s
//   all_to_allv     c(r,0)+..+c(r,P-1)     c(0,r)+..+c(P-1,r), likewise; c is drawn from the seed
//   broadcast       n on the root, else 0  n, the root's send
//   reduce          n                      n on the root, else 0: the reduction of all
//   send_receive    n                      n, the send of rank r-1 in the ring
//
// The minimum and maximum of real numbers are those of IEEE 754-2019: -0 is less than +0, and with
// a NaN the result is NaN. They do not depend on the order of the ranks.
//
// In place, send and receive share memory and begin at the same element, except: the send of an
// all_gather is block r of the receive, and the receive of a reduce_scatter is block r of the send.
#ifndef CPATTN_PLAN_COLLECTIVE_H
#define CPATTN_PLAN_COLLECTIVE_H

#include "plan/element.h"
#include "plan/kind.h"

enum collective_operation {
    COLLECTIVE_ALL_REDUCE = 1,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_ALL_TO_ALLV,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_REDUCE,
    COLLECTIVE_SEND_RECEIVE,
    COLLECTIVE_OPERATIONS
};

// RING: every rank exchanges with its two neighbours; in an all-to-all, in step s with the ranks s
// places away. TREE: binomial. HALVING: recursive halving and doubling. DIRECT: every rank sends to
// every other rank at once. AUTO: one of these, by operation, ranks and size. NCCL: the library's
// own call, on GPUs; its plan has buffers and no operations.
enum collective_algorithm {
    ALGORITHM_AUTO = 1,
    ALGORITHM_RING,
    ALGORITHM_TREE,
    ALGORITHM_HALVING,
    ALGORITHM_DIRECT,
    ALGORITHM_NCCL,
    ALGORITHMS
};

#define COLLECTIVE_COUNT_MAX      (INT64_C(1) << 33)
#define COLLECTIVE_SIZE_MAX       (INT64_C(1) << 36)
#define COLLECTIVE_OFFSET_MAX     63
#define COLLECTIVE_ITERATIONS_MAX 10000

struct collective {
    int32_t world_size; // 1..WORLD_SIZE_MAX
    enum collective_operation operation;
    enum collective_reduction reduction; // for operations that reduce
    enum collective_element dtype;
    enum collective_algorithm algorithm;
    int64_t count;      // elements, 0..COLLECTIVE_COUNT_MAX; all_to_allv: maximum of a message
    int64_t size;       // bytes as in nccl-tests, from which the count follows; 0: count is given
    int32_t iterations; // number of consecutive runs; the time is their mean
    int32_t root;       // of broadcast and reduce
    int32_t offset;     // shift of the arrays in memory, in elements
    bool in_place;
    bool verify;
    uint64_t seed;         // of the elements
    bool specials;         // real elements include zeros of either sign, infinities, NaN, denormals
    uint64_t explore_seed; // 0: run in plan order; else in the legal order drawn from this seed
    bool operation_times;  // each rank reports when each operation of its last run ran
    char implementation[IMPLEMENTATION_NAME_MAX]; // the guest that runs it; "": the daemon's own
    int32_t nodes, ranks_per_node;                // placement, as in a case; 0: any
};

extern const struct job_kind job_kind_collective; // its spec is a struct collective

// Its tensors, by index.
enum { COLLECTIVE_SEND, COLLECTIVE_RECEIVE, COLLECTIVE_TENSORS };

// ---- properties of a spec that check() admits ----

int collective_element_bytes(enum collective_element element);
bool collective_is_real(enum collective_element element); // else an integer type
bool collective_reduces(const struct collective *c);
bool collective_halves(int ranks); // a power of 2, which halving needs
enum collective_algorithm collective_algorithm(const struct collective *c); // never AUTO

// Elements that `from` sends to `to` in an all_to_all or all_to_allv.
int64_t collective_message(const struct collective *c, int from, int to);

// Size in bytes as in nccl-tests: the larger of a rank's send and receive. Ratio of bus bandwidth
// to algorithm bandwidth.
int64_t collective_size(const struct collective *c);
double collective_bus_factor(const struct collective *c);

// Elements of a rank's send and receive.
int64_t collective_send_count(const struct collective *c, int rank);
int64_t collective_receive_count(const struct collective *c, int rank);

// In place: number of elements of the shared memory, and the first elements of send and receive in
// it.
struct collective_shared {
    int64_t count, send, receive;
};
struct collective_shared collective_shared(const struct collective *c, int rank);

struct plan;

// Builds the plan of a rank for plan_check() and the executor. Its buffers are `send` and
// `receive`, or `data` in place, if they are not empty, and scratch. The offset of the arrays
// belongs to the guard bytes before them. RESOURCE_EXHAUSTED: out of
// memory.
enum status collective_plan(const struct collective *c, int rank, struct plan **plan,
                            struct error *error) MUST_CHECK;

#endif
