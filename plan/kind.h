// SPDX-License-Identifier: Apache-2.0
// Kinds of jobs, the daemon's side; rank/kind.h has the ranks' side. A job is the work that ranks
// are asked to do: a case of attention, or another kind in job_kinds. Its *spec* is plain data
// without pointers: a struct of its kind, which is copied between the processes of one build.
#ifndef CPATTN_PLAN_KIND_H
#define CPATTN_PLAN_KIND_H

#include <stddef.h>
#include <stdio.h>

#include "plan/cost.h"

struct plan;

#define KIND_NAME_MAX 32 // with its NUL

// Maximum bytes of a spec; attention's may have more.
#define JOB_SPEC_BYTES 2048

// Properties of a job that the daemon uses. Pointers refer to the spec.
struct job_needs {
    int32_t world_size;            // 1..WORLD_SIZE_MAX
    int32_t nodes, ranks_per_node; // placement of the ranks, as in a case; 0: any
    const char *implementation;    // the guest that runs it, or "": the daemon's own ranks
    const char *provider;          // of attention kernels, or ""
    bool verdict;                  // its results are compared; otherwise it is UNVERIFIED
    struct case_cost cost;         // lower bounds of its work; zeros: not known
};

// Element types of tensors. The first three have the numbers of enum case_dtype.
enum job_dtype {
    JOB_BF16 = DTYPE_BF16,
    JOB_FP16 = DTYPE_FP16,
    JOB_FP32 = DTYPE_FP32,
    JOB_INT32,
    JOB_INT64,
    JOB_UINT8,
    JOB_DTYPES
};
int job_dtype_bytes(enum job_dtype dtype);

// An input or a result of a rank, without gaps in memory.
struct job_tensor {
    const char *name; // "send", "dw1"
    enum job_dtype dtype;
    bool is_result;
    int dims;         // 1 or 2
    int64_t shape[2]; // with a 0: the rank has no elements of it
};

// Upper bound of job_kind's tensor_count.
#define JOB_TENSORS_MAX 16

// A rate that a bench shows beside the time: `work` per second, in units of `unit`.
#define JOB_RATES_MAX 4
struct job_rate {
    const char *name; // with its unit, '_' for a space: "BUS_GB/s"
    double work, unit;
};

// All functions except init(), finish() and check() get specs that have passed check().
struct job_kind {
    const char *name;  // a word: letters, digits and underscores
    const char *about; // for the command's help, a few words: "run one ..."
    // The field that an argument without a name sets; NULL: none.
    const char *argument;
    size_t spec_bytes; // up to JOB_SPEC_BYTES
    // Members of the spec that a request may set by name; NULL: attention, whose case has its own
    // message on the wire.
    const struct case_field *fields;
    void (*init)(void *spec); // defaults, into zeros
    // Fills members that are derived from others, after all given members are set. Idempotent.
    // NULL: there are none.
    void (*finish)(void *spec);
    // OK, or the reason of a refusal, as case_check(). All members are within the table's ranges.
    enum status (*check)(const void *spec, struct error *error);
    // Says why a field has no effect on the job ("all_gather has no root"); NULL: it has one. A
    // command refuses such an option; elsewhere such a field is accepted. Before finish(). NULL:
    // every field that check() admits has an effect.
    const char *(*vain)(const void *spec, const char *field);
    void (*needs)(const void *spec, struct job_needs *needs);
    // Maximum bytes of one rank (the largest). RESOURCE_EXHAUSTED: more than any machine has.
    enum status (*memory)(const void *spec, int64_t *rank_bytes, struct error *error);
    // Equal for specs of the same job, on every machine; NULL: computed from the fields.
    uint64_t (*hash)(const void *spec);
    // One line for people, as case_describe(); NULL: lists the fields that differ from init().
    int (*describe)(const void *spec, char *text, size_t size);
    // Builds the plan of a rank; the caller destroys it. RESOURCE_EXHAUSTED: out of memory. NULL:
    // the kind has no plans.
    enum status (*plan)(const void *spec, int rank, struct plan **plan, struct error *error);
    // Tensors of a rank by index, inputs and results, as a guest's function and cpattn_check see
    // them. False: the job has no such tensor. `tensor_count` 0: only the daemon's own ranks run
    // this kind. Attention has its own interface.
    int tensor_count;
    bool (*tensor)(const void *spec, int rank, int index, struct job_tensor *tensor);
    // Elements that rank `from` sends to rank `to`; -1, or NULL: the number follows from the
    // shapes.
    int64_t (*message)(const void *spec, int from, int to);
    // Fills in rates; returns how many. NULL: none.
    int (*rates)(const void *spec, struct job_rate rates[JOB_RATES_MAX]);
};

