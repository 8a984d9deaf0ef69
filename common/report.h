// SPDX-License-Identifier: Apache-2.0
// The report of a rank on a case: figures and timings, or a failure. Plain structs, exchanged only
// within one build.
#ifndef CPATTN_COMMON_REPORT_H
#define CPATTN_COMMON_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

enum report_tensor {
    TENSOR_OUT = 1,
    TENSOR_LSE,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV,
    TENSOR_DBIAS,
    TENSOR_DSINK,
    TENSOR_MAX_LOGIT,
    TENSOR_COUNT
};

// The rules that a tensor broke; 0 is a pass. Errors are measured in units of the twin's error. The
// twin is the same attention without sharding, rounded only where every kernel has to round.
enum {
    RULE_ELEMENT = 1,   // the largest error of an element
    RULE_RMSE = 2,      // RMS of the error of the chunk
    RULE_ROW = 4,       // RMS of the error of the worst row
    RULE_NONFINITE = 8, // NaN or infinity where the reference is finite
    RULE_PADDING = 16,  // padding that is not exactly zero
    RULE_SLOPE = 32,    // the chunk is too large or too small as a whole
    RULE_ZERO = 64,     // rows that are zero by definition and are not exactly zero
    RULES_ALL = 127,
};

// A remark on a tensor, in addition to its verdict.
enum report_remark {
    REMARK_NONE,
    REMARK_LONG_SUM,   // passes only because the limit grows with the terms of its sums
    REMARK_ZEROS_PASS, // a result of zeros would pass, too: the limit is as large as the values
    REMARK_COUNT
};

// Where an element lies in the global tensor.
struct element {
    int32_t sequence, head, dim;
    int64_t position;
};

// Chunk number of the rows of a rank's tensor that belong to no token.
#define CHUNK_PADDING 2

#define TENSOR_NAME_MAX 16 // with its NUL

// Figures of one chunk of one tensor on one rank. The padding has only the number of elements,
// nonzero elements (mismatches) and nonfinite elements, the largest and the first nonzero element.
// Tensors that are not split into chunks (dbias, dsink, max_logit) are chunk 0.
struct figures {
    int32_t tensor; // enum report_tensor; 0: by its `name`, see rank/untouched.h and other kinds
    int32_t chunk;  // 0 or 1 of the rank, or CHUNK_PADDING
    int32_t broken; // RULE_* bits
    int64_t elements;
    int64_t mismatches; // elements outside the element rule
    int64_t nonfinite;
    double rmse_rel;      // RMS of the error / RMS of the reference
    double rmse_limit;    // largest accepted value
    double max_abs;       // largest absolute error
    double worst_element; // largest error of an element / its limit
    double worst_row_rel; // RMS of the error of the worst row in units of the twin's (a row is the
                          // vector of one token and one head)
    double worst_row_limit;
    struct element worst_row; // dim 0
    struct element first_bad; // of the element rule; position -1 when none
    double first_bad_got, first_bad_expected;
    double twin_rel;       // RMS of the twin's error / RMS of the reference; 0: not measured.
                           // rmse_rel / twin_rel is the error in units of the twin's
    double slope;          // <error, reference> / <reference, reference>: 0.01 is 1 % too large
    double slope_limit;    // limit of its absolute value
    int64_t judged;        // compared elements; fewer than `elements` if a sample is verified
    int64_t te_mismatches; // elements outside TransformerEngine's elementwise rule; for information
    int32_t remark;        // enum report_remark
    char name[TENSOR_NAME_MAX]; // lower-case letters, digits, underscores; "" with a `tensor`
};

struct timings {
    uint64_t plan_ns, inputs_ns, forward_ns, backward_ns;
    uint64_t exchange_ns; // time with an exchange in progress
    uint64_t exposed_ns;  // time with an exchange and no computation in progress
    uint64_t reference_ns, compare_ns;
    uint64_t launch_ns; // time to enqueue the plan of an attention on the device's streams; 0: none
};

// Why a rank refused a case before it began; the ranks stay ready. If only other ranks have a
// reason, the status is ABORTED and the text is empty.
struct refusal {
    int32_t status; // enum status; OK: the case was run, and the rest of the report is valid
    char text[ERROR_TEXT_MAX];
};

