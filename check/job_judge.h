// SPDX-License-Identifier: Apache-2.0
// The judge of a kind of job on tensors in host memory, by the kind's table of tensors.
#ifndef CPATTN_CHECK_JOB_JUDGE_H
#define CPATTN_CHECK_JOB_JUDGE_H

#include "common/report.h"
#include "plan/kind.h"

struct job_judge {
    const struct job_kind *kind;
    int untouched; // the byte that memory without results holds
    void (*fill)(const void *spec, int rank, int index, void *data); // an input
    // Judges what is not NULL: fills figures but for names, and the diagnosis of what is wrong.
    // RESOURCE_EXHAUSTED when memory is short.
    enum status (*judge)(const void *spec, int rank, const void *const tensors[JOB_TENSORS_MAX],
                         struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                         struct error *error);
    // Whether a result is the same on all ranks to the last bit; NULL: none has to be.
    bool (*same)(const void *spec, int index);
};

// NULL: the kind has no judge here.
const struct job_judge *job_judge_find(const struct job_kind *kind);

#endif
