// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/matrix_dump.h"

#include "client/submit/commands/command.h"

void matrix_dump_fails(struct cpattn_client *client, const struct matrix_list *list,
                       const struct outcome *outcomes, const char *directory)
{
    int fails = 0;
    for (int i = 0; i < list->count && !command_interrupted(); i++) {
        struct job_spec spec;
        if (outcomes[i].kind != OUTCOME_FAIL || list->cases[i].kind_of_job != &job_kind_attention ||
            fails++ >= MATRIX_DUMPS_MAX)
            continue;
        matrix_case_load(&list->cases[i], &spec);
        (void)dump_fail(client, &spec.attention, 0, directory, list->cases[i].id);
    }
    if (fails > MATRIX_DUMPS_MAX)
        command_complain("%d cases have failed; the tensors of the first %d are written", fails,
                         MATRIX_DUMPS_MAX);
}
