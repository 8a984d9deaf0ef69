// SPDX-License-Identifier: Apache-2.0
// libcpattn: submits cases of context-parallel attention to a cpattnd daemon, on this machine or
// over a network.
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
// Errors. A function that can fail returns a status; CPATTN_OK is 0. If it has a `struct
// cpattn_error *` parameter (may be NULL), it stores the status and one sentence for a person
// there. Output parameters come last and are unchanged on failure, unless a function says
// otherwise. The library prints nothing, logs nothing, changes no signal handler and never ends the
// process.
//
// Ownership. The caller owns an object that a function returns (`_create`) or stores through a
// pointer to a pointer, and frees it with the `_destroy` function of its type; every `_destroy`
// accepts NULL. A returned `const` pointer belongs to the object that was asked, and is valid as
// long as that object. Pointers must not be NULL, except where this header says that they may be.
//
// Threads. All functions on a client may be called from several threads at once, except that
// cpattn_client_destroy() must be the last call. Cases, requests, results, descriptions and
// statuses have no lock: use each from one thread at a time (any thread). Nothing here is safe in a
// signal handler.
//
// Fork. A client and its requests work only in the process that created them. In a forked child
// every call on them returns CPATTN_FAILED_PRECONDITION (or returns at once if it has no status),
// and their `_destroy` frees nothing; cases and results keep working. The child may create a new
// client only if the process had no client before the fork; otherwise it must exec first.
//
// Compatibility. New members are added only at the end of structs that the library returns: use
// these structs through pointers, and do not copy them, use their size, or put them into arrays.
// Options carry their size. Enum values and functions are added, never changed. `struct
// cpattn_error` and `struct cpattn_element` never change.
#ifndef CPATTN_H
#define CPATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpattn_answer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Version of the library, as "0.1.0".
CPATTN_API const char *cpattn_version(void);

// ---- cases --------------------------------------------------------------------------------------

// What to compute and check: named fields with text values.
struct cpattn_case;

// Creates a case with valid defaults: 2 ranks, p2p, zigzag, bf16, bshd, batch 2, 8 heads of 128,
// 512 tokens, causal, forward and backward. NULL: out of memory.
CPATTN_API struct cpattn_case *cpattn_case_create(void);
CPATTN_API struct cpattn_case *cpattn_case_copy(const struct cpattn_case *c); // NULL: out of memory
CPATTN_API void cpattn_case_destroy(struct cpattn_case *c);

// Creates a job of another kind than attention, such as "collective". Fields that are not set have
// the daemon's defaults; the daemon knows which fields a kind has (cpattn-submit KIND --help lists
// them) and refuses a kind that it does not know. cpattn_attend() refuses such a case, and
// cpattn_case_tensor() returns -1. NULL: out of memory, or no valid name.
CPATTN_API struct cpattn_case *cpattn_case_create_kind(const char *kind);
CPATTN_API const char *cpattn_case_kind(const struct cpattn_case *c); // valid as long as the case

// Sets a field from text ("dtype", "fp16"); `seqlen` and `head_dim` set two fields each. kv_heads
// equals heads until it is set. INVALID_ARGUMENT: an unknown name, or a value that the field does
// not accept; the case is unchanged.
CPATTN_API enum cpattn_status cpattn_case_set(struct cpattn_case *c, const char *name,
                                              const char *value,
                                              struct cpattn_error *error) CPATTN_MUST_CHECK;

// Writes a field's value as cpattn_case_set() reads it, truncated to `size` bytes including the
// NUL. Returns the full length without the NUL, as snprintf does; -1: an unknown name.
CPATTN_API int cpattn_case_get(const struct cpattn_case *c, const char *name, char *text,
                               size_t size);

// Checks whether the case can run: OK, or INVALID_ARGUMENT or UNIMPLEMENTED with the reason. The
// daemon repeats this check; calling it first saves a request.
CPATTN_API enum cpattn_status cpattn_case_check(const struct cpattn_case *c,
                                                struct cpattn_error *error) CPATTN_MUST_CHECK;

// describe: one line that distinguishes the case from similar ones. command: the command line that
// runs it again ("cpattn-submit case --world-size 4"). Both return the length as snprintf does.
CPATTN_API int cpattn_case_describe(const struct cpattn_case *c, char *text, size_t size);
CPATTN_API int cpattn_case_command(const struct cpattn_case *c, char *text, size_t size);

