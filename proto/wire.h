// SPDX-License-Identifier: Apache-2.0
// Messages of the protocol as plain structs. Only the implementation of this header uses protobuf.
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

// wire_reply.done for an order to reload.
enum wire_reload {
    RELOAD_BEGUN = 0, // under way; the daemon does not report the outcome
    RELOAD_APPLIED,
    RELOAD_NEEDS_RESTART, // some settings need a restart; the others are applied
};

// An order of an administrator.
struct wire_order {
    enum wire_order_kind kind;
    int32_t device; // DRAIN_DEVICE, ENABLE_DEVICE: 0..DEVICE_NUMBER_MAX
    int32_t host;   // DRAIN_DEVICE, ENABLE_DEVICE: index in wire_status.hosts, 0..HOSTS_MAX - 1
};

#define DEVICE_NUMBER_MAX 63

// A request for events.
struct wire_watch {
    uint64_t stream;  // wire_events.stream of the previous answer; 0: the first request
    uint64_t after;   // wire_events.last of the previous answer
    int32_t recent;   // without a stream: number of past events to begin with, 0..EVENTS_KEPT
    uint64_t wait_ns; // up to WATCH_WAIT_MAX_NS
    uint64_t kinds;   // bit mask of 1 << enum wire_event_kind; 0: all
};

