// SPDX-License-Identifier: Apache-2.0
// Names of options: finds unknown, ambiguous and incomplete options before argp reads them, with
// better messages than getopt's.
#ifndef CPATTN_COMMON_OPTION_NAMES_H
#define CPATTN_COMMON_OPTION_NAMES_H

#include <argp.h>

#include "common/nearest.h"
#include "common/status.h"

struct option_names {
    const struct argp *argp; // borrowed; its children may have options, but no children
    const char *command;     // borrowed; "COMMAND --help" lists the options
    // Offers the names of options for which other programs have another name; NULL: there are none.
    void (*offer_others)(struct nearest *nearest);
};

// Checks the options of `argv`, from argv[1] to the end or "--". Long names may be abbreviated.
// Writes "--help" for
// "-h", which argp does not know. INVALID_ARGUMENT: an option is unknown, ambiguous or without its
// value; the message names the nearest option, if one is near.
enum status option_names_check(const struct option_names *names, int argc, char **argv,
                               struct error *error) MUST_CHECK;

#endif