// Makes a failing case small: removes ranks, sequences, heads, tokens, dimensions and features
// while fails() says that the smaller case fails, too, until no single step gives a smaller failing
// case or `tries` cases were tried. fails() gets cases that cpattn_case_check() accepts; they are
// valid during the call. Only for cases of attention. Returns the number of tried cases.
CPATTN_API int cpattn_case_minimize(struct cpattn_case *c,
                                    bool (*fails)(const struct cpattn_case *c, void *context),
                                    void *context, int tries);

// The fields of a case, for programs that list them or turn them into options.
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

// The field after `field`, or the first for NULL; NULL after the last. Fields are static.
CPATTN_API const struct cpattn_field *cpattn_field_next(const struct cpattn_field *field);
CPATTN_API const struct cpattn_field *cpattn_field_find(const char *name); // NULL: no such field

CPATTN_API const char *cpattn_field_name(const struct cpattn_field *field);
CPATTN_API const char *cpattn_field_help(const struct cpattn_field *field); // one line
CPATTN_API enum cpattn_field_kind cpattn_field_kind(const struct cpattn_field *field);
// Range of a CPATTN_FIELD_INT, or of the numbers of a CPATTN_FIELD_LIST.
CPATTN_API int64_t cpattn_field_min(const struct cpattn_field *field);
CPATTN_API int64_t cpattn_field_max(const struct cpattn_field *field);
// The index-th word of a CPATTN_FIELD_CHOICE, from 0; NULL after the last, and for other kinds.
CPATTN_API const char *cpattn_field_choice(const struct cpattn_field *field, int index);

// ---- the client ---------------------------------------------------------------------------------

// A client of one daemon: a connection for each request in flight, kept for later requests.
struct cpattn_client;

struct cpattn_options {
    size_t size; // sizeof(struct cpattn_options): CPATTN_OPTIONS_INIT sets it
    // A path, tcp://HOST:PORT or tls+tcp://HOST:PORT; NULL: $CPATTN_SOCKET, else the built-in path.
    const char *socket;
    uint64_t connect_timeout_ns; // 0: 5 s
    uint64_t grace_ns;           // extra wait for the answer after a request's time limit; 0: 5 s
    int requests_max;            // in flight at once, 1..512; 0: 64
    // Files for daemons on a network; ignored for a unix socket. Read once. NULL: the file that the
    // environment variable names, or none. A token is one line of printable ASCII; the other files
    // are PEM. Secret files must not be readable by everybody.
    const char *token_file; // $CPATTN_TOKEN_FILE
    const char *tls_ca;     // $CPATTN_TLS_CA: signer of the daemon's certificate; required for TLS
    const char *tls_certificate; // $CPATTN_TLS_CERTIFICATE: if the daemon asks
    const char *tls_key;         // $CPATTN_TLS_KEY: the key of tls_certificate
    // How long a case waits if the daemon cannot start its ranks; then the answer is UNAVAILABLE
    // with the reason. The daemon retries with growing pauses. 0: as long as the case's time limits
    // allow; 1: not at all; at most 24 h.
    uint64_t patience_ns;
    // Cancel running cases when the connection ends, for example because this process dies. If
    // false, running cases continue.
    bool cancel_on_disconnect;
};
#define CPATTN_OPTIONS_INIT                                                                        \
    {                                                                                              \
        sizeof(struct cpattn_options), NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, false             \
    }

// Connects; `options` NULL: defaults. UNAVAILABLE: no daemon listens there (the sentence says how
// to start it); PERMISSION_DENIED; DEADLINE_EXCEEDED: a listener does not answer; INVALID_ARGUMENT:
// a wrong option; UNAUTHENTICATED: one side refuses the certificate of the other; UNIMPLEMENTED:
// nng is built without TLS. The token is checked with the first request. Later requests replace
// lost connections.
CPATTN_API enum cpattn_status cpattn_client_create(const struct cpattn_options *options,
                                                   struct cpattn_client **client,
                                                   struct cpattn_error *error) CPATTN_MUST_CHECK;

