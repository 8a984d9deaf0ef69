// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trouble.h"

#include <stdarg.h>
#include <stdio.h>

char trouble_text[1024];

void trouble(const char *format, ...)
{
    va_list arguments;
    if (trouble_text[0])
        return;
    va_start(arguments, format);
    vsnprintf(trouble_text, sizeof(trouble_text), format, arguments);
    va_end(arguments);
}

void trouble_forget(void)
{
    trouble_text[0] = '\0';
}
