// SPDX-License-Identifier: Apache-2.0
// Kinds of jobs. A job is what ranks are asked to do: a case of attention, or something else that
// has a row in job_kinds. What a job asks for is its *spec*: plain data without pointers, a struct
// of its kind's, that is copied between the processes of one build. The daemon knows of a kind what
// stands here; rank/kind.h has what ranks do for it.
#ifndef CPATTN_PLAN_KIND_H
#define CPATTN_PLAN_KIND_H

#include <stddef.h>

#include "plan/cost.h"

#define KIND_NAME_MAX 32 // with its NUL

// Bytes that the spec of a kind may have; attention's may have more.
#define JOB_SPEC_BYTES 2048

// What the daemon has to know of a job. Pointers lead into the spec.
struct job_needs {
    int32_t world_size;         // 1..WORLD_SIZE_MAX
    const char *implementation; // the guest whose ranks run it, or "": our own
    const char *provider;       // of attention kernels, or ""
    bool verdict;               // its results are compared with something; else it is UNVERIFIED
    struct case_cost cost;      // what it takes at least; zeros where nobody has counted
};

// Functions get specs that check() admits, but for init() and check().
struct job_kind {
    const char *name;  // a word: letters, digits and underscores
    size_t spec_bytes; // up to JOB_SPEC_BYTES
    // Members of the spec that a request may set by name; NULL: attention, whose case has a message
    // of its own on the wire.
    const struct case_field *fields;
    void (*init)(void *spec); // defaults, into zeros
    // OK, or the reason why not, as case_check(): of members within the ranges of the table.
    enum status (*check)(const void *spec, struct error *error);
    void (*needs)(const void *spec, struct job_needs *needs);
    // Bytes that one rank (the largest) takes at most. RESOURCE_EXHAUSTED: no machine has them.
    enum status (*memory)(const void *spec, int64_t *rank_bytes, struct error *error);
    // Equal for specs that are the same job, on every machine; NULL: as the fields are.
    uint64_t (*hash)(const void *spec);
    // A line for people, as case_describe(); NULL: the fields that differ from init().
    int (*describe)(const void *spec, char *text, size_t size);
};

// Those that there are; ends with NULL. Attention is the first.
extern const struct job_kind *const job_kinds[];
extern const struct job_kind job_kind_attention;

const struct job_kind *job_kind_find(const char *name); // NULL: there is none

// ---- specs ----

// A job with its spec, which nothing outside points into.
struct job_spec {
    const struct job_kind *kind;
    union {
        struct cp_case attention; // only of that kind
        max_align_t align;
        char bytes[JOB_SPEC_BYTES];
    };
};

// A job of another kind as it travels between client and daemon: names and values as text.
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

// Makes a spec of text: defaults, then the fields. INVALID_ARGUMENT: there is no such kind, or it
// has no such field, or a field does not take its value, or is there twice; else what check() says.
enum status job_spec_parse(struct job_spec *spec, const struct job_text *text,
                           struct error *error) MUST_CHECK;

struct job_needs job_spec_needs(const struct job_spec *spec);
uint64_t job_spec_hash(const struct job_spec *spec);
int job_spec_describe(const struct job_spec *spec, char *text, size_t size); // as snprintf
enum status job_spec_memory(const struct job_spec *spec, int64_t *rank_bytes,
                            struct error *error) MUST_CHECK;

// ---- from the daemon to a rank ----

// The payload of CHANNEL_CASE: the kind, then the bytes of the spec that are in use.
struct job_frame {
    char kind[KIND_NAME_MAX]; // zeros behind the name
    _Alignas(max_align_t) char spec[sizeof(struct cp_case) > JOB_SPEC_BYTES ? sizeof(struct cp_case)
                                                                            : JOB_SPEC_BYTES];
};

// Fills a frame and gives the bytes of it that are in use.
uint32_t job_frame_fill(struct job_frame *frame, const struct job_spec *spec);

// Makes a spec of the first `size` bytes of a frame, unchecked. DATA_LOSS: they are no such frame.
enum status job_frame_load(const void *frame, size_t size, struct job_spec *spec,
                           struct error *error) MUST_CHECK;

#endif
