// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "client/client.h"
#include "config.h"

#define SAME_NUMBER(name, number, text)                                                            \
    _Static_assert((int)CPATTN_##name == (int)STATUS_##name, "CPATTN_" #name);
STATUS_LIST(SAME_NUMBER)
_Static_assert(CPATTN_ERROR_TEXT_MAX == ERROR_TEXT_MAX, "a sentence fits");

const char *cpattn_status_name(enum cpattn_status status)
{
    return status_name((enum status)status);
}

const char *cpattn_status_text(enum cpattn_status status)
{
    return status_text((enum status)status);
}

const char *cpattn_version(void)
{
    return PACKAGE_VERSION;
}

enum cpattn_status client_status(enum status status, const struct error *error,
                                 struct cpattn_error *out)
{
    if (!out)
        return (enum cpattn_status)status;
    out->status = (enum cpattn_status)status;
    if (status == STATUS_OK)
        out->text[0] = '\0';
    else
        memcpy(out->text, error->text, sizeof out->text);
    return out->status;
}
