// SPDX-License-Identifier: Apache-2.0
// Checks the names of options before argp reads them: reports unknown, ambiguous and incomplete
// options with better messages than getopt's.
#ifndef CPATTN_COMMON_OPTION_NAMES_H
#define CPATTN_COMMON_OPTION_NAMES_H

#include <argp.h>

#include "common/nearest.h"
#include "common/status.h"

struct option_names {
    const struct argp *argp; // borrowed; its children may have options, but no children
    const char *command;     // borrowed; "COMMAND --help" lists the options
    // Offers, for options that other programs call differently, these other names by
    // nearest_offer_other(). NULL: there are none.
    void (*offer_others)(struct nearest *nearest);
};

// Checks the options of `argv`, from argv[1] to the end or "--". Long names may be abbreviated.
// Replaces "-h", which argp does not know, by "--help". INVALID_ARGUMENT: an option is unknown,
// ambiguous, without its value or with a value that it does not take; the message names the nearest
// long option, if there is a near one.
enum status option_names_check(const struct option_names *names, int argc, char **argv,
                               struct error *error) MUST_CHECK;

#endif
