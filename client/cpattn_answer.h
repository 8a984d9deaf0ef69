// SPDX-License-Identifier: Apache-2.0
// libcpattn: errors and results. Include <cpattn.h>, which includes this file and has the rules.
#ifndef CPATTN_ANSWER_H
#define CPATTN_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CPATTN_API        __attribute__((visibility("default")))
#define CPATTN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define CPATTN_API
#define CPATTN_MUST_CHECK
#endif

// ---- errors -------------------------------------------------------------------------------------

// Numbers and meanings are those of gRPC; cpattn-submit exits with 64 plus the number.
enum cpattn_status {
    CPATTN_OK = 0,
    CPATTN_CANCELLED = 1,
    CPATTN_UNKNOWN = 2,
    CPATTN_INVALID_ARGUMENT = 3,    // a field is malformed, or fields contradict each other
    CPATTN_DEADLINE_EXCEEDED = 4,   // the time limit passed, or is too short for the case
    CPATTN_NOT_FOUND = 5,           // no such request
    CPATTN_ALREADY_EXISTS = 6,      // the id belongs to another request
    CPATTN_PERMISSION_DENIED = 7,   // the socket may not be used by this user
    CPATTN_RESOURCE_EXHAUSTED = 8,  // queue full, out of memory, too many requests in flight
    CPATTN_FAILED_PRECONDITION = 9, // too few devices, a daemon of another version, use after fork
    CPATTN_ABORTED = 10,            // a rank died or failed; the result says which
    CPATTN_OUT_OF_RANGE = 11,
    CPATTN_UNIMPLEMENTED = 12,   // valid, but not supported
    CPATTN_INTERNAL = 13,        // a fault of the daemon or of this library
    CPATTN_UNAVAILABLE = 14,     // no daemon, it went away or drains, or ranks cannot be started
    CPATTN_DATA_LOSS = 15,       // the answer could not be decoded
    CPATTN_UNAUTHENTICATED = 16, // over a network: a wrong token or a refused certificate
};

#define CPATTN_ERROR_TEXT_MAX 512
struct cpattn_error {
    enum cpattn_status status;
    char text[CPATTN_ERROR_TEXT_MAX]; // "" after CPATTN_OK
};

// "DEADLINE_EXCEEDED" and "deadline exceeded"; "UNKNOWN" and "unknown" for an unlisted number.
CPATTN_API const char *cpattn_status_name(enum cpattn_status status);
CPATTN_API const char *cpattn_status_text(enum cpattn_status status);

// ---- results ------------------------------------------------------------------------------------

enum cpattn_verdict {
    CPATTN_VERDICT_NONE = 0, // the case did not come to its end; see cpattn_result_failure()
    CPATTN_VERDICT_PASS = 1,
    CPATTN_VERDICT_FAIL = 2,
    CPATTN_VERDICT_UNVERIFIED = 3, // the case has `verify` off: it was run, but not compared
};

// "pass", "fail", "unverified", or "none".
CPATTN_API const char *cpattn_verdict_name(enum cpattn_verdict verdict);

// Times are in nanoseconds. With CPATTN_VERDICT_NONE only world_size is set.
struct cpattn_result {
    enum cpattn_verdict verdict;
    int32_t world_size;
    uint64_t digest;             // of all bits of all outputs: equal digests mean equal results
    uint64_t queue_ns, start_ns; // waiting for a turn; then, for rank processes to start
    uint64_t run_ns;             // ranks at work
    uint64_t total_ns;           // from admission to answer
};

CPATTN_API void cpattn_result_destroy(struct cpattn_result *result);

// Nanoseconds after cpattn_rank.operations_begin_ns. Never changes.
struct cpattn_operation_time {
    uint64_t start_ns, end_ns;
};

// The measurements of one rank. If a collective or linear layers run several iterations, the sum of
// forward and backward is the mean over them. On the CPU, and of a guest, each of the times of the
// run is a mean. On a GPU backward, exchange and exposed are those of the last iteration, and
// forward is the rest of the mean; a backward that is not less than the mean becomes 0. With the
// library's own collective forward, exchange and exposed are the mean.
struct cpattn_rank {
    int32_t rank;
    bool pass;
    int32_t figures_count;
    uint64_t digest; // of this rank's outputs
    double flops;    // of the attention this rank computed, forward and backward
    uint64_t plan_ns, inputs_ns, forward_ns, backward_ns;
    uint64_t exchange_ns; // while an exchange was under way
    uint64_t exposed_ns;  // while only exchanges could proceed
    uint64_t reference_ns, compare_ns;
    const char *diagnosis;        // the mistake that explains the fail, or which memory was changed
                                  // that is not a result; one sentence, or ""
    const char *diagnosis_tensor; // the tensor of the diagnosis; or ""
    double diagnosis_explained;   // explained share of that tensor's squared error, 0..1
    // Number of attention operations computed by the project's own kernels and by the case's
    // provider. provider_reason: why the provider did not support the first operation that the own
    // kernels computed, or "".
    int32_t own_forward, own_backward, provider_forward, provider_backward;
    const char *provider_reason;
    uint64_t launch_ns; // launching the operations on the device's streams; 0: the host ran them,
                        // or the job is no attention
    int32_t operations; // in the rank's plan; 0: it has no plan, as with a guest
    // If the case has operation_times: times of the plan's first operations, at most 512.
    int32_t operation_times_count;
    uint64_t operations_begin_ns; // when the rank began the plan, on its host's monotonic clock
    const struct cpattn_operation_time *operation_times;
};

