// SPDX-License-Identifier: Apache-2.0
// The judges of the kinds of jobs other than attention, for tensors in host or device memory.
// Indices of tensors are those of the kind's table (plan/kind.h).
#ifndef CPATTN_CHECK_JOB_JUDGE_H
#define CPATTN_CHECK_JOB_JUDGE_H

#include "check/device.h"
#include "plan/kind.h"

// Where the tensors are, and the functions for this memory, during one call of the library.
struct job_place {
    struct job_work work;
    const struct check_device *device; // NULL: the host
    struct device_judge *device_judge;
    void *room; // owned host memory of job_place_room(); unused on a device
};

// Returns host or device memory, as for the tensors, with undefined contents. Valid until the next
// call or job_place_end(). RESOURCE_EXHAUSTED: memory is short.
enum status job_place_room(struct job_place *place, size_t bytes, void **room,
                           struct error *error) MUST_CHECK;

// Computes the digest of a tensor (judge/digest.h). May call job_place_room().
enum status job_place_digest(struct job_place *place, const void *data, size_t bytes,
                             uint64_t *digest, struct error *error) MUST_CHECK;

// job_place_begin() begins a call; work on the device waits for the caller's stream.
// job_place_end() waits for the device. It returns `status` unless that is STATUS_OK, else the
// status of the device.
void job_place_begin(struct job_place *place, const struct check_device *device,
                     struct device_judge *device_judge);
enum status job_place_end(struct job_place *place, enum status status,
                          struct error *error) MUST_CHECK;

// The judge of one kind of job.
struct job_judge {
    const struct job_kind *kind;
    int untouched; // the byte with which results are filled before a run
    // Fills an input.
    enum status (*fill)(const struct job_place *place, const void *spec, int rank, int index,
                        void *data, struct error *error);
    // Judges the tensors that are not NULL. Fills their figures except names, and after a fail the
    // diagnosis. Errors: RESOURCE_EXHAUSTED if memory is short, and those of the device.
    enum status (*judge)(struct job_place *place, const void *spec, int rank,
                         const void *const tensors[JOB_TENSORS_MAX],
                         struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                         struct error *error);
    // True if this result must have the same bits on all ranks. NULL: no result must.
    bool (*same)(const void *spec, int index);
};

extern const struct job_judge job_judge_collective, job_judge_linear;

// The judge of a kind; NULL: the library has none.
const struct job_judge *job_judge_find(const struct job_kind *kind);

#endif
