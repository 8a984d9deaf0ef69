// SPDX-License-Identifier: Apache-2.0
// A user's program: it uses only the installed header and library. `make installcheck` builds it.
#include <cpattn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_client *client = NULL;
    struct cpattn_error error;
    struct cpattn_case *c = cpattn_case_create();
    char text[64];

    if (!c || cpattn_case_set(c, "world_size", "4", &error) != CPATTN_OK ||
        cpattn_case_check(c, &error) != CPATTN_OK ||
        cpattn_case_get(c, "world_size", text, sizeof text) != 1 || strcmp(text, "4") != 0)
        return 1;
    cpattn_case_destroy(c);

    options.socket = "/nonexistent/cpattnd.sock";
    if (cpattn_client_create(&options, &client, &error) != CPATTN_UNAVAILABLE || client)
        return 1;
    printf("%s: %s: %s\n", cpattn_version(), cpattn_status_name(error.status), error.text);
    return 0;
}
