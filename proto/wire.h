// SPDX-License-Identifier: Apache-2.0
// Messages of the protocol as plain structs. Only the implementation of these functions uses
// protobuf.
#ifndef CPATTN_PROTO_WIRE_H
#define CPATTN_PROTO_WIRE_H

#include "common/report.h"
#include "common/token.h"
#include "plan/kind.h"
#include "plan/places.h"

// Major version of the protocol. A peer with another version gets FAILED_PRECONDITION with both
// numbers.
#define WIRE_VERSION 1

struct request_id {
    uint8_t bytes[16];
};

// Writes an id as logs, events and clients show it, 32 hexadecimal digits. Returns `text`.
#define ID_TEXT_MAX 33
const char *request_id_text(const struct request_id *id, char text[ID_TEXT_MAX]);

#define PATIENCE_ENDLESS UINT64_MAX

enum wire_method {
    METHOD_RUN = 1,
    METHOD_DESCRIBE,
    METHOD_STATUS,
    METHOD_CANCEL,
    METHOD_ORDER,
    METHOD_WATCH,
};

enum wire_order_kind {
    ORDER_DRAIN_DEVICE = 1,
    ORDER_ENABLE_DEVICE,
    ORDER_UNPOISON,
    ORDER_RELOAD,
};

// `done` of an order to reload.
enum wire_reload {
    RELOAD_BEGUN = 0, // by a daemon that does not wait for the outcome
    RELOAD_APPLIED,
    RELOAD_NEEDS_RESTART, // the others are applied
};

// An order of an administrator.
struct wire_order {
    enum wire_order_kind kind;
    int32_t device; // 0..DEVICE_NUMBER_MAX; of the first two kinds
    int32_t host;   // 0..HOSTS_MAX - 1, as in wire_status; of the first two kinds
};

#define DEVICE_NUMBER_MAX 63

// A request of a watcher.
struct wire_watch {
    uint64_t stream;  // of the previous answer; 0: none
    uint64_t after;   // its last event
    int32_t recent;   // 0..EVENTS_KEPT; without a stream: number of past events to begin with
    uint64_t wait_ns; // up to WATCH_WAIT_MAX_NS
    uint64_t kinds;   // bit mask of 1 << enum wire_event_kind; 0: all
};

struct wire_request {
    uint32_t version;
    struct request_id id;
    struct token token;        // "": none; never to be logged
    uint64_t timeout_ns;       // from arrival; 0: the daemon's default
    uint64_t run_timeout_ns;   // from when the ranks have the case; 0: none of its own
    uint64_t patience_ns;      // for how long pools may have been DOWN; PATIENCE_ENDLESS: ever
    bool cancel_on_disconnect; // a RUN that its ranks have already got, too
    enum wire_method method;
    bool attends;               // RUN: a client's tensors take part
    struct whole_places places; // of these
    bool is_job;                // RUN: of another kind than attention
    union {
        struct cp_case run;
        struct job_text job;      // with is_job; as it came, of any kind there may be
        struct request_id cancel; // the request to cancel
        struct wire_order order;
        struct wire_watch watch;
    };
};

enum wire_verdict {
    VERDICT_PASS = 1,
    VERDICT_FAIL,
    VERDICT_UNVERIFIED, // the case asked for no comparison
};

// The answer to a completed case.
struct wire_result {
    enum wire_verdict verdict;
    int32_t world_size;
    struct rank_report *ranks; // [world_size] in order, owned
    uint64_t digest;           // of the digests of all ranks in order
    uint64_t queue_ns, start_ns, run_ns,
        total_ns; // waited, pool started, ranks at work, admission to answer
};

// The state of each rank when a case could not be completed.
struct wire_rank_state {
    int32_t rank;
    bool culprit;
    int32_t phase, step, waiting_for; // from the progress word; waiting_for -1: nobody
    char state;                // of the process as in /proc ('R', 'S', 'T', 'Z'), 'X' when gone
    char fate[96];             // "killed by signal 9", "exited with 1", "aborted sibling", ""
    char text[ERROR_TEXT_MAX]; // the message of the rank, or ""
    char stderr_tail[STDERR_TAIL_BYTES + 1]; // printable ASCII
};
struct wire_failure {
    int32_t world_size;
    struct wire_rank_state *ranks; // [world_size] in order, owned
};

