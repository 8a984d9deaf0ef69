// SPDX-License-Identifier: Apache-2.0
#include "tests/cases.h"

#include <check.h>

struct cp_case cases_usual(void)
{
    struct cp_case c;
    case_init(&c);
    return c;
}

void cases_set(struct cp_case *c, const char *name, const char *value)
{
    struct error error = {.text = ""};
    ck_assert_msg(case_set(c, name, value, &error) == STATUS_OK, "%s", error.text);
}

struct cp_case cases_thd(const char *lengths_q, const char *lengths_kv, const char *padded_q,
                         const char *padded_kv)
{
    struct cp_case c = cases_usual();
    c.format = FORMAT_THD;
    cases_set(&c, "lengths_q", lengths_q);
    cases_set(&c, "lengths_kv", lengths_kv);
    cases_set(&c, "padded_q", padded_q);
    cases_set(&c, "padded_kv", padded_kv);
    return c;
}
