// SPDX-License-Identifier: Apache-2.0
#include "check/job_judge.h"

const struct job_judge *job_judge_find(const struct job_kind *kind)
{
    static const struct job_judge *const judges[] = {&job_judge_collective, &job_judge_linear};
    for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]); i++)
        if (judges[i]->kind == kind)
            return judges[i];
    return NULL;
}