struct wire_device {
    int32_t index;        // as CUDA counts them in the daemon's environment, 0..DEVICES_MAX-1
    char arch[16];        // "sm_90"
    int64_t memory_bytes; // > 0
    char name[64];        // "NVIDIA H200"
};

struct wire_provider {
    char name[PROVIDER_NAME_MAX];
    char file[256];    // its end is cut off
    char about[256];   // its description of itself, or ""
    char trouble[256]; // why it could not be opened at the daemon's start, or ""
};

struct wire_guest {
    char name[IMPLEMENTATION_NAME_MAX];
    uint64_t world_sizes; // bit w - 1: it takes w ranks
    char supports[256];   // for people; ""
};

struct wire_description {
    char version[32];  // of the daemon, "0.1.0"
    char backend[16];  // "cpu", "cuda"
    int32_t devices;   // number that pools share: cores, or the GPUs below
    int32_t gpu_count; // 0 with "cpu"
    struct wire_device gpus[DEVICES_MAX];
    int32_t provider_count;
    struct wire_provider providers[PROVIDERS_MAX];
    int32_t world_size_max;   // ranks of a case, over all hosts
    int64_t memory_bytes_max; // of one case over all ranks
    uint64_t timeout_default_ns, timeout_max_ns;
    int32_t queue_max;
    int32_t guest_count;
    struct wire_guest guests[GUESTS_MAX];
};

enum pool_state {
    POOL_STARTING = 1,
    POOL_IDLE,
    POOL_RUNNING,
    POOL_STOPPING,
    POOL_BACKOFF,
    POOL_DOWN,
    POOL_COLD,  // no ranks; the next job that needs it starts it
    POOL_STUCK, // killed, and not all ranks end: `devices`, on which these sit, are out of use
};
const char *pool_state_name(enum pool_state state);

struct wire_pool {
    int32_t guest; // number of its implementation in the daemon; not on the wire
    int32_t crew;  // likewise of its ranks; -1: it has none
    int32_t nodes; // number of hosts that its ranks are on; not on the wire
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    int32_t world_size, instance;
    enum pool_state state;
    uint32_t generation; // how often it was started
    uint64_t jobs;       // answered by it
    uint64_t deaths;
    uint64_t devices; // bit mask; of GPUs by index, else of the cores that pools share
    uint64_t hosts;   // bit mask of those of the status; 1 where there is one
    bool spare;       // stands by for another of its kind that is up, or is to
    char last_failure[ERROR_TEXT_MAX]; // or ""
    char exchange[EXCHANGE_TEXT_MAX];  // how its ranks exchange; "": nothing was said
};

struct wire_host {
    char name[HOST_NAME_BYTES];
    int32_t devices;
    uint64_t devices_out; // bit mask
    bool lost;
};

// Requests that a status lists, at most.
#define OPEN_LISTED_MAX 64

struct wire_open_request {
    char id[33];                                  // hexadecimal; "" where it is another user's
    char user[384];                               // sender of the request, as in the log
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    char case_text[256];
    char phase[16]; // of the rank that holds the others up, or ""
    int32_t world_size, step;
    bool running;
    uint64_t age_ns, run_ns; // since it was admitted; since its ranks have it, or 0
    int32_t rank_count;      // number of places that follow: 0, or all ranks
    int32_t rank_phases[WORLD_SIZE_MAX], rank_steps[WORLD_SIZE_MAX]; // enum report_phase
};

struct wire_status {
    uint64_t uptime_ns;
    int32_t queued, running;
    uint64_t admitted, passed, failed, errors, refused; // since the start
    uint64_t unverified;
    uint64_t devices_out; // bit mask, as in wire_pool
    uint64_t loop_lag_max_ns, loop_lag_p99_ns;
    bool draining;
    int32_t host_count; // 0: there is one alone
    struct wire_host hosts[HOSTS_MAX];
    int32_t pool_count;
    struct wire_pool *pools; // owned
    int32_t open_count;
    struct wire_open_request *open; // owned; first those that run, each in order of admission
};

