// SPDX-License-Identifier: Apache-2.0
#include "plan/case.h"

const char *case_choice_name(const struct case_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value)
            return choices->name;
    return "?";
}
