// SPDX-License-Identifier: Apache-2.0
// Any text as a matrix file: a consistent tree, matrix and list of cases, or a refusal with a
// reason.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/matrix_list.h"
#include "tests/fuzz/fuzz_target.h"

bool fuzz_accepted;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void require_refusal(enum status status, const struct error *error)
{
    require(status == STATUS_INVALID_ARGUMENT || status == STATUS_RESOURCE_EXHAUSTED);
    require(error->text[0] != '\0');
    // No control characters of terminals.
    for (const char *at = error->text; *at; at++) {
        require((unsigned char)*at >= ' ' && *at != 0x7f);
        require((unsigned char)*at != 0xc2 || (at[1] & 0xe0) != 0x80);
    }
}

static void require_list(const struct matrix_list *list)
{
    int sum = 0;
    for (int fate = 0; fate < MATRIX_FATES; fate++)
        sum += list->fate_count[fate];
    require(sum == list->count);
    for (int i = 0; i < list->count; i++) {
        const struct matrix_case *made = &list->cases[i];
        struct job_spec spec;
        struct error error;
        matrix_case_load(made, &spec);
        require(made->id[0] != '\0');
        require((made->fate == MATRIX_RUNS) == (made->reason == NULL));
        require(made->fate != MATRIX_RUNS || job_spec_finish(&spec, &error) == STATUS_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct matrix_choice choice = {.unskip = size % 2 == 1, .seqlen_scale = (int)(size % 5)};
    struct matrix_list *list = NULL;
    struct matrix *matrix = NULL;
    struct yaml *yaml = NULL;
    struct error error = {.text = ""};
    enum status status = yaml_load_text("f", (const char *)data, size, &yaml, &error);
    if (!status)
        status = matrix_create(yaml, &matrix, &error);
    if (!status)
        status = matrix_list_create(matrix, &choice, &list, &error);
    fuzz_accepted = status == STATUS_OK;
    if (status)
        require_refusal(status, &error);
    else
        require_list(list);
    matrix_list_destroy(list);
    matrix_destroy(matrix);
    return 0;
}