enum wire_event_kind {
    EVENT_ADMITTED = 1,
    EVENT_STARTED,
    EVENT_FINISHED,
    EVENT_POOL,
    EVENT_DEVICE,
    EVENT_DAEMON,
};
// "admitted", "pool" ...
const char *event_kind_name(enum wire_event_kind kind);

enum device_state { DEVICE_ENABLED = 1, DEVICE_DRAINED, DEVICE_STUCK };
const char *device_state_name(enum device_state state);

// An event. Members that its kind does not have are 0 or "".
struct wire_event {
    uint64_t number;  // from 1
    uint64_t time_ns; // since the beginning of 1970
    enum wire_event_kind kind;
    int32_t world_size, instance;
    uint32_t generation;
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    char id[33];                                  // as in wire_open_request, like the next two
    char user[384];
    char case_text[256];
    enum wire_verdict verdict; // EVENT_FINISHED: this, or
    enum status code;          // why there is none
    uint64_t queue_ns, start_ns, run_ns, total_ns;
    enum pool_state pool;
    enum device_state device;
    uint64_t devices; // bit mask, as in wire_pool
    bool spare;
    char text[ERROR_TEXT_MAX];
};

struct wire_events {
    uint64_t stream;         // changes when the daemon restarts
    uint64_t last;           // for wire_watch.after
    uint64_t lost;           // number of forgotten events
    int32_t count;           // 0..EVENTS_REPLY_MAX
    struct wire_event *list; // owned
};

struct wire_reply {
    uint32_t version;
    struct request_id id;
    enum status status;
    char message[ERROR_TEXT_MAX]; // one sentence; "" when OK
    enum wire_method method;      // selects the filled member; 0: none
    struct wire_result result;    // METHOD_RUN with STATUS_OK
    struct wire_failure failure;  // METHOD_RUN that failed with the ranks' states (world_size > 0)
    struct wire_description description;
    struct wire_status pools;
    uint64_t done;             // METHOD_ORDER
    struct wire_events events; // METHOD_WATCH
};

// Encoding allocates *data with malloc; the caller frees it. RESOURCE_EXHAUSTED: memory is short,
// or the message would exceed REQUEST_BYTES_MAX / REPLY_BYTES_MAX. INTERNAL: an invalid method or
// list length. Unprintable characters of texts become '?'.
enum status wire_encode_request(const struct wire_request *r, void **data, size_t *size,
                                struct error *error) MUST_CHECK;
enum status wire_encode_reply(const struct wire_reply *r, void **data, size_t *size,
                              struct error *error) MUST_CHECK;

// Decoding of untrusted bytes. Nothing points into `data` afterwards. Unpacking takes at most
// DECODE_BYTES_MAX of memory for a request, DECODE_REPLY_MAX for a reply. Texts must be printable
// ASCII.

// The id and the token of a request; zeros and "" if they cannot be read. Takes no memory. Of
// several tokens the last one counts, as in decoding.
void wire_peek_request(const void *data, size_t size, struct request_id *id, struct token *token);

// Checks every field, and the case with case_check(). The fields of a job of another kind are left
// to job_spec_parse(). If a request is refused, `request->id` and `request->token` still have the
// values of the envelope, if it could be read, else zeros. INVALID_ARGUMENT: malformed bytes, or
// values out of range; UNIMPLEMENTED: an unknown method, or an unknown field of a case;
// FAILED_PRECONDITION: another major version; else the status of case_check().
enum status wire_decode_request(const void *data, size_t size, struct wire_request *request,
                                struct error *error) MUST_CHECK;

// On success the reply owns memory, which wire_reply_fini() frees. DATA_LOSS: malformed or out of
// range; FAILED_PRECONDITION: another major version; RESOURCE_EXHAUSTED: memory is short.
enum status wire_decode_reply(const void *data, size_t size, struct wire_reply *reply,
                              struct error *error) MUST_CHECK;
void wire_reply_fini(struct wire_reply *reply);

#endif
