// SPDX-License-Identifier: Apache-2.0
// The list of refused cases: its own rule is the first that refuses each example, the manual has
// the same words, and no other case is refused.
#include "plan/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

static int rules_count(void)
{
    int count = 0;
    while (support_rules()[count].what)
        count++;
    return count;
}

// The number of the rule that refuses the case, or -1.
static int refused_by(const struct cp_case *c)
{
    for (int i = 0; i < rules_count(); i++)
        if (support_rules()[i].check(c, NULL) != STATUS_OK)
            return i;
    return -1;
}

// ---- examples ----

START_TEST(each_rule_refuses_its_example)
{
    for (int i = 1; i < rules_count(); i++) {
        const struct support_rule *rule = &support_rules()[i];
        struct cp_case c;
        char command[256];
        snprintf(command, sizeof command, "cpattn-submit case %s", rule->example);
        cases_read_command(command, &c);
        ck_assert_msg(refused_by(&c) == i, "%s: rule %d", command, refused_by(&c));
        ck_assert_int_eq(case_check(&c, NULL), rule->check(&c, NULL));
    }
}
END_TEST

// A value outside its range cannot be set.
START_TEST(the_first_rule_is_that_of_the_fields)
{
    struct cp_case c = cases_usual();
    ck_assert_str_eq(support_rules()[0].example, "--head-dim-qk 257");
    ck_assert_int_eq(case_set(&c, "head-dim-qk", "257", NULL), STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(refused_by(&c), -1);
    c.head_dim_qk = 257;
    ck_assert_int_eq(refused_by(&c), 0);
}
END_TEST

// Replaces a field of a random case by that of another random case: every refusal comes from a
// rule.
START_TEST(nothing_else_is_refused)
{
    int refused = 0;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct cp_case c, other;
        generate_case(2 * seed, 64, 100, &c);
        generate_case(2 * seed + 1, 64, 100, &other);
        for (const struct case_field *field = case_fields(); field->name; field++) {
            struct cp_case mixed = c;
            static char value[CASE_VALUE_MAX];
            case_get(&other, field, value, sizeof value);
            cases_set(&mixed, field->name, value);
            bool is_refused = case_check(&mixed, NULL) != STATUS_OK;
            ck_assert_int_eq(is_refused, refused_by(&mixed) >= 0);
            refused += is_refused;
        }
    }
    ck_assert_int_gt(refused, 1000);
}
END_TEST

// ---- the manual ----

#define MANUAL_MAX (1 << 17)

static char *manual_read(void)
{
    char path[4096], *text = calloc(1, MANUAL_MAX);
    FILE *file = fopen(runner_source(path, sizeof path, "doc/cpattn-submit.1"), "re");
    ck_assert_msg(file, "%s: %s", path, strerror(errno));
    ck_assert_uint_lt(fread(text, 1, MANUAL_MAX, file), MANUAL_MAX - 1);
    fclose(file);
    return text;
}

// The next item of a list from *at on: its heading and text, with lines joined. Advances *at. False
// at the end of the list.
static bool item_next(char **at, char *heading, char *text)
{
    char *line = strtok_r(NULL, "\n", at);
    text[0] = '\0';
    if (!line || strncmp(line, ".It ", 4) != 0)
        return false;
    strcpy(heading, line + 4);
    while (**at && **at != '.') {
        strcat(text, text[0] ? " " : "");
        strcat(text, strtok_r(NULL, "\n", at));
    }
    return true;
}

START_TEST(the_manual_has_every_word)
{
    static char heading[MANUAL_MAX], text[MANUAL_MAX];
    char *manual = manual_read();
    char *at = strstr(manual, "\n.Sh REFUSED CASES\n");
    ck_assert_ptr_nonnull(at);
    at = strstr(at, "\n.Bl ");
    strtok_r(NULL, "\n", &at); // the line that begins the list
    for (int i = 0; i < rules_count(); i++) {
        const struct support_rule *rule = &support_rules()[i];
        ck_assert_msg(item_next(&at, heading, text), "'%s' is missing", rule->what);
        ck_assert_str_eq(heading, rule->what);
        ck_assert_str_eq(text, rule->why);
    }
    ck_assert_msg(!item_next(&at, heading, text), "'%s' is no rule", heading);
    free(manual);
}
END_TEST

// The manual has every field as an option, with all its choices.
START_TEST(the_manual_has_every_field)
{
    char *manual = manual_read(), *end = strstr(manual, "\n.Ss matrix\n");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char option[64];
        snprintf(option, sizeof option, "Fl Fl %s ", field->name);
        for (char *c = option; *c; c++)
            *c = *c == '_' ? '-' : *c;
        ck_assert_msg(strstr(manual, option) != NULL, "%s is missing", field->name);
        for (const struct case_choice *choice = field->choices; choice && choice->name; choice++)
            ck_assert_msg(strstr(strstr(manual, option), choice->name) != NULL, "%s %s is missing",
                          field->name, choice->name);
    }
    free(manual);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("support");
    TCase *t = tcase_create("refusals");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_rule_refuses_its_example);
    tcase_add_test(t, the_first_rule_is_that_of_the_fields);
    tcase_add_test(t, nothing_else_is_refused);
    suite_add_tcase(s, t);
    TCase *manual = tcase_create("manual");
    tcase_add_test(manual, the_manual_has_every_word);
    tcase_add_test(manual, the_manual_has_every_field);
    suite_add_tcase(s, manual);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
