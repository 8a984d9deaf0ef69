// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/filter.h"

#include <errno.h>

bool filter_is_there(void)
{
    return false;
}

enum status filter_create(bool sockets, struct filter *filter, struct error *error)
{
    (void)sockets;
    (void)filter;
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "this cpattnd was built without libseccomp (Debian: libseccomp-dev), so "
                     "--rank-filter on is not available");
}

bool filter_load(const struct filter *filter)
{
    (void)filter;
    errno = ENOSYS;
    return false;
}
