// SPDX-License-Identifier: Apache-2.0
// What a program outside this tree does with the installed library; built by `make installcheck`.
#include <cpattn.h>
#include <stdio.h>

int main(void)
{
    return printf("%s %s\n", cpattn_version(), cpattn_status_text((enum cpattn_status)0)) > 0 ? 0
                                                                                              : 1;
}
