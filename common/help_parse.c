// SPDX-License-Identifier: Apache-2.0
#include "common/help_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Of the call of help_parse() that runs; NULL: none does.
static const char *parsing;
static int lost_status;

static void check_output(void)
{
    if (!parsing || (fflush(stdout) == 0 && !ferror(stdout)))
        return;
    fprintf(stderr, "%s: the output could not be written: %s\n", parsing, strerror(errno));
    _exit(lost_status);
}

error_t help_parse(const char *program, int lost, const struct argp *argp, int argc, char **argv,
                   void *input)
{
    parsing = program;
    lost_status = lost;
    atexit(check_output);
    error_t failed = argp_parse(argp, argc, argv, 0, NULL, input);
    parsing = NULL;
    return failed;
}
