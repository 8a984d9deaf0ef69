// SPDX-License-Identifier: Apache-2.0
// The judge of a kind of job on tensors in the memory of the host or of a device, by the kind's
// table of tensors.
#ifndef CPATTN_CHECK_JOB_JUDGE_H
#define CPATTN_CHECK_JOB_JUDGE_H

#include "check/device.h"
#include "plan/kind.h"

// Where the tensors are, and what is done there, during one call of the library.
struct job_place {
    struct job_work work;
    const struct check_device *device; // NULL: the host
    struct device_judge *device_judge;
    void *room; // of the host, owned
};

// Room for so many bytes where the tensors are, with undefined contents; it ends with the next one.
// RESOURCE_EXHAUSTED when memory is short.
enum status job_place_room(struct job_place *place, size_t bytes, void **room,
                           struct error *error) MUST_CHECK;

// The digest of a tensor; judge/digest.h.
enum status job_place_digest(struct job_place *place, const void *data, size_t bytes,
                             uint64_t *digest, struct error *error) MUST_CHECK;

// Begins a call, behind the work on the caller's stream. The end waits for the device, and returns
// `status` or, after STATUS_OK, what the device reports.
void job_place_begin(struct job_place *place, const struct check_device *device,
                     struct device_judge *device_judge);
enum status job_place_end(struct job_place *place, enum status status,
                          struct error *error) MUST_CHECK;

struct job_judge {
    const struct job_kind *kind;
    int untouched; // the byte that memory without results holds
    // Fills an input.
    enum status (*fill)(const struct job_place *place, const void *spec, int rank, int index,
                        void *data, struct error *error);
    // Judges what is not NULL: fills figures but for names, and the diagnosis of what is wrong.
    // RESOURCE_EXHAUSTED when memory is short, and errors of the device.
    enum status (*judge)(struct job_place *place, const void *spec, int rank,
                         const void *const tensors[JOB_TENSORS_MAX],
                         struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                         struct error *error);
    // Whether a result is the same on all ranks to the last bit; NULL: none has to be.
    bool (*same)(const void *spec, int index);
};

extern const struct job_judge job_judge_collective, job_judge_linear;

// NULL: the kind has no judge here.
const struct job_judge *job_judge_find(const struct job_kind *kind);

#endif
