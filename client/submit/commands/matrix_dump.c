// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/matrix_dump.h"

#include "client/submit/commands/command.h"

#define DESCRIBE_NS (UINT64_C(5) * 1000000000)

// A daemon refuses a case with a longer limit than it grants.
static uint64_t granted_ns(struct cpattn_client *client, uint64_t timeout_ns)
{
    struct cpattn_description *daemon;
    if (timeout_ns == 0 || cpattn_describe(client, DESCRIBE_NS, &daemon, NULL) != CPATTN_OK)
        return timeout_ns;
    uint64_t most_ns = daemon->timeout_max_ns;
    cpattn_description_destroy(daemon);
    return timeout_ns < most_ns ? timeout_ns : most_ns;
}

void matrix_dump_fails(struct cpattn_client *client, const struct matrix_list *list,
                       const struct outcome *outcomes, uint64_t timeout_ns, const char *directory)
{
    int fails = 0;
    for (int i = 0; i < list->count && !command_interrupted(); i++) {
        struct job_spec spec;
        if (outcomes[i].kind != OUTCOME_FAIL || list->cases[i].kind_of_job != &job_kind_attention ||
            fails++ >= MATRIX_DUMPS_MAX)
            continue;
        if (fails == 1)
            timeout_ns = granted_ns(client, timeout_ns);
        matrix_case_load(&list->cases[i], &spec);
        (void)dump_fail(client, &spec.attention, timeout_ns, directory, list->cases[i].id);
    }
    if (fails > MATRIX_DUMPS_MAX)
        command_complain("%d cases have failed; the tensors of the first %d are written", fails,
                         MATRIX_DUMPS_MAX);
}
