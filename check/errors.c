// SPDX-License-Identifier: Apache-2.0
// Converts errors to those of the public interface.
#include <stdio.h>

#include "check/state.h"

enum cpattn_status status_public(enum status status, const struct error *from,
                                 struct cpattn_error *error)
{
    if (error) {
        error->status = (enum cpattn_status)status;
        snprintf(error->text, sizeof(error->text), "%s", status == STATUS_OK ? "" : from->text);
    }
    return (enum cpattn_status)status;
}
