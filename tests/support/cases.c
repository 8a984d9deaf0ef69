// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cases.h"

#include <check.h>
#include <string.h>
#include <wordexp.h>

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

void cases_read_command(const char *command, struct cp_case *c)
{
    wordexp_t words;
    ck_assert_msg(wordexp(command, &words, WRDE_NOCMD) == 0, "no shell reads: %s", command);
    ck_assert_str_eq(words.we_wordv[0], "cpattn-submit");
    ck_assert_str_eq(words.we_wordv[1], "case");
    case_init(c);
    c->kv_heads = 0; // follow heads unless they are given
    for (size_t i = 2; i + 1 < words.we_wordc; i += 2) {
        struct error error = {.text = ""};
        ck_assert_int_eq(strncmp(words.we_wordv[i], "--", 2), 0);
        ck_assert_msg(case_set(c, words.we_wordv[i] + 2, words.we_wordv[i + 1], &error) ==
                          STATUS_OK,
                      "%s", error.text);
    }
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    ck_assert_int_eq(words.we_wordc % 2, 0);
    wordfree(&words);
}
