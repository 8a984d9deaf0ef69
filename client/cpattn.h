// SPDX-License-Identifier: Apache-2.0
// libcpattn: submits cases of context-parallel attention to the cpattnd daemon of this machine, or
// of another.
//
//     struct cpattn_error error;
//     struct cpattn_client *client;
//     struct cpattn_case *c = cpattn_case_create();
//     struct cpattn_result *result;
//     if (cpattn_client_create(NULL, &client, &error) != CPATTN_OK) ...
//     if (cpattn_case_set(c, "world_size", "4", &error) != CPATTN_OK) ...
//     if (cpattn_run(client, c, 0, &result, &error) == CPATTN_OK)
//         printf("%s\n", cpattn_verdict_name(result->verdict));
//     cpattn_result_destroy(result);
//     cpattn_case_destroy(c);
//     cpattn_client_destroy(client);
//
// Errors. A function that can fail returns a status; CPATTN_OK is 0. Where it takes a `struct
// cpattn_error *` (NULL is allowed), that holds one sentence for a person afterwards. Output
// parameters come last and are untouched on failure, unless a function says otherwise. The library
// prints nothing, logs nothing, changes no signal handler and never ends the process.
//
// Ownership. What a `_create` function, or a call with a `struct ... **` parameter, hands out
// belongs to the caller, who ends it with the `_destroy` function of that type; every `_destroy`
// takes NULL. What comes back as a `const` pointer belongs to the object that it was asked of and
// lives as long.
//
// Threads. All functions on a client may be called from several threads at once, except that
// cpattn_client_destroy() must be the last call. Cases, requests, results, descriptions and
// statuses have no lock: use each from one thread at a time (any thread). Nothing here is safe in a
// signal handler.
//
// Fork. A client and its requests work only in the process that created them. In a forked child
// every call on them returns CPATTN_FAILED_PRECONDITION (or, where it returns no status, at once),
// and their `_destroy` leaves the memory alone; cases and results keep working. A client created
// after the fork works if the process had none before it; otherwise the child has to exec first.
//
// Growth. Structs that the library hands out grow at their end only and are reached through
// pointers only: do not copy them, compare their size, or put them into arrays. Options carry their
// size. Enum values and functions are added, never changed. `struct cpattn_error` and `struct
// cpattn_element` never change.
#ifndef CPATTN_H
#define CPATTN_H

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
    CPATTN_DEADLINE_EXCEEDED = 4,   // the time limit passed, or cannot be kept
    CPATTN_NOT_FOUND = 5,           // no such request
    CPATTN_ALREADY_EXISTS = 6,      // this request is known already
    CPATTN_PERMISSION_DENIED = 7,   // the socket may not be used by this user
    CPATTN_RESOURCE_EXHAUSTED = 8,  // queue full, out of memory, too many requests in flight
    CPATTN_FAILED_PRECONDITION = 9, // too few devices, a daemon of another version, use after fork
    CPATTN_ABORTED = 10,            // a rank died or failed; the result says which
    CPATTN_OUT_OF_RANGE = 11,
    CPATTN_UNIMPLEMENTED = 12,   // sensible, but not built
    CPATTN_INTERNAL = 13,        // a fault of the daemon or of this library
    CPATTN_UNAVAILABLE = 14,     // no daemon, it went away or drains, or ranks cannot be started
    CPATTN_DATA_LOSS = 15,       // the answer could not be understood
    CPATTN_UNAUTHENTICATED = 16, // over a network: a wrong token, a certificate that is refused
};

#define CPATTN_ERROR_TEXT_MAX 512
struct cpattn_error {
    enum cpattn_status status;
    char text[CPATTN_ERROR_TEXT_MAX]; // "" after CPATTN_OK
};

// "DEADLINE_EXCEEDED" and "deadline exceeded"; "UNKNOWN" and "unknown" for a number outside the
// list.
CPATTN_API const char *cpattn_status_name(enum cpattn_status status);
CPATTN_API const char *cpattn_status_text(enum cpattn_status status);

// Version of the library, as "0.1.0".
CPATTN_API const char *cpattn_version(void);

// ---- cases --------------------------------------------------------------------------------------

