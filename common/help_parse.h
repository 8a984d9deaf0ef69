// SPDX-License-Identifier: Apache-2.0
// argp with an exit status for help that could not be written.
#ifndef CPATTN_COMMON_HELP_PARSE_H
#define CPATTN_COMMON_HELP_PARSE_H

#include <argp.h>

// Parses a command line like argp_parse(), which ends the process after --help, --usage and
// --version. If their output could not be written, the process ends with the status `lost` after
// "PROGRAM: the output could not be written: REASON" on stderr.
error_t help_parse(const char *program, int lost, const struct argp *argp, int argc, char **argv,
                   void *input);

#endif
