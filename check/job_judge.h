// SPDX-License-Identifier: Apache-2.0
// The judge of a kind of job on tensors in host or device memory, by the kind's table of tensors.
#ifndef CPATTN_CHECK_JOB_JUDGE_H
#define CPATTN_CHECK_JOB_JUDGE_H

#include "check/device.h"
#include "plan/kind.h"

// The memory of the tensors and its functions, during one call of the library.
struct job_place {
    struct job_work work;
    const struct check_device *device; // NULL: the host
    struct device_judge *device_judge;
    void *room; // host memory, owned
};

// Returns memory where the tensors are, with undefined contents, valid until the next call.
// RESOURCE_EXHAUSTED: memory is short.
enum status job_place_room(struct job_place *place, size_t bytes, void **room,
                           struct error *error) MUST_CHECK;

// The digest of a tensor; judge/digest.h.
enum status job_place_digest(struct job_place *place, const void *data, size_t bytes,
                             uint64_t *digest, struct error *error) MUST_CHECK;

// Begins a call, ordered after the work on the caller's stream. The end waits for the device, and
// returns `status` or, after STATUS_OK, the status of the device.
void job_place_begin(struct job_place *place, const struct check_device *device,
                     struct device_judge *device_judge);
enum status job_place_end(struct job_place *place, enum status status,
                          struct error *error) MUST_CHECK;

struct job_judge {
    const struct job_kind *kind;
    int untouched; // the byte with which results are filled before a run
    // Fills an input.
    enum status (*fill)(const struct job_place *place, const void *spec, int rank, int index,
                        void *data, struct error *error);
    // Judges the tensors that are not NULL: fills figures except names, and the diagnosis of a
    // fail. RESOURCE_EXHAUSTED: memory is short; errors of the device.
    enum status (*judge)(struct job_place *place, const void *spec, int rank,
                         const void *const tensors[JOB_TENSORS_MAX],
                         struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                         struct error *error);
    // True if a result must have the same bits on all ranks; NULL: no result.
    bool (*same)(const void *spec, int index);
};

extern const struct job_judge job_judge_collective, job_judge_linear;

// NULL: the library has no judge for the kind.
const struct job_judge *job_judge_find(const struct job_kind *kind);

#endif