// A known mistake that explains the error of a rank's worst tensor, if one was found, or memory
// that the job has changed and must not change.
#define DIAGNOSIS_TEXT_MAX 240
struct diagnosis {
    int32_t tensor;                // enum report_tensor; 0: by its `name`, as in figures
    double explained;              // share of the squared error that the mistake explains, 0..1
    char text[DIAGNOSIS_TEXT_MAX]; // a sentence without a final stop, printable ASCII; "": there
                                   // is no diagnosis
    char name[TENSOR_NAME_MAX];    // name of the tensor, as in figures
};

// Number of attention operations of a rank that were computed by the project's own kernels and by
// the provider that the case names.
struct provider_use {
    int32_t own_forward, own_backward, provider_forward, provider_backward;
    char reason[ERROR_TEXT_MAX]; // why the first operation that the project's own kernels computed
                                 // was not computed by the provider; or ""
};

// When an operation of a plan ran, in nanoseconds after the rank began the plan.
struct op_time {
    uint64_t start_ns, end_ns;
};

// Times of the first operations of a plan, by index. A plan for 64 ranks has at most about 450
// operations; the times of 512 operations on each of 64 ranks fit into a reply.
#define OP_TIMES_MAX 512
struct op_times {
    uint64_t begin_ns; // when the rank began the plan, on the machine's monotonic clock
    int32_t count;     // 0: not wanted
    struct op_time list[OP_TIMES_MAX];
};

#define REPORT_FIGURES_MAX 24
struct rank_report {
    int32_t rank;
    bool pass;
    struct refusal refusal;
    int32_t figures_count;
    struct figures figures[REPORT_FIGURES_MAX];
    struct timings timings;
    double flops;       // of the attention that this rank computed, forward and backward
    int32_t operations; // number of operations of the plan
    uint64_t digest;    // hash of all bits of the rank's outputs; equal for bitwise equal results
    struct diagnosis diagnosis;
    struct provider_use use;
    struct op_times op_times; // last: a report travels without the unused end of the list
};

// Number of bytes of a report that are sent, for a count of operation times from 0 to OP_TIMES_MAX.
size_t report_bytes(int32_t op_times);

// True if no operation ends before it starts or later than a case may take, and the count is within
// bounds.
bool op_times_plausible(const struct op_times *times);

enum report_phase {
    REPORT_IDLE,
    REPORT_PLAN,
    REPORT_INPUTS,
    REPORT_FORWARD,
    REPORT_BACKWARD,
    REPORT_REFERENCE,
    REPORT_COMPARE,
    REPORT_PHASES
};
const char *report_phase_name(int phase);
const char *report_tensor_name(int tensor);

// Appends figures to the report, zeroed, with the tensor's name and no bad element. A report has
// room for REPORT_FIGURES_MAX.
struct figures *report_figures_add(struct rank_report *report, const char *name);

// True for 1 to TENSOR_NAME_MAX - 1 lower-case letters, digits and underscores.
bool report_name_is_valid(const char name[TENSOR_NAME_MAX]);

// Name of the tensor of these figures, for any kind of job.
const char *figures_name(const struct figures *f);

enum failure_kind {
    FAILURE_OWN = 1,   // this rank is the cause
    FAILURE_PEER_LOST, // the rank lost a peer; the cause is another rank
};

struct rank_failure {
    int32_t status; // enum status
    int32_t kind;   // enum failure_kind
    int32_t peer;   // FAILURE_PEER_LOST: the lost rank; else -1
    int32_t phase, step;
    char text[ERROR_TEXT_MAX];
};

// ---- progress words: shared memory, written by ranks, read by the daemon ------------------------

// One word per rank, written with one atomic store, so that a reader sees all or none of a change.
struct progress {
    uint64_t word; // __atomic access only
};
struct progress_view {
    uint32_t job;    // low 24 bits of the job number
    int phase, step; // enum report_phase; step of the algorithm, 0..65535
    int waiting_for; // rank this one waits for, or -1
};
void progress_store(struct progress *p, struct progress_view view);
struct progress_view progress_load(const struct progress *p);

// Returns the rank that the others wait for. Follows the waits to a rank that waits for nobody; in
// a cycle, takes the one with the earliest phase and step. If nobody waits, takes the working rank
// with the earliest phase and step; if none is working, rank 0.
int progress_culprit(const struct progress *words, int world_size);

#endif