// What to compute and check: named fields with text values.
struct cpattn_case;

// A case with defaults that runs as it is: 2 ranks, p2p, zigzag, bf16, bshd, batch 2, 8 heads of
// 128, 512 tokens, causal, forward and backward. NULL when memory is short.
CPATTN_API struct cpattn_case *cpattn_case_create(void);
CPATTN_API struct cpattn_case *
cpattn_case_copy(const struct cpattn_case *c); // NULL: memory is short
CPATTN_API void cpattn_case_destroy(struct cpattn_case *c);

// Sets a field from text ("dtype", "fp16"); `seqlen` and `head_dim` set two at once. kv_heads
// follow heads until they are set. INVALID_ARGUMENT with a sentence for an unknown name or a value
// that the field does not take; the case is unchanged then.
CPATTN_API enum cpattn_status cpattn_case_set(struct cpattn_case *c, const char *name,
                                              const char *value,
                                              struct cpattn_error *error) CPATTN_MUST_CHECK;

// Writes a field's value as cpattn_case_set() reads it, cut to `size` bytes with the final NUL.
// Returns the whole length without the NUL, as snprintf does; -1 for an unknown name.
CPATTN_API int cpattn_case_get(const struct cpattn_case *c, const char *name, char *text,
                               size_t size);

// Whether the case can run at all: OK, INVALID_ARGUMENT or UNIMPLEMENTED with the reason. The
// daemon checks the same; asking here first saves the way there.
CPATTN_API enum cpattn_status cpattn_case_check(const struct cpattn_case *c,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

// One line that tells the case from its neighbours, and the command line that runs it again
// ("cpattn-submit case --world-size 4"). Both return the length as snprintf does.
CPATTN_API int cpattn_case_describe(const struct cpattn_case *c, char *text, size_t size);
CPATTN_API int cpattn_case_command(const struct cpattn_case *c, char *text, size_t size);

// The fields of a case, so that a program can list them or make options of them.
struct cpattn_field;
enum cpattn_field_kind {
    CPATTN_FIELD_TEXT = 1, // printable ASCII
    CPATTN_FIELD_CHOICE,   // one of a list of words
    CPATTN_FIELD_INT,      // decimal, min..max
    CPATTN_FIELD_UINT,     // decimal, 0..2^64-1
    CPATTN_FIELD_REAL,
    CPATTN_FIELD_BOOL, // "true" or "false"
    CPATTN_FIELD_LIST, // one number for each sequence, min..max, as "2794,3301"; "" for none
};

// The first field for NULL, then the one after; NULL after the last. Fields live as long as the
// library.
CPATTN_API const struct cpattn_field *cpattn_field_next(const struct cpattn_field *field);
CPATTN_API const struct cpattn_field *cpattn_field_find(const char *name); // NULL: no such field

CPATTN_API const char *cpattn_field_name(const struct cpattn_field *field);
CPATTN_API const char *cpattn_field_help(const struct cpattn_field *field); // one line
CPATTN_API enum cpattn_field_kind cpattn_field_kind(const struct cpattn_field *field);
// Of a CPATTN_FIELD_INT, and of the numbers of a CPATTN_FIELD_LIST.
CPATTN_API int64_t cpattn_field_min(const struct cpattn_field *field);
CPATTN_API int64_t cpattn_field_max(const struct cpattn_field *field);
// The index-th word of a CPATTN_FIELD_CHOICE, from 0; NULL after the last, and for other kinds.
CPATTN_API const char *cpattn_field_choice(const struct cpattn_field *field, int index);

// ---- results ------------------------------------------------------------------------------------

enum cpattn_verdict {
    CPATTN_VERDICT_NONE = 0, // the case was not brought to its end; see cpattn_result_failure()
    CPATTN_VERDICT_PASS = 1,
    CPATTN_VERDICT_FAIL = 2,
    CPATTN_VERDICT_UNVERIFIED =
        3, // the case has `verify` off: it was run, and compared with nothing
};

// "pass", "fail", "unverified", or "none".
CPATTN_API const char *cpattn_verdict_name(enum cpattn_verdict verdict);

// Times are nanoseconds. With CPATTN_VERDICT_NONE only world_size is filled.
struct cpattn_result {
    enum cpattn_verdict verdict;
    int32_t world_size;
    uint64_t digest;   // of all bits of all outputs: equal digests, equal results
    uint64_t queue_ns; // waited for its turn
    uint64_t start_ns; // then waited for rank processes to start
    uint64_t run_ns;   // ranks at work
    uint64_t total_ns; // from admission to answer
};

CPATTN_API void cpattn_result_destroy(struct cpattn_result *result);

// What one rank measured.
struct cpattn_rank {
    int32_t rank;
    bool pass;
    int32_t figures_count;
    uint64_t digest; // of this rank's outputs
    double flops;    // of the attention this rank computed, forward and backward
    uint64_t plan_ns, inputs_ns, forward_ns, backward_ns;
    uint64_t exchange_ns; // an exchange was under way
    uint64_t exposed_ns;  // nothing but an exchange could go on
    uint64_t reference_ns, compare_ns;
    const char *diagnosis;        // what explains why this rank failed, one sentence; or ""
    const char *diagnosis_tensor; // the tensor that it speaks of; or ""
    double diagnosis_explained;   // share of that tensor's squared error that it explains, 0..1
    // Operations of attention that the project's own kernels computed, and the case's provider; why
    // the former computed the first that the provider did not, or "".
    int32_t own_forward, own_backward, provider_forward, provider_backward;
    const char *provider_reason;
};

// Which rules a tensor broke. Errors are measured in units of the twin's error: the twin is the
// same attention in one piece, rounded only where every kernel on matrix units has to round.
enum {
    CPATTN_RULE_ELEMENT = 1,   // the largest error of an element
    CPATTN_RULE_RMSE = 2,      // RMS of the error of the chunk
    CPATTN_RULE_ROW = 4,       // the same of the worst row
    CPATTN_RULE_NONFINITE = 8, // NaN or infinity where the reference is finite
    CPATTN_RULE_PADDING = 16,  // padding that is not exactly zero
    CPATTN_RULE_SLOPE = 32,    // the chunk is too large or too small as a whole
    CPATTN_RULE_ZERO = 64,     // rows that are zero by definition and are not exactly zero
};

// What is said of a tensor beside its verdict.
enum cpattn_remark {
    CPATTN_REMARK_NONE = 0,
    // Within the limit only because sums have many terms: lse, out, dq, dk, dv.
    CPATTN_REMARK_LONG_SUM = 1,
};

// The rows of a rank's tensor that belong to no token, as a chunk.
#define CPATTN_CHUNK_PADDING 2

// Where an element lies in the global tensor; of dbias dim is a key.
struct cpattn_element {
    int32_t sequence, head, dim;
    int64_t position;
};

// One tensor, one chunk of one rank. Of the padding there are only elements, those that are not
// zero (mismatches), those that are not finite, the largest and the first. dbias, dsink and
// max_logit are not cut: all of them is chunk 0. The errors of lse and max_logit are absolute;
// their twin_rel and slope are 0.
struct cpattn_figures {
    const char *tensor; // "out", "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit"
    int32_t chunk;      // 0 or 1 of the rank, or CPATTN_CHUNK_PADDING
    uint32_t broken;    // CPATTN_RULE_* bits; 0 is a pass
    int64_t elements;
    int64_t mismatches; // elements outside the element rule
    int64_t nonfinite;
    double rmse_rel;      // RMS of the error / RMS of the reference
    double rmse_limit;    // what it may be
    double max_abs;       // largest absolute error
    double worst_element; // largest error of an element / what it may be
    double worst_row_rel; // RMS of the error of the worst row (the vector of one token and one
                          // head) / RMS of the twin's
    double worst_row_limit;
    struct cpattn_element worst_row; // dim is 0
    struct cpattn_element first_bad; // of the element rule; position -1: none
    double first_bad_got, first_bad_expected;
    double twin_rel;       // RMS of the twin's error / RMS of the reference; 0: not measured.
                           // rmse_rel / twin_rel is the error in units of the twin's
    double slope;          // <error, reference> / <reference, reference>: 0.01 is 1 % too large
    double slope_limit;    // what its absolute value may be
    int64_t judged;        // elements that were compared; fewer than `elements` of a sample
    int64_t te_mismatches; // elements outside TransformerEngine's own rule; decides nothing
    enum cpattn_remark remark;
};

// What is known of a rank when the case was not brought to its end.
struct cpattn_failure {
    int32_t rank;
    bool culprit;            // this rank is the cause; the others were stopped with it
    const char *phase;       // "forward": where it stood
    int32_t step;            // of the algorithm, in that phase
    int32_t waiting_for;     // the rank it waited for, or -1
    char state;              // of the process as in /proc: 'R', 'S', 'T', 'Z'; 'X' when it was gone
    const char *fate;        // "killed by signal 9", "exited with 1", "aborted sibling", or ""
    const char *text;        // what the rank itself reported, or ""
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

// ---- the client ---------------------------------------------------------------------------------

// The way to one daemon: a connection for each request in flight, kept for the next.
struct cpattn_client;

struct cpattn_options {
    size_t size; // sizeof(struct cpattn_options): CPATTN_OPTIONS_INIT sets it
    // A path, tcp://HOST:PORT or tls+tcp://HOST:PORT; NULL: $CPATTN_SOCKET, else the path built in.
    const char *socket;
    uint64_t connect_timeout_ns; // 0: 5 s
    uint64_t grace_ns; // how long after a request's time limit the answer may come; 0: 5 s
    int requests_max;  // in flight at once, 1..512; 0: 64
    // For daemons on a network, and of no account for a unix socket. Files, read once; NULL: what
    // the variable of the environment names, or none. A token is one line of printable ASCII, the
    // others are PEM; what is secret may not be readable by everybody.
    const char *token_file;      // $CPATTN_TOKEN_FILE
    const char *tls_ca;          // $CPATTN_TLS_CA: who signs the daemon's; needed with tls+tcp://
    const char *tls_certificate; // $CPATTN_TLS_CERTIFICATE: ours, where the daemon asks for one
    const char *tls_key;         // $CPATTN_TLS_KEY: of it
    // How long a case waits if the daemon cannot start the ranks that it needs; then the answer is
    // UNAVAILABLE, with the reason. The daemon keeps trying, in growing pauses. 0: as long as the
    // time limits of the case allow; 1: not at all; at most 24 h.
    uint64_t patience_ns;
    // Cancel cases when the connection ends, for example because this process dies. Otherwise those
    // that run go on.
    bool cancel_on_disconnect;
};
#define CPATTN_OPTIONS_INIT                                                                        \
    {                                                                                              \
        sizeof(struct cpattn_options), NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, false             \
    }

// Connects; `options` NULL means defaults. UNAVAILABLE: nobody listens there (the sentence says how
// to start the daemon); PERMISSION_DENIED; DEADLINE_EXCEEDED: somebody listens but does not answer;
// INVALID_ARGUMENT: an option; UNAUTHENTICATED: one side refuses the certificate of the other;
// UNIMPLEMENTED: nng is built without TLS. Whether the token is the daemon's is told by the first
// answer. Connections that are lost later are made anew by later requests.
CPATTN_API enum cpattn_status cpattn_client_create(const struct cpattn_options *options,
                                                   struct cpattn_client **client,
                                                   struct cpattn_error *error) CPATTN_MUST_CHECK;

// Ends the client. Requests that are still in flight are given up: the daemon cancels those that
// wait; a request that is running goes on there and its answer is dropped. The handles of requests,
// answered or not, stay valid for cpattn_collect() and cpattn_request_destroy(); one given up is
// answered CANCELLED.
CPATTN_API void cpattn_client_destroy(struct cpattn_client *client);

// The socket or address the client talks to.
CPATTN_API const char *cpattn_client_socket(const struct cpattn_client *client);

// ---- one request at a time ----------------------------------------------------------------------

// Runs a case and waits for the verdict. timeout_ns counts from the arrival at the daemon and
// includes the wait for its turn; 0: 90 s; at most 24 h. OK means that the case ran to its end: the
// verdict says whether it passed. *result is always set: with OK the figures; with another status
// the states of the ranks where the daemon has them, else NULL.
CPATTN_API enum cpattn_status cpattn_run(struct cpattn_client *client, const struct cpattn_case *c,
                                         uint64_t timeout_ns, struct cpattn_result **result,
                                         struct cpattn_error *error) CPATTN_MUST_CHECK;

// Attention of the caller's own numbers. All tensors are dense, whole (not one rank's part), in
// host memory and of the case's dtype and format; what is fp32 in every dtype is so here. NULL: it
// is not there, or not wanted. cpattn_case_tensor() tells the shape of each.
struct cpattn_tensors {
    size_t size; // sizeof(struct cpattn_tensors): CPATTN_TENSORS_INIT sets it
    // Inputs: q, k, v; with `training` d_out ("do"), the gradient of out; with a bias, bias; with
    // learnable sinks, sink (fp32).
    const void *q, *k, *v, *d_out, *bias;
    const float *sink;
    // Results; the gradients with `training`. lse are natural logarithms, with the sink.
    void *out;
    float *lse;
    void *dq, *dk, *dv, *dbias;
    float *dsink, *max_logit;
};
#define CPATTN_TENSORS_INIT                                                                        \
    {                                                                                              \
        sizeof(struct cpattn_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL                                                                 \
    }

// Runs a case on these inputs instead of drawn ones, and fills the results. Waits for the answer,
// as cpattn_run(), and has its statuses; results are filled with OK alone. Whether they are
// compared with the reference is the case's `verify`: the verdict is about the caller's numbers.
// Tensors go to the ranks and back as shared memory: UNIMPLEMENTED over a network.
// INVALID_ARGUMENT: an input that the case has is missing, or a tensor that it does not have is
// there.
CPATTN_API enum cpattn_status cpattn_attend(struct cpattn_client *client,
                                            const struct cpattn_case *c,
                                            const struct cpattn_tensors *tensors,
                                            uint64_t timeout_ns, struct cpattn_result **result,
                                            struct cpattn_error *error) CPATTN_MUST_CHECK;

// The bytes of a tensor of a case ("q", "k", "v", "do", "bias", "sink", "out", "lse", "dq", "dk",
// "dv", "dbias", "dsink", "max_logit"), its sizes, how many they are (1 to 4; sizes behind them are
// 1), and its dtype ("bf16", "fp16", "fp32"). -1: the case has no such tensor, or cannot run.
CPATTN_API int64_t cpattn_case_tensor(const struct cpattn_case *c, const char *name,
                                      int64_t shape[4], int *dims, const char **dtype);

// What the daemon is and offers.
struct cpattn_description {
    const char *version; // of the daemon
    const char *backend; // "cpu", "cuda"
    int32_t devices;     // that pools share: cores, or GPUs
    int32_t world_size_max;
    int64_t memory_bytes_max; // of one case over all ranks
    uint64_t timeout_default_ns, timeout_max_ns;
    int32_t queue_max; // requests queued and running
    int32_t gpu_count; // 0 with "cpu", else devices
    int32_t provider_count;
    int32_t guest_count;
};

// Ranks of somebody else that the daemon runs cases on: what `implementation` of a case may be.
struct cpattn_implementation {
    const char *name;
    uint64_t world_sizes; // bit w - 1: it takes cases of w ranks
    const char *supports; // for people: what it takes; or ""
};

// A GPU that the daemon uses.
struct cpattn_gpu {
    int32_t index;    // as CUDA counts them in the daemon's environment
    const char *arch; // "sm_90"
    int64_t memory_bytes;
    const char *name; // "NVIDIA H200"
};

// timeout_ns 0: 5 s.
CPATTN_API enum cpattn_status cpattn_describe(struct cpattn_client *client, uint64_t timeout_ns,
                                              struct cpattn_description **description,
                                              struct cpattn_error *error) CPATTN_MUST_CHECK;
// The i-th GPU; NULL after the last.
CPATTN_API const struct cpattn_gpu *
cpattn_description_gpu(const struct cpattn_description *description, int i);

// A provider of attention kernels beside the project's own: what a case may name.
struct cpattn_provider_entry {
    const char *name;
    const char *file;    // of its shared object
    const char *about;   // what it says of itself, or ""
    const char *trouble; // why it could not be opened at the daemon's start, or ""; cases try again
};
// The i-th provider; NULL after the last.
CPATTN_API const struct cpattn_provider_entry *
cpattn_description_provider(const struct cpattn_description *description, int i);
// The i-th guest; NULL after the last.
CPATTN_API const struct cpattn_implementation *
cpattn_description_guest(const struct cpattn_description *description, int i);
CPATTN_API void cpattn_description_destroy(struct cpattn_description *description);

// What the daemon is doing. Counts are since its start.
struct cpattn_daemon_status {
    uint64_t uptime_ns;
    int32_t queued, running;
    uint64_t admitted; // cases taken in
    uint64_t passed, failed;
    uint64_t errors;  // admitted, but not brought to their end
    uint64_t refused; // not admitted
    bool draining;
    int32_t pool_count;
    int32_t request_count; // that the status lists; `queued` and `running` count all
    uint64_t unverified;   // ran to their end, and asked for no comparison
    uint64_t devices_out;  // bit mask, as in cpattn_pool: out of use by an administrator's order
    // For how long the daemon looked at nothing new, in the last minute or two: at most, and in 99
    // of 100 rounds of its loop. 0 where the daemon is older than this.
    uint64_t loop_lag_max_ns, loop_lag_p99_ns;
};

// One pool: the rank processes of one world size.
struct cpattn_pool {
    int32_t world_size, instance;
    // "starting", "idle", "running", "stopping", "backoff", "down", "cold", "stuck"
    const char *state;
    uint32_t generation; // how often it was started
    uint64_t jobs;       // answered by it
    uint64_t deaths;
    const char *last_failure;   // or ""
    uint64_t devices;           // bit mask: GPUs by index, else cores by number
    bool spare;                 // stands by for another on the same devices, or is to
    const char *implementation; // a guest's name, or "" for the daemon's own
};

// A case that waits or runs; up to 64 are listed, those that run first.
struct cpattn_open_request {
    const char *id;   // for cpattn-submit cancel; "" where it is another user's
    const char *user; // "uid=1000 pid=4242", of others "uid=1000"; "address=192.0.2.7:50000"
    const char *implementation; // a guest's name, or "" for the daemon's own
    const char *case_text;      // what is special to the case; "" where it is another user's
    const char *phase;          // of the rank that holds the others up: "forward", or ""
    int32_t step;               // of the algorithm, in that phase
    int32_t world_size;
    bool running;
    uint64_t age_ns; // since it was admitted
    uint64_t run_ns; // since its ranks have it; 0: it waits
};

// timeout_ns 0: 5 s.
CPATTN_API enum cpattn_status cpattn_query_status(struct cpattn_client *client, uint64_t timeout_ns,
                                                  struct cpattn_daemon_status **status,
                                                  struct cpattn_error *error) CPATTN_MUST_CHECK;
// The index-th pool; NULL after the last.
CPATTN_API const struct cpattn_pool *
cpattn_daemon_status_pool(const struct cpattn_daemon_status *status, int index);
// The index-th request; NULL after the last.
CPATTN_API const struct cpattn_open_request *
cpattn_daemon_status_request(const struct cpattn_daemon_status *status, int index);
CPATTN_API void cpattn_daemon_status_destroy(struct cpattn_daemon_status *status);

// ---- many requests in flight --------------------------------------------------------------------

// A case on its way. Answered exactly once; every wait in this library ends by the request's time
// limit plus the grace, whatever the daemon does.
struct cpattn_request;

// Sends a case (a copy: `c` may be changed or destroyed at once) and returns without waiting for
// the answer; it may have to connect first. RESOURCE_EXHAUSTED: requests_max are in flight. A
// refusal by the daemon is an answer, not an error of this call.
CPATTN_API enum cpattn_status cpattn_submit(struct cpattn_client *client,
                                            const struct cpattn_case *c, uint64_t timeout_ns,
                                            struct cpattn_request **request,
                                            struct cpattn_error *error) CPATTN_MUST_CHECK;

// The same with a second time limit, which counts from the moment when the ranks have the case, the
// wait for its turn not included: who has many cases in flight gives the first for all of them and
// the second for each. At most 24 h, each; 0 for the second: none.
CPATTN_API enum cpattn_status cpattn_submit_limited(struct cpattn_client *client,
                                                    const struct cpattn_case *c,
                                                    uint64_t timeout_ns, uint64_t run_timeout_ns,
                                                    struct cpattn_request **request,
                                                    struct cpattn_error *error) CPATTN_MUST_CHECK;

// Any pointer of the caller's, NULL at first; the way back from a request to what it belongs to.
CPATTN_API void cpattn_request_set_tag(struct cpattn_request *request, void *tag);
CPATTN_API void *cpattn_request_tag(const struct cpattn_request *request);

// The request's id as the daemon logs it: 32 hexadecimal digits.
CPATTN_API const char *cpattn_request_id(const struct cpattn_request *request);

// Whether the request is answered. Does not wait.
CPATTN_API bool cpattn_poll(struct cpattn_request *request);

// Waits until the request is answered or timeout_ns have passed (UINT64_MAX: as long as it takes).
// Returns whether it is answered.
CPATTN_API bool cpattn_wait(struct cpattn_request *request, uint64_t timeout_ns);

// Waits for any request of the client and gives each answered one exactly once, in the order of the
// answers, whatever cpattn_poll() and cpattn_wait() told about it before. NULL: the time is over,
// or nothing is in flight and every answer was given. Collected requests are not given any more.
CPATTN_API struct cpattn_request *cpattn_wait_any(struct cpattn_client *client,
                                                  uint64_t timeout_ns);

// The answer, as cpattn_run() returns it: the same status, *result and sentence. The result belongs
// to the caller; a second call gives the status again and NULL. FAILED_PRECONDITION while it is not
// answered.
CPATTN_API enum cpattn_status cpattn_collect(struct cpattn_request *request,
                                             struct cpattn_result **result,
                                             struct cpattn_error *error) CPATTN_MUST_CHECK;

// Asks the daemon to cancel; returns without waiting for its answer. The request is then answered
// CANCELLED, or as it ended if that was sooner. OK also when it is answered already.
CPATTN_API enum cpattn_status cpattn_cancel(struct cpattn_request *request,
                                            struct cpattn_error *error);

// Asks the daemon to cancel a request of any client by its id: 32 hexadecimal digits, as
// cpattn_request_id() gives it and the daemon logs it. timeout_ns 0: 5 s. INVALID_ARGUMENT: no such
// digits; NOT_FOUND: the daemon has no such request that waits or runs.
CPATTN_API enum cpattn_status cpattn_cancel_id(struct cpattn_client *client, const char *id,
                                               uint64_t timeout_ns,
                                               struct cpattn_error *error) CPATTN_MUST_CHECK;

// What an administrator asks of the daemon: root, the user that the daemon runs as, or one of its
// setting admin-users, through the unix socket.
enum cpattn_order {
    CPATTN_ORDER_DRAIN = 1,    // start and run nothing more on the device; what runs there goes on
    CPATTN_ORDER_ENABLE = 2,   // use it again
    CPATTN_ORDER_UNPOISON = 3, // refuse no case any more because it has killed its pools
    CPATTN_ORDER_RELOAD = 4,   // read the settings again; the daemon's log tells what came of it
};

// Gives an order. `device` is a GPU by its index, or a core, of the first two, else 0. *count,
// where it is not NULL, gets how many devices are out of use now, or how many cases are no longer
// refused. timeout_ns 0: 5 s. PERMISSION_DENIED: this user is no administrator; INVALID_ARGUMENT:
// no such order or device.
CPATTN_API enum cpattn_status cpattn_order(struct cpattn_client *client, enum cpattn_order order,
                                           int device, uint64_t timeout_ns, uint64_t *count,
                                           struct cpattn_error *error) CPATTN_MUST_CHECK;

// Ends a request; one that is not answered is cancelled first, without waiting.
CPATTN_API void cpattn_request_destroy(struct cpattn_request *request);

#ifdef __cplusplus
}
#endif

#endif
