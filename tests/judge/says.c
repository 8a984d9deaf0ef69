// SPDX-License-Identifier: Apache-2.0
#include "tests/judge/says.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

void assert_says(const struct finding *found, const char *part)
{
    const char *text = found->diagnosis.text;
    printf("# %s: %s\n", diagnosis_kind_name(found->kind), text);
    if (part)
        ck_assert_msg(strstr(text, part), "\"%s\" instead of \"%s\"", text, part);
    else
        ck_assert_msg(found->kind == DIAGNOSIS_NONE, "\"%s\" instead of no sentence", text);
}