// Ends the client and gives up its requests in flight: the daemon cancels the waiting ones; a
// running one continues, unless cancel_on_disconnect is set, and its answer is dropped. Request
// handles stay valid for cpattn_collect() and cpattn_request_destroy(); a given-up request is
// answered CANCELLED.
CPATTN_API void cpattn_client_destroy(struct cpattn_client *client);

// The socket or address of the daemon.
CPATTN_API const char *cpattn_client_socket(const struct cpattn_client *client);

// ---- one request at a time ----------------------------------------------------------------------

// Runs a case and waits for the verdict. timeout_ns counts from the arrival at the daemon and
// includes the wait for a turn; 0: the daemon's default, timeout_default_ns of its description; at
// most timeout_max_ns. OK means that the case ran to its end; the verdict tells whether it passed.
// *result is always set: with OK the figures; with another status the states of the ranks if the
// daemon has them, else NULL.
CPATTN_API enum cpattn_status cpattn_run(struct cpattn_client *client, const struct cpattn_case *c,
                                         uint64_t timeout_ns, struct cpattn_result **result,
                                         struct cpattn_error *error) CPATTN_MUST_CHECK;

// Tensors of the caller. All are dense, whole (not one rank's part), in host memory, and have the
// case's dtype and format; those of type float are fp32 with every dtype. NULL: an input that the
// case does not have, or a result that is not wanted. cpattn_case_tensor() returns the shape of
// each.
struct cpattn_tensors {
    size_t size; // sizeof(struct cpattn_tensors): CPATTN_TENSORS_INIT sets it
    // Inputs: q, k, v; with `training` d_out ("do"), the gradient of out; with a bias, bias; with
    // learnable sinks, sink (fp32).
    const void *q, *k, *v, *d_out, *bias;
    const float *sink;
    // Results; gradients only with `training`. lse is a natural logarithm and includes the sink.
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

// Runs a case on these inputs instead of drawn ones, and fills the results. Waits for the answer
// and returns the statuses of cpattn_run(); results are filled only with OK. The case's `verify`
// decides whether the results are compared with a reference, which is computed from the same
// inputs. Tensors travel as shared memory: UNIMPLEMENTED over a network. INVALID_ARGUMENT: an input
// of the case is missing, or a tensor is set that the case does not have.
CPATTN_API enum cpattn_status cpattn_attend(struct cpattn_client *client,
                                            const struct cpattn_case *c,
                                            const struct cpattn_tensors *tensors,
                                            uint64_t timeout_ns, struct cpattn_result **result,
                                            struct cpattn_error *error) CPATTN_MUST_CHECK;

// Returns the size in bytes of a tensor of a case ("q", "k", "v", "do", "bias", "sink", "out",
// "lse", "dq", "dk", "dv", "dbias", "dsink", "max_logit"), and stores its shape, the number of
// dimensions (1 to 4; further entries of `shape` are 1) and its dtype ("bf16", "fp16", "fp32"). -1:
// the case has no such tensor, or cannot run.
CPATTN_API int64_t cpattn_case_tensor(const struct cpattn_case *c, const char *name,
                                      int64_t shape[4], int *dims, const char **dtype);

// The daemon and its limits.
struct cpattn_description {
    const char *version;      // of the daemon
    const char *backend;      // "cpu", "cuda"
    int32_t devices;          // shared by the pools: cores or GPUs
    int32_t world_size_max;   // ranks of a case, over all hosts
    int64_t memory_bytes_max; // of one case over all ranks, and of all running cases together
    uint64_t timeout_default_ns, timeout_max_ns;
    int32_t queue_max; // requests queued and running
    int32_t gpu_count; // 0 with "cpu", else devices
    int32_t provider_count, guest_count;
};

// A guest: a value of the field `implementation`.
struct cpattn_implementation {
    const char *name;
    uint64_t world_sizes; // bit w - 1: it supports w ranks
    const char *supports; // supported cases, for people; or ""
};

// A GPU that the daemon uses.
struct cpattn_gpu {
    int32_t index;    // number that CUDA assigns in the daemon's environment
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

// A provider of attention kernels: a value of the field `provider`.
struct cpattn_provider_entry {
    const char *name;
    const char *file;    // of its shared object
    const char *about;   // its description of itself, or ""
    const char *trouble; // why it did not open at the daemon's start, or ""; cases try again
};
// The i-th provider; NULL after the last.
CPATTN_API const struct cpattn_provider_entry *
cpattn_description_provider(const struct cpattn_description *description, int i);
// The i-th guest; NULL after the last.
CPATTN_API const struct cpattn_implementation *
cpattn_description_guest(const struct cpattn_description *description, int i);
CPATTN_API void cpattn_description_destroy(struct cpattn_description *description);

// The state of the daemon. Counters begin at its start.
struct cpattn_daemon_status {
    uint64_t uptime_ns;
    int32_t queued, running;
    uint64_t admitted; // cases
    uint64_t passed, failed;
    uint64_t errors;  // admitted, but did not come to their end
    uint64_t refused; // not admitted
    bool draining;
    int32_t pool_count;
    int32_t request_count; // listed requests; `queued` and `running` count all
    uint64_t unverified;   // ran to their end without a comparison
    uint64_t devices_out;  // bit mask as in cpattn_pool: drained by an administrator
    // Time that one round of the daemon's event loop took, in the last minute or two: the maximum,
    // and the 99th percentile. 0: the daemon is of an older version.
    uint64_t loop_lag_max_ns, loop_lag_p99_ns;
    int32_t host_count; // hosts that pools are spread over, <cpattn_watch.h>; 0: one host
};

// One pool: the rank processes of one world size.
struct cpattn_pool {
    int32_t world_size, instance;
    // "starting", "idle", "running", "stopping", "backoff", "down", "cold", "stuck"
    const char *state;
    uint32_t generation;        // number of starts
    uint64_t jobs, deaths;      // answered cases; times that it was lost
    const char *last_failure;   // or ""
    uint64_t devices;           // bit mask: GPUs by index, else cores by number; see `hosts`
    bool spare;                 // stands by for another pool on the same devices, or is starting to
    const char *implementation; // a guest's name, or "" for the daemon's own
    // Bit mask of hosts, on each of which it uses the same devices. `devices` are those of the
    // first; hosts other than the daemon's count theirs from 0.
    uint64_t hosts;
    const char *exchange; // how ranks on GPUs exchange, with measured times; or ""
};

// Where a rank stands in a case. Never changes.
struct cpattn_rank_place {
    const char *phase; // "plan", "inputs", "forward", "backward", "reference", "compare", or "idle"
    int32_t step;      // of the algorithm, in that phase
};

// A waiting or running case; up to 64 are listed, running ones first.
struct cpattn_open_request {
    const char *id;   // for cpattn-submit cancel; "": it belongs to another user
    const char *user; // "uid=1000 pid=4242"; other users "uid=1000"; "address=192.0.2.7:50000"
    const char *implementation; // a guest's name, or "" for the daemon's own
    const char *case_text;      // description of the case; "": it belongs to another user
    const char *phase;          // of the slowest rank, as "forward"; or ""
    int32_t step;               // of the algorithm, in that phase
    int32_t world_size;
    bool running;
    uint64_t age_ns;                       // since admission
    uint64_t run_ns;                       // since its ranks received it; 0: it waits
    int32_t rank_count;                    // of `ranks`: 0 while it waits
    const struct cpattn_rank_place *ranks; // [rank_count]
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

// A submitted case. It is answered exactly once. Every wait in this library ends at the request's
// time limit plus grace_ns at the latest, whatever the daemon does.
struct cpattn_request;

// Sends a copy of the case and returns without waiting for the answer; it may have to connect
// first. The caller may change or destroy `c` afterwards. RESOURCE_EXHAUSTED: requests_max are in
// flight. A refusal by the daemon is an answer, not an error of this call. Another thread may get
// the request from cpattn_wait_any(), without a tag, before this call returns.
CPATTN_API enum cpattn_status cpattn_submit(struct cpattn_client *client,
                                            const struct cpattn_case *c, uint64_t timeout_ns,
                                            struct cpattn_request **request,
                                            struct cpattn_error *error) CPATTN_MUST_CHECK;

// The same with a second time limit, which counts from the moment when the ranks receive the case.
// With many cases in flight, let timeout_ns cover the longest wait, and run_timeout_ns limit each
// case. Each at most 24 h; run_timeout_ns 0: none.
CPATTN_API enum cpattn_status cpattn_submit_limited(struct cpattn_client *client,
                                                    const struct cpattn_case *c,
                                                    uint64_t timeout_ns, uint64_t run_timeout_ns,
                                                    struct cpattn_request **request,
                                                    struct cpattn_error *error) CPATTN_MUST_CHECK;

// A pointer of the caller's choice, NULL at first; the library does not use it.
CPATTN_API void cpattn_request_set_tag(struct cpattn_request *request, void *tag);
CPATTN_API void *cpattn_request_tag(const struct cpattn_request *request);

// The request's id as the daemon logs it: 32 hexadecimal digits.
CPATTN_API const char *cpattn_request_id(const struct cpattn_request *request);

// True if the request is answered. Does not wait.
CPATTN_API bool cpattn_poll(struct cpattn_request *request);

// Waits until the request is answered or timeout_ns have passed (UINT64_MAX: no limit). Returns
// true if it is answered.
CPATTN_API bool cpattn_wait(struct cpattn_request *request, uint64_t timeout_ns);

// Waits for any request of the client. Returns each answered request exactly once, in the order of
// the answers, also if cpattn_poll() or cpattn_wait() has reported it before; collected requests
// are not returned. NULL: the time is over, or nothing is in flight and every answer was returned.
CPATTN_API struct cpattn_request *cpattn_wait_any(struct cpattn_client *client,
                                                  uint64_t timeout_ns);

// Returns the answer as cpattn_run() does: the same status, *result and sentence. The caller owns
// the result; a second call returns the status again and NULL. FAILED_PRECONDITION: not answered
// yet.
CPATTN_API enum cpattn_status cpattn_collect(struct cpattn_request *request,
                                             struct cpattn_result **result,
                                             struct cpattn_error *error) CPATTN_MUST_CHECK;

// Asks the daemon to cancel the request and returns without waiting for the answer; it may have to
// connect first. The request is then answered CANCELLED, or with its result if it ended first. OK
// also if the request is already answered. UNAVAILABLE: the daemon does not answer connections;
// only the first of several calls waits for that.
CPATTN_API enum cpattn_status cpattn_cancel(struct cpattn_request *request,
                                            struct cpattn_error *error);

// Asks the daemon to cancel a request of any client by its id, 32 hexadecimal digits as returned by
// cpattn_request_id() and logged by the daemon. timeout_ns 0: 5 s. INVALID_ARGUMENT: not such an
// id; NOT_FOUND: no request with this id waits or runs.
CPATTN_API enum cpattn_status cpattn_cancel_id(struct cpattn_client *client, const char *id,
                                               uint64_t timeout_ns,
                                               struct cpattn_error *error) CPATTN_MUST_CHECK;

// Orders of an administrator: root, the daemon's user, or a user in its setting admin-users,
// through the unix socket.
enum cpattn_order {
    CPATTN_ORDER_DRAIN = 1,    // start and run nothing more on the device; running cases finish
    CPATTN_ORDER_ENABLE = 2,   // use the device again
    CPATTN_ORDER_UNPOISON = 3, // accept cases that are refused because they killed their pools
    CPATTN_ORDER_RELOAD = 4,   // read the settings again; answered when that is done
};

// Sends an order. `device`: the index of a GPU, or a core, for DRAIN and ENABLE; else 0. *count
// (may be NULL): the number of devices that are out of use now, or of cases that are no longer
// refused; for RELOAD: 1 if the settings apply, 2 if some need a restart, 0 if the daemon does not
// wait for the outcome. timeout_ns 0: 5 s. PERMISSION_DENIED: the user is not an administrator;
// INVALID_ARGUMENT: no such order or device, or the settings have an error and nothing changed.
CPATTN_API enum cpattn_status cpattn_order(struct cpattn_client *client, enum cpattn_order order,
                                           int device, uint64_t timeout_ns, uint64_t *count,
                                           struct cpattn_error *error) CPATTN_MUST_CHECK;

// Destroys a request. If it is not answered, it is cancelled first, as by cpattn_cancel().
CPATTN_API void cpattn_request_destroy(struct cpattn_request *request);

#ifdef __cplusplus
}
#endif

#endif