struct wire_request {
    uint32_t version;
    struct request_id id;
    struct token token;        // "": none; never to be logged
    uint64_t timeout_ns;       // limit from arrival; 0: the daemon's default
    uint64_t run_timeout_ns;   // limit from the start of the run; 0: none
    uint64_t patience_ns;      // refuse when all pools have been DOWN for this long
    bool cancel_on_disconnect; // cancel a RUN when its client disconnects, even if ranks run it
    enum wire_method method;
    bool attends;               // RUN: with tensors of the client
    struct whole_places places; // with attends: the places of these tensors
    bool is_job;                // RUN: another kind of job than attention
    union {
        struct cp_case run;
        struct job_text job;      // with is_job: kind and fields as received, not checked
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
    uint64_t digest;           // hash of the digests of all ranks in order
    uint64_t queue_ns, start_ns, run_ns,
        total_ns; // waiting, start of the pool, run on the ranks, admission to answer
};

// The state of each rank when a case could not be completed.
struct wire_rank_state {
    int32_t rank;
    bool culprit;
    int32_t phase, step, waiting_for; // from the progress word; waiting_for -1: nobody
    char state;                       // of the process, as in /proc ('R', 'S', 'T', 'Z'); 'X': gone
    char fate[96];             // "killed by signal 9", "exited with 1", "aborted sibling", ""
    char text[ERROR_TEXT_MAX]; // the message of the rank, or ""
    char stderr_tail[STDERR_TAIL_BYTES + 1]; // printable ASCII, line feeds and tabs
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
    char file[256];    // path of the shared object; the end of a longer one is cut off
    char about[256];   // the provider's description of itself, or ""
    char trouble[256]; // why the provider could not be opened at the daemon's start, or ""
};

struct wire_guest {
    char name[IMPLEMENTATION_NAME_MAX];
    uint64_t world_sizes; // bit w - 1: the guest supports w ranks
    char supports[256];   // description for people, or ""
};

struct wire_description {
    char version[32];  // of the daemon, "0.1.0"
    char backend[16];  // "cpu", "cuda"
    int32_t devices;   // number of devices that pools share: cores, or the GPUs below
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
    POOL_COLD,  // no ranks; started when a job needs the pool
    POOL_STUCK, // killed, but some ranks do not end; `devices` are their devices, out of use
};
const char *pool_state_name(enum pool_state state);

struct wire_pool {
    int32_t guest; // number of the implementation in the daemon; not on the wire
    int32_t crew;  // crew number in the core, -1: no ranks; not on the wire
    int32_t nodes; // number of hosts with ranks of the pool; not on the wire
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    int32_t world_size, instance;
    enum pool_state state;
    uint32_t generation; // number of starts
    uint64_t jobs;       // number of completed jobs
    uint64_t deaths;     // how often the pool was lost
    uint64_t devices;    // bit mask: on the daemon's host GPUs by index, or cores; a pool of other
                         // hosts only has devices numbered from 0
    uint64_t hosts;      // bit mask of indices in wire_status.hosts; 1 with a single host
    bool spare;          // does not lead its twin: stands by, or will stand by once it is up
    char last_failure[ERROR_TEXT_MAX]; // or ""
    char exchange[EXCHANGE_TEXT_MAX];  // how the ranks exchange data; "": unknown
};

struct wire_host {
    char name[HOST_NAME_BYTES];
    int32_t devices;
    uint64_t devices_out;   // bit mask
    uint64_t devices_stuck; // blocked by stuck ranks: bit mask
    bool lost;
};

// Most requests that a status lists.
#define OPEN_LISTED_MAX 64

struct wire_open_request {
    char id[33];                                  // hexadecimal; "": request of another user
    char user[384];                               // sender of the request, as in the log
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    char case_text[256];
    char phase[16]; // of the rank that the others wait for, or ""
    int32_t world_size, step;
    bool running;
    uint64_t age_ns, run_ns; // time since admission; time since the start of the run, or 0
    int32_t rank_count;      // entries of the two arrays: 0, or one for each rank
    int32_t rank_phases[WORLD_SIZE_MAX], rank_steps[WORLD_SIZE_MAX]; // phases: enum report_phase
};

struct wire_status {
    uint64_t uptime_ns;
    int32_t queued, running;
    uint64_t admitted, passed, failed, errors, refused; // since the start
    uint64_t unverified;
    uint64_t devices_out;   // taken out of use by an administrator: bit mask, as in wire_pool
    uint64_t devices_stuck; // of the daemon's own host, blocked by stuck ranks; not sent
    uint64_t loop_lag_max_ns, loop_lag_p99_ns;
    bool draining;
    int32_t host_count; // 0: a single host, which is not listed
    struct wire_host hosts[HOSTS_MAX];
    int32_t pool_count;
    struct wire_pool *pools; // owned
    int32_t open_count;
    struct wire_open_request *open; // owned; running ones first, each group by admission
};

enum wire_event_kind {
    EVENT_ADMITTED = 1,
    EVENT_STARTED,
    EVENT_FINISHED,
    EVENT_POOL,
    EVENT_DEVICE,
    EVENT_DAEMON,
};
// Returns "admitted", "pool" and so on.
const char *event_kind_name(enum wire_event_kind kind);

enum device_state { DEVICE_ENABLED = 1, DEVICE_DRAINED, DEVICE_STUCK };
const char *device_state_name(enum device_state state);

// An event. Members that do not apply to its kind are 0 or "".
struct wire_event {
    uint64_t number;  // from 1
    uint64_t time_ns; // since the beginning of 1970
    enum wire_event_kind kind;
    int32_t world_size, instance;
    uint32_t generation;
    char implementation[IMPLEMENTATION_NAME_MAX]; // "": the daemon's own
    char id[33]; // `id`, `user` and `case_text` as in wire_open_request
    char user[384];
    char case_text[256];
    enum wire_verdict verdict; // EVENT_FINISHED: the verdict; 0: none
    enum status code;          // EVENT_FINISHED without a verdict: why
    uint64_t queue_ns, start_ns, run_ns, total_ns;
    enum pool_state pool;
    enum device_state device;
    uint64_t devices; // bit mask, as in wire_pool
    bool spare;
    char text[ERROR_TEXT_MAX];
};

struct wire_events {
    uint64_t stream;         // changes when the daemon restarts
    uint64_t last;           // number of the last event considered, for wire_watch.after
    uint64_t lost;           // number of events after wire_watch.after that were discarded
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
    struct wire_failure failure;  // METHOD_RUN that failed; world_size > 0: states of the ranks
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

// The following functions decode untrusted bytes. Nothing points into `data` afterwards. Unpacking
// allocates at most DECODE_BYTES_MAX for a request, DECODE_REPLY_MAX for a reply. Texts must be
// printable ASCII.

// Reads only the id and the token of a request; zeros and "" if they cannot be read. Allocates no
// memory. Of several tokens the last one counts, as in decoding.
void wire_peek_request(const void *data, size_t size, struct request_id *id, struct token *token);

// Checks every field, and the case with case_check(). The fields of another kind of job are checked
// by job_spec_parse(). If a request is refused, `request->id` and `request->token` still have the
// values of the envelope; zeros if these could not be read. INVALID_ARGUMENT: malformed bytes, or
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
