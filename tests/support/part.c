// SPDX-License-Identifier: Apache-2.0
#include "tests/support/part.h"

#include <stdio.h>
#include <stdlib.h>

#define PART_MAX 16

int test_part(void)
{
    const char *text = getenv("CPATTN_TEST_PART");
    if (!text)
        return 4;
    char *end;
    long part = strtol(text, &end, 10);
    if (end != text && !*end && part >= 1 && part <= PART_MAX)
        return (int)part;
    fprintf(stderr, "CPATTN_TEST_PART: \"%s\" is not a number from 1 to %d\n", text, PART_MAX);
    exit(EXIT_FAILURE);
}