// All kinds; ends with NULL. Attention is the first.
extern const struct job_kind *const job_kinds[];
extern const struct job_kind job_kind_attention;

const struct job_kind *job_kind_find(const char *name); // NULL: there is none

// ---- specs ----

// A job with its spec. It contains no pointers.
struct job_spec {
    const struct job_kind *kind;
    union {
        struct cp_case attention; // only of that kind
        max_align_t align;
        char bytes[JOB_SPEC_BYTES];
    };
};

// A job of a kind other than attention, between client and daemon: names and values as text.
#define JOB_FIELDS_MAX      32
#define JOB_FIELD_NAME_MAX  40 // with its NUL, as the next
#define JOB_FIELD_VALUE_MAX 88
struct job_field {
    char name[JOB_FIELD_NAME_MAX], value[JOB_FIELD_VALUE_MAX];
};
struct job_text {
    char kind[KIND_NAME_MAX];
    int32_t field_count; // 0..JOB_FIELDS_MAX
    struct job_field fields[JOB_FIELDS_MAX];
};

void job_spec_of_case(struct job_spec *spec, const struct cp_case *c);

// Specs of any kind, attention included, field by field. A name may also be a pair of fields of a
// case, such as "seqlen".
const struct case_field *job_kind_fields(const struct job_kind *kind); // ends with a NULL name
const struct case_field *job_kind_field(const struct job_kind *kind, const char *name); // or NULL
const struct case_pair *job_kind_pair(const struct job_kind *kind, const char *name);   // or NULL
void job_spec_init(struct job_spec *spec, const struct job_kind *kind);
// INVALID_ARGUMENT, with the spec unchanged: an unknown name, or a value that is not accepted.
enum status job_spec_set(struct job_spec *spec, const char *name, const char *value,
                         struct error *error) MUST_CHECK;
int job_spec_get(const struct job_spec *spec, const struct case_field *field, char *text,
                 size_t size); // as members_get()
// finish(), the ranges of all fields, then check().
enum status job_spec_finish(struct job_spec *spec, struct error *error) MUST_CHECK;
// Calls vain().
const char *job_spec_vain(const struct job_spec *spec, const char *field);
// Number of bytes in use, from the start of the spec.
size_t job_spec_bytes(const struct job_spec *spec);

// Builds a spec from text: defaults, then the fields. INVALID_ARGUMENT: an unknown kind or field, a
// value that a field does not accept, or a field given twice; otherwise the status of check().
enum status job_spec_parse(struct job_spec *spec, const struct job_text *text,
                           struct error *error) MUST_CHECK;

struct job_needs job_spec_needs(const struct job_spec *spec);
uint64_t job_spec_hash(const struct job_spec *spec);
// The index of a tensor by its name; -1: the job has no such tensor.
int job_tensor_find(const struct job_kind *kind, const void *spec, int rank, const char *name,
                    struct job_tensor *tensor);
int64_t job_tensor_bytes(const struct job_tensor *tensor);
// Both return the length as snprintf does: one line that distinguishes the job from similar ones,
// such as "sum w4 count=100", and the command line that runs it again.
int job_spec_describe(const struct job_spec *spec, char *text, size_t size);
int job_spec_command(const struct job_spec *spec, char *text, size_t size);
enum status job_spec_memory(const struct job_spec *spec, int64_t *rank_bytes,
                            struct error *error) MUST_CHECK;

// ---- from the daemon to a rank ----

// The payload of CHANNEL_CASE: the kind, then the bytes of the spec that are in use.
struct job_frame {
    char kind[KIND_NAME_MAX]; // padded with zeros
    uint64_t left_ns;         // until the job's time limit, at the time of sending; 0: no limit
    __attribute__((aligned(16))) char
        spec[sizeof(struct cp_case) > JOB_SPEC_BYTES ? sizeof(struct cp_case) : JOB_SPEC_BYTES];
};

// Fills a frame without a time limit and returns the number of used bytes.
uint32_t job_frame_fill(struct job_frame *frame, const struct job_spec *spec);

// Builds an unchecked spec from `data`, the first `size` bytes of a frame. DATA_LOSS: not a valid
// frame.
enum status job_frame_load(const void *data, size_t size, struct job_spec *spec,
                           struct error *error) MUST_CHECK;

#endif
