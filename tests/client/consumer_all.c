// SPDX-License-Identifier: Apache-2.0
// A user's program with all libraries, linked statically. It has functions with the names of their
// own functions. `make installcheck` builds it.
#include <cpattn_check.h>
#include <cpattn_guest.h>
#include <stdlib.h>

void error_set(void);
void rows_alloc(void);

void error_set(void)
{
    abort();
}

void rows_alloc(void)
{
    abort();
}

int main(void)
{
    struct cpattn_error error;
    struct cpattn_check *check;
    struct cpattn_case *c = cpattn_case_create();

    if (!c || cpattn_case_set(c, "heads", "0", &error) != CPATTN_INVALID_ARGUMENT ||
        cpattn_check_create(c, 0, &check, &error) != CPATTN_OK)
        return 1;
    int64_t rows = cpattn_check_shape(check, CPATTN_TENSOR_Q).rows;
    cpattn_check_destroy(check);
    cpattn_case_destroy(c);
    bool named = cpattn_guest_field_name(0) && !cpattn_guest_field_name(-1);
    return rows == 512 && named && cpattn_guest_main(NULL) == 64 ? 0 : 1;
}