// The rules that a tensor broke. Errors are measured in units of the twin's error. The twin is the
// same attention in one piece, rounded only where every kernel on matrix units must round.
enum {
    CPATTN_RULE_ELEMENT = 1,   // the largest error of an element
    CPATTN_RULE_RMSE = 2,      // RMS of the error of the chunk
    CPATTN_RULE_ROW = 4,       // RMS of the error of the worst row
    CPATTN_RULE_NONFINITE = 8, // NaN or infinity where the reference is finite
    CPATTN_RULE_PADDING = 16,  // padding is not exactly zero
    CPATTN_RULE_SLOPE = 32,    // the chunk is too large or too small as a whole
    CPATTN_RULE_ZERO = 64,     // rows that are zero by definition are not exactly zero
};

// Information about a tensor in addition to its verdict.
enum cpattn_remark {
    CPATTN_REMARK_NONE = 0,
    // Within the limit only because of the allowance for long sums. For lse, out, dq, dk, dv.
    CPATTN_REMARK_LONG_SUM = 1,
    // Results of zero would pass, too, because the rounding errors of an honest kernel are as large
    // as the values. Never for lse and max_logit.
    CPATTN_REMARK_ZEROS_PASS = 2,
};

// Number of the chunk that holds a tensor's padding.
#define CPATTN_CHUNK_PADDING 2

// Place of an element in the global tensor; for dbias, dim is a key.
struct cpattn_element {
    int32_t sequence, head, dim;
    int64_t position;
};

// Figures of one tensor and chunk of one rank. For padding only these are set: elements, mismatches
// (not zero), nonfinite, max_abs and first_bad. dbias, dsink and max_logit are not split: they are
// chunk 0. The errors of lse and max_logit are absolute; their twin_rel and slope are 0.
struct cpattn_figures {
    const char *tensor; // "out", "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit"; of another
                        // job a name of <cpattn_guest.h>, or "same": results that must have the
                        // same bits on all ranks. Of a guest, provider or other job also "guards"
                        // and "inputs": memory it must leave as it is
    int32_t chunk;      // 0 or 1 of the rank, or CPATTN_CHUNK_PADDING
    uint32_t broken;    // CPATTN_RULE_* bits; 0 is a pass
    int64_t elements;
    int64_t mismatches; // elements that break the element rule
    int64_t nonfinite;
    double rmse_rel;      // RMS of the error / RMS of the reference
    double rmse_limit;    // limit of rmse_rel
    double max_abs;       // largest absolute error
    double worst_element; // largest error of an element / its limit
    double worst_row_rel; // RMS of the error of the worst row (the vector of one token and one
                          // head) / RMS of the twin's
    double worst_row_limit;
    struct cpattn_element worst_row; // dim is 0
    struct cpattn_element first_bad; // of the element rule; position -1: none
    double first_bad_got, first_bad_expected;
    double twin_rel;       // RMS of the twin's error / RMS of the reference; 0: not measured.
                           // rmse_rel / twin_rel is the error in units of the twin's
    double slope;          // <error, reference> / <reference, reference>: 0.01 is 1 % too large
    double slope_limit;    // limit of its absolute value
    int64_t judged;        // elements that were compared; fewer than `elements` with a sample
    int64_t te_mismatches; // elements that break TransformerEngine's own rule; for information
    enum cpattn_remark remark;
};

// The state of a rank when the case did not come to its end.
struct cpattn_failure {
    int32_t rank;
    bool culprit;            // this rank is the cause; the others were stopped with it
    const char *phase;       // the last phase it reached, as "forward"
    int32_t step;            // of the algorithm, in that phase
    int32_t waiting_for;     // the rank that it waited for, or -1
    char state;              // of the process as in /proc: 'R', 'S', 'T', 'Z'; 'X': it is gone
    const char *fate;        // "killed by signal 9", "exited with 1", "aborted sibling", or ""
    const char *text;        // the message that the rank reported, or ""
    const char *stderr_tail; // the last lines it wrote, printable ASCII, or ""
};

// A rank's measurements; NULL for a rank outside 0..world_size-1 and with CPATTN_VERDICT_NONE.
CPATTN_API const struct cpattn_rank *cpattn_result_rank(const struct cpattn_result *result,
                                                        int rank);
// The index-th figures of a rank; NULL after the last.
CPATTN_API const struct cpattn_figures *cpattn_result_figures(const struct cpattn_result *result,
                                                              int rank, int index);
// A rank's state at the failure; NULL unless CPATTN_VERDICT_NONE.
CPATTN_API const struct cpattn_failure *cpattn_result_failure(const struct cpattn_result *result,
                                                              int rank);

#ifdef __cplusplus
}
#endif

#endif
